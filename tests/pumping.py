"""Adversarial inputs for regular expressions, derived from each pattern's own structure, and where crashkit's patterns are.

Every unbounded repeat of a pattern is pumped: with each character that it and its surroundings know, behind what the pattern needs
before it, or repeated together with that. Python's engine backtracks: a pattern that is quadratic for any of these takes over
a minute for a line of 64 KB.
"""

from __future__ import annotations

import ast
import importlib
import pkgutil
import re
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, Optional

import crashkit
from crashkit.diagnose.catalog import builtin, conditions
from crashkit.diagnose.signature import FramePattern
from crashkit.evidence.text import remnants
from crashkit.evidence.text.causes import cause_patterns
from crashkit.evidence.text.log_patterns import line_patterns, loose_line_patterns, said_patterns
from crashkit.evidence.text.mentions import mention_patterns
from crashkit.regex import LateRegex

parser: Any = importlib.import_module("re._parser" if sys.version_info >= (3, 11) else "sre_parse")

USUAL = " a0A_:/.-,()<[{'\"`=#@"
METHODS = ("search", "match", "fullmatch")
HANDED_ON = {
    **dict.fromkeys(("DRIVER_LAUNCH", "RUNTIME_LAUNCH", "_GIL_WAIT", "_LOCK_WAIT"), ("fullmatch",)),
    **dict.fromkeys(("_LAYERS", "_LOGGERS", "_AFTER_OTHERS", "_DEVICE_AT", "_DEVICE_BY", "_DEVICE_ADDRESS"), ("match",)),
}
"""How patterns are used that go by another name where they are: all others must be quick with every method."""
MOST_INPUTS = 400
"""Of one pattern, spread evenly over all its repeats."""


class Place(NamedTuple):
    """A pattern, where it stands, and the methods it is used with."""

    where: str
    pattern: re.Pattern[str]
    methods: tuple[str, ...]


# --- where crashkit's patterns are


@cache
def every_pattern() -> list[Place]:
    """Every pattern of a module, a class, a call of `re`, the table of log lines and the catalog, once."""
    found = {(place.pattern.pattern, place.methods): place for place in (*_of_modules(), *_of_tables())}
    return list(found.values())


def modules() -> Iterator[Any]:
    for module in pkgutil.walk_packages(crashkit.__path__, "crashkit."):
        if not module.name.endswith(("__main__", "worker", "demo_server")):
            yield importlib.import_module(module.name)


def _of_modules() -> Iterator[Place]:
    used = _calls("\n".join(path.read_text() for path in Path(crashkit.__path__[0]).rglob("*.py")))
    for module in modules():
        owners = [module, *(value for value in vars(module).values() if isinstance(value, type) and value.__module__ == module.__name__)]
        for owner in owners:
            for name, value in vars(owner).items():
                for pattern in _patterns_in(value):
                    yield _place(f"{module.__name__}.{name}", pattern, _methods(name, used[name]))
        yield from _of_calls(module)


def _patterns_in(value: Any) -> Iterator[re.Pattern[Any]]:
    if isinstance(value, (re.Pattern, LateRegex)):
        yield value
    elif isinstance(value, (list, tuple, set, frozenset)):
        for item in value:
            yield from _patterns_in(item)
    elif isinstance(value, dict):
        yield from _patterns_in([*value, *value.values()])


def _place(where: str, pattern: re.Pattern[Any], methods: Iterable[str]) -> Place:
    if isinstance(pattern.pattern, bytes):
        pattern = re.compile(pattern.pattern.decode("latin-1"), pattern.flags | re.ASCII)
    return Place(where, pattern, tuple(methods))


def _calls(source: str) -> defaultdict[str, set[str]]:
    """The methods of patterns that are called on each name."""
    used = defaultdict[str, set[str]](set)
    for name, method in re.findall(r"\b(\w+)\.(search|match|fullmatch|sub|findall|finditer|split)\(", source):
        used[name].add(method)
    return used


def _methods(name: str, used: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted({"search" if method not in METHODS else method for method in used})) or HANDED_ON.get(name, METHODS)


def _of_calls(module: Any) -> Iterator[Place]:
    """Patterns that stand in a call, such as `re.search("...", text)`."""
    tree = ast.parse(Path(module.__file__).read_text())
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and getattr(node.func.value, "id", None) == "re"
            and node.args
        ):
            text = node.args[0].value if isinstance(node.args[0], ast.Constant) else None
            method = node.func.attr if node.func.attr in METHODS else "search"
            if isinstance(text, (str, bytes)) and node.func.attr != "compile":
                yield _place(f"{module.__name__}:{node.lineno}", re.compile(text), (method,))


def _of_tables() -> Iterator[Place]:
    for said in said_patterns():
        yield Place("log_lines.toml said", re.compile(said.pattern), ("search",))
    for mention in mention_patterns():
        yield Place("mentions.toml", re.compile(mention), ("search",))
    for kind, cause in cause_patterns():
        yield Place(f"causes.toml {kind}", re.compile(cause), ("search",))
    for rule, patterns, unless in remnants.rules():
        for pattern in patterns:
            yield Place(f"remnants.toml {rule.kind}", re.compile(pattern.pattern), ("match",))
        if unless is not None:
            yield Place(f"remnants.toml {rule.kind}", re.compile(unless.pattern), ("search",))
    for line in (*line_patterns(), *loose_line_patterns()):
        yield Place(f"log_lines.toml {line.kind}", re.compile(line.pattern), ("search",))
    for signature in builtin().signatures:
        for condition in conditions([signature]):
            for frame in (*(condition.frames or ()), *(condition.threads or ()), *(condition.anywhere or ())):
                pair = frame if isinstance(frame, FramePattern) else FramePattern(function=frame)
                if pair.function is not None:
                    yield Place(signature.id, re.compile(pair.function, re.DOTALL), ("fullmatch",))
                if pair.module is not None:
                    yield Place(signature.id, re.compile(pair.module), ("search",))
            others = (condition.modules, condition.in_mapping, condition.instruction, condition.pattern)
            for pattern in (*others, *(condition.python or ()), *(condition.environment or {}).values()):
                if pattern is not None:
                    yield Place(signature.id, re.compile(pattern), ("search",))


# --- inputs for one pattern


class _Pump(NamedTuple):
    before: str
    """What a match has before the repeat."""
    unit: str


def inputs(pattern: str, flags: int = 0) -> list[Callable[[int], str]]:
    """Functions from a length to an adversarial text of about that length."""
    parsed = parser.parse(pattern, flags & ~re.UNICODE if flags & re.ASCII else flags)
    alphabet = "".join(dict.fromkeys([*_literals(parsed), *USUAL]))
    pumps = list(dict.fromkeys(_pumps(parsed, "", alphabet)))
    whole = _sample(parsed)
    pumps += [_Pump("", whole), _Pump("", whole[: len(whole) // 2]), *(_Pump("", character) for character in alphabet)]
    made: dict[tuple[str, str, str], None] = {}
    for before, unit in pumps:
        if not unit:
            continue
        for tail in ("", "\x01", "\n", " x"):
            made[before, unit, tail] = None
        # A partial match again and again: each of its places is tried.
        for tail in ("", "\x01"):
            made["", before + unit, tail] = None
            made["", before + unit * 3, tail] = None
    several = list(made)
    step = max(1, len(several) / MOST_INPUTS)
    chosen = [several[int(index * step)] for index in range(min(len(several), MOST_INPUTS))]
    return [_maker(*one) for one in chosen]


def _maker(before: str, unit: str, tail: str) -> Callable[[int], str]:
    return lambda length: before + unit * max(1, (length - len(before) - len(tail)) // len(unit)) + tail


def _literals(sequence: Iterable[tuple[Any, Any]]) -> Iterator[str]:
    for operation, argument in sequence:
        if str(operation) in ("LITERAL", "NOT_LITERAL"):
            yield chr(argument)
        elif str(operation) == "IN":
            yield from _literals([item for item in argument if str(item[0]) in ("LITERAL", "NOT_LITERAL")])
        else:
            for inner in _inner(operation, argument):
                yield from _literals(inner)


def _inner(operation: Any, argument: Any) -> list[Any]:
    name = str(operation)
    if name in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"):
        return [argument[2]]
    if name == "SUBPATTERN":
        return [argument[-1]]
    if name == "ATOMIC_GROUP":
        return [argument]
    if name == "BRANCH":
        return list(argument[1])
    if name in ("ASSERT", "ASSERT_NOT"):
        return [argument[1]]
    if name == "GROUPREF_EXISTS":
        return [part for part in argument[1:] if part is not None]
    return []


def _pumps(sequence: Iterable[tuple[Any, Any]], before: str, alphabet: str) -> Iterator[_Pump]:
    for operation, argument in sequence:
        name = str(operation)
        if name.endswith("REPEAT") and (argument[1] is parser.MAXREPEAT or argument[1] >= 64):
            body = argument[2]
            yield _Pump(before, _sample(body))
            if len(body) == 1:
                pattern = _single(body[0])
                if pattern is not None:
                    yield from (_Pump(before, character) for character in alphabet if pattern(character))
        for inner in _inner(operation, argument):
            yield from _pumps(inner, before, alphabet)
        before += _sample([(operation, argument)])


def _single(item: tuple[Any, Any]) -> Optional[Callable[[str], bool]]:
    """Whether this item, which takes one character, takes this one."""
    operation, argument = str(item[0]), item[1]
    if operation == "ANY":
        return lambda character: character != "\n"
    if operation == "LITERAL":
        return lambda character: ord(character) == argument
    if operation == "NOT_LITERAL":
        return lambda character: ord(character) != argument
    if operation == "IN":
        return lambda character: _in(argument, character)
    return None


_CATEGORIES = {"WORD": r"\w", "DIGIT": r"\d", "SPACE": r"\s"}


def _in(items: Any, character: str) -> bool:
    negated, hit = False, False
    for operation, argument in items:
        name = str(operation)
        if name == "NEGATE":
            negated = True
        elif name == "LITERAL":
            hit = hit or ord(character) == argument
        elif name == "RANGE":
            hit = hit or argument[0] <= ord(character) <= argument[1]
        elif name == "CATEGORY":
            kind = str(argument).removeprefix("CATEGORY_").removeprefix("UNI_")
            yes = re.match(_CATEGORIES[kind.removeprefix("NOT_")], character) is not None
            hit = hit or yes != kind.startswith("NOT_")
    return hit != negated


def _sample(sequence: Iterable[tuple[Any, Any]]) -> str:
    """A short text that the sequence matches, as far as one item at a time can tell."""
    text = ""
    for operation, argument in sequence:
        name = str(operation)
        takes = _single((operation, argument))
        if takes is not None:
            text += chr(argument) if name == "LITERAL" else next((one for one in "a0 /:.-\"'`A_<([{=#" if takes(one)), "")
        elif name.endswith("REPEAT"):
            text += _sample(argument[2]) * max(1, argument[0])
        elif name == "BRANCH":
            text += _sample(argument[1][0])
        elif name not in ("ASSERT", "ASSERT_NOT"):
            text += "".join(map(_sample, _inner(operation, argument)))
    return text


# --- how long they take


def seconds(place: Place, method: str, text: str) -> float:
    """Processor time of one search."""
    call = getattr(place.pattern, method)
    began = time.process_time()
    call(text)
    return time.process_time() - began


def worst(place: Place, slow: Callable[[int], float]) -> Iterator[tuple[str, Callable[[int], str], int, float]]:
    """Inputs that take longer than `slow(length)`, the shortest first: an exponential pattern must not be given a long one."""
    for method in place.methods:
        for make in inputs(place.pattern.pattern, place.pattern.flags & ~re.DEBUG):
            for length in (24, 128, 1024):
                text = make(length)
                took = seconds(place, method, text)
                if took > slow(len(text)):
                    took = min(took, *(seconds(place, method, text) for _ in range(2)))
                    if took > slow(len(text)):
                        yield method, make, len(text), took
                        break
