"""The pytest plugin: `pytest --crashkit` runs below crashkit's supervisor, which keeps and explains each crash (docs/pytest.md).

Without `--crashkit`, this module is all that is loaded, and nothing but its options changes.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Generator
from pathlib import Path
from typing import NoReturn

import pytest

FOLDER = "CRASHKIT_PYTEST"
"""The variable in which the supervisor names the folder of the session to the pytest that it starts."""
_folder = pytest.StashKey[str]()


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
    parser.addini("crashkit", "Report tests that crash or hang, as --crashkit does.", type="bool", default=False)


# Around pytest's own capture, which begins here: the supervisor must get the real stdout and stderr.
@pytest.hookimpl(hookwrapper=True, tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> Generator[None, None, None]:
    """Hand over to the supervisor before anything else is imported; in the pytest that it starts, go on."""
    if _wanted(early_config) and _is_command_line(early_config):
        folder = os.environ.pop(FOLDER, None)  # no program that a test starts may find it
        if folder is None:
            _hand_over()
        early_config.stash[_folder] = folder
    yield


def pytest_configure(config: pytest.Config) -> None:
    """Record what runs. Raises pytest.UsageError where nothing could be handed over."""
    if not _wanted(config):
        return
    worker = getattr(config, "workerinput", None)
    folder = config.stash.get(_folder, None) if worker is None else worker.get(FOLDER)
    if folder is not None:
        from crashkit.testrun.session import register

        register(config, Path(folder))
    elif worker is None:
        raise pytest.UsageError(
            "--crashkit needs pytest to be started from the command line, not with pytest.main(), and crashkit to be installed or "
            "loaded with -p crashkit.pytest_plugin, not from a conftest.py"
        )


def _wanted(config: pytest.Config) -> bool:
    options = config.known_args_namespace
    return bool(options.crashkit or options.crashkit_rerun or config.getini("crashkit"))


def _is_command_line(config: pytest.Config) -> bool:
    """Whether this process is `pytest` or `python -m pytest`: neither a program that calls pytest.main(), nor a worker of pytest-xdist."""
    return config.invocation_params.args == tuple(sys.argv[1:]) and sys.argv[0] != "-c"


def _hand_over() -> NoReturn:
    """Become the supervisor, which starts this very command again."""
    from crashkit import isolation

    sys.stdout.flush()
    sys.stderr.flush()
    command = isolation.entry("crashkit.testrun.supervise", sys.executable, *sys.orig_argv[1:])
    os.execv(command[0], command)
