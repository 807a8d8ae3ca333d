# Everything a newcomer needs: `make demo` and `make test` do all the set-up themselves.
# The same lines run in .ci/run. VENV, PYTHON and CONSTRAINTS choose another environment.

VENV ?= .venv
# The first Python that pullback supports and that can make a virtual environment.
PYTHON ?= $(shell for p in python3.11 python3.12 python3.13 python3; do \
	$$p -c 'import sys, ensurepip, venv; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' \
	2>/dev/null && command -v $$p && break; done)
JOBS ?= 2
PIP_ARGS ?=

BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# The console scripts of the environment come first for lit and for the tests that start them.
RUN := PATH="$(abspath $(BIN)):$$PATH" JAX_PLATFORMS=$${JAX_PLATFORMS:-cpu}

.PHONY: help setup demo test pytest lit lint types clean

help:
	@echo "make demo   dump the IR of examples/rules.py at every stage, run it, compare with JAX"
	@echo "make test   pytest, then lit"
	@echo "make lint | types | setup | clean"

setup: $(STAMP)

$(STAMP): pyproject.toml
	@test -n "$(PYTHON)" || { echo "no Python 3.11, 3.12 or 3.13 found: set PYTHON=" >&2; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet $(PIP_ARGS) --editable ".[test,dev]"
	@touch $@

demo: setup
	$(RUN) $(BIN)/python examples/demo.py

test: pytest lit

pytest: setup
	$(RUN) $(BIN)/python -m pytest -n $(JOBS)

lit: setup
	$(RUN) $(BIN)/lit --verbose -j $(JOBS) lit_tests

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: setup
	$(BIN)/mypy

clean:
	rm -rf $(VENV) build dist out
