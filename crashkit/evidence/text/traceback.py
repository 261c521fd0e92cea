"""Python tracebacks in a log: chained ones, exception groups and IPython's, parsed line by line."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Optional

from crashkit.evidence.text.reader import Account, Body, Format, Note, Reader, Telling
from crashkit.model import PythonFrame, SoftError, Thread

KIND = "exception"
"""Of the line of an exception whose message no pattern knows."""
MOST_FRAMES = 1000
WITHOUT_END = SoftError(
    stage="log",
    message="the traceback has no last line: it does not say what was raised",
    hint="Pass the text with the lines below it, if there are any.",
)

_HEAD = re.compile(r"^(?P<margin>[ |+-]*)(?:\w[\w.]* +)?Traceback \(most recent call (?P<end>last|first)\):?$")
_ASIDE = ("Exception ignored ", "Error in atexit._run_exitfuncs", "Error in sys.excepthook", "--- Logging error ---")
"""The line before the traceback of an exception that did not end the process: Python/errors.c (PyErr_WriteUnraisable),
Modules/atexitmodule.c, Python/pythonrun.c, Lib/logging/__init__.py."""
_FRAME = re.compile(r'^  File "(?P<file>.*)", line (?P<line>\d{1,9})(?:, in (?P<function>.*))?$')
_IPYTHON_FRAME = re.compile(
    r"^(?:File )?(?P<file>(?:<ipython-input-[^>]*>|[~/]?\S*/[^\s/]+\.py|Cell In\s?\[\d+\]))"
    r"(?::(?P<line>\d{1,9})|, line (?P<line2>\d{1,9}))?(?:,? in (?P<function>[\w<>.]+)\(.*)?$"
)
_IPYTHON_ARROW = re.compile(r"^-+> (?P<line>\d{1,9}) (?P<source>.*)$")
_EXCEPTION = re.compile(
    # Any dotted name whose last part has a capital letter, as KeyError, but not only its first one, as a log's `Note: `; or `cv2.error`.
    r"^(?=[A-Za-z_](?:(?:[\w.]*\.)?[^\WA-Z]*[A-Z]\w*|[\w.]*\.(?:error|herror|gaierror|timeout))(?:: |$))"
    r"(?P<type>[\w.]+)(?:: (?P<message>.*))?$"
)
# Lib/subprocess.py: of a Python program, status 1 is an exception that nobody caught.
_CHILD_RAISED = re.compile(r"^Command '.*' returned non-zero exit status 1\.$")
_CHILD_DIED = re.compile(r"^Command '.*' died with <Signals\.SIG\w{1,20}: \d{1,3}>\.$")
# Lib/multiprocessing/connection.py and its copies: what a process sees of the other one's end.
_PIPE = re.compile(r"(?:^|[/\\])(?:multiprocess(?:ing)?|billiard)[/\\]connection\.py$")
_OTHER_ENDED = frozenset({"EOFError", "ConnectionResetError", "BrokenPipeError"})
_LEVEL = re.compile(r"^(?:INFO|DEBUG|WARNING|WARN|ERROR|CRITICAL|FATAL|TRACE)\b")
_MARGIN = re.compile(r"^ *(?:\| |\+-[+-]*)(?P<rest>.*)$")
_MARKS = re.compile(r"^[ ~^|]*$")
_RULE = re.compile(r"^[-+ |.]*(?:\d+[-+ |.]*)?$")


class Traceback(Reader):
    """One traceback, up to the last line of its exception; `first` if gdb's py-bt printed it (innermost first), `aside` if it begins with
    the line that says that the exception was ignored."""

    def __init__(self, first: bool, aside: bool = False) -> None:
        self.first = first
        self.aside = aside
        self._awaits_head = aside
        self.exception: Optional[str] = None
        self.message: Optional[str] = None
        self.last_line = ""
        self._frames: list[PythonFrame] = []

    def feed(self, text: str) -> bool:
        """Take the next line; see `Reader.feed`."""
        if self.ended:
            return False
        if self._awaits_head:
            self._awaits_head = False
            return _HEAD.match(text) is not None
        if margin := _MARGIN.match(text):
            text = margin["rest"]
        if match := _FRAME.match(text):
            if match["function"] is None and match["file"].startswith("<"):
                return True  # where a SyntaxError is, in no file; a frame names its function
            return self._open(match["file"], int(match["line"]), match["function"])
        if match := _IPYTHON_FRAME.match(text):
            line = match["line"] or match["line2"]
            return self._open(match["file"], int(line) if line else None, match["function"])
        if match := _IPYTHON_ARROW.match(text):
            return self._point(int(match["line"]), match["source"].strip())
        if text.startswith("  ") or not text.strip() or _RULE.match(text):
            return self._source(text)
        return self._end(text)

    def _open(self, file: str, line: Optional[int], function: Optional[str]) -> bool:
        if len(self._frames) < MOST_FRAMES:
            self._frames.append(PythonFrame(function=function or None, file=file, line=line, origin="traceback"))
        return True

    def _point(self, line: int, source: str) -> bool:
        if self._frames:
            last = self._frames[-1]
            self._frames[-1] = PythonFrame(function=last.function, file=last.file, line=line, source=source, origin="traceback")
        return True

    def _source(self, text: str) -> bool:
        source = text.strip()
        if not self._frames and source and not _RULE.match(text):
            return False  # an indented text whose first traceback may have lost its head: it is not all of this one
        if self._frames and source and not _MARKS.match(text) and self._frames[-1].source is None and text.startswith("    "):
            last = self._frames[-1]
            self._frames[-1] = PythonFrame(function=last.function, file=last.file, line=last.line, source=source, origin="traceback")
        return True

    def _end(self, text: str) -> bool:
        match = _EXCEPTION.match(text)
        if match is None or _LEVEL.match(text) or not self._frames:
            return bool(re.match(r"^\d+ \S", text)) and bool(self._frames)
        self.exception, self.message, self.last_line = match["type"], match["message"], text
        self.ended = True
        return True

    def repeats(self, other: Traceback) -> bool:
        """Whether it is the same exception: Cython prints one that it ignores before it says so, and again."""
        return self.last_line == other.last_line and self._frames == other._frames

    @property
    def is_of_parent(self) -> bool:
        """Whether it only says that another process failed: a program that it had started, whose own traceback accelerate's launcher prints
        above it, or the one at the other end of a pipe."""
        return (self._says(_CHILD_RAISED) and "python" in (self.message or "")) or self.child_died or self._lost_other_end

    @property
    def child_died(self) -> bool:
        """Whether that program died of a signal: these frames are not where it did."""
        return self._says(_CHILD_DIED)

    @property
    def _lost_other_end(self) -> bool:
        """Whether the process at the other end of a pipe was gone."""
        innermost = self._frames[0 if self.first else -1].file if self._frames else None
        return self.exception in _OTHER_ENDED and _PIPE.search(innermost or "") is not None

    @property
    def is_cut(self) -> bool:
        """Whether the text ends, or goes on with something else, before it says what was raised."""
        return bool(self._frames) and self.exception is None

    def _says(self, pattern: re.Pattern[str]) -> bool:
        return (self.exception or "").endswith("CalledProcessError") and pattern.match(self.message or "") is not None

    def finish(self) -> Optional[tuple[Note, ...]]:
        """One note for the exception, or no note if its last line is missing. Returns None if there are no frames."""
        if not self._frames:
            return None
        if self.exception is None:
            return ()
        innermost = self._frames[0 if self.first else -1]
        fields = {"exception": self.exception, "message": self.message or "", "reported_at": f"{innermost.file}:{innermost.line}"}
        return (Note(self.last_line, KIND, fields, classified=True),)

    def thread(self) -> Thread:
        """A thread with only Python frames, innermost first."""
        frames = self._frames if self.first else self._frames[::-1]
        return Thread(crashed=True, frames=tuple(frames))


def _opens(text: str) -> Optional[Traceback]:
    if text.startswith(_ASIDE):
        return Traceback(first=False, aside=True)
    match = _HEAD.match(text)
    return Traceback(match["end"] == "first") if match else None


def _tells(tracebacks: Sequence[tuple[str, Traceback]]) -> Account:
    """Use the last traceback: if an exception was uncaught, it is that one, or the one before whose end it reports. Not one that was
    ignored, if there is another."""
    if not tracebacks or tracebacks[-1][1].child_died:
        return Account()
    every = [traceback for _, traceback in tracebacks]
    ignored = [traceback for traceback in every if traceback.aside]
    ending = [traceback for traceback in every if not any(traceback.repeats(other) for other in ignored)] or every
    own = [traceback for traceback in ending if not traceback.is_of_parent]
    shown = own[-1] if own and ending[-1].is_of_parent else ending[-1]
    return Account(telling=Telling.EXCEPTION, threads=(shown.thread(),))


_BODY = Body(
    frame=re.compile(r'^\W{0,20}File "[^"\n]{1,1000}", line \d{1,9}, in \S', re.MULTILINE),
    head="most recent call",
    reader=lambda: Traceback(first=False),
)

FORMAT = Format(openers=("Traceback (most recent call", *_ASIDE), opens=_opens, tells=_tells, kinds=frozenset({KIND}), body=_BODY)
