"""The full version of a dead interpreter is what it said of itself when it lived."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from crashkit.evidence.core.core import open_core
from crashkit.evidence.core.modules import loaded_modules
from crashkit.evidence.interpreter import find_interpreter
from crashkit.evidence.python_version import version_in_core, version_in_file
from crashkit.pipeline import Options, analyze
from tests.crashes import Interpreter, every_interpreter, python_crash


def said_by(python: Interpreter) -> str:
    done = subprocess.run(
        [python.path, "-I", "-c", "import sys; print(sys.version.split()[0])"], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


@pytest.mark.slow
@pytest.mark.parametrize("python", every_interpreter())
@pytest.mark.parametrize("minor_is_known", [True, False])
def test_core_and_file_tell_it_alone(python: Interpreter, minor_is_known: bool) -> None:
    made = python_crash("threads.py", python=python)
    core = open_core(made.core.open("rb"), made.core, made.core.stat().st_size)
    assert core is not None
    with core:
        found = find_interpreter(loaded_modules(core), core.executable())
        assert found is not None
        assert version_in_core(core, found.module, found.version if minor_is_known else None) == said_by(python)
    if minor_is_known:
        assert version_in_file(Path(found.module.path), found.version) == said_by(python)


@pytest.mark.slow
@pytest.mark.parametrize("python", every_interpreter())
def test_the_report_has_it_with_and_without_files(python: Interpreter, tmp_path: Path) -> None:
    made = python_crash("threads.py", python=python)
    for options in (Options(gdb=None), Options(gdb=None, sysroot=tmp_path)):
        crash = analyze(made.core, options=options)
        assert crash.python is not None and crash.python.version == said_by(python)


@pytest.mark.parametrize(
    ("data", "version"),
    [
        (b"\x003.13.5\x003.13\0", "3.13.5"),
        (b"\x003.13.0rc2+\0", "3.13.0rc2+"),
        (b"\x003.13.1 | packaged by conda-forge |\0", "3.13.1"),
        (b"\x0013.13.5\x003.13.5.1\x003.12.5\0", None),
        (b"3.13.5\x003.13.6\0", None),
        (b"", None),
    ],
)
def test_bytes_of_a_file(data: bytes, version: str | None, tmp_path: Path) -> None:
    (tmp_path / "python").write_bytes(data)
    assert version_in_file(tmp_path / "python", "3.13") == version


def test_no_file(tmp_path: Path) -> None:
    assert version_in_file(tmp_path / "python", "3.13") is None
    assert version_in_file(tmp_path, None) is None
