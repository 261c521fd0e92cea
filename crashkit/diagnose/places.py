"""Places in the words of findings and their evidence. Pure."""

from __future__ import annotations

from typing import Optional

from crashkit.model import PythonFrame


def place(file: str, line: Optional[int]) -> str:
    """`app.py:17`, or the file alone where the line is not known."""
    return file if line is None else f"{file}:{line}"


def python_line(frame: PythonFrame) -> str:
    """`app.py:17 in decode`, or what is known of it; `?` where nothing is."""
    known = (place(frame.file, frame.line) if frame.file else None, frame.function)
    return " in ".join(filter(None, known)) or "?"
