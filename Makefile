# Everything here needs Python 3.11+ and make; `make setup` (called by the rest) fills .venv.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready

.PHONY: help setup demo test test-browser lint docs bench targets clean

help:
	@echo "make demo     train the circle network by layer separation and by gradient descent; pictures in demo/"
	@echo "make test     run the tests"
	@echo "make lint     ruff and mypy --strict"
	@echo "make test-browser  look at the report in headless Chromium, which must be there (apt-get install chromium)"
	@echo "make docs     the documentation as a site, in build/site"
	@echo "make bench    what a sweep costs on this machine and where the time goes; lysep bench compares more (docs/bench.md)"
	@echo "make targets  the circle and digits figures of benchmarks/results (about an hour; may be stopped and continued)"
	@echo "make setup    only create the environment in .venv"
	@echo "make clean    remove .venv and caches"

setup: $(READY)

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "lysep needs Python 3.11 or later, but $(PYTHON) is %s. Try: make setup PYTHON=python3.12" % sys.version.split()[0])'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

demo: setup
	$(BIN)/python examples/circle.py --out demo

test: setup
	$(BIN)/python -m pytest -n 2

test-browser: setup
	$(BIN)/python -m pytest -m browser

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: setup
	$(BIN)/mkdocs build --strict

bench: setup
	$(BIN)/lysep bench cost -o build/bench

targets: setup
	$(BIN)/python benchmarks/targets.py

clean:
	rm -rf .venv .pytest_cache .hypothesis .mypy_cache .ruff_cache build dist
	find . -name __pycache__ -prune -exec rm -rf {} +
