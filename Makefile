# Two commands do it all: `make run` serves a broker, `make test` runs every check.
# What they need comes from the lock files: requirements.lock (the broker alone), requirements-dev.lock (everything).

PYTHON ?= python3
HOST ?= 127.0.0.1
PORT ?= 9092
DATA ?= data
ARGS ?=
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
NO_PACKAGES = { echo "The packages could not be installed from PyPI: is it reachable? (PIP_INDEX_URL names a mirror.)"; exit 1; }

.PHONY: help setup run test check lint types contracts tests faults demo bench compare profile interop messages docs lock clean

help:
	@echo "make run       serve a broker on $(HOST):$(PORT) (PORT=, DATA=, ARGS='--durability always')"
	@echo "make test      lint, types, import contracts and tests"
	@echo "make demo      the whole story, ending in numbers that agree"
	@echo "make setup     install everything into $(VENV)"
	@echo "make lint      format and lint checks"
	@echo "make faults    the longer runs of kills and restarts"
	@echo "make bench     measure beside Apache Kafka and the limits (QUICK=1: two minutes; PARTS='latency groups')"
	@echo "make compare   this tree's broker beside another commit's (REF=main WORKLOAD=produce-1k)"
	@echo "make profile   flame graph of the broker at work (WORKLOAD=produce, produce-1k, consume, consume-1k, tail, small-producers, groups)"
	@echo "make interop   other languages' clients"
	@echo "make messages  regenerate wire/messages;  make docs  regenerate generated pages;  make lock  new lock files"

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "Headrace needs Python 3.11 or later; '$(PYTHON)' is $$($(PYTHON) --version 2>&1). Try: make PYTHON=python3.11 $(MAKECMDGOALS)"; exit 1; }
	@$(PYTHON) -m venv $(VENV)

$(VENV)/.broker: requirements.lock pyproject.toml | $(VENV)/bin/python
	@test -f $(VENV)/.everything || { echo "installing the broker into $(VENV) ..."; $(PIP) install --require-hashes -r requirements.lock || $(NO_PACKAGES); }
	@$(PIP) install --no-deps --no-build-isolation -e .
	@touch $@

$(VENV)/.everything: requirements-dev.lock pyproject.toml | $(VENV)/bin/python
	@echo "installing everything into $(VENV) ..."
	@$(PIP) install --require-hashes -r requirements-dev.lock || $(NO_PACKAGES)
	@$(PIP) install --no-deps --no-build-isolation -e .
	@touch $@ $(VENV)/.broker

setup: $(VENV)/.everything

run: $(VENV)/.broker
	@exec $(BIN)/headrace serve --host $(HOST) --port $(PORT) --data-dir $(DATA) $(ARGS)

test: lint types contracts tests

lint: $(VENV)/.everything
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.everything
	$(BIN)/mypy

contracts: $(VENV)/.everything
	$(BIN)/lint-imports

tests: $(VENV)/.everything
	$(BIN)/python -m pytest -n 2 --dist loadgroup -m "not faults"

faults: $(VENV)/.everything
	$(BIN)/python -m pytest -m faults

demo: $(VENV)/.everything
	@$(BIN)/python -m demo --plot demo.svg $(ARGS)

bench: $(VENV)/.everything
	$(BIN)/python -m bench $(if $(QUICK),--quick) $(PARTS)

compare: $(VENV)/.everything
	$(BIN)/python -m bench.compare $(or $(REF),origin/main) $(WORKLOAD) $(ARGS)

profile: $(VENV)/.everything
	$(BIN)/python -m bench.profile $(WORKLOAD) $(ARGS)

interop: $(VENV)/.everything
	$(BIN)/python -m interop

messages: $(VENV)/.everything
	$(BIN)/python tools/generate_messages.py

docs: $(VENV)/.everything
	$(BIN)/python tools/generate_docs.py

lock: $(VENV)/bin/python
	@test -x $(BIN)/uv || $(PIP) install uv
	$(BIN)/uv pip compile --quiet --universal --generate-hashes --no-emit-index-url --no-header --python-version 3.11 \
	  --group build pyproject.toml -o requirements.lock
	$(BIN)/uv pip compile --quiet --universal --generate-hashes --no-emit-index-url --no-header --python-version 3.11 \
	  --extra lake --extra tiered --group build --group dev pyproject.toml -o requirements-dev.lock

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist
