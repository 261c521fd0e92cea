"""What a function has taken with a bare `await lock.acquire()` when it stands at a line, and the first values of semaphores: by its source.

Neither a lock nor a frame of asyncio's records that. So only what is sure counts: an acquire() that every way to the line passes, and
behind which nothing is passed that may release it. A lock may have several names (`lock = shared.first`): whether what was released is
another one, only the values of the names tell. Pure.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from typing import NamedTuple, Optional

import msgspec

from crashkit.regex import regex

_LONGEST = 1 << 20
"""Characters of a source that is parsed."""
_MOST_NAMES = 8
_SEMAPHORES = frozenset({"Semaphore", "BoundedSemaphore"})
_MAY_RELEASE = regex(r"release|unlock|__a?exit__|aclose|pop_all", re.IGNORECASE)
"""A name with one of these words in it may release what was taken, also where it is only handed on, to be called later, or is a text, as
in `getattr(lock, "release")`. A stack of contexts releases by the last ones."""
_RUNS_TEXT = frozenset({"exec", "eval"})
_TAKES = frozenset({"acquire", "__aenter__"})
_RUN_FIRST = ("test", "items", "iter", "subject", "value")
"""Fields of a statement that may have been run, at least in part, when it stands in it."""
_TRIES = (ast.Try, getattr(ast, "TryStar", ast.Try))
"""`try` with `except*` is a statement of its own, from 3.11 on."""
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)

Expression = tuple[str, ...]
"""`self.pool.lock` as its names."""


class Taken(NamedTuple):
    """What was taken."""

    lock: Expression
    unless: tuple[Expression, ...] = ()
    """What was released since: if one of these is the same lock, or is not known any more, nothing is taken."""
    stack: Optional[Expression] = None
    """The AsyncExitStack that releases it."""


class Standing(msgspec.Struct, frozen=True):
    """Where a function stands."""

    name: str
    first_line: int
    """Of its decorators or its `def`."""
    line: int
    column: Optional[int] = None
    """In bytes; up to 3.10 it is not known."""


class Parsed:
    """One source file."""

    def __init__(self, text: str) -> None:
        """A text that is no Python, or Python of a later version, tells nothing."""
        self._functions: dict[tuple[str, int], ast.FunctionDef | ast.AsyncFunctionDef] = {}
        self._values: dict[str, set[Optional[int]]] = {}
        self._taken: dict[Standing, tuple[Taken, ...]] = {}
        """Thousands of tasks may stand at one line."""
        if len(text) > _LONGEST:
            return
        try:
            tree = ast.parse(text)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return
        for node in ast.walk(tree):
            if isinstance(node, _FUNCTIONS):
                first = min([node.lineno, *(one.lineno for one in node.decorator_list)])
                self._functions[node.name, first] = node
            elif isinstance(node, (ast.Assign, ast.AnnAssign)) and isinstance(node.value, ast.Call):
                self._add_value(node, node.value)

    def taken(self, at: Standing) -> tuple[Taken, ...]:
        """What the function has taken and not released; nothing if the source is not that of what ran."""
        if at not in self._taken:
            node = self._functions.get((at.name, at.first_line))
            known = node is not None and _waits_there(node, at)
            self._taken[at] = tuple(_before(node.body, (), at)) if node is not None and known else ()
        return self._taken[at]

    def first_value(self, name: str) -> Optional[int]:
        """The value with which each semaphore of this name, be it a variable or an attribute, is made; None if it is not known."""
        found = self._values.get(name, set())
        return next(iter(found)) if len(found) == 1 else None

    def _add_value(self, node: ast.Assign | ast.AnnAssign, call: ast.Call) -> None:
        made = _names(call.func)
        if not made or made[-1] not in _SEMAPHORES:
            return
        given = [*call.args, *(one.value for one in call.keywords if one.arg == "value")]
        first = given[0] if given else ast.Constant(1)
        value = first.value if isinstance(first, ast.Constant) and type(first.value) is int else None
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        for target in targets:
            several = isinstance(target, (ast.Tuple, ast.List))
            for one in target.elts if isinstance(target, (ast.Tuple, ast.List)) else [target]:
                if names := _names(one):
                    self._values.setdefault(names[-1], set()).add(None if several else value)


def _waits_there(function: ast.AST, at: Standing) -> bool:
    """Whether the function awaits something at that line: if not, the file has changed since it was loaded."""
    awaits = (node for node in ast.walk(function) if isinstance(node, (ast.Await, ast.AsyncWith, ast.AsyncFor)))
    return any(node.lineno <= at.line <= (node.end_lineno or node.lineno) for node in awaits)


def _before(block: Sequence[ast.stmt], held: Sequence[Taken], at: Standing) -> Sequence[Taken]:
    """What is held at that place, which is within one of these statements."""
    for statement in block:
        if _contains(statement, at):
            return _within(statement, held, at)
        held = _after(statement, held)
    return held


def _within(statement: ast.stmt, held: Sequence[Taken], at: Standing) -> Sequence[Taken]:
    if isinstance(statement, (ast.For, ast.AsyncFor, ast.While)):
        # An earlier turn of the loop may have released it.
        held = _kept(statement, held)
    for part in _run_first(statement):
        held = _kept(part, held)
    if isinstance(statement, _TRIES) and not any(_contains(one, at) for one in statement.body):
        # How far the body came is not known, unless all of it was run.
        if any(_contains(one, at) for one in statement.orelse):
            for one in statement.body:
                held = _after(one, held)
        else:
            for part in (*statement.body, *statement.handlers, *statement.orelse):
                held = _kept(part, held)
    for block in _blocks(statement):
        if any(_contains(one, at) for one in block):
            return _before(block, held, at)
    return held


def _run_first(statement: ast.stmt) -> Iterator[ast.AST]:
    """The parts of a statement, besides its blocks, that may have been run: its conditions, its context managers, what it awaits."""
    for name in _RUN_FIRST:
        field = getattr(statement, name, None)
        yield from field if isinstance(field, list) else [field] if field is not None else []
    for case in getattr(statement, "cases", ()):
        yield from [case.pattern, *([case.guard] if case.guard is not None else [])]


def _blocks(statement: ast.stmt) -> Iterator[Sequence[ast.stmt]]:
    for field in ("body", "orelse", "finalbody"):
        block = getattr(statement, field, None)
        if isinstance(block, list):
            yield block
    for handler in (*getattr(statement, "handlers", ()), *getattr(statement, "cases", ())):
        yield handler.body


def _after(statement: ast.stmt, held: Sequence[Taken]) -> Sequence[Taken]:
    """What is held behind a statement."""
    held = _kept(statement, held)
    value = getattr(statement, "value", None) if isinstance(statement, (ast.Expr, ast.Assign, ast.AnnAssign)) else None
    taken = _acquired(value.value) if isinstance(value, ast.Await) else None
    return [*held, taken] if taken else held


def _acquired(value: ast.expr) -> Optional[Taken]:
    """`lock` of `lock.acquire()`, of `wait_for(lock.acquire(), 5)`, which raises if it takes too long, and of
    `stack.enter_async_context(lock)` of an AsyncExitStack, which releases it where its block ends; not of `self.stack`."""
    if not isinstance(value, ast.Call):
        return None
    names = _names(value.func)
    if names and names[-1] == "wait_for" and value.args:
        return _acquired(value.args[0])
    if names and names[-1] == "enter_async_context" and len(value.args) == 1:
        lock = _names(value.args[0])
        return Taken(lock, stack=names[:-1]) if lock and len(names) == 2 else None
    return Taken(names[:-1]) if names and names[:-1] and names[-1] in _TAKES and not value.args else None


def _kept(node: ast.AST, held: Sequence[Taken]) -> Sequence[Taken]:
    """What is still held if anything of this may have run. A variable that is set anew may name another lock."""
    if not held:
        return held
    released: list[Expression] = []
    handed: set[Optional[Expression]] = set()
    stored: list[Optional[Expression]] = []
    attributes: set[str] = set()
    read: set[Optional[Expression]] = set()
    owners = {id(one.value) for one in ast.walk(node) if isinstance(one, ast.Attribute)}
    for one in ast.walk(node):
        if isinstance(one, ast.Call):
            if _may_call_anything(one):
                return []
            # Whom the lock itself is given to may release it; a stack of contexts does so at the end of its block.
            if not (isinstance(one.func, ast.Attribute) and one.func.attr == "enter_async_context"):
                handed.update(_names(argument) for argument in (*one.args, *(keyword.value for keyword in one.keywords)))
        elif isinstance(one, ast.Constant):
            if isinstance(one.value, str) and one.value.isidentifier() and _MAY_RELEASE.search(one.value):
                return []
        elif isinstance(one, (ast.Name, ast.Attribute)):
            names = _names(one)
            last = one.attr if isinstance(one, ast.Attribute) else one.id
            if not isinstance(one.ctx, ast.Load):
                stored.append(names)
                attributes.update((last,) if isinstance(one, ast.Attribute) else ())
            elif last == "release" and names and names[:-1]:
                released.append(names[:-1])
            elif _MAY_RELEASE.search(last):
                return []
            elif id(one) not in owners:
                read.add(names)
    kept = [taken._replace(unless=(*taken.unless, *released)) for taken in held if taken.lock not in released and taken.lock not in handed]
    # A stack that is itself a context, or goes elsewhere, releases its locks nobody knows when.
    kept = [taken for taken in kept if taken.stack is None or taken.stack not in read]
    return [taken for taken in kept if not any(_is_set_anew(name, stored, attributes) for name in (taken.lock, *taken.unless))]


def _is_set_anew(name: Expression, stored: Sequence[Optional[Expression]], attributes: AbstractSet[str]) -> bool:
    """Whether one of its names was: an attribute also through another name of its object."""
    return any(other is None or name[: len(other)] == other for other in stored) or not attributes.isdisjoint(name[1:])


def _may_call_anything(call: ast.Call) -> bool:
    """Whether what is called, or a method's name, is not in the source: `getattr(lock, name)()`."""
    name = call.func.id if isinstance(call.func, ast.Name) else call.func.attr if isinstance(call.func, ast.Attribute) else ""
    return name in _RUNS_TEXT or (name == "getattr" and len(call.args) > 1 and not isinstance(call.args[1], ast.Constant))


def _contains(node: ast.stmt, at: Standing) -> bool:
    start, end = (node.lineno, node.col_offset), (node.end_lineno or node.lineno, node.end_col_offset or 0)
    if isinstance(node, (*_FUNCTIONS, ast.ClassDef)):
        return False
    if at.column is None:
        return start[0] <= at.line <= end[0]
    return start <= (at.line, at.column) < end


def _names(node: ast.expr) -> Optional[Expression]:
    """`a.b.c` as its names; None for anything else."""
    found: list[str] = []
    while isinstance(node, ast.Attribute) and len(found) < _MOST_NAMES:
        found.append(node.attr)
        node = node.value
    return (node.id, *reversed(found)) if isinstance(node, ast.Name) else None
