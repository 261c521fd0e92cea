"""A format of log that crashkit does not know, added in one file: Rust's panics."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from crashkit.errors import EvidenceError
from crashkit.evidence.text import formats
from crashkit.evidence.text.log import read_log
from crashkit.evidence.text.log_patterns import kinds
from crashkit.evidence.text.reader import Account, Format, Note, Reader, Telling
from crashkit.model import NativeFrame, Thread
from crashkit.pipeline import analyze

_HEAD = re.compile(r"thread '(?P<thread>.*)' panicked at (?P<place>\S+?):?$")
_FRAME = re.compile(r"^ +\d+: (?P<function>\S.*)$")


class Panic(Reader):
    def __init__(self, match: re.Match[str]) -> None:
        self.thread, self.place = match["thread"], match["place"]
        self.message = ""
        self.frames: list[NativeFrame] = []

    def feed(self, text: str) -> bool:
        if match := _FRAME.match(text):
            self.frames.append(NativeFrame(function=match["function"], trust="text"))
        elif not self.message:
            self.message = text
        else:
            self.ended = text.startswith("note: ")
            return self.ended or text == "stack backtrace:" or text.startswith("   ")
        return True

    def finish(self) -> list[Note]:
        return [Note(self.message, "rust-panic", {"place": self.place})]


def _opens(text: str) -> Panic | None:
    match = _HEAD.search(text)
    return Panic(match) if match else None


def _tells(panics: Sequence[tuple[str, Panic]]) -> Account:
    if not panics:
        return Account()
    _, panic = panics[0]
    threads = (Thread(name=panic.thread, crashed=True, frames=tuple(panic.frames)),)
    return Account(telling=Telling.NATIVE_THREADS, threads=threads, stacks="native", signal=6, is_evidence=True)


PANICS = Format(openers=("panicked at ",), opens=_opens, tells=_tells, source="rust", kinds=frozenset({"rust-panic"}))

PANIC = """INFO starting
thread 'decoder' panicked at src/lib.rs:41:9:
index out of bounds: the len is 3 but the index is 7
stack backtrace:
   0: rust_begin_unwind
             at /rustc/library/std/src/panicking.rs:665:5
   1: tokenizers::decode
note: Some details are omitted, run with `RUST_BACKTRACE=full` for a verbose backtrace.
   2: not of the panic
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
    with pytest.raises(EvidenceError):
        read_log(log)
    assert "rust-panic" not in kinds()


@pytest.mark.usefixtures("registered")
def test_it_is_found_read_and_summed_up(log: Path) -> None:
    evidence = read_log(log)
    (thread,) = evidence.threads
    assert (evidence.kind, thread.name, [frame.function for frame in thread.frames]) == (
        "rust",
        "decoder",
        ["rust_begin_unwind", "tokenizers::decode"],
    )
    (line,) = evidence.lines
    assert (line.kind, line.line, line.fields) == ("rust-panic", 2, {"place": "src/lib.rs:41:9"})
    assert evidence.signal is not None and evidence.signal.name == "SIGABRT"
    assert "rust-panic" in kinds()


@pytest.mark.usefixtures("registered")
def test_it_joins_other_evidence_of_the_crash(log: Path, tmp_path: Path) -> None:
    """Native stacks speak for the crash, also where a dump in the same log, or in another, has Python's."""
    (tmp_path / "dump.log").write_text(DUMP)
    crash = analyze([tmp_path / "dump.log", log])
    assert crash.source is not None and crash.source.kind == "rust" and crash.threads[0].name == "decoder"
    log.write_text(DUMP + "\n" + PANIC)
    assert read_log(log).kind == "rust"
    log.write_text(DUMP + "\n" + PANIC.replace("panicked", "did not panic"))
    assert read_log(log).kind == "faulthandler"
