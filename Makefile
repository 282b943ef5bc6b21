# `make demo` and `make test` are all the set-up there is: each makes the environment first.
SHELL := bash
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.DEFAULT_GOAL := help
.PHONY: help setup demo test check lint types contracts unit integration bench clean

help: ## Show what there is
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 14

setup: $(STAMP) ## Make the environment: virtual environment, dependencies, Java

$(STAMP): setup.cfg pyproject.toml scripts/setup
	PYTHON=$(PYTHON) VENV=$(VENV) scripts/setup
	@touch $@

demo: setup ## Start a cluster and send the whole standard library through it
	$(BIN)/roq demo

test: check ## Lint, types, contracts and all tests
	$(BIN)/pytest

check: lint types contracts ## Everything that needs no process: lint, types, contracts

lint: setup ## Style and layout of the code
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: setup ## mypy --strict
	$(BIN)/mypy roq benchmarks scripts examples

contracts: setup ## Imports point one way
	$(BIN)/lint-imports

unit: setup ## The tests that need no process
	$(BIN)/pytest tests/unit tests/property

integration: setup ## The tests with real processes and a real ZooKeeper
	$(BIN)/pytest tests/integration

bench: setup ## Measure RoQ beside its peers; writes benchmarks/results
	$(BIN)/roq bench --compare

clean: ## Remove the environment and everything that was built
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
