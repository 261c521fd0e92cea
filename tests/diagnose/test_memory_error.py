"""A MemoryError that nobody caught is named with its line and, where it is said, the size; what only looks like one is not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from crashkit.model import Crash, Finding
from crashkit.pipeline import analyze

IN_NUMPY = """import sys, types
module = types.ModuleType("numpy._core._exceptions")
class _ArrayMemoryError(MemoryError):
    __module__ = "numpy._core._exceptions"
    def __str__(self):
        return "Unable to allocate 7.45 GiB for an array with shape (100000, 10000) and data type float64"
def load():
    raise _ArrayMemoryError
load()
"""
IN_TORCH = """def load():
    raise RuntimeError("[enforce fail at alloc_cpu.cpp:73] . DefaultCPUAllocator: can't allocate memory: you tried to allocate 80000000000 "
                       "bytes. Error code 12 (Cannot allocate memory)")
load()
"""
PLAIN = "def load():\n    return bytearray(1 << 62)\nload()\n"
IN_HANDLER = "def load():\n    try:\n        {}['a']\n    except KeyError:\n        bytearray(1 << 62)\nload()\n"
LOGGED = "import logging\ntry:\n    bytearray(1 << 62)\nexcept MemoryError:\n    logging.exception('cannot load')\nraise SystemExit(1)\n"
IN_THREAD = "import threading\nthread = threading.Thread(target=bytearray, args=(1 << 62,))\nthread.start()\nthread.join()\n"
IN_CALLBACK = (
    "import asyncio\nloop = asyncio.new_event_loop()\nloop.call_soon(bytearray, 1 << 62)\n"
    "loop.call_later(0.1, loop.stop)\nloop.run_forever()\n"
)


def ended(program: str, folder: Path, *command: str) -> Crash:
    script = folder / "test_program.py"
    script.write_text(program)
    run = subprocess.run([sys.executable, *command, script], capture_output=True, text=True, timeout=60)
    (folder / "run.log").write_text(run.stderr + run.stdout)
    return analyze(folder / "run.log")


def known(crash: Crash) -> Finding | None:
    return next((finding for finding in crash.findings if finding.id == "memory-refused"), None)


@pytest.mark.parametrize(
    ("program", "line", "told"),
    [
        (PLAIN, 2, ""),
        (IN_HANDLER, 5, ""),
        (IN_NUMPY, 8, "7.45 GiB were asked for and refused. They were for an array of shape (100000, 10000) and type float64."),
        (IN_TORCH, 2, "74.5 GiB were asked for and refused. They were for a tensor."),
    ],
    ids=["plain", "in a handler", "numpy", "torch"],
)
def test_uncaught(program: str, line: int, told: str, tmp_path: Path) -> None:
    finding = known(ended(program, tmp_path))
    assert finding is not None and finding.confidence == "likely"
    assert told in (finding.summary or "") and f"at {tmp_path}/test_program.py:{line}." in (finding.summary or "")


@pytest.mark.parametrize("program", [LOGGED, IN_THREAD, IN_CALLBACK], ids=["logged", "in a thread", "in a callback"])
def test_it_may_not_have_ended_the_process(program: str, tmp_path: Path) -> None:
    finding = known(ended(program, tmp_path))
    assert finding is not None and finding.confidence == "possible"


def test_as_pytest_shows_it(tmp_path: Path) -> None:
    assert known(ended("def test_load():\n    bytearray(1 << 62)\n", tmp_path, "-m", "pytest", "-p", "no:cacheprovider")) is not None


@pytest.mark.parametrize(
    "program",
    [
        "try:\n    bytearray(1 << 62)\nexcept MemoryError:\n    raise ValueError('no room')\n",
        "class MyMemoryErrorHandler(Exception): pass\nraise MyMemoryErrorHandler('MemoryError: handled')\n",
        "class OutOfMemoryError(RuntimeError): pass\nraise OutOfMemoryError('CUDA out of memory. Tried to allocate 20.00 MiB')\n",
        "raise KeyError('MemoryError')\n",
    ],
    ids=["caught", "handler", "cuda", "key"],
)
def test_look_alikes(program: str, tmp_path: Path) -> None:
    assert known(ended(program, tmp_path)) is None
