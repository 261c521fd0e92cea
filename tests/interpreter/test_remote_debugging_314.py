"""The stacks of a live CPython 3.14, in a Debian sid, as its own `_remote_debugging` reads them from outside."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from crashkit.evidence.core.modules import loaded_modules
from crashkit.evidence.interpreter import find_interpreter
from crashkit.interpreter.finding import Module
from crashkit.interpreter.layouts import Version
from crashkit.interpreter.read import read_python
from crashkit.memory.live import LiveProcess
from tests.crashes import CRASHERS, DEADLINE
from tests.test_support_matrix import sid, sid_is_there

pytestmark = [
    pytest.mark.chroot,
    pytest.mark.slow,
    pytest.mark.skipif(not sid_is_there(), reason="no Debian sid here: run as root with CRASHKIT_TEST_CHROOT=1"),
]

UNWIND = """
import _remote_debugging, json, sys
unwinder = _remote_debugging.RemoteUnwinder(int(sys.argv[1]), all_threads=True)
threads = unwinder.get_stack_trace()
print(json.dumps([[thread.thread_id, [[frame.funcname, frame.lineno] for frame in thread.frame_info]] for thread in threads]))
"""


def test_every_frame_is_remote_debuggings() -> None:
    inside = sid() / "tmp" / f"crashkit-standing-{os.getpid()}"
    inside.mkdir()
    try:
        shutil.copy(CRASHERS / "standing.py", inside)
        # The unwinder finds files by /proc, where their names are those of its own mounts.
        script = 'mount -t proc proc "$0/proc" && exec chroot "$0" /usr/bin/python3.14 "$@"'
        command: list[str | Path] = ["unshare", "--mount", "sh", "-c", script, sid(), f"/tmp/{inside.name}/standing.py"]
        with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as child:
            try:
                assert child.stdout is not None and child.stdout.readline() == b"ready\n"
                ask = ["nsenter", "-t", str(child.pid), "--mount", "--root", "/usr/bin/python3.14", "-c", UNWIND, str(child.pid)]
                told = subprocess.run(ask, capture_output=True, text=True, timeout=DEADLINE, check=True).stdout
                child.send_signal(signal.SIGSTOP)
                with LiveProcess(child.pid) as live:
                    found = find_interpreter(loaded_modules(live), "/usr/bin/python3.14")
                    assert found is not None
                    state = read_python(live, [Module(found.module, None)], Version(3, 14), {})
            finally:
                child.kill()
    finally:
        shutil.rmtree(inside)
    assert state is not None
    ours = {
        thread.state.native_id: [
            (plain(frame.code and frame.code.qualified_name), frame.position and frame.position.line) for frame in thread.stack.inner
        ]
        for thread in state.threads
    }
    theirs = {tid: [(plain(name), line) for name, line in frames] for tid, frames in json.loads(told)}
    assert ours.keys() == theirs.keys() and len(ours) == 6
    # Theirs end where Python was called by C, as by sorted().
    assert {tid: frames[: len(theirs[tid])] for tid, frames in ours.items()} == theirs
    assert all(theirs.values()) and sum(len(frames) > 1 for frames in theirs.values()) >= 5


def plain(name: str | None) -> str:
    """Names that are not Latin-1 it reads wrongly."""
    return name if name and name.isascii() and name.isprintable() else "?"
