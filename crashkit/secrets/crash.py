"""Masks the secrets in a finished crash, before anything shows it. Pure.

Every string of the model is masked, whatever its field: what a field is called matters only where a name gives its meaning
to a value (variables), and for source and command lines, which have rules of their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any

import msgspec
from msgspec.structs import replace

from crashkit.model import Crash, GpuException, GpuLane, JobPlace, LaunchedFrom, LogLine, NativeFrame, Process, PythonFrame, Sibling
from crashkit.regex import regex
from crashkit.secrets.text import MASK, Secrets

REPRS = {(PythonFrame, "locals"), (NativeFrame, "args"), (NativeFrame, "locals")}
"""Dictionaries of reprs, by the name of a variable."""
LINES = {(JobPlace, "source"), (LaunchedFrom, "source")}
"""Source lines that stand alone."""
TEXTS = {
    (Process, "environment"),
    (Process, "versions"),
    (LogLine, "fields"),
    (GpuException, "registers"),
    (GpuLane, "registers"),
    (PythonFrame, "contradicted_by"),
}
"""Dictionaries of plain texts, by their name."""


_NUMERIC = frozenset(("Address", "Offset", "Optional", "Union", "bool", "dict", "float", "int", "tuple", "None"))
"""What the types of fields are made of that hold no string."""
_NAMES = regex(r"\w+")


def masked(crash: Crash, known: Iterable[str] = ()) -> Crash:
    """The crash without secrets, and with their count. `known` secrets are masked wherever they stand, as are those found by name."""
    secrets = Secrets()
    secrets.found.update(known)
    crash = _struct(crash, _Masking(secrets))
    if secrets.found:
        # A secret that one field names may stand in another one: in a message, or in a variable with another name.
        crash = _struct(crash, _Repeated(secrets))
    return replace(crash, masked=sum(text.count(MASK) for text in strings(crash)) or None)


def hidden(crash: Crash) -> set[str]:
    """What is masked in the crash, as it stands there."""
    secrets = Secrets()
    _struct(crash, _Masking(secrets))
    return secrets.hidden


def without_locals(crash: Crash) -> Crash:
    """The crash without the values of arguments and local variables, whatever their frames belong to."""
    bare: Crash = _struct(crash, _Bare())
    return bare


def strings(value: Any) -> Iterator[str]:
    """Every string in a fact or in a collection of them, keys included; in no order."""
    left = [value]
    while left:
        one = left.pop()
        if isinstance(one, str):
            yield one
        elif isinstance(one, msgspec.Struct):
            left += [getattr(one, name) for name in _fields(type(one))]
        elif isinstance(one, dict):
            left += (*one.keys(), *one.values())
        elif isinstance(one, (tuple, list)):
            left += one


@cache
def _fields(fact: type[msgspec.Struct]) -> tuple[str, ...]:
    """Those that may hold a string, at whatever depth. Most are numbers, and a crash of many threads has a million of them."""
    said: dict[str, object] = {}
    for kind in reversed(fact.__mro__):
        said.update(getattr(kind, "__annotations__", {}))
    # By the words of the types: to evaluate those of all facts takes 10 ms.
    return tuple(name for name in fact.__struct_fields__ if not _NUMERIC.issuperset(_NAMES.findall(str(said[name]))))


class _Bare:
    """Leaves out what variables held."""

    def text(self, text: str) -> str:
        return text

    def field(self, owner: msgspec.Struct, name: str, value: Any) -> Any:
        is_value = isinstance(owner, (NativeFrame, PythonFrame)) and name in ("locals", "args")
        return type(value)() if is_value else _mapped(value, self)


class _Repeated:
    """Masks what is known to be a secret."""

    def __init__(self, secrets: Secrets) -> None:
        self.text = secrets.repetitions()

    def field(self, owner: msgspec.Struct, name: str, value: Any) -> Any:
        return value if (type(owner), name) == (Crash, "schema") else _mapped(value, self)


class _Masking:
    """Masks what its name or its shape shows to be a secret."""

    def __init__(self, secrets: Secrets) -> None:
        self._secrets = secrets
        self._known: dict[str, str] = {}
        self._contexts: dict[tuple[str, ...], tuple[str, ...]] = {}

    def text(self, text: str) -> str:
        found = self._known.get(text)
        if found is None:
            found = self._known[text] = self._secrets.text(text)
        return found

    def field(self, owner: msgspec.Struct, name: str, value: Any) -> Any:
        place = (type(owner), name)
        if place in REPRS:
            return {self.text(key): self._secrets.value(key, shown) for key, shown in value.items()}
        if place in TEXTS:
            return {self.text(key): self._secrets.variable(key, text) for key, text in value.items()}
        if place in ((Process, "argv"), (Sibling, "argv")):
            return tuple(self._secrets.arguments(value))
        if isinstance(owner, (PythonFrame, GpuException)) and name == "context":
            return self._context(value)
        if isinstance(owner, (PythonFrame, GpuException)) and name == "source" and value is not None:
            return self._source(owner, value)
        if place in LINES and value is not None:
            return self._secrets.text(value, source=True)
        return _mapped(value, self)

    def _context(self, lines: tuple[str, ...]) -> tuple[str, ...]:
        """Together: a call or a key may go over several lines."""
        if lines not in self._contexts:
            self._contexts[lines] = self._fresh_context(lines)
        return self._contexts[lines]

    def _fresh_context(self, lines: tuple[str, ...]) -> tuple[str, ...]:
        clean = self._secrets.text("\n".join(lines), source=True).split("\n")
        return tuple(clean) if len(clean) == len(lines) else tuple(self._secrets.text(line, source=True) for line in lines)

    def _source(self, frame: PythonFrame | GpuException, line: str) -> str:
        at = (frame.line or 0) - (frame.context_start or 0)
        if frame.context and 0 <= at < len(frame.context) and frame.context[at].strip() == line:
            return self._context(frame.context)[at].strip()
        return self._secrets.text(line, source=True)


def _struct(fact: Any, masking: _Bare | _Masking | _Repeated) -> Any:
    changes = {}
    kind: type[msgspec.Struct] = type(fact)
    for name in _fields(kind):
        value = getattr(fact, name)
        clean = masking.field(fact, name, value)
        if clean is not value and clean != value:
            changes[name] = clean
    if isinstance(fact, PythonFrame) and "source" in changes:
        # They count the characters of the line as it was.
        changes["columns"] = None
    return replace(fact, **changes) if changes else fact


def _mapped(value: Any, masking: _Bare | _Masking | _Repeated) -> Any:
    if isinstance(value, str):
        return masking.text(value)
    if isinstance(value, msgspec.Struct):
        return _struct(value, masking)
    if isinstance(value, tuple):
        return tuple(_mapped(item, masking) for item in value)
    if isinstance(value, dict):
        return {_mapped(key, masking): _mapped(item, masking) for key, item in value.items()}
    return value
