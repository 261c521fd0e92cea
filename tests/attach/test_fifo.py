"""Who opens a FIFO waits until another process opens its other end: the report names the FIFO, and the line that opens it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from crashkit.collect.attach import attach
from crashkit.pipeline import Options
from tests.attach.programs import running, until_asleep
from tests.crashes import an_interpreter, needs_x86_64

pytestmark = needs_x86_64()
OPENS = """
import os
def send():
    return open("queue", {mode!r})
print("ready", os.getpid(), flush=True)
send()
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mode", "how"),
    [("w", "for writing, a FIFO that nobody has open for reading"), ("r", "for reading, a FIFO that nobody has open for writing")],
)
def test_the_other_end_is_not_open(mode: str, how: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "queue")
    with running(an_interpreter(), OPENS.format(mode=mode), tmp_path) as (process, _):
        until_asleep(process.pid, 1)
        crash = attach(process.pid, Options(gdb=None))
    assert [(wait.kind, wait.name, wait.inside) for wait in crash.waits] == [("open", f"queue {how}", False)]
    assert crash.threads[0].activity == "blocked"
    (finding,) = crash.findings
    assert finding.id == "hang-io"
    assert f"waits in send (program.py:4) for the opening of queue {how}, " in (finding.summary or "")
