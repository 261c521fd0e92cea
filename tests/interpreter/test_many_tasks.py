"""Thousands of asyncio tasks: all are read, and where a bound is reached, the report says how many are missing, and why."""

from __future__ import annotations

import re

import pytest

from crashkit.model import Crash
from crashkit.pipeline import Options, analyze
from crashkit.report import html, text, wording
from tests.crashes import Interpreter, python_crash, some_interpreters

OTHERS = 3
"""That which crashes, who waits for it, and who waits for all."""


def analyzed(python: Interpreter, count: int) -> Crash:
    return analyze(python_crash("many_tasks.py", str(count), python=python).core, options=Options(gdb=None))


def told(crash: Crash) -> list[str]:
    return [error.message for error in crash.soft_errors if error.stage == "tasks"]


@pytest.mark.slow
@pytest.mark.parametrize("python", some_interpreters("3.8", "3.11", "3.13"))
def test_ten_thousand_are_in_the_report(python: Interpreter) -> None:
    """The set that holds them has a table of 32,768 entries or more."""
    crash = analyzed(python, 10_000)
    assert len(crash.tasks) == 10_000 + OTHERS and told(crash) == []
    assert sum([frame.function for frame in task.frames][-2:] == ["parse", "fetch"] for task in crash.tasks) == 10_000
    assert [task.state for task in crash.tasks[:3]] == ["running", "waiting", "waiting"]
    assert "awaited by handle" in (wording.in_task(crash) or "")


@pytest.mark.slow
@pytest.mark.parametrize("python", some_interpreters("3.11"))
def test_it_is_said_how_many_a_report_has_no_room_for(python: Interpreter, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("crashkit.limits.COROUTINE_BYTES", 0)
    crash = analyzed(python, 10_000)
    (message,) = told(crash)
    found = re.fullmatch(r"([\d,]+) of 10,003 tasks were left out: the report would be too long", message)
    assert found is not None and int(found[1].replace(",", "")) == 10_003 - len(crash.tasks) > 0
    # Who waits for what crashed is not among them.
    assert [[frame.function for frame in task.frames] for task in crash.tasks[:2]] == [["string_at", "crash"], ["handle"]]
    assert "awaited by handle" in (wording.in_task(crash) or "")
    shown = " ".join("\n".join(text.summary(crash, None, color=False, width=200)).split())
    page = html.render(crash)
    assert message in shown and f"{message}." in page and f"{len(crash.tasks) - 100:,} more are in report.json" in page


@pytest.mark.slow
@pytest.mark.parametrize("python", some_interpreters("3.11"))
def test_it_is_said_how_many_there_was_no_time_for(python: Interpreter, monkeypatch: pytest.MonkeyPatch) -> None:
    from crashkit.interpreter.tasks import TaskReader

    read = TaskReader._task

    def slowly(self: TaskReader, address: int, running: bool, places: object) -> object:
        if len(seen) == 100:
            monkeypatch.setattr(self._view, "_ends", 0.0)  # the time is over
        seen.append(address)
        return read(self, address, running, places)  # type: ignore[arg-type]

    seen: list[int] = []
    monkeypatch.setattr(TaskReader, "_task", slowly)
    crash = analyzed(python, 10_000)
    assert len(crash.tasks) == 100
    assert told(crash) == ["9,903 of 10,003 asyncio tasks were left out: reading them took too long"]
