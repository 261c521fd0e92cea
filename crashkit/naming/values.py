"""Which part of its line a Python frame was running, and which variables there matter to the crash. Pure."""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterator
from typing import NamedTuple

from crashkit.model import PythonFrame, Signal, Thread
from crashkit.naming.addresses import is_null
from crashkit.naming.handed import ADDRESS, NONE, ZERO, handed_on
from crashkit.naming.interrupted import interrupted
from crashkit.naming.own_code import is_own, python_frames

_NAMES = re.compile(r"[^\W\d]\w*(?:\s*\.\s*[^\W\d]\w*)*")
_STRINGS = re.compile(r"'[^'\\]*'|\"[^\"\\]*\"|#.*")
_NUMBER = re.compile(r"-?\d{1,20}")
# A pointer of ctypes or cffi.
_POINTER = re.compile(r"<[\w.]+(?: '[^']*')? (0x[\da-f]{1,16}|NULL)>")
# Reprs that say nothing beyond the name.
_DULL = re.compile(r"<(?:module|function|class|method|built-in|bound method|staticmethod|classmethod)\b|<[\w.]+ at (?:remote )?0x\w+>$")
_UNSET = ("<NULL>", "0x0")
"""As crashkit and gdb's libpython.py write a null pointer."""
_FIELD = 4096
"""How far behind a pointer the address lies that was accessed through it: a field of a structure, or an element of a small array."""
_MOST = 3
_LONGEST = 40
_WORD = 1 << 64


class Value(NamedTuple):
    """A variable, or an attribute of one, as text."""

    name: str
    text: str
    frame: PythonFrame
    """The frame that has it."""

    def __str__(self) -> str:
        return f"{self.name} = {self.text if len(self.text) <= _LONGEST else self.text[:_LONGEST] + '…'}"


def source_line(frame: PythonFrame) -> str | None:
    """The frame's source line, stripped."""
    if frame.source:
        return frame.source.strip()
    if frame.context and frame.line and frame.context_start:
        index = frame.line - frame.context_start
        if 0 <= index < len(frame.context):
            return frame.context[index].strip() or None
    return None


def expression(frame: PythonFrame) -> tuple[int, int] | None:
    """Start and end in `source_line` of the expression that was running; None where it is the whole line, or not known."""
    index = (frame.line or 0) - (frame.context_start or 0)
    if frame.columns is None or not 0 <= index < len(frame.context) or frame.source_changed:
        return None
    line = frame.context[index]
    indent = len(line) - len(line.lstrip())
    start, end = frame.columns[0] - indent, frame.columns[1] - indent
    return (start, end) if 0 <= start < end <= len(line.strip()) and end - start < len(line.strip()) else None


def used(frame: PythonFrame) -> list[Value]:
    """The variables that stand in the expression that was running, or in its line, with their values, in that order."""
    source = source_line(frame)
    if source is None or frame.source_changed:
        return []
    marked = expression(frame)
    found: dict[str, Value] = {}
    for match in _NAMES.finditer(_STRINGS.sub("", source[slice(*marked)] if marked else source)):
        first, *attributes = "".join(match[0].split()).split(".")
        text = frame.locals.get(first)
        if text is None or keyword.iskeyword(first):
            continue
        name = first
        for attribute in attributes:
            inside = _attribute(text, attribute)
            if inside is None:
                break
            name, text = f"{name}.{attribute}", inside
        found.setdefault(name, Value(name, text, frame))
    return list(found.values())


def _attribute(shown: str, name: str) -> str | None:
    """An attribute's value from its object's repr, `<Node(size=24, link=None) at 0x7f…>`."""
    found = re.search(rf"[(,] ?{re.escape(name)}=([^(){{}}\[\],]+)[,)]", shown)
    return found[1] if found else None


def unset_items(text: str) -> list[int]:
    """The numbers of the items of a tuple or list that are null pointers, from its value as text: `(1, <NULL>)`."""
    if text[:1] not in ("(", "["):
        return []
    depth, index, start = 0, 0, 1
    found: list[int] = []
    plain = _STRINGS.sub(lambda match: "s" * len(match[0]), text)
    for at, character in enumerate(plain):
        depth += (character in "([{") - (character in ")]}")
        if (character == "," and depth == 1) or (depth == 0 and character in ")]"):
            found += [index] if plain[start:at].strip() in _UNSET else []
            index, start = index + 1, at + 1
    return found


def telling(frame: PythonFrame) -> list[Value]:
    """The values to show beside a line: of what is used there, those that say something."""
    return [value for value in used(frame) if not _DULL.match(value.text)][:_MOST]


def bad_pointer(thread: Thread, signal: Signal | None) -> Value | None:
    """The variable whose value was used as the address that faulted, in the innermost line of the user's own, or else in the library that
    it called."""
    if signal is None or signal.address is None or signal.name not in ("SIGSEGV", "SIGBUS") or interrupted(thread, signal):
        return None
    frames = python_frames(thread)
    own = next((index for index, frame in enumerate(frames) if is_own(frame)), 0)
    order = [*frames[own : own + 1], *reversed(frames[:own])]
    handed = handed_on(thread)
    found = (value for frame in order for value in _pointers(frame, int(signal.address), handed))
    return next((value for value in found if not is_null(int(signal.address)) or _has(frames[0], value)), None)


def _has(innermost: PythonFrame, value: Value) -> bool:
    """Whether the frame that called native code has the same value: nothing else came to that code from a line further out."""
    if value.frame is innermost or not innermost.locals:
        return True
    wanted = number(value.text)
    return any(text == value.text or (wanted is not None and number(text) == wanted) for text in innermost.locals.values())


def _pointers(frame: PythonFrame, address: int, handed: frozenset[str]) -> Iterator[Value]:
    mentioned = used(frame)
    if is_null(address) and ADDRESS in handed and address and (source_line(frame) is None or frame.source_changed):
        # Which variables the line uses is not known, as in a zip file or a frozen program: the only one with just this value tells.
        same = [Value(name, text, frame) for name, text in frame.locals.items() if number(text) == address]
        yield from same if len(same) == 1 else ()
        return
    if is_null(address):
        mentioned = sorted(mentioned, key=lambda value: not _POINTER.fullmatch(value.text))  # a pointer before a mere number
        # Small numbers are common: only one that is used in this very line counts, and that was handed to the code which failed.
        exact = [value for value in mentioned if number(value.text) == address and (ADDRESS if address else ZERO) in handed]
        nothing = [value for value in mentioned if number(value.text) == 0 and ZERO in handed]
        yield from exact or nothing or [value for value in mentioned if value.text == "None" and NONE in handed]
        return
    others = (Value(name, text, frame) for name, text in frame.locals.items())
    near = [value for value in (*mentioned, *others) if (found := number(value.text)) is not None and 0 <= address - found < _FIELD]
    yield from sorted(near, key=lambda value: address - (number(value.text) or 0))


def zeros(frame: PythonFrame, signal: Signal | None) -> list[Value]:
    """The variables in the line that are 0, where an integer division failed."""
    if signal is None or signal.name != "SIGFPE" or signal.reason not in (None, "integer-divide"):
        return []
    return [value for value in used(frame) if number(value.text) == 0][:_MOST]


def number(text: str) -> int | None:
    """The number or the address of a pointer that a variable has, as an unsigned word; None for any other value."""
    if pointer := _POINTER.fullmatch(text):
        return 0 if pointer[1] == "NULL" else int(pointer[1], 16)
    return int(text) % _WORD if _NUMBER.fullmatch(text) else None
