"""Text evidence: a log, a faulthandler dump, what gdb printed. One pass, bounded memory, any size.

`read_log` is the way in. Lines are found by their fixed texts (skim), freed of what carriers put
around them (prefixes), given a kind (log_patterns), and many-line texts are read as such
(faulthandler_text, traceback_text, gdb_text, sanitizer_text), each process's lines by themselves.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO, Optional, TypeVar

import msgspec

from crashkit.errors import EvidenceError
from crashkit.evidence import faulthandler_text, gdb_text, log_signal, sanitizer_text, traceback_text
from crashkit.evidence.input import Input, open_input
from crashkit.evidence.log_patterns import Classifier, fewest
from crashkit.evidence.prefixes import clean, strip
from crashkit.evidence.skim import telling_lines
from crashkit.model import Crash, LogLine, Process, PythonFrame, PythonRuntime, Signal, SoftError, Source, Thread

MOST_LINES = 400
"""Telling lines that are kept."""
MOST_OF_A_KIND = 40
"""Lines kept of one kind: the first ones, and then the last."""
LONGEST_TEXT = 1000
MOST_BLOCK_LINES = 50_000
PATIENCE = 20
"""Lines of others that may stand between two lines of one many-line text."""
MOST_BLOCKS = 64
"""Processes whose many-line texts are read at once."""

_Kept = TypeVar("_Kept")

# Lines that stand beside evidence and are none by themselves.
_SUPPORTING = frozenset({"what", "launch-blocking", "python-state", "cuda-ipc-warning", "launcher-stops", "fork-warning", "c10-raised"})

_BLOCK_TEXTS = (*faulthandler_text.OPENERS, *traceback_text.OPENERS, *gdb_text.OPENERS)
_Block = faulthandler_text.FaultDump | traceback_text.Traceback | gdb_text.GdbStacks | sanitizer_text.Report


class LogEvidence(msgspec.Struct, frozen=True, kw_only=True):
    """What a text tells of a crash."""

    kind: str
    """faulthandler, gdb, log: of what it mainly consists."""
    lines: tuple[LogLine, ...] = ()
    """The telling lines, in order."""
    threads: tuple[Thread, ...] = ()
    """Of the most telling many-line text: a fatal dump, gdb's stacks, a sanitizer's report, the last traceback."""
    signal: Optional[Signal] = None
    process: Optional[Process] = None
    python: Optional[PythonRuntime] = None
    soft_errors: tuple[SoftError, ...] = ()

    @property
    def crashed_thread(self) -> Optional[int]:
        return next((thread.tid for thread in self.threads if thread.crashed), None)


def read_log(path: Path, patterns: Sequence[str] = ()) -> LogEvidence:
    """Read text evidence; `patterns` are regular expressions of further telling lines (of a user's signatures).

    Raises EvidenceError where the text tells of no crash or cannot be read.
    """
    with open_input(path) as source:
        return read_log_input(source, patterns)


def read_log_input(source: Input, patterns: Sequence[str] = ()) -> LogEvidence:
    """As `read_log`, of a text that is already open."""
    source.file.seek(0)
    reader = _Reader(source.original, patterns)
    reader.read(source.file)
    return reader.evidence(source.soft_errors)


def crash_of_log(path: Path, evidence: LogEvidence, size: Optional[int] = None) -> Crash:
    """The crash that a text alone tells of."""
    return Crash(
        source=Source(path=str(path), kind=evidence.kind, size=size),
        process=evidence.process,
        signal=evidence.signal,
        python=evidence.python,
        crashed_thread=evidence.crashed_thread,
        threads=evidence.threads,
        log=evidence.lines,
        soft_errors=evidence.soft_errors,
    )


class _Open:
    """A many-line text that is being read."""

    def __init__(self, block: _Block, number: int, who: str, text: str) -> None:
        self.block = block
        self.number = number
        self.who = who
        self.text = text
        self.indent = _indent(text)
        self.taken = 1
        self.missed = 0

    def feed(self, text: str) -> bool:
        """A text that was pasted indented loses as much on every line as on its first."""
        return self.block.feed(text[min(self.indent, _indent(text)) :])


class _Reader:
    def __init__(self, path: Path, patterns: Sequence[str]) -> None:
        self._path = str(path)
        self._classifier = Classifier(patterns)
        self._open: dict[str, _Open] = {}
        self._lines: list[LogLine] = []
        self._of_kind: Counter[Optional[str]] = Counter()
        self._left_out: Counter[str] = Counter()
        self._dumps: list[tuple[str, faulthandler_text.FaultDump]] = []
        self._gdb: list[gdb_text.GdbStacks] = []
        self._tracebacks: list[tuple[str, traceback_text.Traceback]] = []
        self._reports: list[sanitizer_text.NativeReport] = []

    def read(self, file: BinaryIO) -> None:
        texts = fewest((*self._classifier.literals, *_BLOCK_TEXTS))
        for number, raw in telling_lines(file, texts, lambda: bool(self._open)):
            who, text = strip(clean(raw))
            self._take(number, who, text)
        for who in list(self._open):
            self._close(who)

    def _take(self, number: int, who: str, text: str) -> None:
        for other in list(self._open):
            if other != who:
                self._miss(other)
        current = self._open.get(who)
        if current is not None and current.feed(text):
            current.taken += 1
            current.missed = 0
            if current.block.ended or current.taken > MOST_BLOCK_LINES:
                self._close(who)
            return
        block = _opens(text)
        if block is not None:
            self._close(who)
            if len(self._open) < MOST_BLOCKS:
                self._open[who] = _Open(block, number, who, text)
        elif current is not None:
            self._miss(who)
        if block is None or isinstance(block, faulthandler_text.FaultDump | gdb_text.GdbStacks):
            self._classify(number, who, text)

    def _miss(self, who: str) -> None:
        self._open[who].missed += 1
        if self._open[who].missed > PATIENCE:
            self._close(who)

    def _close(self, who: str) -> None:
        closing = self._open.pop(who, None)
        if closing is None:
            return
        block = closing.block
        if isinstance(block, faulthandler_text.FaultDump):
            _keep(self._dumps, (who, block))
            if block.state:
                self._add(closing.number, who, f"Python runtime state: {block.state}", "python-state", {"state": block.state})
            if block.gil_disabled:
                self._add(closing.number, who, "<Cannot show all threads while the GIL is disabled>", "gil-disabled", {})
        elif isinstance(block, gdb_text.GdbStacks):
            _keep(self._gdb, block)
        elif isinstance(block, traceback_text.Traceback):
            self._close_traceback(closing, block)
        else:
            text = block.headline if isinstance(block, sanitizer_text.DeviceReport) else closing.text
            self._add(closing.number, who, text, block.kind, block.fields)
            if isinstance(block, sanitizer_text.NativeReport):
                _keep(self._reports, block)

    def _close_traceback(self, closing: _Open, block: traceback_text.Traceback) -> None:
        if block.empty:
            return
        _keep(self._tracebacks, (closing.who, block))
        if block.exception is None:
            return
        kind, fields = self._classifier.classify(block.last_line) or ("exception", {})
        fields = {"exception": block.exception, "message": block.message or "", **fields}
        if (place := _innermost(block)) is not None:
            fields["reported_at"] = place
        self._add(closing.number, closing.who, block.last_line, kind, fields)

    def _classify(self, number: int, who: str, text: str) -> None:
        if found := self._classifier.classify(text):
            self._add(number, who, text, *found)

    def _add(self, number: int, who: str, text: str, kind: Optional[str], fields: dict[str, str]) -> None:
        line = LogLine(
            text=text.strip()[:LONGEST_TEXT],
            kind=kind,
            path=self._path,
            line=number,
            process=who or None,
            fields={name: value[:LONGEST_TEXT] for name, value in fields.items()},
        )
        self._of_kind[kind] += 1
        if self._of_kind[kind] > MOST_OF_A_KIND:
            self._drop_middle(kind)
        if len(self._lines) < MOST_LINES:
            self._lines.append(line)
        else:
            self._left_out[kind or "other"] += 1

    def _drop_middle(self, kind: Optional[str]) -> None:
        """Make room for a line of this kind: the first half of those kept stays, of the rest the oldest goes."""
        same = [index for index, line in enumerate(self._lines) if line.kind == kind]
        if len(same) >= MOST_OF_A_KIND:
            del self._lines[same[MOST_OF_A_KIND // 2]]
            self._left_out[kind or "other"] += 1

    def evidence(self, errors: tuple[SoftError, ...]) -> LogEvidence:
        lines = tuple(sorted(self._lines, key=lambda line: line.line or 0))
        telling = [line for line in lines if line.kind not in _SUPPORTING]
        if not (telling or self._dumps or self._gdb):
            raise EvidenceError(
                f"{self._path}: no crash evidence in this text",
                "give a core, a faulthandler dump, gdb's backtrace, or the stderr of the process that died",
            )
        kind, threads, dump = self._stacks()
        signal, process = log_signal.of_lines(lines, _gdb_signal(self._gdb), self._last_signal(dump))
        finalizing = dump is not None and dump.state is not None and dump.state.startswith("finalizing")
        free_threaded = any(block.gil_disabled for _, block in self._dumps)
        python = PythonRuntime(finalizing=finalizing or None, free_threaded=free_threaded or None)
        left_out = tuple(
            SoftError(stage="log", message=f"{count} more {kind} lines were left out") for kind, count in sorted(self._left_out.items())
        )
        return LogEvidence(
            kind=kind,
            lines=lines,
            threads=threads,
            signal=signal,
            process=process,
            python=python if finalizing or free_threaded else None,
            soft_errors=(*errors, *left_out, *self._several()),
        )

    def _several(self) -> tuple[SoftError, ...]:
        """Dumps do not name their process: say so where there is more than one crash."""
        dumps = (dump for _, dump in self._dumps if dump.message is not None and dump.threads())
        threads = (thread for dump in dumps for thread in dump.threads() if thread.crashed)
        crashes = {tuple((frame.file, frame.line) for frame in thread.pythons()) for thread in threads}
        if len(crashes) < 2:
            return ()
        message = f"this text holds the dumps of {len(crashes)} crashes, and a dump does not name its process: the first is shown"
        return (SoftError(stage="log", message=message, hint="Cut the text to the crash that you look for, or give its core."),)

    def _stacks(self) -> tuple[str, tuple[Thread, ...], Optional[faulthandler_text.FaultDump]]:
        """The most telling stacks, of what kind, and the first fatal dump."""
        fatal = next((dump for _, dump in self._dumps if dump.message is not None), None)
        with_stacks = fatal if fatal is not None and fatal.threads() else None
        if self._gdb:
            stacks = max((gdb.threads() for gdb in self._gdb), key=len)
            if stacks:
                return "gdb", stacks, fatal
        if with_stacks is not None:
            told = next((dump for who, dump in self._dumps if who == self._owner(with_stacks) and dump.repeats(with_stacks)), with_stacks)
            return "faulthandler", told.threads(), fatal
        if reported := next((report.thread() for report in self._reports), None):
            return "log", (reported,), fatal
        if dump := next((dump for _, dump in self._dumps if dump.threads()), None):
            return "faulthandler", dump.threads(), fatal
        if fatal is not None:
            return "faulthandler", (), fatal
        if self._tracebacks:
            return "log", (self._tracebacks[-1][1].thread(),), None
        return "log", (), None

    def _last_signal(self, first: Optional[faulthandler_text.FaultDump]) -> Optional[int]:
        """The signal of the last fatal dump of the process whose dump came first: that one ended it."""
        owner = self._owner(first)
        return next((dump.signal for who, dump in reversed(self._dumps) if who == owner and dump.signal is not None), None)

    def _owner(self, one: Optional[faulthandler_text.FaultDump]) -> Optional[str]:
        return next((who for who, dump in self._dumps if dump is one), None)


def _keep(several: list[_Kept], one: _Kept) -> None:
    """The first ones stay, and the last."""
    several.append(one)
    if len(several) > MOST_OF_A_KIND:
        del several[MOST_OF_A_KIND // 2]


def _indent(text: str) -> int:
    return len(text) - len(text.lstrip(" "))


def _opens(text: str) -> Optional[_Block]:
    text = text.lstrip(" ")
    return faulthandler_text.opens(text) or traceback_text.opens(text) or gdb_text.opens(text) or sanitizer_text.opens(text)


def _innermost(block: traceback_text.Traceback) -> Optional[str]:
    frame = next((frame for frame in block.thread().frames if isinstance(frame, PythonFrame)), None)
    return f"{frame.file}:{frame.line}" if frame is not None else None


def _gdb_signal(sessions: list[gdb_text.GdbStacks]) -> Optional[str]:
    return next((session.signal for session in sessions if session.signal), None)
