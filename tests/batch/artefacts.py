"""A folder as a failed run leaves it, made of real crashes."""

from __future__ import annotations

import io
import os
import shlex
import shutil
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.crashes import Folder, Interpreter, crash, interpreters, python_crash

ONE_INTERPRETER = "needs two versions of Python: pyenv install 3.11 3.13"

TESTS = """
import ctypes

def parse(text):
    ctypes.CDLL(None).abort()

def test_fine():
    pass

class TestParser:
    def test_parses(self):
        parse("x")
"""


class Run(NamedTuple):
    """The folder, and what each crash left in it, as crashkit shall name it."""

    path: Path
    first: set[str]
    second: set[str]
    third: set[str]


def two_interpreters() -> tuple[Interpreter, Interpreter]:
    """Of different versions, of which neither has its own name for comprehensions' frames."""
    found = {one.version[:2]: one for one in interpreters() if one.version >= (3, 8) and not one.free_threaded}
    if len(found) < 2:
        pytest.skip(ONE_INTERPRETER)
    newest, *others = sorted(found.values(), key=lambda one: (one.version[:2] == (3, 11), one.version), reverse=True)
    return newest, others[0]


def pytest_crash(folder: Path) -> Folder:
    """A test that aborts under pytest, whose whole output is pytest.log. The repository is in `repository`."""
    (folder / "repository" / "tests").mkdir(parents=True)
    (folder / "repository" / "tests" / "test_parser.py").write_text(TESTS)
    dead = folder / "dead"
    dead.mkdir()
    tests = folder / "repository"
    command = f"exec {shlex.quote(sys.executable)} -m pytest -v -p no:cacheprovider --rootdir {tests} {tests}/tests > pytest.log 2>&1"
    return crash(["/bin/sh", "-c", command], dead, program=Path(sys.executable))


def failed_run(folder: Path, tested: Folder) -> Run:
    """The same crash on two interpreters, one of them in a zip within a tar, and that of a test; their logs lie elsewhere."""
    one, other = (python_crash("threads.py", python=python) for python in two_interpreters())
    run = folder / "artefacts"
    for name in ("job-1/cores", "logs", "models"):
        (run / name).mkdir(parents=True)
    shutil.copy2(one.core, run / "job-1/cores/4711.dat")
    shutil.copy2(one.path / "stderr.txt", run / "logs/worker.txt")
    inner = io.BytesIO()
    with zipfile.ZipFile(inner, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        archive.write(other.core, "job-2/dump")
        archive.write(other.path / "stderr.txt", "job-2/console")
        archive.writestr("job-2/weights.npy", b"\x93NUMPY" + bytes(100_000))
    with tarfile.open(run / "artifacts", "w") as archive:
        info = tarfile.TarInfo("upload/logs.zip")
        info.size = len(inner.getvalue())
        archive.addfile(info, io.BytesIO(inner.getvalue()))
    shutil.copy2(tested.core, run / "models/blob")
    shutil.copy2(tested.path / "pytest.log", run / "logs/build.log")

    os.mkfifo(run / "pipe")
    (run / "latest").symlink_to("gone")
    (run / "unreadable").symlink_to("/proc/self/mem")  # root may read everything else
    (run / "secret.log").write_text("Segmentation fault\n")
    (run / "secret.log").chmod(0)
    (run / "job-1/core").touch()
    with (run / "models/model.bin").open("wb") as file:
        file.write(b"\x80\x02weights")
        file.truncate(6 << 30)
    (run / "notes.md").write_text("Fatal Python error: Segmentation fault means that ...\n")
    return Run(
        run,
        {f"{run}/job-1/cores/4711.dat", f"{run}/logs/worker.txt"},
        {f"{run}/artifacts!upload/logs.zip!job-2/dump", f"{run}/artifacts!upload/logs.zip!job-2/console"},
        {f"{run}/models/blob", f"{run}/logs/build.log"},
    )
