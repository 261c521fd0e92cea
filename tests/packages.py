"""Packages for the interpreters of the tests, installed once and kept in ~/.cache/crashkit-tests."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.crashes import DEADLINE, Interpreter, lock

CACHE = Path.home() / ".cache" / "crashkit-tests"


def install(python: Interpreter, target: Path, *packages: str, options: Sequence[str] = (), patience: float = DEADLINE) -> None:
    """Packages for that interpreter, by its own pip or that of the tests; skips the test where they cannot be had."""
    has_pip = subprocess.run([python.path, "-c", "import pip"], capture_output=True, timeout=DEADLINE).returncode == 0
    pip = [python.path, "-m", "pip"] if has_pip else [sys.executable, "-m", "pip", "--python", python.path]
    always = ["install", "--quiet", "--no-compile", "--disable-pip-version-check", "--target", target]
    done = subprocess.run([*pip, *always, *options, *packages], capture_output=True, text=True, errors="replace", timeout=patience)
    if done.returncode != 0:
        said = (done.stderr.strip().splitlines() or ["pip said nothing"])[-1]
        pytest.skip(f"pip cannot install {', '.join(packages)} for {python.name}: {said[:200]}")


def folder_with(python: Interpreter, *packages: str) -> Path:
    """A folder with these packages for that interpreter; skips the test where they cannot be had."""
    folder = CACHE / f"{python.name}-{'-'.join(packages)}"
    CACHE.mkdir(parents=True, exist_ok=True)
    with lock(folder.with_name(f"{folder.name}.lock")):
        if not folder.exists():
            partial = folder.with_name(f"{folder.name}.{os.getpid()}")
            install(python, partial, *packages, options=["--only-binary", ":all:"])
            partial.rename(folder)
    return folder
