# `make demo` and `make test` are all the set-up there is: each makes the environment first.
SHELL := bash
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
TOOLS := $(VENV)/.test-tools
ALL_TOOLS := $(VENV)/.all-test-tools
# more than two cores' worth: tests with real processes wait half of their time
WORKERS ?= 3
# a file's tests stay together: they share processes; the longest come first (testpaths): no worker ends alone with one
PYTEST := $(BIN)/pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder --durations=25 --durations-min=20
# tests start thousands of processes, and each would compile RoQ anew
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup demo demo-jobs demo-elastic experiments chaos chaos-report chaos-spark test test-all check lint types contracts unit integration sim sim-long test-docker bench docs clean

help: ## Show what there is
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 14

setup: $(STAMP) ## Make the environment: virtual environment, dependencies, Java

$(STAMP): setup.cfg pyproject.toml scripts/setup
	PYTHON=$(PYTHON) VENV=$(VENV) scripts/setup
	@touch $@

demo: setup ## Start a cluster and send the whole standard library through it
	$(BIN)/roq demo

demo-jobs: setup ## Run jobs of all kinds, with a console to look at, until Ctrl-C
	$(BIN)/roq jobs demo

demo-elastic: setup ## Watch a queue grow and shrink with its load; writes simulation/results
	$(BIN)/python -m roq.simulation.experiments.elastic

experiments: setup ## Moves, reaction times and, as root, limited hosts; writes simulation/results
	$(BIN)/python -m roq.simulation.experiments.moves --count 500 --naive
	$(BIN)/python -m roq.simulation.experiments.reaction
	$(BIN)/python -m roq.simulation.experiments.hosts
	$(BIN)/python -m roq.simulation.experiments.published

chaos: setup ## Break everything for an hour, better as root: SECONDS=3600 SEED=7; writes simulation/results
	$(BIN)/python -m roq.simulation.experiments.chaos --seconds $(or $(SECONDS),3600) $(if $(SEED),--seed $(SEED))

chaos-report: setup ## Measure how long each failure lasts, as root: REPEAT=30; writes simulation/results
	$(BIN)/python -m roq.simulation.experiments.chaos.report --repeat $(or $(REPEAT),30)

chaos-spark: setup ## Kill Spark's processes and exchanges while queries run and exchanges come and go: KILLS=60 SEED=7; writes simulation/results
	$(BIN)/python -m roq.simulation.experiments.chaos_spark --kills $(or $(KILLS),60) $(if $(SEED),--seed $(SEED))

test: check $(TOOLS) ## Lint, types, contracts, and tests of every part: some minutes; WORKERS=3
	$(PYTEST) -m "not long"

test-all: check $(ALL_TOOLS) ## The same, and the long tests: failures, chaos, Spark, browser
	$(PYTEST)

$(TOOLS): scripts/setup_tests $(STAMP)
	scripts/setup_tests
	@touch $@

$(ALL_TOOLS): scripts/setup_tests $(STAMP)
	scripts/setup_tests all
	@touch $@

check: setup ## Everything that needs no process: lint, types, contracts
	@$(MAKE) --no-print-directory --jobs=2 --output-sync lint types contracts

lint: setup ## Style and layout of the code
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: setup ## mypy --strict
	$(BIN)/mypy roq scripts examples

contracts: setup ## Imports point one way
	$(BIN)/lint-imports

unit: setup ## The tests that need no process
	$(BIN)/pytest tests/unit tests/property

integration: setup ## The tests with real processes and a real ZooKeeper
	$(BIN)/pytest tests/integration

sim: setup ## Half a minute of load on a cluster, from Spark, and its report: SCENARIO=short SCALE=1
	$(BIN)/roq sim run $(or $(SCENARIO),short) --scale $(or $(SCALE),1) --open

sim-long: setup ## Ten thousand clusters on a virtual clock in which everything fails
	$(BIN)/python -m roq.simulation.experiments.survival --count 10000

test-docker: setup ## The tests of hosts as containers; ROQ_TEST_DOCKER=URL uses a running engine
	scripts/setup_docker
	ROQ_TEST_DOCKER=$${ROQ_TEST_DOCKER:-start} $(BIN)/pytest tests/docker

bench: setup ## Measure RoQ beside its peers; writes benchmarks/results
	$(BIN)/roq bench --compare

docs: setup ## Write what stands in docs/ out of the code: protocol, metrics, command line, Python API, states
	$(BIN)/python scripts/protocol_reference.py
	$(BIN)/python scripts/metrics_reference.py
	$(BIN)/python scripts/cli_reference.py
	$(BIN)/python scripts/api_reference.py
	$(BIN)/python scripts/states_reference.py

clean: ## Remove the environment and everything that was built
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
