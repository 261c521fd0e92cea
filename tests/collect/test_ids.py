"""One id for a crash, whether its core is read or the store keeps it."""

from __future__ import annotations

import pytest

from crashkit.crashfolder.ids import identity, time_of
from crashkit.pipeline import analyze
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
    ],
)
def test_ids(when: float | None, pid: int | None, executable: str | None, found: str) -> None:
    assert identity(when, pid, executable) == found
    assert time_of(found) == (None if when is None else int(when))


def test_a_core_gets_the_id_that_the_store_would_give_it() -> None:
    core = python_crash("faults.py", "null", python=an_interpreter()).core
    crash = analyze(core)
    assert crash.process is not None
    assert crash.id == identity(core.stat().st_mtime, crash.process.pid, crash.process.executable)
