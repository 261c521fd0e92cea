"""The locks of CPython 3.14, which are all `PyMutex`, in a Debian sid: of live processes and of cores, held to what the programs do.

The processes run in a chroot, so these tests also hold what /proc says of one: names of files as we see them, not as it does.
"""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from crashkit.collect.attach import attach
from crashkit.model import Crash
from crashkit.pipeline import Options, analyze
from tests.attach import programs
from tests.attach.programs import WITHOUT_GDB, leaves_core, running, unharmed, until_asleep
from tests.attach.test_waits import (
    tells_no_owner,
    tells_the_import,
    tells_the_lock_taken_twice,
    tells_the_queue,
    tells_the_rlock,
    tells_two_locks,
)
from tests.crashes import cores_land_in_cwd, needs_x86_64
from tests.test_support_matrix import sid, sid_is_there

pytestmark = [
    needs_x86_64(),
    pytest.mark.chroot,
    pytest.mark.slow,
    pytest.mark.skipif(not sid_is_there(), reason="no Debian sid here: run as root with CRASHKIT_TEST_CHROOT=1"),
]
PYTHON = Path("/usr/bin/python3.14")


# The program, how many threads it has, and what is to be said of it.
PROGRAMS: dict[str, tuple[str, int, Callable[[Crash], None]]] = {
    "two locks": (programs.TWO_LOCKS, 3, tells_two_locks),
    "an RLock and a Condition": (programs.RLOCK_AND_CONDITION, 3, tells_the_rlock),
    "a lock taken twice": (programs.TAKEN_TWICE, 1, lambda crash: tells_the_lock_taken_twice(crash, crash.threads[0].tid or 0)),
    "locks that nobody is known to hold": (programs.FINISHED_WITH, 3, tells_no_owner),
    "a queue": (programs.QUEUE, 1, tells_the_queue),
    "a simple queue": (programs.SIMPLE_QUEUE, 1, tells_the_queue),
    "an import": (programs.IMPORT, 3, tells_the_import),
}


@pytest.fixture
def inside() -> Iterator[Path]:
    """A folder in the sid."""
    folder = sid() / "tmp" / f"crashkit-waits-{os.getpid()}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    (folder / "shared.py").write_text(programs.SHARED)
    (folder / "slow_module.py").write_text(programs.SLOW_MODULE)
    yield folder
    shutil.rmtree(folder)


@pytest.mark.parametrize("name", PROGRAMS)
def test_live_and_from_a_core(name: str, inside: Path) -> None:
    program, threads, tells = PROGRAMS[name]
    with cores_land_in_cwd(), running(PYTHON, program, inside, root=sid()) as (process, _):
        until_asleep(process.pid, threads)
        crash = attach(process.pid, WITHOUT_GDB)
        assert unharmed(process.pid)
        leaves_core(process, signal.SIGQUIT)
    assert crash.process is not None and crash.process.executable == str(PYTHON)
    tells(crash)
    dead = analyze(inside / "core", options=Options(gdb=None, sysroot=sid()))
    assert dead.signal is not None and dead.signal.name == "SIGQUIT"
    tells(dead)
