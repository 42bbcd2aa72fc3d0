# `make demo` and `make test` need nothing but make and Python 3.11 or newer; `make` lists the rest.
#
#   make PYTHON=/path/to/python3 …   use this interpreter for a new environment
#   make VENV=folder …               use another environment than .venv

VENV    ?= .venv
PYTHON  ?=
WORKERS ?= 2
CASES   ?= 2000
SEED    ?= 1
PEERS   ?= .venv-peers
SECONDS ?= 120
BIN     := $(VENV)/bin
PIP     := $(BIN)/python -m pip --disable-pip-version-check --quiet
PYTEST  := $(BIN)/python -m pytest

# An environment is created once, and installed again when the requirements change.
MADE      := $(VENV)/.made
INSTALLED := $(VENV)/.installed
DEVELOP   := $(VENV)/.develop

PYTHONS := 3.11 3.12 3.13 3.14

# Tests run against the code installed in $(VENV).
unexport PYTHONPATH
.NOTPARALLEL:
.DELETE_ON_ERROR:
.PHONY: help demo test test-slow test-fast soak-migrate soak-damage soak-load test-all test-others check lint types imports coverage wheel-test \
        bench bench-smoke bench-scale bench-peers docs format clean

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 20

# ── Environments ─────────────────────────────────────────────────────────────────────────────

$(MADE):
	@python="$(PYTHON)"; [ -n "$$python" ] || python=$$(sh tools/find-python.sh) || exit 1; \
	echo "Making $(VENV) with $$("$$python" --version)"; \
	"$$python" -m venv $(VENV)
	@touch $@

$(INSTALLED): $(MADE) pyproject.toml constraints.txt
	@echo "Installing statebackend into $(VENV)"
	@$(PIP) install --constraint constraints.txt --editable .
	@touch $@

$(DEVELOP): $(MADE) pyproject.toml constraints.txt
	@echo "Installing statebackend and the development tools into $(VENV)"
	@$(PIP) install --constraint constraints.txt --editable '.[dev]'
	@touch $@ $(INSTALLED)

# ── Using it ─────────────────────────────────────────────────────────────────────────────────

demo: $(INSTALLED) ## import a bundled sample into a fresh folder, list, show and cost it
	@sh tools/demo.sh $(BIN)

bench: $(DEVELOP) ## measure against bare sqlite3, print the table of ratios
	$(BIN)/python -m benchmarks

bench-smoke: $(DEVELOP) ## run every benchmark once, small: do they work at all
	$(BIN)/python -m benchmarks --smoke
	$(BIN)/python -m benchmarks.scale --largest 100

# The peers bring a hundred packages, so they have an environment of their own.
$(PEERS)/.installed: pyproject.toml benchmarks/peers/constraints.txt
	@python="$(PYTHON)"; [ -n "$$python" ] || python=$$(sh tools/find-python.sh) || exit 1; \
	"$$python" -m venv $(PEERS)
	@echo "Installing statebackend and its peers into $(PEERS)"
	@$(PEERS)/bin/python -m pip --disable-pip-version-check --quiet install \
	    --constraint benchmarks/peers/constraints.txt --editable '.[peers]'
	@touch $@

bench-scale: $(DEVELOP) ## measure listings of up to 100,000 sessions, write docs/scan-at-scale.svg
	$(PIP) install --constraint constraints.txt --editable '.[plots]'
	$(BIN)/python -m benchmarks.scale --into docs

bench-peers: $(PEERS)/.installed ## measure an append against other stores, each with its defaults
	$(PEERS)/bin/python -m benchmarks.peers

# ── Testing it ───────────────────────────────────────────────────────────────────────────────

test: $(DEVELOP) ## the test suite, without the long soak and fault tests
	$(PYTEST) -n $(WORKERS) -m 'not slow'

test-slow: $(DEVELOP) ## the long soak and fault tests
	$(PYTEST) -n $(WORKERS) -m slow

test-fast: $(DEVELOP) ## the suite without what is long or kills processes
	$(PYTEST) -n $(WORKERS) -m 'not slow and not crash'

soak-migrate: $(DEVELOP) ## kill 300 migrations at random moments, count mixed files
	$(BIN)/python -m tests.migration_kills 300

soak-damage: $(DEVELOP) ## damage CASES=2000 sessions in SEED's ways, open them, print what was saved
	$(BIN)/python -m tests.damage $(CASES) --seed $(SEED)

soak-load: $(DEVELOP) ## kill writers among readers for SECONDS=120, count what is lost
	$(BIN)/python -m tests.soak_load $(SECONDS) --seed $(SEED)

wheel-test: $(DEVELOP) ## build the wheel, use it in a clean environment
	$(PYTEST) tests/test_packaging.py

test-all: ## the whole suite on every supported interpreter that is found
	@for version in $(PYTHONS); do \
	    if python=$$(sh tools/find-python.sh $$version); then \
	        echo "── Python $$version"; \
	        $(MAKE) --no-print-directory VENV=.venv-$$version PYTHON="$$python" test || exit 1; \
	    else echo "── Python $$version: not found, not tested"; fi; \
	done

test-others: $(MADE) ## the fast tests on every interpreter found, but for the one of .venv
	@ours=$$($(BIN)/python -c 'import sys; print("%d.%d" % sys.version_info[:2])'); \
	for version in $(PYTHONS); do \
	    [ $$version != $$ours ] || continue; \
	    if python=$$(sh tools/find-python.sh $$version); then \
	        echo "── Python $$version"; \
	        $(MAKE) --no-print-directory VENV=.venv-$$version PYTHON="$$python" test-fast || exit 1; \
	    else echo "── Python $$version: not found, not tested"; fi; \
	done

# The tests come last, so that their closing line is the last one.
check: lint types imports bench-smoke test-slow coverage ## all that CI runs on one interpreter

lint: $(DEVELOP) ## style and formatting
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(DEVELOP) ## mypy, strict
	$(BIN)/mypy

imports: $(DEVELOP) ## the direction of imports, and the number of rooms, arrows and circles
	$(BIN)/lint-imports --no-logo
	$(BIN)/python tools/house.py

coverage: $(DEVELOP) ## the test suite, with coverage and its lower bound
	$(PYTEST) -n $(WORKERS) -m 'not slow' --cov --cov-report=term

# ── Housekeeping ─────────────────────────────────────────────────────────────────────────────

docs: $(DEVELOP) ## write docs/api.md from the docstrings
	$(BIN)/python tools/api.py --write

format: $(DEVELOP) ## format the code and fix what ruff can fix
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean: ## remove environments, builds and caches
	rm -rf .venv .venv-* build dist htmlcov .benchmarks .coverage .coverage.* .hypothesis \
	    .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
