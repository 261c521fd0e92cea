# Each target makes what it needs: a virtual environment in .venv, and gdb where it is missing.

BIN = .venv/bin
PIP = $(BIN)/python -m pip install --quiet --disable-pip-version-check

.PHONY: demo test lint bench clean

demo: .venv/.crashkit
	@.ci/need gdb
	@$(BIN)/crashkit demo

test: .venv/.tests
	@.ci/need gdb gcc
	@.ci/need --optional chromium chromedriver:chromium-driver
	$(BIN)/pytest -n 2 --dist worksteal

lint: .venv/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: .venv/.tests
	@.ci/need gdb gcc
	$(BIN)/python -m benchmarks

clean:
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache

.venv/bin/python:
	@.ci/venv .venv

.venv/.crashkit: .venv/bin/python pyproject.toml
	@echo 'Installing crashkit into .venv ...'
	@$(PIP) --editable .
	@touch $@

.venv/.dev: .venv/.crashkit
	$(PIP) --editable '.[dev]'
	@touch $@

.venv/.tests: .venv/.dev
	$(PIP) --editable '.[tests]'
	@touch $@
