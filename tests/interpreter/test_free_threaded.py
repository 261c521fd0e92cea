"""Free-threaded builds of CPython, by recorded crashes: what `test_known_threads.py` does not hold them to.

Nothing is there but the cores: no interpreter of theirs, and no debug info.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from crashkit.model import Crash
from crashkit.pipeline import Options, analyze
from crashkit.report import html, text, wording
from tests.interpreter import test_greenlets, test_tasks
from tests.interpreter.recorded import VERSIONS, recorded
from tests.interpreter.test_damage import check_damage
from tests.interpreter.test_pending_signals import check_pending
from tests.interpreter.test_tasks import check_waits, compare


@pytest.fixture(params=VERSIONS)
def version(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def analyzed(core: Path, folder: Path) -> Crash:
    return analyze(core, options=Options(gdb=None, sysroot=folder / "nothing"))


def test_nobody_holds_a_gil_that_is_off(version: str, tmp_path: Path) -> None:
    crash = analyzed(recorded(version, "known_threads.py", tmp_path).core, tmp_path)
    assert crash.python is not None and crash.python.free_threaded
    assert {(thread.holds_gil, thread.waits_for_gil) for thread in crash.threads} == {(None, False)}
    shown = "\n".join(text.summary(crash, None, color=False, width=100))
    assert "crasher" in shown and not re.search("held the GIL|waiting for the GIL|, without the GIL", shown)
    assert "free-threaded-race" in {finding.id for finding in crash.findings}
    assert [frame.function for frame in crash.thread.pythons()][:3] == ["string_at", "crash", "step"]  # type: ignore[union-attr]


def test_a_gil_that_was_turned_on_has_a_holder(version: str, tmp_path: Path) -> None:
    crash = analyzed(recorded(version, "gil.py", tmp_path).core, tmp_path)
    assert crash.python is not None and crash.python.free_threaded
    assert {thread.name: thread.holds_gil for thread in crash.threads} == {
        "holds": True,
        **dict.fromkeys(("without", "locked", "wants 0", "wants 1", "wants 2"), False),
    }
    assert "free-threaded-race" not in {finding.id for finding in crash.findings}


def test_tasks_are_what_the_program_saw(version: str, tmp_path: Path) -> None:
    made = recorded(version, "waiting_tasks.py", tmp_path)
    crash = analyzed(made.core, tmp_path)
    compare(crash, made.stderr, ("iterates",))
    check_waits(crash.tasks)
    assert (wording.in_task(crash) or "").startswith("fetch-42, awaited by handle_request (waiting_tasks.py:")
    assert 'id="tasks"' in html.render(crash)


def test_pending_signals_are_read_with_their_handlers(version: str, tmp_path: Path) -> None:
    python = analyzed(recorded(version, "pending_signal.py", tmp_path).core, tmp_path).python
    assert python is not None and python.free_threaded
    check_pending(python.pending_signals)


def test_greenlets_are_what_the_program_saw(version: str, tmp_path: Path) -> None:
    made = recorded(version, "greenlets.py", tmp_path)
    crash = analyzed(made.core, tmp_path)
    assert test_greenlets.ours(crash) == test_greenlets.told(made) and len(crash.greenlets) == 11
    assert {one.thread for one in crash.greenlets} == {thread.tid for thread in crash.threads}
    assert [error.message for error in crash.soft_errors if "greenlets" in error.message] == []
    assert (wording.in_greenlet(crash) or "").startswith("Worker of crash (greenlets.py:")


@pytest.mark.slow
def test_damage_is_survived_in_bounded_time(version: str, tmp_path: Path) -> None:
    check_damage(recorded(version, "known_threads.py", tmp_path).core, samples=40)


@pytest.mark.slow
def test_damage_to_tasks_is_survived_in_bounded_time(version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    test_tasks.check_damage(recorded(version, "waiting_tasks.py", tmp_path).core, monkeypatch, samples=20)
