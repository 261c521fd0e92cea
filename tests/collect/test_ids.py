"""One id for a crash, whether its core is read or the store keeps it."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import pytest

from crashkit.crashfolder.ids import identity, time_of
from crashkit.pipeline import Options, analyze
from tests.crashes import an_interpreter, python_crash


@pytest.mark.parametrize(
    ("when", "pid", "executable", "found"),
    [
        (1795216320.9, 5752, "/usr/bin/python3.11", "20261120T231200-5752-python3.11"),
        (0, 1, "x" * 41, "19700101T000000-1-" + "x" * 40),
        (0, 1, "../../etc/..", "19700101T000000-1-unknown"),
        (0, 1, "/srv/a b\n\x1b[31m", "19700101T000000-1-a_b___31m"),
        (0, 1, ".-hidden", "19700101T000000-1-hidden"),
        (None, None, None, "unknown-time-0-unknown"),
        (1 << 40, 7, "app", "unknown-time-7-app"),  # the year 36812, of a broken file system
    ],
)
def test_ids(when: float | None, pid: int | None, executable: str | None, found: str) -> None:
    assert identity(when, pid, executable) == found
    assert time_of(found) == (None if when is None or "unknown-time" in found else int(when))


@pytest.mark.slow
def test_a_core_of_a_year_that_no_calendar_has_is_read() -> None:
    core = python_crash("faults.py", "null", python=an_interpreter()).core
    with tempfile.NamedTemporaryFile(dir="/dev/shm") as copy:
        shutil.copyfile(core, copy.name)
        os.utime(copy.name, (1 << 40, 1 << 40))
        if Path(copy.name).stat().st_mtime != 1 << 40:
            pytest.skip("the file system of /dev/shm keeps no such time")
        crash = analyze(Path(copy.name), options=Options(gdb=None))
    assert crash.time is None and crash.signal is not None and crash.signal.name == "SIGSEGV"


def test_a_core_gets_the_id_that_the_store_would_give_it() -> None:
    core = python_crash("faults.py", "null", python=an_interpreter()).core
    crash = analyze(core)
    assert crash.process is not None
    assert crash.id == identity(core.stat().st_mtime, crash.process.pid, crash.process.executable)
