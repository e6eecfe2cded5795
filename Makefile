# The two main commands: `make run` starts a broker, `make test` runs every check.
# Dependencies come from the lock files: requirements.lock (just the broker), requirements-dev.lock (everything).

PYTHON ?= python3
HOST ?= 127.0.0.1
PORT ?= 9092
DATA ?= data
NODES ?=
# The console: http://127.0.0.1:9080, and 9180 beside a second broker on 9192. CONSOLE= for none.
CONSOLE ?= $(shell expr $(PORT) - 12)
ARGS ?=
# Of the tests: they wait a third of their time, so three keep two cores busy.
WORKERS ?= 3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
PURE_TESTS = tests/test_tidy.py tests/test_docs_links.py tests/wire tests/groups tests/transactions tests/security tests/schemas tests/metrics tests/store/test_confidence.py tests/store/stream/test_ids.py
NO_PACKAGES = { echo "The packages could not be installed from PyPI: is it reachable? (PIP_INDEX_URL names a mirror.)"; exit 1; }

# Compiled modules are kept: tests start brokers and commands by the hundreds, and each would compile all of them anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup run test quick lint types contracts tests faults demo bench compare profile interop dist messages docs lock clean

help:
	@echo "make run       start a broker on $(HOST):$(PORT) (PORT=, DATA=, NODES=, CONSOLE=, ARGS='--durability always')"
	@echo "make test      lint, types, import contracts and tests"
	@echo "make quick     checks to run all the time: lint, types, contracts, pure tests"
	@echo "make demo      run everything end to end and cross-check every count"
	@echo "make setup     install everything into $(VENV)"
	@echo "make lint      format and lint checks"
	@echo "make faults    longer tests with kills and restarts"
	@echo "make bench     compare with Apache Kafka and with upper bounds (QUICK=1: two minutes; PARTS='latency groups')"
	@echo "make compare   compare this tree's broker with another commit's (REF=main WORKLOAD=produce-1k)"
	@echo "make profile   flame graph of a broker under load (WORKLOAD=produce, produce-1k, consume, consume-1k, tail, small-producers, groups)"
	@echo "make interop   test clients in other languages"
	@echo "make dist      build sdist and wheel in dist/, and test the wheel in an empty environment"
	@echo "make messages  regenerate wire/messages;  make docs  regenerate generated pages;  make lock  update the lock files"

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
	@exec $(BIN)/headrace serve --host $(HOST) --port $(PORT) --data-dir $(DATA) $(if $(NODES),--nodes $(NODES)) $(if $(CONSOLE),--http-port $(CONSOLE)) $(ARGS)

# Types are checked beside the tests, which leave cores idle while they wait.
test: lint contracts
	@$(MAKE) --no-print-directory -j2 types tests

quick: lint types contracts
	HYPOTHESIS_PROFILE=quick $(BIN)/python -m pytest -n 2 --dist loadgroup $(PURE_TESTS)

lint: $(VENV)/.everything
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.everything
	$(BIN)/mypy

contracts: $(VENV)/.everything
	$(BIN)/lint-imports

tests: $(VENV)/.everything
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup -m "not faults"

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

dist: $(VENV)/.everything
	rm -rf dist
	$(BIN)/python -m hatchling build -d dist
	$(BIN)/python -m pytest tests/dist

messages: $(VENV)/.everything
	$(BIN)/python tools/generate_messages.py

docs: $(VENV)/.everything
	$(BIN)/python tools/generate_docs.py
	$(BIN)/python tools/generate_dashboard.py

lock: $(VENV)/bin/python
	@test -x $(BIN)/uv || $(PIP) install uv
	$(BIN)/uv pip compile --quiet --universal --generate-hashes --no-emit-index-url --no-header --python-version 3.11 \
	  --extra console --group build pyproject.toml -o requirements.lock
	$(BIN)/uv pip compile --quiet --universal --generate-hashes --no-emit-index-url --no-header --python-version 3.11 \
	  --extra lake --extra tiered --extra console --extra tracing --group build --group dev pyproject.toml -o requirements-dev.lock

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist
