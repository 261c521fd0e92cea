"""A format of log that crashkit does not know, added in one file: the stacks of Go's panics."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from crashkit.evidence.text import formats
from crashkit.evidence.text.log import read_log
from crashkit.evidence.text.log_patterns import kinds
from crashkit.evidence.text.reader import Account, Format, Note, Reader, Telling
from crashkit.model import NativeFrame, Thread
from crashkit.pipeline import analyze

_HEAD = re.compile(r"^panic: (?P<message>.*)$")
_THREAD = re.compile(r"^goroutine (?P<thread>\d+) \[running\]:$")
_FRAME = re.compile(r"^(?P<function>[\w./]+)\(.*\)$")


class Panic(Reader):
    def __init__(self, match: re.Match[str]) -> None:
        self.thread, self.message = "", match["message"]
        self.frames: list[NativeFrame] = []

    def feed(self, text: str) -> bool:
        if match := _THREAD.match(text):
            self.thread = f"goroutine {match['thread']}"
        elif match := _FRAME.match(text):
            self.frames.append(NativeFrame(function=match["function"], trust="text"))
        else:
            self.ended = text.startswith("exit status ")
            return self.ended or not text or text.startswith("    ")
        return True

    def finish(self) -> list[Note]:
        return [Note(self.message, "toy-panic", {"thread": self.thread})]


def _opens(text: str) -> Panic | None:
    match = _HEAD.search(text)
    return Panic(match) if match else None


def _tells(panics: Sequence[tuple[str, Panic]]) -> Account:
    if not panics:
        return Account()
    _, panic = panics[0]
    threads = (Thread(name=panic.thread, crashed=True, frames=tuple(panic.frames)),)
    return Account(telling=Telling.NATIVE_THREADS, threads=threads, stacks="native", signal=6, is_evidence=True)


PANICS = Format(openers=("panic: ",), opens=_opens, tells=_tells, source="go", kinds=frozenset({"toy-panic"}))

PANIC = """INFO starting
panic: index out of range [7] with length 3

goroutine 17 [running]:
main.decode(...)
	/src/decode.go:41 +0x1d
example.com/jobs.Run(0xc000)
	/src/jobs.go:9 +0x12
exit status 2
not.of(the panic)
"""
DUMP = 'Fatal Python error: Aborted\n\nCurrent thread 0x00007f1 (most recent call first):\n  File "app.py", line 3 in decode\n'


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "stderr.log"
    path.write_text(PANIC)
    return path


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(formats, "FORMATS", (*formats.FORMATS, PANICS))


def test_without_it_nothing_is_told(log: Path) -> None:
    evidence = read_log(log)  # a goroutine is known to be of a program that ended, and that is all
    assert (evidence.kind, evidence.threads) == ("log", ())
    assert "toy-panic" not in kinds()


@pytest.mark.usefixtures("registered")
def test_it_is_found_read_and_summed_up(log: Path) -> None:
    evidence = read_log(log)
    (thread,) = evidence.threads
    assert (evidence.kind, thread.name, [frame.function for frame in thread.frames]) == (
        "go",
        "goroutine 17",
        ["main.decode", "example.com/jobs.Run"],
    )
    (line,) = evidence.lines
    assert (line.kind, line.line, line.fields) == ("toy-panic", 2, {"thread": "goroutine 17"})
    assert evidence.signal is not None and evidence.signal.name == "SIGABRT"
    assert "toy-panic" in kinds()


@pytest.mark.usefixtures("registered")
def test_it_joins_other_evidence_of_the_crash(log: Path, tmp_path: Path) -> None:
    """Native stacks speak for the crash, also where a dump in the same log, or in another, has Python's."""
    (tmp_path / "dump.log").write_text(DUMP)
    crash = analyze([tmp_path / "dump.log", log])
    assert crash.source is not None and crash.source.kind == "go" and crash.threads[0].name == "goroutine 17"
    log.write_text(DUMP + "\n" + PANIC)
    assert read_log(log).kind == "go"
    log.write_text(DUMP + "\n" + PANIC.replace("panic: ", "no panic: "))
    assert read_log(log).kind == "faulthandler"
