"""Text evidence: logs, faulthandler dumps, gdb output. One pass, bounded memory, any size.

The entry point is `read_log`. Lines are found by their fixed texts (skim), stripped of prefixes added by
log carriers (prefixes) and classified (log_patterns). Multi-line texts are parsed separately for each
process by the readers in `formats`, whose contract is in `reader`.
"""

from __future__ import annotations

import io
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import pairwise, takewhile
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, Optional, TypeVar

import msgspec

from crashkit.attempt import failed
from crashkit.errors import EvidenceError
from crashkit.evidence.input import Input, open_input
from crashkit.evidence.text import causes, faulthandler, formats, hearsay, ips, log_signal, mentions, quoted, remnants, retold, traceback
from crashkit.evidence.text.log_patterns import Classifier, fewest, precedence, said
from crashkit.evidence.text.neighbours import with_neighbours
from crashkit.evidence.text.outlived import outlived
from crashkit.evidence.text.prefixes import clean, split
from crashkit.evidence.text.reader import Account, Body, Format, Note, Reader, Stacks
from crashkit.evidence.text.several import (
    WHOLE,
    Dump,
    Known,
    Part,
    Source,
    after_abort,
    at_another_time,
    of_source,
    parts,
    right_one,
    right_source,
)
from crashkit.evidence.text.skim import telling_lines
from crashkit.evidence.text.wrapping import bare, escaped, unfold, views
from crashkit.limits import LONGEST_LINE, PATTERN_SECONDS
from crashkit.model import Crash, LogLine, Process, PythonRuntime, Signal, SoftError, Thread
from crashkit.model import Source as Origin
from crashkit.naming.functions import plain
from crashkit.naming.machinery import machinery_end
from crashkit.naming.signals import SIGABRT

MOST_LINES = 400
"""Significant lines that are kept."""
MOST_OF_A_KIND = 40
"""Lines kept of each kind: the first ones and the last ones."""
_HEAD = "atal Python error: "
_REPEATED = frozenset({"xid"})
"""The driver says the same of each multiprocessor: what is left out tells nothing more."""
LONGEST_TEXT = 1000
MOST_BLOCK_LINES = 50_000
NARROWEST = 60
"""Columns of a terminal that breaks lines."""
PATIENCE = 20
"""Lines of other processes allowed between two lines of one multi-line text."""
MOST_REJOINED = 64 << 10
MOST_TYPED = 8 << 10
"""Bytes of a text in which messages are looked for that were broken, or typed: what people post has less."""
MOST_BROKEN = 3
"""Lines over which a message may be broken: a terminal, a mail or its author breaks it once or twice."""
MOST_BLOCKS = 64
"""Processes whose multi-line texts are read at the same time."""

_NOTHING = Known()
_Kept = TypeVar("_Kept")

# Lines that support other evidence but are not evidence by themselves.
_SUPPORTING = frozenset(
    {
        "what",
        "command-line",
        "launch-blocking",
        "python-state",
        "cuda-ipc-warning",
        "launcher-stops",
        "fork-warning",
        "c10-raised",
        "recursion",
        "freeze-watchdog",
        "shm-small",
        "llvm-program",
        "triton-code",
        "go-throw",
        "internal-error",
        "mpi-error",
        "mpi-operation",
        "ruby-bug",
        "test-summary",
        "windows-null-address",
        "go-frame",
    }
)


# Lines that tell how a process ended, and not why.
_ENDS = frozenset({"process-end", "shell", "shell-killed", "exit-status", "gdb-signal", "server-worker-exited", "go-goroutine"})

# Kinds of lines that are known by so little that another form of the same line may show more; what tells most of them first.
_ASSERTED = "c-assert-part"
_VAGUE = (_ASSERTED, hearsay.KIND)
_NOT_LOADED = "library-missing"
_MAY_BE_SURVIVED = (_ASSERTED, _NOT_LOADED)
_FRAME = re.compile(r"\s{0,40}(?:[|E] {1,8})?File \"[^\"]{1,1000}\", line \d{1,9}(?:, in |$)")
"""The line before a source line in a traceback: what that says are a program's names, and nobody's words."""
_WARNS = re.compile(r"\bWARN(?:ING)?\b|\b[Ww]arning\b|\b[Cc]ontinuing\b|\b[Ii]gnor(?:ed|ing)\b|\b[Nn]on-?fatal\b")
"""After an assertion or a failed import of which a program says so, it goes on: the mark is a prefix that would be taken off."""

_COMPARED = re.compile(
    r"^ {0,20}(?:E {1,20}|(?:FAILED|ERROR) [^ ]{1,300} - )?(?:(?:AssertionError: )?assert (?=['\"(\[{<]|not\b)|\+ {1,40}(?:where|and) )"
)
"""What pytest shows of the values that a test compared (src/_pytest/assertion/rewrite.py): nothing that happened."""
_RAISED = re.compile(r"\w(?:Error|Exception)\b|\bWARN(?:ING)?\b|\bWarning\b")
_GOES_ON = re.compile(
    r"\b(?:[Rr]etrying|[Rr]etries|[Ff]all(?:ing|s)? back|[Cc]ontinuing|[Ss]kipping|[Ss]kipped|[Hh]andled|[Rr]ecovered|goes on)\b"
    r"|\([Cc]aught\b|\b[Cc]aught[,;)]"
)
"""Of a program that has dealt with an exception."""
_DEALT_WITH = re.compile(
    r"\b(?:[Ww]ill retry|[Rr]etry(?:ing)?|[Rr]equeued|[Ff]all(?:ing|s)? ?back|[Ii]gnoring|[Uu]sing (?:defaults?|CPU)|successfully reset"
    r"|[Nn]on-?[Ff]atal|expected by test|you don.t plan on using|may return|warn(?:-once)? (?:only|mode))\b|\([Ii]gnored\)"
    r"|^(?:-- )?(?:[Cc]onfigure: |[Cc]hecking )|MESA-LOADER: failed to open|\bchecking (?:for|whether) "
    r"|(?:^|\s)test \S{1,200} \.{3} ok$|\b(?:passed|PASS(?:ED)?)(?:$|:| )"
)
"""In the line itself: what it tells has ended nothing, or a test or a check of a build has tried it."""

_RECOVERED = re.compile(r"\bpanic recovered\b|^\[Recovery\]|\[PANIC RECOVER\]")
"""What Go's middleware (Gin, Echo) prints above a panic that ends one request only."""


def _quoted_in_patches(rows: Sequence[str], lines: tuple[LogLine, ...]) -> tuple[LogLine, ...]:
    """The lines; what a patch adds to a page or to a test, between other lines that it adds, nobody's process has printed there."""
    if not any(line.text.startswith("+") for line in lines):
        return lines

    def is_added(line: LogLine) -> bool:
        around = rows[line.line - 2 : line.line + 1] if line.line and line.line > 1 else []
        return len(around) == 3 and all(row.startswith("+") for row in around)

    return tuple(
        msgspec.structs.replace(line, fields={**line.fields, "loosely": "added by a patch"}) if is_added(line) else line for line in lines
    )


def _may_be_handled(line: LogLine) -> bool:
    """An exception without a traceback: somebody may tell of a crash beside it."""
    return line.kind == _NOT_LOADED or (line.kind == traceback.KIND and "reported_at" not in line.fields)


def _supposed(file: BinaryIO, lines: tuple[LogLine, ...]) -> tuple[LogLine, ...]:
    """The lines; what somebody writes of what may happen is no program's message, though it quotes one."""
    if file.seek(0, 2) > MOST_TYPED:
        return lines
    return tuple(
        msgspec.structs.replace(line, fields={**line.fields, "loosely": "what may happen"}) if hearsay.supposes(line.text) else line
        for line in lines
    )


def _survived(rows: Sequence[str], lines: tuple[LogLine, ...]) -> tuple[LogLine, ...]:
    """The lines; what the program says that it has dealt with, in the line or after an exception or a warning, has ended nothing."""

    def goes_on(line: LogLine) -> bool:
        if line.kind not in _ENDS and _DEALT_WITH.search(line.text):
            return True
        around = rows[line.line - 1 : line.line + 1] if line.line else []
        if line.kind == "go-panic" and line.line and 1 < line.line <= len(rows) and _RECOVERED.search(rows[line.line - 2]):
            return True
        return _RAISED.search(line.text) is not None and any(_GOES_ON.search(row) for row in around)

    return tuple(
        msgspec.structs.replace(line, fields={**line.fields, "loosely": "the program goes on"}) if goes_on(line) else line for line in lines
    )


class LogEvidence(msgspec.Struct, frozen=True, kw_only=True):
    """The crash evidence found in a text."""

    kind: str
    """As `Source.kind`: faulthandler, gdb or log, by the format of its most informative stacks."""
    lines: tuple[LogLine, ...] = ()
    """The significant lines, in order."""
    threads: tuple[Thread, ...] = ()
    """From the most informative multi-line text: a fatal dump, gdb stacks, a sanitizer report or the last traceback."""
    stacks: Optional[Stacks] = None
    """How `threads` relate to the stacks of other evidence of the same crash."""
    signal: Optional[Signal] = None
    process: Optional[Process] = None
    python: Optional[PythonRuntime] = None
    soft_errors: tuple[SoftError, ...] = ()

    @property
    def crashed_thread(self) -> Optional[int]:
        """The tid of the crashed thread; None if no thread is marked as crashed."""
        return next((thread.tid for thread in self.threads if thread.crashed), None)


def read_log(path: Path, patterns: Sequence[str] = ()) -> LogEvidence:
    """Read text evidence; `patterns` are regular expressions for additional lines (from a user's signatures).

    Raises EvidenceError if the text contains no crash evidence or cannot be read.
    """
    with open_input(path) as source:
        return read_log_input(source, patterns, alone=True)


def read_log_input(
    source: Input, patterns: Sequence[str] = (), known: Known = _NOTHING, alone: bool = False, numbered: bool = True
) -> LogEvidence:
    """Like `read_log`, for a text that is already open. `known`: what a core of the same crash tells: which of several crashes in the text
    it is. `alone`: somebody passed this text and nothing else, so that what is said of a crash in it counts.
    `numbered`: its lines are those of the file. Raises EvidenceError.
    """
    shown = _as_console_shows(source)
    if shown.file is not source.file:
        # Its lines are not those of the file.
        found = read_log_input(shown, patterns, known, alone, numbered=False)
        return msgspec.structs.replace(found, lines=tuple(msgspec.structs.replace(line, line=None) for line in found.lines))
    source = shown
    source.file.seek(0)
    log = _Log(source.original, patterns, numbered)
    if alone:
        log.expect_rest(source.file)
    log.read(source.file)
    try:
        found = log.evidence(source.soft_errors, known)
    except EvidenceError:
        said = (log.said(source.file, source.soft_errors) or log.mentioned(source.file, source.soft_errors)) if alone else None
        if said is None:
            raise
        found = log.with_cut_traceback(said)
    else:
        if alone and found.signal is None and found.stacks is not None and not found.lines:
            told = log.told(source.file)
            signal = log_signal.of_lines(told, None)[0]
            found = msgspec.structs.replace(found, lines=told, signal=signal)
        elif alone and _ENDS.issuperset(line.kind for line in found.lines):
            reasons = (*log.broken_reasons(source.file), *log.typed(source.file), *log.causes_told(source.file))
            found = msgspec.structs.replace(found, lines=(*found.lines, *reasons))
        elif alone and found.signal is None and found.lines and all(map(_may_be_handled, found.lines)):
            told = log.told(source.file)
            found = msgspec.structs.replace(found, lines=(*found.lines, *told), signal=log_signal.of_lines(told, None)[0])
        elif alone and found.stacks is None and (whole := log.whole_messages(source.file, found.lines)) != found.lines:
            signal, process = log_signal.of_lines(whole, None)
            found = msgspec.structs.replace(found, lines=whole, signal=signal, process=process)
    if alone:
        found = _with_crashed_thread(log.with_remnants(source.file, found))
    lines = found.lines
    if alone:
        lines = log.without_others(lines)
        rows = _rows(source.file, MOST_REJOINED) if lines else []
        ended = outlived(rows, _survived(rows, _quoted_in_patches(rows, lines)), _ENDS | _SUPPORTING)
        quotations = log.quoted(rows, _supposed(source.file, ended))
        lines = (*quotations, *log.told_causes(source.file, lines))
    return msgspec.structs.replace(found, lines=with_neighbours(source.file, lines, log.starts))


def read_crashes(source: Input) -> tuple[tuple[Part, LogEvidence], ...]:
    """Every crash that an open text holds, in order; empty where it holds no evidence of one."""
    source = _as_console_shows(source)
    source.file.seek(0)
    log = _Log(source.original, ())
    log.read(source.file)
    return log.crashes()


def _as_console_shows(source: Input) -> Input:
    """The input, or the text of it if it is a crash report of macOS in JSON."""
    source.file.seek(0)
    if source.size > ips.LARGEST or not ips.begins(source.file.read(ips.HEAD)):
        return source
    source.file.seek(0)
    shown = ips.as_text(source.file.read(ips.LARGEST))
    if shown is None:
        message = "this crash report of macOS is cut off or damaged: the parts of it that are whole were read"
        hint = "The system keeps it in ~/Library/Logs/DiagnosticReports."
        return msgspec.structs.replace(source, soft_errors=(*source.soft_errors, SoftError(stage="log", message=message, hint=hint)))
    if not shown.text:
        return source
    data = shown.text.encode("utf-8", "replace")
    errors = source.soft_errors
    if shown.left_out:
        errors = (*errors, SoftError(stage="log", message=f"{shown.left_out:,} more frames of the report were left out"))
    return msgspec.structs.replace(source, file=io.BytesIO(data), size=len(data), soft_errors=errors)


def crash_of_log(path: Path, evidence: LogEvidence, size: Optional[int] = None) -> Crash:
    """The crash as described by a text alone. `size`: bytes of the text."""
    return Crash(
        source=Origin(path=str(path), kind=evidence.kind, size=size),
        process=evidence.process,
        signal=evidence.signal,
        python=evidence.python,
        crashed_thread=evidence.crashed_thread,
        threads=evidence.threads,
        log=evidence.lines,
        soft_errors=evidence.soft_errors,
    )


class _Chosen(NamedTuple):
    """What of a text is about one process."""

    lines: tuple[LogLine, ...]
    crashes: list[Part]
    is_about: Callable[[str, int], bool]
    """Whether what this process wrote, at this line, may be."""


class _Open:
    """A multi-line text that is being read."""

    def __init__(self, format: Format[Any], reader: Reader, number: int, start: int, text: str) -> None:
        self.format = format
        self.reader = reader
        self.number = number
        self._places = [(number, start)]
        self.indent = _indent(text)
        self.taken = 1
        self.missed = 0

    def feed(self, text: str) -> bool:
        """Feed the line, without the indentation of the text's first line."""
        return self.reader.feed(text[min(self.indent, _indent(text)) :])

    def took(self, number: int, start: int) -> None:
        """The reader has taken the line with this number and offset."""
        self.taken += 1
        self.missed = 0
        if self.reader.quotes:
            self._places.append((number, start))

    def place(self, note: Note) -> tuple[int, int]:
        """Number and offset of the line at which the note stands."""
        return self._places[min(note.behind, len(self._places) - 1)]


class _Log:
    def __init__(self, path: Path, patterns: Sequence[str], numbered: bool = True) -> None:
        self._numbered = numbered
        self._path = str(path)
        self._classifier = Classifier(patterns)
        self._formats = formats.FORMATS
        self._open: dict[str, _Open] = {}
        self._lines: list[LogLine] = []
        self._of_kind: Counter[Optional[str]] = Counter()
        self.starts: dict[int, int] = {}
        """Offsets of the kept lines in the file, by number."""
        self._start = 0
        self._left_out: Counter[str] = Counter()
        self._times: dict[int, float] = {}
        """When a line was written, in seconds since the epoch."""
        self._cut = 0
        """Lines of which a part only was examined."""
        self._broken: dict[str, SoftError] = {}
        self._shown = WHOLE
        """The crash that is shown."""
        self._texts: dict[Format[Any], list[tuple[str, Reader, int]]] = {format: [] for format in self._formats}

    def expect_rest(self, file: BinaryIO) -> None:
        """Read the frames of a text whose head is missing."""
        for format in self._formats:
            if format.body is not None and _is_beheaded(file, format.body):
                self._open[""] = _Open(format, format.body.reader(), 1, 0, "")
                self.starts[1] = 0
                return

    def read(self, file: BinaryIO) -> None:
        openers = [opener for format in self._formats for opener in format.openers]
        texts = fewest((*self._classifier.literals, *openers, *filter(None, map(escaped, self._classifier.literals))))
        for number, start, raw in telling_lines(file, texts, lambda: bool(self._open)):
            self._cut += len(raw) >= LONGEST_LINE
            try:
                who, when, text = split(clean(raw))
                self._start = start
                if when is not None:
                    self._times[number] = when
                for line in () if _is_compared(text) else self._unfolded(who, text):
                    self._take(number, who, line)
            except Exception as error:
                self._failed("the reader of log lines", error)
        for who in list(self._open):
            self._close(who)

    def _unfolded(self, who: str, text: str) -> tuple[str, ...]:
        """The lines within this line, where they tell more than the whole."""
        pieces = unfold(text)
        if pieces and (who in self._open or any(self._tells(piece) for piece in pieces)):
            return pieces
        return (text,)

    def _tells(self, text: str) -> bool:
        found = self._classified(text)
        return (found is not None and found[0] != hearsay.KIND) or self._opens(bare(text)) is not None

    def _take(self, number: int, who: str, text: str) -> None:
        inner = bare(text)
        for other in list(self._open):
            if other != who:
                self._miss(other)
        current = self._open.get(who)
        if current is not None and self._feed(who, current, inner):
            current.took(number, self._start)
            if current.reader.ended or current.taken > MOST_BLOCK_LINES:
                self._close(who)
            return
        opened = self._opens(inner)
        if opened is not None:
            self._close(who)
            if len(self._open) < MOST_BLOCKS:
                self._open[who] = _Open(*opened, number, self._start, inner)
                self.starts[number] = self._start
        elif current is not None:
            self._miss(who)
        if opened is None or opened[0].classifies_opener:
            self._classify(number, who, text)

    def _feed(self, who: str, current: _Open, text: str) -> bool:
        """A reader that fails is closed: what it read before counts."""
        try:
            return current.feed(text)
        except Exception as error:
            self._failed(f"the reader of {type(current.reader).__name__}", error)
            self._close(who)
            return False

    def _failed(self, reader: str, error: Exception) -> None:
        """Once for each reader."""
        self._broken.setdefault(reader, failed("log", reader, error))

    def _opens(self, text: str) -> Optional[tuple[Format[Any], Reader]]:
        text = text.lstrip(" ")
        for format in self._formats:
            for opener in format.openers:
                if opener in text:
                    reader = self._opened(format, text)
                    if reader is not None:
                        return format, reader
                    break
        return None

    def _opened(self, format: Format[Any], text: str) -> Optional[Reader]:
        try:
            reader: Optional[Reader] = format.opens(text)
            return reader
        except Exception as error:
            self._failed(f"the reader of {format.openers[0].strip()!r}", error)
            return None

    def _miss(self, who: str) -> None:
        self._open[who].missed += 1
        if self._open[who].missed > PATIENCE:
            self._close(who)

    def _close(self, who: str) -> None:
        closing = self._open.pop(who, None)
        if closing is None:
            return
        try:
            notes = closing.reader.finish()
            if notes is None:
                return
            _keep(self._texts[closing.format], (who, closing.reader, closing.number))
            for note in notes:
                number, start = closing.place(note)
                self.starts[number] = start
                self._add(number, who, note.text, *self._kind(note))
        except Exception as error:
            self._failed(f"the reader of {type(closing.reader).__name__}", error)

    def _kind(self, note: Note) -> tuple[Optional[str], Mapping[str, str]]:
        if note.classified and (found := self._classifier.classify(note.text)):
            return found[0], {**note.fields, **found[1]}
        return note.kind, note.fields

    def _classify(self, number: int, who: str, text: str) -> None:
        if found := self._classified(text):
            self.starts[number] = self._start
            self._add(number, who, text, *found)

    def _classified(self, text: str) -> Optional[tuple[Optional[str], Mapping[str, str]]]:
        """The line's kind as it stands, or freed of its wrapping where that tells more."""
        told = None
        for view in views(text):
            found = self._classifier.classify(view)
            if found is not None and found[0] in _MAY_BE_SURVIVED and _WARNS.search(text):
                found = None
            if found is not None and found[0] not in _VAGUE:
                return found
            told = min((told, found), key=lambda one: _VAGUE.index(one[0]) if one is not None else len(_VAGUE))
        return told

    def _add(self, number: int, who: str, text: str, kind: Optional[str], fields: Mapping[str, str]) -> None:
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
        """Drop one line of this kind to make room: the oldest of the second half."""
        same = [index for index, line in enumerate(self._lines) if line.kind == kind]
        if len(same) >= MOST_OF_A_KIND:
            del self._lines[same[MOST_OF_A_KIND // 2]]
            self._left_out[kind or "other"] += 1

    def _told(self, format: Format[Any], texts: list[tuple[str, Reader]]) -> Account:
        try:
            return format.tells(texts)
        except Exception as error:
            self._failed(f"the summary of {format.source}", error)
            return Account()

    def _unread(self) -> tuple[SoftError, ...]:
        """What was not examined."""
        found = [*self._broken.values()]
        if self._cut:
            what = "1 line was" if self._cut == 1 else f"{self._cut:,} lines were"
            found.append(SoftError(stage="log", message=f"{what} cut at {LONGEST_LINE:,} bytes"))
        for pattern in self._classifier.too_slow:
            message = f"a pattern took more than {PATTERN_SECONDS:.0f} s for one line and was left out: {pattern[:100]}"
            hint = "Look for a repeat inside a repeat in this pattern of your signatures."
            found.append(SoftError(stage="log", message=message, hint=hint))
        return tuple(found)

    def crashes(self) -> tuple[tuple[Part, LogEvidence], ...]:
        """Each crash of each process that the text tells apart."""
        sources = self._sources()
        several: Sequence[Optional[Source]] = sources if right_source(sources, _NOTHING) is not None else (None,)
        found = []
        for right in several:
            chosen = self._chosen(sources, right, _NOTHING)
            for part in chosen.crashes:
                with suppress(EvidenceError):
                    found.append((part, self._evidence(chosen, part, ())))
        return tuple(found)

    def said(self, file: BinaryIO, errors: tuple[SoftError, ...]) -> Optional[LogEvidence]:
        """What a text shows of a crash that is no program's output, or no longer looks like it; None where it tells of none."""
        lines, kept = self._broken_messages(file), True
        if not lines and (left := self.left(file, errors)) is not None:
            return left
        if not lines:
            typed, kept = tuple(map(self._with_signal, self._typed(file))), False
            told = self.told(file)
            lines = (*typed, *(line for line in told if line.line not in {line.line for line in typed}))
            if lines:
                lines = (*lines, *(line for line in self._lines if line.kind in hearsay.BESIDE))
        if not lines:
            return None
        signal, process = log_signal.of_lines(lines, None)
        only = () if kept else (hearsay.only_told(lines),)
        return LogEvidence(kind="log", lines=lines, signal=signal, process=process, soft_errors=(*errors, *only))

    def left(self, file: BinaryIO, errors: tuple[SoftError, ...]) -> Optional[LogEvidence]:
        """What is left of a report whose other lines were cut off, besides what is said of it; None where nothing is."""
        rows = _rows(file, MOST_REJOINED)
        known = tuple(remnants.remnants(rows))
        if not known:
            return None
        printed = frozenset[int]().union(*(one.lines for one in known))
        lines = (*self._remnants(rows, known), *(line for line in self.told(file) if line.line not in printed))
        signal, process = log_signal.of_lines(lines, None)
        return LogEvidence(kind="log", lines=lines, signal=signal, process=process, soft_errors=errors)

    def with_remnants(self, file: BinaryIO, found: LogEvidence) -> LogEvidence:
        """With what is left of another report, where nothing else tells a cause."""
        if not {hearsay.KIND, traceback.KIND, *_ENDS, *_SUPPORTING}.issuperset(line.kind for line in found.lines):
            return found
        rows = _rows(file, MOST_REJOINED)
        left = self._remnants(rows, tuple(remnants.remnants(rows)))
        if found.signal is not None:
            left = tuple(line for line in left if line.kind != remnants.KIND)
        if not left:
            return found
        lines = (*found.lines, *left)
        signal, process = (found.signal, found.process) if found.signal is not None else log_signal.of_lines(lines, None)
        return msgspec.structs.replace(found, lines=lines, signal=signal, process=process)

    def _remnants(self, rows: Sequence[str], known: Sequence[remnants.Remnant]) -> tuple[LogLine, ...]:
        return tuple(self._loosely(rows, one.line, one.kind, {**one.fields, "loosely": remnants.LOOSELY}) for one in known)

    def _loosely(self, rows: Sequence[str], number: int, kind: str, fields: dict[str, str]) -> LogLine:
        """A line that does not say word for word what its kind means."""
        return LogLine(text=rows[number - 1].strip()[:LONGEST_TEXT], kind=kind, path=self._path, line=number, fields=fields)

    def told(self, file: BinaryIO) -> tuple[LogLine, ...]:
        """What somebody says of a crash, one of each line."""
        told = (*map(self._with_signal, hearsay.told(self._lines)), *self._spoken(file))
        return tuple({line.line: line for line in reversed(told)}.values())

    def mentioned(self, file: BinaryIO, errors: tuple[SoftError, ...]) -> Optional[LogEvidence]:
        """That a text has the words of a crash, where nothing else is known of it; None where it has none."""
        if found := mentions.mentioned(file):
            lines = self._mentions(found, {})
            return LogEvidence(kind="log", lines=lines, soft_errors=(*errors, *mentions.only_mentioned(min(found), file.seek(0, 2))))
        if found := mentions.failures(file):
            lines = self._mentions(found, {mentions.FAILURE: "no words of a crash"})
            return LogEvidence(kind="log", lines=lines, soft_errors=(*errors, mentions.only_failed(min(found))))
        if told := [line for line in self.told_causes(file, ()) if not hearsay.undoes(line.text)]:
            return LogEvidence(kind="log", soft_errors=(*errors, mentions.only_cause(told[0].line or 1)))
        return None

    def with_cut_traceback(self, found: LogEvidence) -> LogEvidence:
        """With the frames of a traceback of which the text does not say what was raised, where nothing else shows a stack."""
        cut = [reader for _, reader, _ in self._texts[traceback.FORMAT] if isinstance(reader, traceback.Traceback) and reader.is_cut]
        if found.threads or not cut:
            return found
        return msgspec.structs.replace(found, threads=(cut[-1].thread(),), soft_errors=(*found.soft_errors, traceback.WITHOUT_END))

    def _mentions(self, found: Mapping[int, str], fields: dict[str, str]) -> tuple[LogLine, ...]:
        return tuple(
            LogLine(text=text[:LONGEST_TEXT], kind=mentions.KIND, path=self._path, line=number, fields=fields)
            for number, text in found.items()
        )

    def _broken_messages(self, file: BinaryIO) -> tuple[LogLine, ...]:
        """Messages that are broken over two or three lines, as by a mail or a terminal."""
        found: dict[int, LogLine] = {}
        rows = _rows(file, MOST_REJOINED)
        for count in range(2, MOST_BROKEN + 1):
            for number, text in _joined(rows, count):
                kind, fields = self._classified(text) or (hearsay.KIND, {})
                if found.keys().isdisjoint(range(number - 1, number + count)) and kind not in (hearsay.KIND, *_SUPPORTING):
                    line = LogLine(text=text[:LONGEST_TEXT], kind=kind, path=self._path, line=number, fields=dict(fields))
                    found[number] = line
        return tuple(found[number] for number in sorted(found))[:MOST_OF_A_KIND]

    def broken_reasons(self, file: BinaryIO) -> tuple[LogLine, ...]:
        """Messages that are broken over several lines, but for those that tell only how a process ended."""
        return tuple(line for line in self._broken_messages(file) if line.kind not in _ENDS)

    def quoted(self, rows: Sequence[str], lines: Sequence[LogLine]) -> tuple[LogLine, ...]:
        """The lines, of which some only quote their message; what stands in front of it, such as `- fix:`, may tell so."""

        def how(line: LogLine) -> Optional[str]:
            if line.kind is None or "loosely" in line.fields:
                return None
            row = rows[line.line - 1].strip() if line.line and line.line <= len(rows) else line.text
            texts = (line.text, row) if row != line.text and line.text in row else (line.text,)
            return next((found for text in texts if (found := quoted.how(text, line.kind, self._kind_of))), None)

        return tuple(
            msgspec.structs.replace(line, fields={**line.fields, "loosely": told}) if (told := how(line)) is not None else line
            for line in lines
        )

    def whole_messages(self, file: BinaryIO, lines: Sequence[LogLine]) -> tuple[LogLine, ...]:
        """The lines, of which some are known as more once the line behind them is added: a terminal or a mail had broken them."""
        rows = _rows(file, MOST_REJOINED)
        return tuple(self._whole(line, _from(line, rows)) if line.line and not line.process else line for line in lines)

    def _whole(self, line: LogLine, rows: Sequence[str]) -> LogLine:
        if not rows or (line.kind != traceback.KIND and self._kind_of(rows[0]) != line.kind):
            return line
        text, more = rows[0].strip(), [row.strip() for row in rows[1:]]
        ordinary = {None, *_VAGUE, *_SUPPORTING, *_ENDS}
        for row in takewhile(bool, more):
            # At the width of a terminal, a word may be broken.
            texts = (f"{text}{row}", f"{text} {row}") if len(text) >= NARROWEST else (f"{text} {row}",)
            ordinary.add(self._kind_of(row))
            for one in texts:
                kind, fields = self._classified(one) or (None, {})
                if kind is not None and kind not in ordinary and precedence(kind) < precedence(line.kind):
                    return msgspec.structs.replace(line, text=one[:LONGEST_TEXT], kind=kind, fields=dict(fields))
            text = texts[-1]
        return line

    def _kind_of(self, row: str) -> Optional[str]:
        found = self._classified(row)
        return found[0] if found is not None else None

    def _typed(self, file: BinaryIO) -> tuple[LogLine, ...]:
        """Messages that somebody typed, in letters of another case."""
        found = []
        for number, row in enumerate(_rows(file, MOST_TYPED), 1):
            known = next((known for view in views(row) if (known := self._classifier.loosely(view))), None)
            if known is not None and known[0] in _MAY_BE_SURVIVED and _WARNS.search(row):
                continue
            if known is not None and known[0] not in _SUPPORTING and not hearsay.denies_around(row, known[2]):
                fields = {**known[1], "loosely": "in other letters"}
                found.append(LogLine(text=row.strip()[:LONGEST_TEXT], kind=known[0], path=self._path, line=number, fields=fields))
        return (*found[:MOST_OF_A_KIND], *self.retold(file, found))

    def typed(self, file: BinaryIO) -> tuple[LogLine, ...]:
        """What was typed, or broken over two lines, of a cause, where only the end is known."""
        several = (*self._broken_messages(file), *self._typed(file))
        return tuple(line for line in several if line.kind != hearsay.KIND and line.kind not in _ENDS)

    def causes_told(self, file: BinaryIO) -> tuple[LogLine, ...]:
        """What somebody says of a cause, where only the end is known."""
        return tuple(line for line in self.told(file) if hearsay.tells_cause(line.text))

    def told_causes(self, file: BinaryIO, known: Sequence[LogLine]) -> tuple[LogLine, ...]:
        """What somebody says of the cause, in lines that are no program's known message."""
        printed = {line.line for line in known if line.kind not in (hearsay.KIND, mentions.KIND, "windows-exit", *_ENDS)}
        lines = _rows(file, MOST_TYPED)
        with_before = enumerate(pairwise(["", *lines]), 1)
        rows = ["" if number in printed or _FRAME.match(before) else row for number, (before, row) in with_before]
        told = causes.told(rows, only_words=not printed)
        return tuple(self._loosely(rows, one.line, one.kind, {"loosely": "somebody's words"}) for one in told)

    def retold(self, file: BinaryIO, known: Sequence[LogLine]) -> tuple[LogLine, ...]:
        """Messages in other words, in lines of which nothing is known."""
        rows = _rows(file, MOST_TYPED)
        numbers = {line.line for line in known if line.kind not in _ENDS and line.kind != hearsay.KIND}
        return tuple(
            self._loosely(rows, one.line, one.kind, {**({"signal": one.signal} if one.signal else {}), "loosely": "in other words"})
            for one in retold.retold(rows)
            if one.line not in numbers
        )

    def _spoken(self, file: BinaryIO) -> tuple[LogLine, ...]:
        """Sentences that tell of a crash, misspelt ones too."""
        found = []
        for number, row in enumerate(_rows(file, MOST_REJOINED), 1):
            fields = next((told for one in hearsay.clauses(row) if not hearsay.denies(one) and (told := self._said(one)) is not None), None)
            if fields is not None:
                text = row.strip()[:LONGEST_TEXT]
                found.append(LogLine(text=text, kind=hearsay.KIND, path=self._path, line=number, fields=fields))
        return tuple(found[: hearsay.MOST])

    def _with_signal(self, line: LogLine) -> LogLine:
        """With the signal that stands there misspelt, beside words that tell of a crash only."""
        fields = None if line.kind != hearsay.KIND or "signal" in line.fields else self._said(mentions.righted(line.text))
        return msgspec.structs.replace(line, fields={**line.fields, **fields}) if fields and "signal" in fields else line

    def _said(self, text: str) -> Optional[dict[str, str]]:
        found = said(text)
        if found is not None:
            return found
        right = mentions.righted(text)
        kind, fields = self._classifier.classify(right) or (None, {})
        return dict(fields) if kind == hearsay.KIND and not hearsay.denies(right) else said(right)

    def evidence(self, errors: tuple[SoftError, ...], known: Known) -> LogEvidence:
        sources = self._sources()
        right = right_source(sources, known)
        if right is not None and len(sources) > 1:
            errors = (*errors, _several_sources(sources, right))
        chosen = self._chosen(sources, right, known)
        self._shown = right_one(chosen.crashes, known.threads)
        return self._evidence(chosen, self._shown, errors)

    def without_others(self, lines: tuple[LogLine, ...]) -> tuple[LogLine, ...]:
        """The lines without those that are known to tell of another crash than the one that is shown."""
        others = {line.line for line in self._lines if line.line and not self._shown.first <= line.line <= self._shown.last}
        return tuple(line for line in lines if line.line not in others)

    def _chosen(self, sources: Sequence[Source], right: Optional[Source], known: Known) -> _Chosen:
        lines = tuple(sorted((line for line in self._lines if line.kind != hearsay.KIND), key=lambda line: line.line or 0))
        far = at_another_time({line.line: self._times[line.line] for line in lines if line.line in self._times}, known)

        def is_about(who: str, at: Optional[int]) -> bool:
            return at not in far and (right is None or of_source(who, right, sources, known))

        lines = tuple(line for line in lines if is_about(line.process or "", line.line))
        return _Chosen(lines, self._crashes(lines, right), is_about)

    def _evidence(self, chosen: _Chosen, part: Part, errors: tuple[SoftError, ...]) -> LogEvidence:
        crashes = chosen.crashes
        lines = tuple(line for line in chosen.lines if part.first <= (line.line or 0) <= part.last)
        texts = {
            format: [(who, one) for who, one, at in told if part.first <= at <= part.last and chosen.is_about(who, at)]
            for format, told in self._texts.items()
        }
        accounts = [(format, self._told(format, told)) for format, told in texts.items()]
        if len(crashes) > 1:
            errors = (*errors, _several(crashes, part, self._numbered))
        if others := after_abort(lines):
            errors = (*errors, _after_abort(others))
            lines = tuple(line for line in lines if line not in others)
        accounts.sort(key=lambda one: one[1].telling, reverse=True)
        shows_nothing = all(line.kind in _SUPPORTING for line in lines) and not any(account.is_evidence for _, account in accounts)
        if shows_nothing and not self._broken:
            raise EvidenceError(
                f"{self._path} contains no crash evidence",
                "Pass a core, a faulthandler dump, a gdb backtrace, or the stderr of the process that died.",
            )
        format, shown = accounts[0]
        told = next((account.signal for _, account in accounts if account.signal is not None), None)
        if told is None and (shown.stacks == "native" or format.source == faulthandler.FORMAT.source):
            told = _of_stacks(shown.threads)
        signal, process = log_signal.of_lines(lines, told)
        left_out = tuple(
            SoftError(stage="log", message=f"{count} more {kind} lines were omitted")
            for kind, count in sorted(self._left_out.items())
            if kind not in _REPEATED
        )
        return LogEvidence(
            kind=format.source if shown.telling else "log",
            lines=lines,
            threads=shown.threads,
            stacks=shown.stacks if shown.telling else None,
            signal=signal,
            process=process,
            python=next((account.python for _, account in accounts if account.python is not None), None),
            soft_errors=(*errors, *self._unread(), *left_out, *(error for _, account in accounts for error in account.soft_errors)),
        )

    def _sources(self) -> list[Source]:
        """The processes with a fatal dump."""
        found: dict[str, Source] = {}
        for who, reader, at in (text for told in self._texts.values() for text in told):
            if reader.crashed_threads:
                known = found.get(who, Source(who, frozenset(), 0))
                found[who] = Source(who, known.threads | reader.crashed_threads, max(at, known.last))
        return list(found.values())

    def _crashes(self, lines: Sequence[LogLine], right: Optional[Source]) -> list[Part]:
        """The crashes of the process that the log is about. Where its lines are interleaved with those of its job, nothing is split."""
        texts = [text for told in self._texts.values() for text in told]
        if right is not None:
            lines = [line for line in lines if line.process == right.who]
            texts = [text for text in texts if text[0] == right.who]
        dumps = [
            Dump(at, reader.crashed_threads, reader.crashed_stack, reader.process)
            for _, reader, at in texts
            if reader.crashed_threads or reader.process is not None
        ]
        if right is None and (any(who for who, _, _ in texts) or any(line.process for line in lines)):
            return [part._replace(threads=frozenset().union(*(dump.threads for dump in dumps))) for part in parts((), ())]
        return parts(lines, dumps)


def _several_sources(sources: Sequence[Source], right: Source) -> SoftError:
    return SoftError(
        stage="log",
        message=f"this log contains crashes of {len(sources)} processes: that of {right.who or 'the one without a prefix'} is shown",
        hint="Pass the log of one process, or the core of the one that you mean.",
    )


def _several(crashes: Sequence[Part], part: Part, numbered: bool) -> SoftError:
    number = crashes.index(part) + 1
    place = f" (from line {part.first:,} on)" if number == len(crashes) else f" (lines {part.first:,} to {part.last:,})"
    return SoftError(
        stage="log",
        message=f"this log contains {len(crashes)} crashes: number {number} is shown{place if numbered else ''}",
        hint="To see another one, pass only its part of the log, or its core.",
    )


def _after_abort(others: Sequence[LogLine]) -> SoftError:
    return SoftError(
        stage="log",
        message=f"this log contains another crash: the fault that the kernel tells in line {others[0].line:,} is not the abort before it",
        hint="To see it, pass only its part of the log: the kernel logs nothing of a process that ended by abort().",
    )


def _with_crashed_thread(found: LogEvidence) -> LogEvidence:
    """With the only thread of faulthandler's marked as the one that crashed, where the dump has lost its head, but a fault is known."""
    signal = found.signal.number if found.signal is not None else None
    if found.kind != faulthandler.FORMAT.source or signal not in faulthandler.SIGNALS.values() or len(found.threads) != 1:
        return found
    if any(_HEAD in line.text for line in found.lines):
        return found  # A dump with its head marks the thread that crashed, if it ran Python.
    return msgspec.structs.replace(found, threads=tuple(msgspec.structs.replace(thread, crashed=True) for thread in found.threads))


def _of_stacks(threads: Sequence[Thread]) -> Optional[int]:
    """SIGABRT where the crashed thread was in abort(), or in what calls it."""
    crashed = next((thread for thread in threads if thread.crashed), None)
    names = [frame.function for frame in crashed.natives()] if crashed is not None else []
    aborts = any(name is not None and plain(name) in ("abort", "std::terminate") for name in names[: machinery_end(names)])
    return SIGABRT if aborts else None


def _is_beheaded(file: BinaryIO, body: Body) -> bool:
    """Whether a short text begins within a stack: it has a frame before the head, which stands at the top of any."""
    if file.seek(0, 2) > MOST_TYPED:
        return False
    file.seek(0)
    text = file.read().decode("utf-8", "replace")
    found = body.frame.search(text)
    return found is not None and text.rfind(body.head, 0, found.start()) < 0


def _from(line: LogLine, rows: Sequence[str]) -> Sequence[str]:
    """The row of this line and those behind it in which its message may go on. The number of a traceback is its first line's."""
    first = (line.line or 1) - 1
    if line.kind == traceback.KIND:
        first = next((at for at in range(first, len(rows)) if rows[at].strip() == line.text), len(rows))
    return rows[first : first + MOST_BROKEN]


def _joined(rows: Sequence[str], count: int) -> Iterator[tuple[int, str]]:
    """Each of so many lines in a row that are not empty, joined, with the number of the first from 1.

    A mail breaks lines between words; a terminal at its width, also within one: those lines are as long as none is longer. A line without
    a word is none that was broken: the arrow between two of macOS's regions points to what is not there.
    """
    bare = [row.strip() for row in rows]
    width = max(map(len, rows), default=0)
    for number in range(1, len(bare) - count + 2):
        pieces = bare[number - 1 : number - 1 + count]
        if all(pieces) and all(any(map(str.isalnum, piece)) for piece in pieces[:-1]):
            whole = rows[number - 1 : number - 1 + count]
            if width >= NARROWEST and all(len(row) == width for row in whole[:-1]):
                yield number, "".join(whole).strip()
            yield number, " ".join(pieces)


def _rows(file: BinaryIO, most: int) -> list[str]:
    """The lines of a text of at most that many bytes, without prefixes; none of a longer one, and of one that nobody wrote in words."""
    if file.seek(0, 2) > most:
        return []
    file.seek(0)
    data = file.read()
    if ips.begins(data[: ips.HEAD]):
        return []
    rows = [split(clean(raw)).text.replace("\n", " ") for raw in data.split(b"\n")]
    return ["" if _is_compared(row) else row for row in rows]


def _is_compared(text: str) -> bool:
    return ("assert " in text or "+ " in text) and _COMPARED.match(bare(text)) is not None


def _keep(several: list[_Kept], one: _Kept) -> None:
    """Append, keeping the first and the last ones."""
    several.append(one)
    if len(several) > MOST_OF_A_KIND:
        del several[MOST_OF_A_KIND // 2]


def _indent(text: str) -> int:
    return len(text) - len(text.lstrip(" "))
