# Two commands do everything on a fresh machine: `make sweep` and `make test`.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.DEFAULT_GOAL := help
.PHONY: help install sweep test test-slow gpu-check lint docs wheel dist clean

help: ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-10s %s\n", $$1, $$2}'

# Ray ships a script that is also called `tune`; whoever is installed last owns the name, so ours is written last.
$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable ".[dev]"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --force-reinstall --no-deps --no-build-isolation --editable . \
	  || $(BIN)/python -m pip install --quiet --disable-pip-version-check --force-reinstall --no-deps --editable .
	@touch $@

install: $(STAMP) ## a virtual environment with every pinned version

sweep: $(STAMP) ## the main job: a private search on embedded data, its export, and the check of its privacy card
	$(BIN)/dp-tune run experiments/digits_dplis.yaml
	$(BIN)/dp-tune export digits-dplis
	$(BIN)/dp-tune verify exports/digits-dplis/privacy_card.json

test: $(STAMP) ## the fast tests, in two processes
	$(BIN)/python -m pytest -n 2 --dist loadfile $(PYTEST_ARGS)

test-slow: $(STAMP) ## the tests that take minutes
	$(BIN)/python -m pytest -m slow --timeout 900 $(PYTEST_ARGS)

gpu-check: $(STAMP) ## on a machine with a GPU: is the engine there what docs/engine.md says, and how fast?
	$(BIN)/python -m benchmarks.gpu_check
	$(BIN)/python -m benchmarks.engine --quick --device cuda

lint: $(STAMP) ## what CI holds: style, types, and the arrows between packages
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

docs: $(STAMP) ## the documentation as a site: build/site/index.html
	$(BIN)/mkdocs build --strict --quiet

wheel: $(STAMP) ## build the wheel, install it in an environment of its own, and run it from another folder
	$(BIN)/python tests/wheel_check.py

dist: $(STAMP) ## the wheel and constraints.txt, for deploy/
	rm -rf dist
	$(BIN)/python -m build --wheel --outdir dist .
	cp constraints.txt dist/

clean: ## remove what the commands above made, but never runs/ (it holds ledgers)
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
