# Everything a newcomer needs: `make demo` and `make test` do all the set-up themselves.
# The same lines run in .ci/run. VENV, PYTHON and PIP_ARGS choose another environment.

VENV ?= .venv
# The first Python that pullback supports and that can make a virtual environment.
# A version manager may have a command for a Python that it then refuses to run: ask Python itself.
USABLE := import sys, ensurepip, venv; sys.exit(not (3, 11) <= sys.version_info < (3, 15))
first_usable = $(shell for p in $(foreach minor,$(1),python3.$(minor) \
	~/.pyenv/versions/3.$(minor).*/bin/python) python3; do \
	$$p -c '$(USABLE)' 2>/dev/null && command -v $$p && break; done)
# The newest first: it has the newest JAX.
PYTHON ?= $(call first_usable,14 13 12 11)
# An environment with the oldest JAX that pullback supports, as the arguments of a make.
OLDEST ?= .venv-oldest
OLDEST_JAX := $(shell sed -n 's/^dependencies = \["jax>=\([0-9.]*\).*/\1/p' pyproject.toml)
OLDEST_PYTHON ?= $(call first_usable,11 12 13 14)
with_jax = PIP_ARGS="$(PIP_ARGS) jax==$(1) jaxlib==$(1)"
WITH_OLDEST = VENV=$(OLDEST) PYTHON=$(OLDEST_PYTHON) $(call with_jax,$(OLDEST_JAX))
JOBS ?= $(shell getconf _NPROCESSORS_ONLN)
# Of the cases of a test that says nothing about JAX, one in so many runs; of lit's files, one too.
THIN ?= 8
PIP_ARGS ?=
DEMO := examples/norm.py:energy
EXAMPLE := examples/rules.py:train_step

BIN := $(VENV)/$(if $(filter Windows_NT,$(OS)),Scripts,bin)
STAMP := $(VENV)/.installed
# The console scripts of the environment come first for lit and for the tests that start them.
RUN := PATH="$(abspath $(BIN)):$$PATH" JAX_PLATFORMS=$${JAX_PLATFORMS:-cpu}

.PHONY: help setup demo demo-all test test-all pytest lit quick rule layers test-oldest matrix
.PHONY: lint types
.PHONY: bench bench-quick bench-compare bench-peers bench-gpu bench-taylor bench-sparse docs docs-serve docs-publish notebooks portability engines pjrt distributed forces control runtime-alone fuzz conformance mutants jax-tests
.PHONY: libraries next-jax tpu gpu clean
.PHONY: gallery reactant as-jax interpreters browser release-check gradbench torch onnx

help:
	@echo "make demo   a rule in its module, the derivative by it, the result beside plain JAX's"
	@echo "make demo-all   the IR of examples/rules.py at every stage, in out/demo"
	@echo "make test   all tests about JAX, a part of the others, and lit; make test-all all of them"
	@echo "make quick  one test or more of each area; make rule OP=stablehlo.sine those of one op"
	@echo "make layers what the first gradient runs through, in functions and files"
	@echo "make docs   the documentation as a site, in out/site; make docs-serve shows it, make notebooks runs it"
	@echo "make bench | bench-quick | bench-compare BASE=COMMIT   beside JAX, and beside a commit"
	@echo "make bench-peers | bench-gpu   beside Enzyme-JAX, and on an NVIDIA GPU that is here"
	@echo "make bench-taylor   Taylor mode, beside jet, nested jvp and folx"
	@echo "make bench-sparse   sparse derivatives, beside dense ones and asdex"
	@echo "make portability | engines | pjrt | distributed | fuzz   saved files; see CONTRIBUTING.md"
	@echo "make forces | control   a file's derivatives in ASE, and in SciPy and IPOPT, without JAX"
	@echo "make runtime-alone   the runtime in an environment without JAX; see docs/without_jax.md"
	@echo "make conformance | mutants   JAX's own corpus of primitives; wrong rules, which tests notice"
	@echo "make as-jax   that corpus as functions of JAX, and asdex, folx, Quax, jet on a saved file"
	@echo "make sparse   sparse derivatives beside asdex's, on its problems and those of CUTEst"
	@echo "make jax-tests JAX_TESTS=jax/tests   JAX's own tests with our derivatives"
	@echo "make reactant REACTANT=Enzyme-JAX   modules that Reactant wrote, with our derivatives"
	@echo "make browser   the page of pullback view, and the site, in Chromium"
	@echo "make next-jax [JAX=VERSION]   what decides with a JAX that nobody has tried; see docs/next_jax.md"
	@echo "make torch  derivatives of modules of PyTorch, from files, next to its autograd"
	@echo "make onnx   models of ONNX in, and their derivatives out to ONNX Runtime"
	@echo "make libraries   programs of other libraries, in memory and as files"
	@echo "make tpu    compile for a TPU that is not here"
	@echo "make gpu    on an NVIDIA GPU that is here: derivatives next to JAX's"
	@echo "make matrix all that JAX differentiates, with each JAX that pullback supports"
	@echo "make release-check   build both distributions and try them in fresh environments"
	@echo "make gradbench   the tool for GradBench, checked and timed"
	@echo "make test-oldest   what can depend on JAX, with the oldest of these"
	@echo "make lint | types | setup | clean"

# With these extras. The first line installs a copy of the runtime, whose place the second one takes.
comma := ,
define install
$(BIN)/python -m pip install --quiet $(PIP_ARGS) --editable ".[$(1)]"
$(BIN)/python -m pip install --quiet --no-deps --editable ./runtime
endef

setup: $(STAMP)
	@$(BIN)/python -c 'import sys, importlib.metadata as m; \
	  print("Python %d.%d.%d," % sys.version_info[:3], "jax", m.version("jax"), "in $(VENV)")'

$(STAMP): pyproject.toml setup.py runtime/pyproject.toml
	@test -n "$(PYTHON)" || { echo "no Python 3.11 to 3.14 found: set PYTHON=" >&2; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(call install,test$(comma)dev)
	@touch $@

demo: setup
	$(RUN) pullback dump $(DEMO) --rules
	$(RUN) pullback derive $(DEMO) --grad
	$(RUN) pullback run $(DEMO) --jax --tolerance 1e-5 --random 0

demo-all: setup
	$(RUN) pullback dump $(EXAMPLE) --stage all --rules -o out/demo
	$(RUN) pullback run $(EXAMPLE) --jax --tolerance 1e-5

test: pytest lit

test-all:
	$(MAKE) test THIN=1

pytest: setup
	$(RUN) $(BIN)/python -m pytest -n $(JOBS) --thin=$(THIN) $(PYTEST_ARGS)

lit: setup
	$(RUN) lit --verbose -j $(JOBS) --num-shards=$(THIN) --run-shard=1 lit_tests

# One or more of each area, where these take no time: a minute. That is no reason to skip the rest.
QUICK := $(addprefix tests/,project/test_layering.py project/test_public_api.py ir frontend/test_link.py \
	frontend/test_trace.py passes/test_pipelines.py passes/test_captured.py rules/test_rules.py \
	files/test_golden.py files/test_bytecode_constants.py runtime/test_callable.py tools/test_opt.py \
	api/test_transforms.py api/test_maps.py)
quick: setup
	$(RUN) $(BIN)/python -m pytest -n $(JOBS) --thin=1000 $(QUICK)

# One op: both modes, of second order too, in a batch, and in narrower types.
OP ?=
rule: setup
	@test -n "$(OP)" || { echo "set OP to an op, such as stablehlo.sine" >&2; exit 1; }
	$(RUN) $(BIN)/python -m pytest --op=$(OP) tests/rules tests/passes/test_vmap.py

layers: setup
	$(RUN) $(BIN)/python -m tests.layers

# What can depend on JAX; TESTS chooses folders of it.
TESTS ?= tests
NOT_OF_JAX := project tools files/test_hostile.py files/test_damage.py
test-oldest:
	$(MAKE) test $(WITH_OLDEST) PYTEST_ARGS="$(TESTS) $(NOT_OF_JAX:%=--ignore=tests/%) $(PYTEST_ARGS)"

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: setup
	$(BIN)/mypy

BASE ?=
bench: setup
	$(call install,bench)
	$(RUN) $(BIN)/python benchmarks/report.py run
	$(RUN) $(BIN)/python benchmarks/report.py page

bench-quick: setup
	$(RUN) $(BIN)/python benchmarks/report.py run --quick

bench-compare: setup
	@test -n "$(BASE)" || { echo "set BASE to a commit" >&2; exit 1; }
	$(RUN) $(BIN)/python benchmarks/report.py compare $(BASE)

# Beside Enzyme-JAX, which is for Python 3.11 alone, in an environment of its own.
PEERS ?= .venv-peers
bench-peers: setup
	$(MAKE) setup VENV=$(PEERS) PYTHON=$(OLDEST_PYTHON)
	$(PEERS)/bin/python -m pip install --quiet $(PIP_ARGS) enzyme-ad
	$(RUN) $(PEERS)/bin/python benchmarks/report.py run --only peers
	$(call install,bench)
	$(RUN) $(BIN)/python benchmarks/report.py page

# Beside jet, nested forward mode, and folx, which is in the environment of `make as-jax`.
bench-taylor: setup
	$(MAKE) setup VENV=$(AS_JAX)
	$(AS_JAX)/bin/python -m pip install --quiet $(PIP_ARGS) folx
	$(RUN) $(AS_JAX)/bin/python benchmarks/report.py run --only taylor
	$(call install,bench)
	$(RUN) $(BIN)/python benchmarks/report.py page

# Beside dense derivatives, and asdex, which is in the environment of `make sparse`.
bench-sparse: setup
	$(MAKE) setup VENV=$(SPARSE_VENV) $(call with_jax,0.11.2)
	$(SPARSE_VENV)/bin/python -m pip install --quiet $(PIP_ARGS) asdex jax==0.11.2 jaxlib==0.11.2
	$(RUN) $(SPARSE_VENV)/bin/python benchmarks/report.py run --only sparse
	$(call install,bench)
	$(RUN) $(BIN)/python benchmarks/report.py page

# On an NVIDIA GPU, for which this environment has JAX's plug-in: jax[cuda13].
bench-gpu: setup
	$(call install,bench)
	JAX_PLATFORMS=cuda,cpu $(RUN) $(BIN)/python benchmarks/report.py run --only gpu
	$(RUN) $(BIN)/python benchmarks/report.py page

# The documentation as a site, in out/site: links are checked, and a warning is an error.
DOCS := $(VENV)/.docs
MKDOCS := NO_MKDOCS_2_WARNING=1 $(RUN) $(BIN)/mkdocs
$(DOCS): $(STAMP)
	$(call install,docs)
	@touch $@

docs: $(DOCS)
	$(MKDOCS) build --strict

# Some pages as notebooks, run.
notebooks: docs
	$(RUN) $(BIN)/python docs/site/notebooks.py out/site/notebooks

# The pictures of docs/gallery.md, from runs of the examples.
gallery: setup
	$(call install,bench)
	$(RUN) $(BIN)/python docs/site/gallery.py

docs-serve: $(DOCS)
	$(MKDOCS) serve --strict

# The site of one version beside the others, on the branch gh-pages; that of a tag is the latest.
docs-publish: $(DOCS)
	$(RUN) $(BIN)/mike deploy $(MIKE_ARGS) --update-aliases $(VERSION) $(if $(filter v%,$(VERSION)),latest)

# Saved files: across Pythons and JAX versions, across engines, and damaged in many ways.
# CONTRIBUTING.md says what each shows. OLDEST, IREE and TPU are environments, made when missing.
IREE ?= .venv-iree
FUZZ_CASES ?= 5000

portability: setup
	$(MAKE) setup $(WITH_OLDEST)
	$(RUN) $(BIN)/python -m tests.files.portability $(OLDEST)/bin/python $(BIN)/python

engines: setup
	test -x $(IREE)/bin/python || $(BIN)/python -m venv $(IREE)
	$(IREE)/bin/python -m pip install --quiet $(PIP_ARGS) iree-base-compiler iree-base-runtime
	$(RUN) $(BIN)/python -m tests.files.engines $(IREE)/bin/python
	$(RUN) $(BIN)/python -m tests.files.other_languages iree $(abspath $(IREE))/bin

# Derivatives from C++, through PJRT's C API. Its header comes out of TensorFlow's wheel.
PJRT ?= .venv-pjrt
PJRT_INCLUDE ?= $(PJRT)/tensorflow/include
PJRT_PLUGIN ?= $(PJRT)/lib/python3*/site-packages/fastatomstruct_xla_cpu/libpjrt_cpu.so
PJRT_HEADER = xla/pjrt/c/pjrt_c_api.h
pjrt: setup $(PJRT_INCLUDE)/$(PJRT_HEADER)
	test -x $(PJRT)/bin/python || $(BIN)/python -m venv $(PJRT)
	$(PJRT)/bin/python -m pip install --quiet $(PIP_ARGS) --no-deps fastatomstruct-xla-cpu
	$(RUN) $(BIN)/python -m tests.files.other_languages pjrt $(PJRT_PLUGIN) $(PJRT_INCLUDE)

$(PJRT)/tensorflow/include/$(PJRT_HEADER): | $(STAMP)
	$(BIN)/python -m pip download --quiet --no-deps --dest $(PJRT)/wheel tensorflow-cpu
	$(BIN)/python -m zipfile --extract $(PJRT)/wheel/tensorflow_cpu-*.whl $(PJRT)/wheel
	mkdir -p $(dir $@) && cp $(PJRT)/wheel/tensorflow/include/$(PJRT_HEADER) $@
	rm -r $(PJRT)/wheel

# One program and its file on two processes of four virtual devices each.
distributed: setup
	$(RUN) $(BIN)/python -m tests.files.distributed

# A saved potential in ASE: relaxed and analysed without JAX, compared with JAX.
FORCES ?= .venv-forces
forces: export JAX_ENABLE_X64 = 1
forces: setup
	test -x $(FORCES)/bin/python || $(BIN)/python -m venv $(FORCES)
	$(FORCES)/bin/python -m pip install --quiet $(PIP_ARGS) "./runtime[pjrt]" ase
	$(FORCES)/bin/python -m pip install --quiet $(PIP_ARGS) --no-deps lammps-jax-pjrt-cpu
	mkdir -p out
	$(RUN) $(BIN)/python examples/forces/potential.py save out/potential.mlirbc
	$(FORCES)/bin/python examples/forces/relax.py out/potential.mlirbc out/atoms.npz \
	  $(FORCES)/lib/python3*/site-packages/*/*pjrt*.so
	$(RUN) $(BIN)/python examples/forces/potential.py check out/atoms.npz

# A saved optimal control problem with sparse derivatives, solved by SciPy and IPOPT without JAX.
CONTROL ?= .venv-control
control: export JAX_ENABLE_X64 = 1
control: setup
	test -x $(CONTROL)/bin/python || $(BIN)/python -m venv $(CONTROL)
	$(CONTROL)/bin/python -m pip install --quiet $(PIP_ARGS) "./runtime[pjrt]" scipy
	$(CONTROL)/bin/python -m pip install --quiet $(PIP_ARGS) --no-deps lammps-jax-pjrt-cpu
	$(CONTROL)/bin/python -m pip install --quiet $(PIP_ARGS) cyipopt-wheels || echo "without IPOPT"
	mkdir -p out
	$(RUN) $(BIN)/python examples/optimal_control/problem.py save out/problem.mlirbc
	$(CONTROL)/bin/python examples/optimal_control/solve.py out/problem.mlirbc out/solution.npz \
	  $(CONTROL)/lib/python3*/site-packages/*/*pjrt*.so
	$(RUN) $(BIN)/python examples/optimal_control/problem.py check out/solution.npz

# The runtime without JAX: alone, then with a plug-in of PJRT and with IREE.
ALONE ?= .venv-alone
runtime-alone: setup
	$(BIN)/python -m venv --clear $(ALONE)
	$(ALONE)/bin/python -m pip install --quiet $(PIP_ARGS) ./runtime
	$(RUN) $(BIN)/python -m tests.files.runtime_alone $(abspath $(ALONE))/bin/python
	$(ALONE)/bin/python -m pip install --quiet $(PIP_ARGS) "./runtime[pjrt,iree]" ml_dtypes
	$(ALONE)/bin/python -m pip install --quiet $(PIP_ARGS) --no-deps \
	  lammps-jax-pjrt-cpu fastatomstruct-xla-cpu
	$(RUN) $(BIN)/python -m tests.files.runtime_alone $(abspath $(ALONE))/bin/python \
	  $(abspath $(ALONE))/lib/python3*/site-packages/*/*pjrt*.so

# Both distributions, built and tried away from the checkout, with each Python that is here.
RELEASE := $(VENV)/.release
$(RELEASE): $(STAMP)
	$(call install,release)
	@touch $@

AUTOMATION := $(BIN)/check-jsonschema --builtin-schema
release-check: $(RELEASE)
	$(AUTOMATION) vendor.github-workflows .github/workflows/*.yml
	$(AUTOMATION) custom.github-workflows-require-timeout .github/workflows/*.yml
	$(AUTOMATION) vendor.github-issue-forms .github/ISSUE_TEMPLATE/[!c]*.yml
	$(AUTOMATION) vendor.github-issue-config .github/ISSUE_TEMPLATE/config.yml
	$(AUTOMATION) vendor.dependabot .github/dependabot.yml
	$(AUTOMATION) vendor.citation-file-format CITATION.cff
	$(RUN) $(BIN)/python -m pytest -q tests/project/test_submissions.py
	$(RUN) $(BIN)/python -m tests.release dist \
	  $(foreach minor,11 12 13 14,$(call first_usable,$(minor)))

# What would be sent to GradBench: all evals, their outputs checked, times beside JAX's.
gradbench: setup
	$(RUN) $(BIN)/python packaging/gradbench/drive.py

fuzz: setup
	PULLBACK_FUZZ_CASES=$(FUZZ_CASES) $(RUN) $(BIN)/python -m pytest tests/files/test_damage.py \
	  -o faulthandler_timeout=0

# JAX's own corpus of primitives, all of it, and Taylor mode of order 3 of it: ten minutes each.
# Stopped runs go on where they stopped.
# SWEEP takes options: --again for what was unexplained, --fresh, --only TEXT.
conformance: setup
	$(RUN) $(BIN)/python -m tests.conformance.sweep --processes $(JOBS) \
	  --report docs/conformance.md $(SWEEP)
	$(RUN) $(BIN)/python -m tests.conformance.sweep --processes $(JOBS) --through jet $(SWEEP)

# Ops, native primitives, special functions and the corpus with each JAX of VERSIONS, in an
# environment of its own; `newest` is the newest that there is. ONLY is a part of a suite's name.
# What was stopped goes on where it stopped. The table is in docs/conformance.md.
VERSIONS ?= $(OLDEST_JAX) 0.11.0 0.11.2 0.12.0 newest
matrix: setup
	status=0; $(MAKE) --keep-going $(addprefix matrix-,$(VERSIONS)) || status=$$?; \
	  $(BIN)/python -m tests.conformance.matrix table && exit $$status

matrix-%:
	$(if $(filter newest,$*),rm -f .venv-matrix-newest/.installed)
	$(MAKE) setup VENV=.venv-matrix-$* $(if $(filter newest,$*),PIP_ARGS="$(PIP_ARGS) --upgrade \
	  jax jaxlib",$(call with_jax,$*))
	$(RUN) .venv-matrix-$*/bin/python -m tests.conformance.matrix run --only "$(ONLY)" --processes $(JOBS)

# The corpus through `program.as_jax()`: module → JAX, and module → JAX → module. An hour in all.
# Then asdex, folx, jet and checkify on a saved file, in an environment of their own.
AS_JAX ?= .venv-as-jax
as-jax: setup
	$(RUN) $(BIN)/python -m tests.conformance.sweep --processes $(JOBS) --through jax $(SWEEP)
	$(RUN) $(BIN)/python -m tests.conformance.sweep --processes $(JOBS) --through module $(SWEEP)
	$(MAKE) interpreters

interpreters:
	$(MAKE) setup VENV=$(AS_JAX)
	$(AS_JAX)/bin/python -m pip install --quiet $(PIP_ARGS) asdex folx quax equinox flax
	JAX_PLATFORMS=cpu $(AS_JAX)/bin/python -m tests.interpreters

# Sparse derivatives beside asdex's and dense ones, on its own problems and those of CUTEst: half an
# hour. asdex 0.5.2 does not import with jax 0.12. SPARSE takes options: --only TEXT, --most N.
SPARSE ?=
SPARSE_VENV ?= .venv-sparse
sparse:
	$(MAKE) setup VENV=$(SPARSE_VENV) $(call with_jax,0.11.2)
	$(SPARSE_VENV)/bin/python -m pip install --quiet $(PIP_ARGS) asdex sif2jax jax==0.11.2 jaxlib==0.11.2
	JAX_PLATFORMS=cpu $(SPARSE_VENV)/bin/python -m tests.sparse_problems $(SPARSE)

# The page of `pullback view` in Debian's Chromium: clicks, keys, and how long it takes to open. Then
# the site of the documentation: what the search finds first, and whether pages fit a phone.
# Screenshots, wide and narrow, light and dark, are in out/browser: look at them.
BROWSER ?= .venv-browser
browser: docs
	@for command in chromium chromedriver; do command -v $$command >/dev/null || { \
	  echo "no $$command: apt-get install chromium chromium-driver" >&2; exit 1; }; done
	$(MAKE) setup VENV=$(BROWSER)
	$(BROWSER)/bin/python -m pip install --quiet $(PIP_ARGS) selenium ai-edge-model-explorer
	JAX_PLATFORMS=cpu $(BROWSER)/bin/python -m pytest -rA tests/tools/browser.py tests/docs/browser.py

# Wrong formulas and drivers, each in a copy of the sources: the tests must fail on every one.
mutants: setup
	$(RUN) $(BIN)/python -m tests.mutants --processes $(JOBS)

# JAX's own test files with our derivatives in the place of JAX's: half an hour.
# JAX_TESTS is the folder `tests` of a checkout of JAX; FILES chooses some of those listed.
# With VENV=$(OLDEST), as `make test-oldest` makes it, they run with the oldest JAX.
JAX_TESTS ?=
CHECKOUT = git clone --depth 1 --branch jax-v$$($(BIN)/python -c 'import jax; print(jax.__version__)')
jax-tests: setup
	@test -n "$(JAX_TESTS)" || { echo "set JAX_TESTS to jax/tests, after" \
	  "$(CHECKOUT) https://github.com/jax-ml/jax" >&2; exit 1; }
	$(RUN) $(BIN)/python -m tests.jax_suite $(JAX_TESTS) $(FILES)

# Modules that Reactant wrote, in the tests of Enzyme-JAX: a table of what loads, what has derivatives
# equal to finite differences, and why not. REACTANT is a checkout, or any folder of `.mlir` files.
REACTANT ?=
reactant: setup
	@test -n "$(REACTANT)" || { echo "set REACTANT to Enzyme-JAX, after" \
	  "git clone --depth 1 https://github.com/EnzymeAD/Enzyme-JAX" >&2; exit 1; }
	$(RUN) $(BIN)/python -m tests.reactant $(REACTANT)

# What decides with a JAX that nobody has tried, a version or a wheel, the shortest first: see
# docs/next_jax.md. PARTS chooses.
NEXT ?= .venv-next
JAX ?=
PARTS ?= tests/project/test_reads.py tests/project/test_signatures.py tests/frontend/test_native.py tests/rules \
	tests/conformance tests/_jax tests/frontend tests/api tests
next-jax:
	$(MAKE) setup VENV=$(NEXT)
	$(NEXT)/bin/python -m pip install --quiet $(PIP_ARGS) --upgrade --upgrade-strategy=eager \
	  $(or $(wildcard $(JAX)),jax$(addprefix ==,$(JAX))) jaxlib
	@failed=0; for part in $(PARTS); do echo "== $$part"; \
	  PATH="$(abspath $(NEXT))/bin:$$PATH" JAX_PLATFORMS=cpu PULLBACK_UNTRIED_JAX=1 \
	  python -m pytest -q -n $(JOBS) -W "ignore:pullback works with jax" $$part || failed=1; \
	done; exit $$failed

# Programs of other libraries, next to JAX, in memory and as files: half an hour.
# ONLY is a topic of tests/libraries/programs, or a part of programs' names.
LIBRARIES ?= .venv-libraries
ONLY ?=
libraries:
	$(MAKE) setup VENV=$(LIBRARIES)
	$(LIBRARIES)/bin/python -m pip install --quiet $(PIP_ARGS) -r tests/libraries/requirements.txt
	PYTHONPATH=. $(LIBRARIES)/bin/python -m tests.libraries "$(ONLY)" --processes $(JOBS)

# Modules of PyTorch, traced with it and differentiated from a file without, next to its autograd.
# ONLY is a part of their names. Without an NVIDIA GPU, PIP_ARGS="--extra-index-url
# https://download.pytorch.org/whl/cpu" saves two gigabytes.
TORCH ?= .venv-torch
torch: setup
	$(MAKE) setup VENV=$(TORCH)
	$(TORCH)/bin/python -m pip install --quiet $(PIP_ARGS) -r tests/torch/requirements.txt
	JAX_PLATFORMS=cpu $(TORCH)/bin/python -m pytest -q tests/torch/with_torch.py
	PYTHONPATH=. JAX_PLATFORMS=cpu $(TORCH)/bin/python -m tests.torch.write out/torch "$(ONLY)"
	$(RUN) $(BIN)/python -m tests.torch.compare out/torch "$(ONLY)"
	JAX_PLATFORMS=cpu $(TORCH)/bin/python -m tests.docs.blocks exchange.md "PyTorch, through torch-mlir"

# Models of ONNX in by torch-mlir, and derivatives out by jax2onnx, which fails with jax 0.12: the
# example, the section of docs/exchange.md, and which ops come in and go out.
ONNX ?= .venv-onnx
onnx:
	$(MAKE) setup VENV=$(ONNX) $(call with_jax,0.11.2)
	$(ONNX)/bin/python -m pip install --quiet $(PIP_ARGS) -r tests/onnx/requirements.txt
	JAX_PLATFORMS=cpu $(ONNX)/bin/python examples/onnx_derivative/derive.py out/onnx
	PATH="$(abspath $(ONNX))/bin:$$PATH" JAX_PLATFORMS=cpu \
	  $(ONNX)/bin/python -m tests.docs.blocks exchange.md ONNX
	JAX_PLATFORMS=cpu $(ONNX)/bin/python -m pytest -q tests/onnx/with_onnx.py

# Ahead of time for a TPU that is not here: needs the libtpu wheel and no hardware.
TPU ?= .venv-tpu
tpu:
	$(MAKE) setup VENV=$(TPU)
	$(TPU)/bin/python -m pip install --quiet libtpu
	$(TPU)/bin/python -m pytest tests/runtime/test_tpu_aot.py

# On an NVIDIA GPU, for which this environment has JAX's plug-in: jax[cuda13].
gpu: setup
	$(RUN) JAX_PLATFORMS=cuda,cpu JAX_DEFAULT_MATMUL_PRECISION=highest \
	  XLA_PYTHON_CLIENT_PREALLOCATE=false $(BIN)/python -m pytest -n $(JOBS) \
	  tests/devices/test_gpu.py tests/files/jax_export/test_match_library_calls.py::test_derivatives

clean:
	rm -rf .venv .venv-* build dist out
