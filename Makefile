# Each target installs what it needs: a virtual environment in .venv, and gdb if it is missing.

# Use another environment for another interpreter: make test-fast PYTHON=python3.10 VENV=.venv-3.10
VENV = .venv
BIN = $(VENV)/bin
TORCH = 2.13.0

# Where it is set, each worker of the tests compiles all of them again, which takes longer than many of them run.
unexport PYTHONDONTWRITEBYTECODE
# Python compiles what it imports: compiling all of PyTorch here takes half a minute.
PIP = $(BIN)/python -m pip install --quiet --no-compile --disable-pip-version-check

.PHONY: demo test test-fast test-anywhere lint bench mutate fuzz news clean

demo: $(VENV)/.crashkit
	@.ci/need --optional --for 'C arguments, lines and most native frames' gdb
	@$(BIN)/crashkit demo

# Options: TESTS="-k torch".
test: $(VENV)/.tests
	@.ci/need gdb gcc g++ /usr/include/pthread.h:libc6-dev readelf:binutils xz:xz-utils
	@.ci/need --optional --for 'the tests of the report in a browser' chromium chromedriver:chromium-driver
	@.ci/need --optional --for 'the tests of musl' musl-gcc:musl-tools
	@.ci/need --optional --for 'the tests with debug files of libc and with headers of Python' /usr/lib/debug/.build-id:libc6-dbg python3-config:python3-dev
	@.ci/torch $(BIN)/python $(TORCH)
	@.ci/tests $(BIN)/pytest -n 3 --dist worksteal $(TESTS)

# Between edits: only quick tests that need no torch, browser, chroot or network, on few of pyenv's interpreters. Installs nothing with apt-get.
test-fast: export CRASHKIT_TEST_INTERPRETERS ?= 3.6 3.13 stripped
test-fast: $(VENV)/.dev
	@.ci/tests $(BIN)/pytest -n 2 --dist worksteal -m 'not (torch or browser or chroot or network or slow or long)' --durations 5

# make demo and make test on minimal Debian systems in folders (needs root and debootstrap). Options: ANYWHERE='--on sid --as user'.
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

# Find small changes in the pure modules that no test notices (docs/mutation.md). MUTANTS='crashkit.stacks.*' selects some.
mutate: $(VENV)/.mutate
	$(BIN)/mutmut run $(foreach pattern,$(MUTANTS),'$(pattern)')
	@$(BIN)/mutmut results | grep -v ': not checked$$' || echo 'No mutant survived.'

# Fuzz each reader with hostile input (docs/fuzzing.md). Options: FUZZ='--runs 100000 gdb_text'.
fuzz: $(VENV)/.fuzz
	$(BIN)/python -m tests.fuzzing $(FUZZ)

# Preview the next release notes from the fragments in news/. To release: .venv/bin/towncrier build --version 0.2.0
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

$(VENV)/.fuzz: $(VENV)/.dev
	-$(PIP) --editable '.[fuzz]'
	@touch $@

$(VENV)/.mutate: $(VENV)/.dev
	$(PIP) --editable '.[mutate]'
	@touch $@
