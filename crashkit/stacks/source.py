"""Source lines for Python frames, from the files on this machine."""

from __future__ import annotations

import tokenize
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, Optional

import msgspec

from crashkit.model import PythonFrame

_AROUND = 5
_MOST_BYTES = 8 << 20
_LONGEST_LINE = 500

Locate = Callable[[str], Optional[Path]]
"""The file on this machine that the crashed process called by this name."""


class _Text(NamedTuple):
    lines: tuple[str, ...]


class Sources:
    """Reads each source file once. `newer` names those changed after the crash, whose lines may be wrong."""

    def __init__(self, locate: Locate, crashed_at: Optional[float]) -> None:
        self._locate = locate
        self._crashed_at = crashed_at
        self._files: dict[str, Optional[_Text]] = {}
        self.newer: set[str] = set()

    def annotate(self, frame: PythonFrame) -> PythonFrame:
        """The frame with its source line and the lines around it, if the file can be read."""
        if not frame.file or not frame.line or frame.file.startswith("<"):
            return frame
        if frame.file not in self._files:
            self._files[frame.file] = self._read(frame.file)
        text = self._files[frame.file]
        if text is None or frame.line > len(text.lines):
            return frame
        first = max(1, frame.line - _AROUND)
        return msgspec.structs.replace(
            frame,
            source=text.lines[frame.line - 1].strip(),
            context=text.lines[first - 1 : frame.line + _AROUND],
            context_start=first,
            source_changed=frame.file in self.newer,
        )

    def line(self, file: str, line: int) -> Optional[str]:
        """One line, stripped; None if the file cannot be read or is not a program's source."""
        return self.annotate(PythonFrame(file=file, line=line)).source

    def _read(self, name: str) -> Optional[_Text]:
        path = self._locate(name)
        try:
            if path is None or path.stat().st_size > _MOST_BYTES:
                return None
            with tokenize.open(path) as file:
                if not _is_source(path, file.readline(_LONGEST_LINE)):
                    return None
                file.seek(0)
                lines = tuple(line.rstrip("\n")[:_LONGEST_LINE] for line in file)
            changed = path.stat().st_mtime
        except (OSError, SyntaxError, UnicodeDecodeError, ValueError):
            return None
        if self._crashed_at is not None and changed > self._crashed_at:
            self.newer.add(name)
        return _Text(lines)


def _is_source(path: Path, first_line: str) -> bool:
    """The name comes from the core, which must not get /etc/shadow into a report."""
    return path.suffix in (".py", ".pyw", ".cu", ".cuh") or (first_line.startswith("#!") and "python" in first_line)
