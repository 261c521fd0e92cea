"""Source lines for Python frames and GPU kernels, from the files on this machine."""

from __future__ import annotations

import io
import os
import posixpath
import tokenize
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO, Optional

import msgspec

from crashkit.crashfolder.files import is_planted, open_regular
from crashkit.interpreter.kept_sources import KeptSource
from crashkit.model import PythonFrame
from crashkit.regex import regex
from crashkit.stacks import command_text
from crashkit.stacks.zipped_source import zipped_source

_AROUND = 5
_OF_MODULE = "<module>"
_NAME = regex(r"[^\W\d]\w{0,199}")
_MOST_BYTES = 8 << 20
_LONGEST_LINE = 500
_SUFFIXES = (".py", ".pyw", ".cu", ".cuh")

Locate = Callable[[str], Optional[Path]]
"""The file on this machine that the crashed process called by this name."""


class _Text(msgspec.Struct, frozen=True):
    lines: tuple[str, ...]


Kept = Mapping[str, KeptSource]
"""Code that is in no file, by the name that its frames have in place of a file's."""


def in_no_file(kept: Kept, argv: Sequence[str]) -> Kept:
    """With the program of `python -c`, which CPython keeps itself since 3.13."""
    text = command_text.command_text(argv)
    return {command_text.NAME: KeptSource(tuple(text.split("\n"))), **kept} if text is not None else kept


class Sources:
    """Reads each source file once. `newer` names those changed after the crash, whose lines may be wrong."""

    def __init__(self, locate: Locate, crashed_at: Optional[float], kept: Optional[Kept] = None) -> None:
        self._locate = locate
        self._crashed_at = crashed_at
        self._kept = kept or {}
        given = self._kept.get(command_text.NAME)
        self._program = command_text.Program("\n".join(given.lines)) if given is not None else None
        self._files: dict[str, Optional[_Text]] = {}
        self._names: dict[str, str] = {}
        self.newer: set[str] = set()

    def stack(self, frames: Sequence[PythonFrame], is_whole: bool = True) -> tuple[PythonFrame, ...]:
        """The frames, innermost first, each as `annotate` makes it. `is_whole`: whether the last of them is its thread's outermost."""
        last = len(frames) - 1 if is_whole else None
        return tuple(self.annotate(frame, index == last) for index, frame in enumerate(frames))

    def annotate(self, frame: PythonFrame, is_outermost: bool = False) -> PythonFrame:
        """The frame with its source line and the lines around it, if its source can be read; without columns if it cannot.

        Its file is named without `..`, where that is the same file here; a cell as IPython's tracebacks name it.
        """
        file, at = frame.file, frame.line
        if not file or not at or (file.startswith("<") and not self._is_kept(frame, is_outermost)):
            return _without_columns(frame)
        if "/../" in file:
            file = self._direct(file)
            frame = msgspec.structs.replace(frame, file=file)
        if file not in self._files:
            self._files[file] = self._read(file)
        text = self._files[file]
        if text is None or at > len(text.lines):
            return _without_columns(frame)
        first = max(1, at - _AROUND)
        kept, context = self._kept.get(file), text.lines[first - 1 : at + _AROUND]
        return msgspec.structs.replace(
            frame,
            file=(kept.title if kept is not None else None) or file,
            locals=frame.locals if frame.function != _OF_MODULE else _named(frame.locals, context),
            columns=_characters(frame.columns, text.lines[at - 1]),
            source=text.lines[at - 1].strip(),
            context=context,
            context_start=first,
            source_changed=file in self.newer,
        )

    def line(self, file: str, line: int) -> Optional[str]:
        """One line, stripped; None if the file cannot be read or is not a program's source."""
        return self.annotate(PythonFrame(file=file, line=line)).source

    def _is_kept(self, frame: PythonFrame, is_outermost: bool) -> bool:
        if frame.file != command_text.NAME or self._program is None:
            return frame.file in self._kept
        return self._program.runs(frame.function or "", frame.line or 0, is_outermost)

    def _direct(self, name: str) -> str:
        """The name without `..`: beyond a symbolic link that is another file, and of one that is not here nobody knows."""
        if name not in self._names:
            normal = posixpath.normpath(name)
            places = [self._locate(one) for one in (name, normal)]
            same = None not in places and len({os.path.realpath(place) for place in places if place is not None}) == 1
            self._names[name] = normal if same else name
        return self._names[name]

    def _read(self, name: str) -> Optional[_Text]:
        if name in self._kept:
            return _Text(tuple(line[:_LONGEST_LINE] for line in self._kept[name].lines))
        try:
            path = self._locate(name)
            if path is not None:
                read = read_source(path)
            else:
                zipped = zipped_source(name, self._locate)
                read = (_decoded(zipped[0]), zipped[1]) if zipped is not None else None
        except (OSError, SyntaxError, UnicodeDecodeError, ValueError):
            return None
        if read is None:
            return None
        text, changed = read
        if self._crashed_at is not None and changed > self._crashed_at:
            self.newer.add(name)
        return _Text(tuple(line.rstrip("\n")[:_LONGEST_LINE] for line in io.StringIO(text)))


def _named(variables: dict[str, str], lines: Sequence[str]) -> dict[str, str]:
    """Those that the lines name: a module's other variables are not of this place."""
    names = {name for line in lines for name in _NAME.findall(line)}
    return {name: text for name, text in variables.items() if name in names}


def _without_columns(frame: PythonFrame) -> PythonFrame:
    """Only the line tells which character a byte is in."""
    return frame if frame.columns is None else msgspec.structs.replace(frame, columns=None)


def _characters(columns: Optional[tuple[int, int]], line: str) -> Optional[tuple[int, int]]:
    """Columns of bytes as those of characters; None where they are not in the line, as after a change of the file."""
    if columns is None:
        return None
    data, text = line.encode("utf-8", "surrogatepass"), line.rstrip()
    start, end = columns
    first = len(data[:start].decode("utf-8", "replace"))
    last = len(data[:end].decode("utf-8", "replace")) if end else len(text)
    return (first, last) if len(line) - len(line.lstrip()) <= first < last <= len(text) and end <= len(data) else None


def read_source(path: Path) -> Optional[tuple[str, float]]:
    """The text of a file and when it was changed, seconds since the epoch; None if it is no Python or CUDA source.

    The name comes from the core, and whoever made it may have put a link there: neither may get /etc/shadow into a report. So what
    counts is the name of the file that was opened, behind all links. It must be a regular file, of at most 8 MiB.
    Raises OSError, SyntaxError for an unknown encoding, UnicodeDecodeError, ValueError.
    """
    real = Path(os.path.realpath(path, strict=True))
    with open_regular(real) as file:
        return None if is_planted(os.fstat(file.fileno()), real) else source_text(file, real)


def readable_source(path: Path) -> Optional[tuple[str, float]]:
    """As `read_source`; None also for a file that cannot be read."""
    try:
        return read_source(path)
    except (OSError, SyntaxError, UnicodeDecodeError, ValueError):
        return None


def readable_text(path: Path) -> Optional[str]:
    """The text alone of `readable_source`."""
    read = readable_source(path)
    return read[0] if read is not None else None


def source_text(file: BinaryIO, real: Path) -> Optional[tuple[str, float]]:
    """As `read_source`, of an open file and its name behind all links."""
    status = os.fstat(file.fileno())
    if status.st_size > _MOST_BYTES:
        return None
    content = io.BytesIO(file.read(_MOST_BYTES))
    if real.suffix not in _SUFFIXES:
        first_line = content.readline(_LONGEST_LINE)
        if not first_line.startswith(b"#!") or b"python" not in first_line:
            return None
        content.seek(0)
    return _decoded(content), status.st_mtime


def _decoded(content: io.BytesIO) -> str:
    encoding, _ = tokenize.detect_encoding(content.readline)
    content.seek(0)
    return io.TextIOWrapper(content, encoding).read()
