# Each target makes what it needs: a virtual environment in .venv, and gdb where it is missing.

BIN = .venv/bin
TORCH = 2.13.0
PIP = $(BIN)/python -m pip install --quiet --disable-pip-version-check

.PHONY: demo test test-anywhere lint bench clean

demo: .venv/.crashkit
	@.ci/need --optional --for 'C arguments, lines and most native frames' gdb
	@$(BIN)/crashkit demo

test: .venv/.tests
	@.ci/need gdb gcc g++ /usr/include/pthread.h:libc6-dev readelf:binutils xz:xz-utils
	@.ci/need --optional --for 'the tests of the report in a browser' chromium chromedriver:chromium-driver
	@.ci/torch $(BIN)/python $(TORCH)
	$(BIN)/pytest -n 2 --dist worksteal

# The two commands above on bare systems in folders (root, debootstrap); ANYWHERE='--on sid --as user' chooses.
test-anywhere: .venv/.dev
	@.ci/need debootstrap
	@$(BIN)/python -m tests.anywhere $(ANYWHERE)

lint: .venv/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: .venv/.tests
	@.ci/need gdb gcc /usr/include/pthread.h:libc6-dev
	@.ci/torch $(BIN)/python $(TORCH)
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
