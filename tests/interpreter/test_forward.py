"""The forward line that torch's anomaly mode kept for a thread in the backward pass: real crashes, made at lines that are known."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable
from types import SimpleNamespace

import pytest

from crashkit.collect.attach import attach
from crashkit.debugger import direct
from crashkit.interpreter import read
from crashkit.interpreter.forward import ForwardLine, forward_lines
from crashkit.interpreter.objects import Objects
from crashkit.model import Address, Crash, Thread
from crashkit.pipeline import Options, analyze
from crashkit.report import markdown, text, wording
from crashkit.report.html import render
from tests.crashes import CRASHERS, needs_x86_64, python_crash

pytestmark = [needs_x86_64(), pytest.mark.torch, pytest.mark.slow]

SCRIPT = CRASHERS / "anomaly.py"
WITHOUT_GDB = Options(gdb=None)


def line_of(mark: str) -> int:
    return next(number for number, line in enumerate(SCRIPT.read_text().splitlines(), 1) if line.endswith(f"# {mark}"))


def crashed(kind: str) -> Crash:
    return analyze(python_crash(SCRIPT.name, kind).core, options=WITHOUT_GDB)


def told(crash: Crash) -> dict[str | None, tuple[str | None, int | None]]:
    """By the name of the thread, the user's line."""
    lines = {thread.name: wording.forward_line(thread) for thread in crash.threads}
    return {name: (frame.function, frame.line) for name, frame in lines.items() if frame is not None}


@pytest.mark.parametrize(
    ("kind", "thread", "function", "mark"),
    [
        ("function", "MainThread", "loss_of", "FUNCTION"),
        ("native", "MainThread", "scaled", "NATIVE"),
        ("nested", "MainThread", "inner", "NESTED"),
        ("thread", "backward", "loss_of", "FUNCTION"),
    ],
)
def test_the_line_whose_gradient_was_computed(kind: str, thread: str, function: str, mark: str) -> None:
    assert told(crashed(kind)) == {thread: (function, line_of(mark))}


@pytest.mark.parametrize("kind", ["not kept", "no backward"])
def test_no_line_is_claimed(kind: str) -> None:
    assert told(crashed(kind)) == {}


def test_what_lies_beside_a_node_is_not_taken_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its neighbours in memory, from which as many words on would lead to what it has."""
    asked: list[tuple[Objects, list[int]]] = []

    def noted(objects: Objects, words: Iterable[int]) -> list[ForwardLine]:
        # The core is closed afterwards.
        known = list(words)
        (node,) = (word for word in known if forward_lines(objects, [word]))
        beside = [node + 8 * place for place in range(-40, 41) if place]
        assert [word for word in beside if forward_lines(objects, [word])] == []
        metadata = [word for place in range(40) if (word := objects.view.word(node + 8 * place)) > 1 << 16]
        assert [word for word in metadata if forward_lines(objects, [word])] == []
        asked.append((objects, known))
        return []

    monkeypatch.setattr(read, "forward_lines", noted)
    assert told(crashed("native")) == {}
    assert len(asked) == 1


def test_every_format_shows_it() -> None:
    crash = crashed("native")
    place = f"anomaly.py:{line_of('NATIVE')}"
    assert crash.thread is not None
    callers = [(frame.function, frame.source, frame.origin) for frame in crash.thread.forward]
    assert [function for function, _, _ in callers] == ["scaled", "loss_of", "<module>"]
    assert callers[0][1:] == ("return x.exp()  # NATIVE", "anomaly-mode")
    screen = "\n".join(map(str, text.summary(crash, None, color=False, width=160)))
    for shown in (screen, markdown.summary(crash).replace("\\", ""), render(crash)):
        assert place in shown and "anomaly mode" in shown


def test_of_a_live_process() -> None:
    command = [sys.executable, str(SCRIPT), "waits"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            assert process.stdout is not None and process.stdout.readline() == "ready\n"
            crash = attach(process.pid, WITHOUT_GDB)
        finally:
            process.kill()
    assert told(crash) == {"MainThread": ("loss_of", line_of("FUNCTION"))}


def test_threads_without_a_tid_keep_their_places(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a damaged core has them. What reads the memory is a stand-in."""
    monkeypatch.setattr(direct, "torch_storage", lambda *_: 64)
    reader = object.__new__(direct.DirectReader)
    line = ForwardLine("/srv/app.py", 7, "loss", "")
    reader._state = SimpleNamespace(forward=lambda pointer, _size: [line] if pointer == 2 else [])  # type: ignore[assignment]
    reader._core = SimpleNamespace(architecture=SimpleNamespace(thread_pointer="fs_base"))  # type: ignore[assignment]
    reader._scene = SimpleNamespace(modules=())  # type: ignore[assignment]
    threads = tuple(Thread(name=name, crashed=name == "b", registers={"fs_base": Address(at)}) for at, name in enumerate("abc", 1))
    found = reader.with_forward(Crash(threads=threads)).threads
    assert [(one.name, [frame.line for frame in one.forward]) for one in found] == [("a", []), ("b", [7]), ("c", [])]
