"""The tasks behind a future of asyncio: a future does not say for whom it stands, but what it will call when it is done does.

`gather` keeps its children (Lib/asyncio/tasks.py). Others leave a callback, a function whose closure has both sides: `shield` and what
copies one future to another (`_chain_future`, Lib/asyncio/futures.py) on the future that is waited for, `as_completed` up to 3.12 on each
that it waits for. A future of C begins with its loop, its first callback, that one's context, and a list of further callbacks
(Modules/_asynciomodule.c, `FutureObj_HEAD`, since 3.7).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import islice

from crashkit.interpreter.code import read_code, read_slots
from crashkit.interpreter.objects import LIST, TUPLE, Objects
from crashkit.interpreter.view import Unreadable

MOST_AWAITED = 200
"""Tasks that one task waits for."""
_MOST_DEPTH = 20
"""Futures that stand for each other: a gather of gathers."""
_MOST_FUTURES = 2000
_MOST_CALLBACKS = 20_000
_MOST_CELLS = 16
_MOST_FIRST = 4
"""Callbacks among which that of who made a future is."""

GATHER = "_GatheringFuture"
FUNCTION = "function"
_CONCURRENT = "Future"
_SHIELD = ("asyncio/tasks.py", "_outer_done_callback")
_COPY = ("asyncio/futures.py", "_call_check_cancel")
_COMPLETED = ("asyncio/tasks.py", "_on_completion")
_AWAITED = {_SHIELD: "inner", _COPY: "source"}
"""Callbacks of what stands for another: the variable with the other."""

TypeName = Callable[[int], str]
"""The name of the type at an address."""
IsTask = Callable[[int], bool]


class Futures:
    """The futures of one interpreter."""

    def __init__(self, objects: Objects, type_name: TypeName, is_task: IsTask) -> None:
        self._objects, self._type_name, self._is_task = objects, type_name, is_task
        self._view = objects.view
        self._names: dict[int, tuple[str, str]] = {}
        self._variables: dict[int, list[str]] = {}
        self._completed: dict[int, int] = {}

    def tasks(self, address: int) -> tuple[int, ...]:
        """The tasks that a task, a future, or a list, tuple or set of them stands for."""
        found = dict.fromkeys(islice(self._behind(address, _MOST_DEPTH, set()), MOST_AWAITED))
        return tuple(found)

    def is_shield(self, future: int) -> bool:
        """Whether `asyncio.shield` made it."""
        with suppress(Unreadable):
            return any(self._name(callback) == _SHIELD for callback in islice(self._callbacks(future), _MOST_FIRST))
        return False

    def learn_completions(self, tasks: Iterable[int]) -> None:
        """Note what `as_completed` of 3.8 to 3.12 waits for: its generator cannot be reached, but the tasks will call it."""
        for task in tasks:
            self._view.check_time()
            with suppress(Unreadable):
                for callback in self._callbacks(task):
                    if self._name(callback) == _COMPLETED:
                        # The callback of `wait` has the same name, and other variables.
                        variables = self._closure(callback)
                        self._completed[variables.get("done", 0)] = variables.get("todo", 0)

    def completing(self, queue: int) -> tuple[int, ...]:
        """The tasks that will put themselves into this queue of `as_completed`."""
        left = self._completed.get(queue)
        return self.tasks(left) if left else ()

    def _behind(self, address: int, depth: int, seen: set[int]) -> Iterator[int]:
        if not depth or address in seen or len(seen) >= _MOST_FUTURES:
            return
        seen.add(address)
        try:
            if self._is_task(address):
                yield address
                return
            others = self._others(address)
        except Unreadable:
            return
        for other in others:
            yield from self._behind(other, depth - 1, seen)

    def _others(self, address: int) -> list[int]:
        """What this one stands for, be they tasks, futures or others."""
        objects = self._objects
        kind = objects.type_of(address)
        if objects.flags(kind) & (LIST | TUPLE):
            return objects.items(address, MOST_AWAITED)[0]
        name = self._type_name(kind).rpartition(".")[2]
        if name in ("set", "frozenset"):
            return list(objects.members(address, MOST_AWAITED))
        if name == GATHER:
            children = objects.attribute(address, "_children")
            return [children] if children else []
        if name == _CONCURRENT and (waiting := objects.attribute(address, "_done_callbacks")):
            # concurrent.futures': what `run_coroutine_threadsafe` returned.
            callbacks = objects.items(waiting, _MOST_FIRST)[0]
        else:
            callbacks = list(islice(self._callbacks(address), _MOST_FIRST))
        names = ((one, _AWAITED.get(self._name(one))) for one in callbacks)
        return [other for one, variable in names if variable and (other := self._closure(one).get(variable))]

    def _callbacks(self, future: int) -> Iterator[int]:
        word = self._view.word_size
        start = future + self._objects.head + word
        first, more = self._view.word(start), self._view.word(start + 2 * word)
        if first:
            yield first
        if more and self._objects.flags(self._objects.type_of(more)) & LIST:
            for pair in self._objects.items(more, _MOST_CALLBACKS)[0]:
                yield from self._objects.tuple(pair, 1)

    def _name(self, callback: int) -> tuple[str, str]:
        """Of a function of asyncio's: the end of its file's name, and its own."""
        if self._type(callback) != FUNCTION:
            return "", ""
        address = self._view.word(callback + self._objects.layout.function.code)
        if address not in self._names:
            code = read_code(self._objects, address)
            self._names[address] = "/".join((code.file or "").split("/")[-2:]), (code.name or "").rpartition(".")[2]
        return self._names[address]

    def _closure(self, function: int) -> dict[str, int]:
        """What the variables of a function's closure hold, which are the last of its code's."""
        code, closure = (
            self._view.word(function + at) for at in (self._objects.layout.function.code, self._objects.layout.function.closure)
        )
        cells = self._objects.tuple(closure, _MOST_CELLS) if closure else []
        if code not in self._variables:
            self._variables[code] = [slot.name for slot in read_slots(self._objects, code)]
        names = self._variables[code][-len(cells) :] if cells else []
        return {name: self._view.word(cell + self._objects.layout.cell.content) for name, cell in zip(names, cells, strict=False)}

    def _type(self, address: int) -> str:
        return self._type_name(self._objects.type_of(address))
