"""The pytest plugin: `pytest --crashkit` runs below crashkit's supervisor, which keeps and explains each crash (docs/pytest.md).

Without `--crashkit`, this module is all that is loaded, and nothing but its options changes.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Generator
from pathlib import Path
from typing import NoReturn

import pytest

FOLDER = "CRASHKIT_PYTEST"
"""The variable in which the supervisor names the folder of the session to the pytest that it starts."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the options and the ini setting."""
    group = parser.getgroup("crashkit", "crashes")
    group.addoption("--crashkit", action="store_true", default=False, help="Report tests that crash or hang, with stacks and the cause.")
    group.addoption(
        "--crashkit-rerun",
        action="store_true",
        default=False,
        help="Implies --crashkit. After a test has killed pytest, run the remaining tests in a fresh process.",
    )
    group.addoption("--crashkit-folder", default=None, help=argparse.SUPPRESS)
    parser.addini("crashkit", "Report tests that crash or hang, as --crashkit does.", type="bool", default=False)


# Around pytest's own capture, which begins here: the supervisor must get the real stdout and stderr.
@pytest.hookimpl(hookwrapper=True, tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> Generator[None, None, None]:
    """Hand over to the supervisor before anything else is imported; in the pytest that it starts, go on."""
    options = early_config.known_args_namespace
    # pytest-xdist gives the folder to its workers as an option; no program that a test starts may find it.
    if _wanted(early_config) and options.crashkit_folder is None:
        folder = os.environ.pop(FOLDER, None)
        if folder is None:
            _hand_over(early_config)
        early_config.option.crashkit_folder = options.crashkit_folder = folder
    yield


def pytest_configure(config: pytest.Config) -> None:
    """Record what runs."""
    if not _wanted(config):
        return
    folder = config.option.crashkit_folder
    if folder is None:
        raise pytest.UsageError("crashkit was loaded too late for --crashkit; load it with -p crashkit.pytest_plugin or install crashkit")
    from crashkit.testrun.session import register

    register(config, Path(folder))


def _wanted(config: pytest.Config) -> bool:
    options = config.known_args_namespace
    return bool(options.crashkit or options.crashkit_rerun or config.getini("crashkit"))


def _hand_over(config: pytest.Config) -> NoReturn:
    """Become the supervisor, which starts this very command again. Raises pytest.UsageError if that would start something else."""
    if config.invocation_params.args != tuple(sys.argv[1:]):
        raise pytest.UsageError(
            "--crashkit works only if pytest is started from the command line, not with pytest.main(); "
            "run the program with crashkit run -- instead"
        )
    from crashkit import isolation

    sys.stdout.flush()
    sys.stderr.flush()
    command = isolation.entry("crashkit.testrun.supervise", sys.executable, *sys.orig_argv[1:])
    os.execv(command[0], command)
