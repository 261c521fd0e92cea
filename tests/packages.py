"""Packages for the interpreters of the tests, installed once and kept in ~/.cache/crashkit-tests."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.crashes import DEADLINE, Interpreter, lock

CACHE = Path.home() / ".cache" / "crashkit-tests"


def folder_with(python: Interpreter, *packages: str) -> Path:
    """A folder with these packages for that interpreter; skips the test where they cannot be had."""
    folder = CACHE / f"{python.name}-{'-'.join(packages)}"
    CACHE.mkdir(parents=True, exist_ok=True)
    with lock(folder.with_name(f"{folder.name}.lock")):
        if not folder.exists():
            partial = folder.with_name(f"{folder.name}.{os.getpid()}")
            options = ["--quiet", "--disable-pip-version-check", "--only-binary", ":all:", "--target", partial]
            done = subprocess.run([python.path, "-m", "pip", "install", *options, *packages], capture_output=True, timeout=DEADLINE)
            if done.returncode != 0:
                pytest.skip(f"pip cannot install {' '.join(packages)} for {python.name}")
            partial.rename(folder)
    return folder
