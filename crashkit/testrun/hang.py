"""Tests that hung: found in the journal and on stderr, and kept in the crash store with the stacks that were dumped."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, Optional

from crashkit import __version__
from crashkit.collect.keep import analyse_once, publish
from crashkit.collect.supervise.sighting import say
from crashkit.crashfolder.manifest import SCHEMA, Manifest
from crashkit.crashfolder.store import Store
from crashkit.errors import CollectError
from crashkit.model import PythonFrame
from crashkit.naming.own_code import own_line
from crashkit.report import safe
from crashkit.secrets.text import Secrets
from crashkit.testrun.journal import History, Run
from crashkit.testrun.stacks import Dump, on_stderr

_FRAME = re.compile(r'  File "([^"\n]{1,4000})", line (\d{1,9}) in ([^\n]{1,1000})$', re.M)


class Hang(NamedTuple):
    """One test that took too long."""

    node: str
    pid: int
    seconds: float
    text: str
    """The stacks, as faulthandler writes them."""

    @property
    def place(self) -> Optional[str]:
        """The innermost line of the user's own code, `test_x.py:12 in test_hang`; None if there is none."""
        threads = [_frames(block) for block in self.text.split("\n\n")]
        test = next((frames for frames in threads if self.function in [frame.function for frame in frames]), threads[0])
        own = own_line(test)
        return f"{own.file}:{own.line} in {own.function}" if own else None

    @property
    def answer(self) -> str:
        """How long it took and where it was, in one line."""
        return safe.line(f"timed out after {self.seconds:g} s" + (f", at {place}" if (place := self.place) else ""))

    @property
    def function(self) -> str:
        """The test's function."""
        return function_of(self.node)


def function_of(node: str) -> str:
    """The name of a test's function, without its parameters."""
    return node.partition("[")[0].rpartition("::")[2]


def _frames(text: str) -> list[PythonFrame]:
    return [PythonFrame(function=function, file=file, line=int(line)) for file, line, function in _FRAME.findall(text)]


def hangs(history: History, stderr: str) -> list[Hang]:
    """Those that pytest-timeout ended, then those whose stacks faulthandler dumped on stderr. Pure."""
    found = [Hang(event["node"], event["pid"], dump.seconds, dump.text) for event in history.hangs() for dump in on_stderr(event["text"])]
    slow = [run for run in history.runs() if run.patience and (run.ended is None or run.ended - run.began >= run.patience)]
    for dump in on_stderr(stderr):
        run = _run_of(dump, slow)
        if run is None:
            continue
        slow.remove(run)
        if (run.node, run.pid) not in [(one.node, one.pid) for one in found]:  # both may dump: faulthandler first, pytest-timeout later
            found.append(Hang(run.node, run.pid, dump.seconds, dump.text))
    return found


def _run_of(dump: Dump, slow: Sequence[Run]) -> Optional[Run]:
    """The test that a dump is of: one that took that long and whose function is on the stack, else the first that took that long."""
    functions = {frame.function for frame in _frames(dump.text)}
    named = [run for run in slow if function_of(run.node) in functions]
    return next(iter([*named, *slow]), None)


def keep(hang: Hang) -> Optional[Path]:
    """Put a hang into the crash store, analyzed; its folder, or None if there is no room for it. Prints what failed."""
    manifest: Manifest = {
        "schema": SCHEMA,
        "crashkit": __version__,
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "pid": hang.pid,
        "name": "pytest",
        "notes": [Secrets().text(f"{hang.node} took more than {hang.seconds:g} s")],
        "analysis": "pending",
    }
    try:
        store = Store()
        work = store.begin("crash")
        work.write("stderr.log", Secrets().text(hang.text).encode())
        publish(work, manifest, store, time.time())
        done = analyse_once(work, manifest)
        work.done()
    except (OSError, CollectError) as error:
        say(f"the stacks of {hang.node} were not kept: {os.strerror(error.errno or 0) if isinstance(error, OSError) else error}")
        return None
    return work.path if done else None
