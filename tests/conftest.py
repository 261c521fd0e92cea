"""One folder of crashes for the whole test session, shared by pytest-xdist's workers and removed at the end.

Set CRASHKIT_TEST_CRASHES to a folder of your own to keep the crashes from one run to the next.
"""

from __future__ import annotations

import os
import shutil
import tempfile

import pytest

_made: list[str] = []


def pytest_configure(config: pytest.Config) -> None:
    if "CRASHKIT_TEST_CRASHES" not in os.environ:
        _made.append(tempfile.mkdtemp(prefix="crashkit-test-crashes-"))
        os.environ["CRASHKIT_TEST_CRASHES"] = _made[0]  # the workers inherit it


def pytest_unconfigure(config: pytest.Config) -> None:
    for folder in _made:
        shutil.rmtree(folder, ignore_errors=True)
        del os.environ["CRASHKIT_TEST_CRASHES"]
    _made.clear()
