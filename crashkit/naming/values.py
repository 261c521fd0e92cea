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

_NAME = re.compile(r"(?<![\w.])[^\W\d]\w*")
_ATTRIBUTE = re.compile(r"\s{0,8}\.\s{0,8}([^\W\d]\w*)")
_KEY = re.compile(r"-?\d{1,20}|[^\W\d]\w*|'[^'\\\n]*'|\"[^\"\\\n]*\"")
_SUBSCRIPT = re.compile(rf"\[\s{{0,8}}({_KEY.pattern})\s{{0,8}}\]")
_STORED = re.compile(r"\s{0,8}=(?!=)")
"""Behind what a line sets, and before the argument of a keyword: neither is read."""
_CALLED = re.compile(r"\s{0,8}\(")
_STRINGS = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"")
_COMMENT = re.compile(r"#.*")
_PADDED = re.compile(r"(?<=[(\[{]) | (?=[)\]}])")
"""Spaces where lines within brackets were joined."""
_OBJECT = re.compile(r"<[\w.]{1,200}\(")
"""The text of an object with its attributes: `<Node(size=24, link=None) at 0x7f…>`."""
_CUT = re.compile(r"\.\.\.|…|['\"]")
"""Where a value's text is cut, or, behind what `_STRINGS` finds, a string in it."""
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
    called: bool = False
    """Whether the line only calls it."""

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


def statement(frame: PythonFrame) -> str | None:
    """The source line and, where it leaves brackets open, those that close them, as one line; ` …` where these are not known."""
    source = source_line(frame)
    index = (frame.line or 0) - (frame.context_start or 0)
    if source is None or frame.source_changed or frame.line is None or not 0 <= index < len(frame.context):
        return source
    told = _code(source)
    if _open(told) <= 0:
        return source
    for line in frame.context[index + 1 :]:
        told = f"{told} {_code(line.strip())}".rstrip()
        if _open(told) <= 0:
            return _PADDED.sub("", told)
    return f"{_PADDED.sub('', told)} …"


def _code(line: str) -> str:
    """A line without the comment at its end."""
    return line[: len(_COMMENT.sub("", _blanked(line)))].rstrip()


def _open(text: str) -> int:
    """How many brackets it leaves open."""
    plain = _blanked(text)
    return sum(map(plain.count, "([{")) - sum(map(plain.count, ")]}"))


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
    """The variables that stand in the expression that was running, or in its line, with their values, in that order.

    Of an object's attribute, or an item of a container, that value, where the object's text shows it: `row["size"] = 24`.
    """
    source, line = statement(frame), source_line(frame)
    if source is None or line is None or frame.source_changed:
        return []
    marked = expression(frame)
    text = source
    if marked:
        text = line[slice(*marked)] if _open(line[slice(*marked)]) <= 0 else source[marked[0] :]
    plain = _COMMENT.sub("", _blanked(text))
    found: dict[str, Value] = {}
    for match in _NAME.finditer(plain):
        if match[0] in frame.locals and not keyword.iskeyword(match[0]) and not _STORED.match(plain, match.end()):
            value = _followed(frame, match[0], text, match.end())
            found.setdefault(value.name, value)
    return list(found.values())


def _followed(frame: PythonFrame, name: str, text: str, at: int) -> Value:
    """The value of what the line names from `at` on: the variable, or as much of its attributes and items as its text shows."""
    shown = frame.locals[name]
    while True:
        attribute, item = _ATTRIBUTE.match(text, at), _SUBSCRIPT.match(text, at)
        step = attribute or item
        if step is None:
            return Value(name, shown, frame, _CALLED.match(text, at) is not None)
        if _STORED.match(text, step.end()):
            return Value(name, shown, frame)
        inside = _attribute(shown, step[1]) if attribute else _item(shown, _key(step[1], frame))
        if inside is None:
            return Value(name, shown, frame)
        name += f".{step[1]}" if attribute else f"[{step[1]}]"
        shown, at = inside, step.end()


def _key(written: str, frame: PythonFrame) -> str | None:
    """A key or an index as its value's text: that of the variable, where it is one with a number or a string."""
    if written[0] in "'\"":
        return repr(written[1:-1])
    text = frame.locals.get(written, written)
    return text if _KEY.fullmatch(text) and not text.isidentifier() else None


def _item(shown: str, key: str | None) -> str | None:
    """An item's value from the text of its list, tuple or dict; None where that does not show it, or was cut before it."""
    if key is None or shown[:1] not in ("[", "(", "{"):
        return None
    items = list(_items(shown))
    if shown[0] == "{":
        pairs = (pair for item in items if (pair := _pair(item)) is not None)
        return next((value for name, value in pairs if name == key), None)
    whole = sum(map(len, items)) and not _CUT.search(_blanked(shown))
    if not _NUMBER.fullmatch(key) or (int(key) < 0 and not whole):
        return None
    return items[int(key)] if -len(items) <= int(key) < len(items) else None


def _items(shown: str) -> Iterator[str]:
    """The texts of the items of a list, tuple or dict, up to where its own text was cut."""
    plain = _blanked(shown)
    end = cut.start() if (cut := _CUT.search(plain)) else len(plain)
    depth, start = 0, 1
    for at, character in enumerate(plain[:end]):
        depth += (character in "([{<") - (character in ")]}>")
        if (character == "," and depth == 1) or depth == 0:
            if item := shown[start:at].strip():
                yield item
            start = at + 1
        if depth == 0:
            return


def _pair(item: str) -> tuple[str, str] | None:
    """Key and value of a dict's item."""
    name, colon, _ = _blanked(item).partition(":")
    return (item[: len(name)].strip(), item[len(name) + 1 :].strip()) if colon else None


def _blanked(text: str) -> str:
    """The text with spaces in place of its strings."""
    return _STRINGS.sub(lambda match: " " * len(match[0]), text)


def _attribute(shown: str, name: str) -> str | None:
    """An attribute's value from its object's text."""
    start = _OBJECT.match(shown)
    items = _items(shown[start.end() - 1 :]) if start else ()
    return next((value.strip() for item in items for own, equals, value in (item.partition("="),) if equals and own == name), None)


def unset_items(text: str) -> list[int]:
    """The numbers of the items of a tuple or list that are null pointers, from its value as text: `(1, <NULL>)`."""
    if text[:1] not in ("(", "["):
        return []
    depth, index, start = 0, 0, 1
    found: list[int] = []
    plain = _blanked(text)
    for at, character in enumerate(plain):
        depth += (character in "([{") - (character in ")]}")
        if (character == "," and depth == 1) or (depth == 0 and character in ")]"):
            found += [index] if plain[start:at].strip() in _UNSET else []
            index, start = index + 1, at + 1
    return found


def telling(frame: PythonFrame) -> list[Value]:
    """The values to show beside a line: of what is used there, those that say something. What is only called says nothing."""
    return [value for value in used(frame) if not value.called and not _DULL.match(value.text)][:_MOST]


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
    mentioned += [item for value in mentioned for item in _handed_items(value)]
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


def _handed_items(value: Value) -> Iterator[Value]:
    """The items of a tuple or list that the line hands on one by one: `print_record(template, *fields)`."""
    handed = re.search(rf"(?<!\*)\*\s{{0,8}}{re.escape(value.name)}\b", _blanked(statement(value.frame) or ""))
    if handed is not None and value.text[:1] in ("(", "["):
        yield from (Value(f"{value.name}[{index}]", item, value.frame) for index, item in enumerate(_items(value.text)))


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
