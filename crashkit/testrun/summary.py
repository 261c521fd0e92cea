"""The end of a session on the terminal: each crash and each hang, the test that it belongs to, and its report."""

from __future__ import annotations

import calendar
import time
from collections.abc import Sequence
from typing import Optional

from crashkit.report import safe
from crashkit.testrun import told
from crashkit.testrun.hang import Hang, hangs, keep
from crashkit.testrun.journal import History
from crashkit.testrun.told import Told


def summary(history: History, crashes: Sequence[Told], stderr: str) -> str:
    """One paragraph for each, empty if there is none. Puts the hangs into the crash store."""
    hung = hangs(history, stderr)
    paragraphs = [f"{safe.line(owner(history, crash))}\n{_indented(told.text(crash))}" for crash in crashes]
    paragraphs += [f"{safe.line(one.node)} hung\n{_indented(_text(one))}" for one in hung]
    if not paragraphs:
        return ""
    counts = [f"{len(crashes)} crash{'es' if len(crashes) > 1 else ''}"] if crashes else []
    counts += [f"{len(hung)} hang{'s' if len(hung) > 1 else ''}"] if hung else []
    return f"crashkit: {', '.join(counts)}\n" + "".join(f"{paragraph}\n" for paragraph in paragraphs)


def owner(history: History, crash: Told) -> str:
    """The test that a crash belongs to, and how, in a few words. Pure."""
    step = history.step(crash.pid)
    if step is not None:
        return f"{step.node} crashed" + {"collect": " while it was collected", "call": ""}.get(step.when, f" in {step.when}")
    if said := history.describe(crash.pid):
        return said
    test = history.forked_by(crash.pid) or _from_environment(crash) or _from_parent(history, crash)
    name = crash.manifest.get("name") or "a process"
    return f"{name}[{crash.pid}], started by {test}, crashed" if test else f"{name}[{crash.pid}] crashed"


def _from_environment(crash: Told) -> Optional[str]:
    """pytest tells each program that a test starts, in PYTEST_CURRENT_TEST: `NODE (call)`."""
    process = crash.report.process if crash.report else None
    value = process.environment.get("PYTEST_CURRENT_TEST", "") if process else ""
    return value.rpartition(" (")[0] or None


def _from_parent(history: History, crash: Told) -> Optional[str]:
    when = crash.manifest.get("time")
    parent = crash.manifest.get("ppid")
    if not when or not parent:
        return None
    return history.running_at(parent, calendar.timegm(time.strptime(when, "%Y-%m-%dT%H:%M:%SZ")))


def _text(hang: Hang) -> str:
    crash = keep(hang)
    if crash is None:
        return hang.text
    return f"{hang.answer}\n  report: {crash / 'report.html'}"


def _indented(text: str) -> str:
    return "".join(f"  {line}\n" for line in text.splitlines())
