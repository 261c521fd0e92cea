# Each target makes what it needs: a virtual environment in .venv, and gdb where it is missing.

# Another interpreter gets an environment of its own: make test-fast PYTHON=python3.10 VENV=.venv-3.10
VENV = .venv
BIN = $(VENV)/bin
TORCH = 2.13.0
PIP = $(BIN)/python -m pip install --quiet --disable-pip-version-check

.PHONY: demo test test-fast test-anywhere lint bench mutate news clean

demo: $(VENV)/.crashkit
	@.ci/need --optional --for 'C arguments, lines and most native frames' gdb
	@$(BIN)/crashkit demo

test: $(VENV)/.tests
	@.ci/need gdb gcc g++ /usr/include/pthread.h:libc6-dev readelf:binutils xz:xz-utils
	@.ci/need --optional --for 'the tests of the report in a browser' chromium chromedriver:chromium-driver
	@.ci/torch $(BIN)/python $(TORCH)
	$(BIN)/pytest -n 2 --dist worksteal

# Between two edits: what needs no torch, no browser, no other system and no network, and is quick. Installs nothing with apt-get.
test-fast: $(VENV)/.dev
	$(BIN)/pytest -n 2 --dist worksteal -m 'not (torch or browser or chroot or network or slow)'

# The README's two commands, demo and test, on bare systems in folders (root, debootstrap); ANYWHERE='--on sid --as user' chooses.
test-anywhere: $(VENV)/.dev
	@.ci/need debootstrap
	@$(BIN)/python -m tests.anywhere $(ANYWHERE)

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(VENV)/.tests
	@.ci/need gdb gcc /usr/include/pthread.h:libc6-dev
	@.ci/torch $(BIN)/python $(TORCH)
	$(BIN)/python -m benchmarks

# Which small changes of the pure modules no test notices (docs/mutation.md). MUTANTS='crashkit.stacks.*' takes a part of them.
mutate: $(VENV)/.mutate
	$(BIN)/mutmut run $(foreach pattern,$(MUTANTS),'$(pattern)')
	@$(BIN)/mutmut results | grep -v ': not checked$$' || echo 'No mutant survived.'

# What the next release will say, from the fragments in news/. A release: .venv/bin/towncrier build --version 0.2.0
news: $(VENV)/.dev
	@$(BIN)/towncrier build --draft --version next

clean:
	rm -rf .venv .venv-* .mypy_cache .ruff_cache .pytest_cache mutants

$(BIN)/python:
	@.ci/venv $(VENV)

$(VENV)/.crashkit: $(BIN)/python pyproject.toml
	@echo 'Installing crashkit into $(VENV) ...'
	@$(PIP) --editable .
	@touch $@

$(VENV)/.dev: $(VENV)/.crashkit
	$(PIP) --editable '.[dev]'
	@touch $@

$(VENV)/.tests: $(VENV)/.dev
	$(PIP) --editable '.[tests]'
	@touch $@

$(VENV)/.mutate: $(VENV)/.dev
	$(PIP) --editable '.[mutate]'
	@touch $@
