"""Signals that CPython 3.14 had not handled yet, in a Debian sid; and its table of layouts against its debug info."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from crashkit.elf.file import read_build_id
from crashkit.interpreter.layouts import Version, layout_of
from crashkit.pipeline import Options, analyze
from tests.crashes import Folder, crash, needs_gdb
from tests.interpreter.process import SCRIPT as LAYOUTS
from tests.interpreter.test_pending_signals import SCRIPT, check_pending
from tests.test_support_matrix import sid, sid_is_there

pytestmark = [
    pytest.mark.chroot,
    pytest.mark.slow,
    pytest.mark.skipif(not sid_is_there(), reason="no Debian sid here: run as root with CRASHKIT_TEST_CHROOT=1"),
]


@pytest.fixture
def inside() -> Iterator[Path]:
    """A folder in the sid with the program."""
    folder = sid() / "tmp" / f"crashkit-signals-{os.getpid()}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    shutil.copy(SCRIPT, folder)
    yield folder
    shutil.rmtree(folder)


def died(inside: Path, what: str) -> Folder:
    command = f"cd /tmp/{inside.name} && exec /usr/bin/python3.14 {SCRIPT.name} {what}"
    return crash(["chroot", sid(), "/bin/sh", "-c", command], inside, {})


def test_with_nothing_but_the_core(inside: Path, tmp_path: Path) -> None:
    python = analyze(died(inside, "pending").core, options=Options(gdb=None, sysroot=tmp_path)).python
    assert python is not None and (python.version or "").startswith("3.14")
    check_pending(python.pending_signals)


def test_handled_signals_are_not_pending(inside: Path, tmp_path: Path) -> None:
    python = analyze(died(inside, "handled").core, options=Options(gdb=None, sysroot=tmp_path)).python
    assert python is not None and (python.version or "").startswith("3.14") and python.pending_signals == ()


@needs_gdb
def test_table_is_what_the_debug_info_says() -> None:
    build = read_build_id(sid() / "usr/bin/python3.14") or ""
    file = sid() / "usr/lib/debug/.build-id" / build[:2] / f"{build[2:]}.debug"
    command: list[str | Path] = [
        "gdb",
        "-nx",
        "-batch",
        "-iex",
        "set auto-load no",
        "-iex",
        "set debuginfod enabled off",
        "-x",
        LAYOUTS,
        file,
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=True)
    ours = {name: fields for name, fields in json.loads(msgspec.json.encode(layout_of(Version(3, 14)))).items() if fields}
    assert {name: {key: place for key, place in fields.items() if place is not None} for name, fields in ours.items()} == json.loads(
        done.stdout
    )
