"""A deep stack is in report.json with every frame, up to a limit; in HTML and on the terminal a cycle stands once with its count."""

from __future__ import annotations

import json

import pytest

from crashkit.model import ElidedFrames
from crashkit.pipeline import Options, analyze
from crashkit.report import html, text
from crashkit.report.json import encode
from tests.crashes import Interpreter, needs_gdb, python_crash, some_interpreters

CALLS = 2400


@needs_gdb
@pytest.mark.long
@pytest.mark.parametrize("gdb", ["gdb", None])
@pytest.mark.parametrize("python", some_interpreters("3.9", "3.11", "3.13"))
def test_every_frame_is_in_the_report(python: Interpreter, gdb: str | None) -> None:
    crash = analyze(python_crash("recursion.py", str(CALLS), python=python).core, options=Options(gdb=gdb))
    document = encode(crash)
    report = json.loads(document)
    thread = next(thread for thread in report["threads"] if thread.get("crashed"))
    frames = thread["frames"] if gdb else thread.get("python_frames") or thread["frames"]
    functions = [frame["function"] for frame in frames if frame["kind"] == "python"]
    assert functions == ["string_at", *["even", "odd"] * (CALLS // 2), "even", "<module>"]
    assert not any(frame["kind"] == "elided" for frame in frames)
    # Only the ends of a very deep stack have all values.
    assert [frame for frame in frames if frame["kind"] == "python"][1]["locals"] == {"left": "0"}
    assert len(document) < 20e6
    page = html.render(crash)
    assert f"{CALLS // 2:,} times in a row" in page and len(page) < 1e6
    screen = list(text.summary(crash, None, color=False, width=100))
    assert any(f"{CALLS // 2:,} times in a row" in row for row in screen) and len(screen) < 100


@pytest.mark.long
@pytest.mark.parametrize("python", some_interpreters("3.11", "3.13"))
def test_beyond_the_limit_both_ends_are(python: Interpreter) -> None:
    crash = analyze(python_crash("recursion.py", "24000", python=python).core, options=Options(gdb=None))
    assert crash.thread is not None
    frames = crash.thread.python_frames or crash.thread.frames
    elided = [frame for frame in crash.thread.frames if isinstance(frame, ElidedFrames)]
    assert len(frames) < 1000 and elided and elided[0].count is not None and elided[0].count > 23_000
    assert set(elided[0].cycle) == {"even", "odd"}
