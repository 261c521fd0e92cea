"""Who holds the GIL of CPython 3.14 and who wants it, in a Debian sid: with its debug info and gdb, and with nothing but the core."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from crashkit.pipeline import Options, analyze
from crashkit.report import html, text
from tests.crashes import CRASHERS, Folder, crash, needs_gdb
from tests.interpreter.test_gil import check
from tests.test_support_matrix import sid, sid_is_there

pytestmark = [
    pytest.mark.chroot,
    pytest.mark.slow,
    pytest.mark.skipif(not sid_is_there(), reason="no Debian sid here: run as root with CRASHKIT_TEST_CHROOT=1"),
]

SCRIPT = "gil.py"


@pytest.fixture(scope="module")
def made() -> Iterator[Folder]:
    inside = sid() / "tmp" / f"crashkit-gil-{os.getpid()}"
    shutil.rmtree(inside, ignore_errors=True)
    inside.mkdir()
    try:
        shutil.copy(CRASHERS / SCRIPT, inside)
        command: list[str | bytes | Path] = [
            "chroot",
            sid(),
            "/bin/sh",
            "-c",
            f"cd /tmp/{inside.name} && exec /usr/bin/python3.14 {SCRIPT}",
        ]
        yield crash(command, inside, {})
    finally:
        shutil.rmtree(inside)


def test_with_nothing_but_the_core(made: Folder, tmp_path: Path) -> None:
    found = analyze(made.core, options=Options(gdb=None, sysroot=tmp_path))
    assert found.python is not None and (found.python.version or "").startswith("3.14")
    check(found)
    told = "\n".join(text.summary(found, None, color=False, width=200))
    assert len(re.findall(r"wants \d \(\d+\) waits in wants \(gil.py:16\) for the GIL, held by holds", told)) == 3, told
    assert "waiting for the GIL" in html.render(found)


@needs_gdb
def test_with_debug_info(made: Folder) -> None:
    found = analyze(made.core, options=Options(sysroot=sid()))
    check(found)
    waits = [(wait.kind, wait.held_by) for wait in found.waits if wait.kind == "gil"]
    assert waits == [("gil", found.crashed_thread)] * 3
