"""One folder of crashes for the whole test session, shared by pytest-xdist's workers and removed at the end; a summary of the skips.

Set CRASHKIT_TEST_CRASHES to a folder of your own to keep the crashes from one run to the next. Set CRASHKIT_TEST_EXAMPLES=20 to try
twenty times as many generated examples, other ones in each run (docs/fuzzing.md).
"""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from collections import Counter
from collections.abc import Generator
from importlib.util import find_spec

import pytest
from hypothesis import settings

from tests.crashes import NO_BINUTILS, NO_COMPILER, NO_TORCH

_made: list[str] = []

# A run of the tests judges a change, not chance: generated examples are the same in each run.
_more = int(os.environ.get("CRASHKIT_TEST_EXAMPLES", "0"))
settings.register_profile("ours", derandomize=not _more, max_examples=100 * (_more or 1), deadline=None)
settings.load_profile("ours")

TOOLS = dict.fromkeys(("readelf", "objcopy", "strip", "nm", "objdump", "c++filt"), NO_BINUTILS) | dict.fromkeys(("gcc", "g++"), NO_COMPILER)
"""Programs that only tests use, and why a test is skipped where one is missing (make test installs them)."""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, object, object]:
    if item.get_closest_marker("torch") and find_spec("torch") is None:
        pytest.skip(NO_TORCH)
    return (yield from _skip_without_its_tool())


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    return (yield from _skip_without_its_tool())


def _skip_without_its_tool() -> Generator[None, object, object]:
    try:
        return (yield)
    except FileNotFoundError as error:
        if error.filename in TOOLS:
            pytest.skip(TOOLS[error.filename])
        raise


def pytest_configure(config: pytest.Config) -> None:
    # A script's background command inherits both ignored, and its crashing programs would, too.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGQUIT, signal.SIG_DFL)
    if "CRASHKIT_TEST_CRASHES" not in os.environ:
        _made.append(tempfile.mkdtemp(prefix="crashkit-test-crashes-"))
        os.environ["CRASHKIT_TEST_CRASHES"] = _made[0]  # the workers inherit it
        os.environ["XDG_CACHE_HOME"] = f"{_made[0]}/cache"


def pytest_unconfigure(config: pytest.Config) -> None:
    for folder in _made:
        shutil.rmtree(folder, ignore_errors=True)
        del os.environ["CRASHKIT_TEST_CRASHES"]
    _made.clear()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """One line a reason, which says what is missing and how to get it."""
    reasons = Counter(_reason(report) for report in terminalreporter.stats.get("skipped", []))
    if reasons:
        terminalreporter.section("skipped")
    for reason, count in sorted(reasons.items(), key=lambda item: (-item[1], item[0])):
        terminalreporter.line(f"{count:4}  {reason}")


def _reason(report: pytest.TestReport | pytest.CollectReport) -> str:
    """Without the place, which differs from test to test."""
    where_and_why = report.longrepr
    reason = where_and_why[2] if isinstance(where_and_why, tuple) else str(where_and_why)
    return reason.removeprefix("Skipped: ")
