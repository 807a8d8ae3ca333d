# Everything a newcomer needs: `make demo` and `make test` do all the set-up themselves.
# The same lines run in .ci/run. VENV, PYTHON and CONSTRAINTS choose another environment.

VENV ?= .venv
# The first Python that pullback supports and that can make a virtual environment.
PYTHON ?= $(shell for p in python3.11 python3.12 python3.13 python3; do \
	$$p -c 'import sys, ensurepip, venv; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' \
	2>/dev/null && command -v $$p && break; done)
JOBS ?= 2
PIP_ARGS ?=
EXAMPLE := examples/rules.py:train_step

BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# The console scripts of the environment come first for lit and for the tests that start them.
RUN := PATH="$(abspath $(BIN)):$$PATH" JAX_PLATFORMS=$${JAX_PLATFORMS:-cpu}

.PHONY: help setup demo test pytest lit lint types bench portability engines fuzz clean

help:
	@echo "make demo   dump the IR of examples/rules.py at every stage, run it, compare with JAX"
	@echo "make test   pytest, then lit"
	@echo "make bench  the benchmarks, side by side with JAX"
	@echo "make portability | engines | fuzz   saved files; see docs/artifact.md"
	@echo "make lint | types | setup | clean"

setup: $(STAMP)

$(STAMP): pyproject.toml
	@test -n "$(PYTHON)" || { echo "no Python 3.11, 3.12 or 3.13 found: set PYTHON=" >&2; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet $(PIP_ARGS) --editable ".[test,dev]"
	@touch $@

demo: setup
	$(RUN) pullback dump $(EXAMPLE) --stage all --rules -o out/demo
	$(RUN) pullback dump $(EXAMPLE) --stage all --rules
	$(RUN) pullback run $(EXAMPLE) --jax --tolerance 1e-5

test: pytest lit

pytest: setup
	$(RUN) $(BIN)/python -m pytest -n $(JOBS)

lit: setup
	$(RUN) lit --verbose -j $(JOBS) lit_tests

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: setup
	$(BIN)/mypy

bench: setup
	@for script in benchmarks/*.py; do echo "== $$script"; $(RUN) $(BIN)/python $$script || exit 1; done

# Saved files: across Pythons and JAX versions, across engines, and damaged in many ways.
# docs/artifact.md says what each shows. NEWER and IREE are environments, made when missing.
NEWER ?= .venv-newer
NEWER_PYTHON ?= python3.13
IREE ?= .venv-iree
FUZZ_CASES ?= 5000

portability: setup
	test -x $(NEWER)/bin/python || $(MAKE) setup VENV=$(NEWER) PYTHON=$(NEWER_PYTHON)
	$(RUN) $(BIN)/python -m tests.artifact.portability $(BIN)/python $(NEWER)/bin/python

engines: setup
	test -x $(IREE)/bin/python || $(BIN)/python -m venv $(IREE)
	$(IREE)/bin/python -m pip install --quiet $(PIP_ARGS) iree-base-compiler iree-base-runtime
	$(RUN) $(BIN)/python -m tests.artifact.engines $(IREE)/bin/python

fuzz: setup
	PULLBACK_FUZZ_CASES=$(FUZZ_CASES) $(RUN) $(BIN)/python -m pytest tests/artifact/test_damage.py

clean:
	rm -rf $(VENV) build dist out
