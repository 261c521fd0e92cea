"""The Python lines of the forward pass that torch's anomaly mode kept for the operation whose gradient a thread computes.

The engine of autograd has the node that it evaluates in a thread-local variable (`NodeGuard`, torch/csrc/autograd/node.h). With
`torch.autograd.set_detect_anomaly(True)` each node owns a `PyAnomalyMetadata` (python_anomaly_mode.h): an object with virtual
functions, and a dict whose `traceback_` is what traceback.format_stack() said as the node was made. Where in the node and in the
metadata these are differs between versions of torch, so the first words of both are tried; the key and what it leads to are the proof.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import NamedTuple

from crashkit.interpreter.objects import DICTIONARY, LIST, TEXT, Objects
from crashkit.interpreter.view import TimeUp, Unreadable

_SECONDS = 0.05
_MOST_WORDS = 1000
"""Of a thread's variables."""
_NODE, _METADATA = 48, 12
"""Words of a node, and of its metadata."""
_KEY = "traceback_"
_MOST_LINES = 200
_MOST_TEXT = 4096
_LOWEST = 1 << 16
_LINE = re.compile(r' {2}File "([^"\n]{1,4000})", line (\d{1,9}), in ([^\n]{1,1000})\n(?: {4}([^\n]{0,2000})\n)?')


class ForwardLine(NamedTuple):
    """A frame of the forward pass."""

    file: str
    line: int
    function: str
    source: str
    """The line as it was then; empty where Python did not find it."""


def forward_lines(objects: Objects, words: Iterable[int], is_library: Callable[[int], bool]) -> list[ForwardLine]:
    """The frames that called the operation, innermost first; [] if nothing was kept.

    `words` are the thread's variables, `is_library` tells whether an address is in a library, where the tables of virtual functions are.
    Where two nodes are found nothing tells which of them is evaluated, and nothing is returned.
    """
    found: dict[int, list[ForwardLine]] = {}
    with suppress(TimeUp), objects.within(_SECONDS):
        for node in _objects(objects, words, _MOST_WORDS, is_library):
            for metadata in _objects(objects, _words(objects, node + objects.view.word_size, _NODE), _NODE, is_library):
                if lines := _kept(objects, metadata):
                    found[node] = lines
    return next(iter(found.values())) if len(found) == 1 else []


def _objects(objects: Objects, words: Iterable[int], most: int, is_library: Callable[[int], bool]) -> Iterator[int]:
    """Those of the words that are addresses of objects with virtual functions, each once."""
    size = objects.view.word_size
    seen: set[int] = set()
    for word in words:
        if word < _LOWEST or word % size or word in seen:
            continue
        if len(seen) >= most:
            return
        seen.add(word)
        with suppress(Unreadable):
            table = objects.view.word(word)
            if table % size == 0 and is_library(table):
                yield word


def _words(objects: Objects, start: int, count: int) -> Iterator[int]:
    with suppress(Unreadable):
        for index in range(count):
            yield objects.view.word(start + index * objects.view.word_size)


def _kept(objects: Objects, metadata: int) -> list[ForwardLine]:
    for word in _words(objects, metadata + objects.view.word_size, _METADATA):
        if word < _LOWEST or word % objects.view.word_size:
            continue
        with suppress(Unreadable):
            if not objects.flags(objects.type_of(word)) & DICTIONARY:
                continue
            kept = objects.item(word, _KEY)
            if kept is not None and objects.flags(objects.type_of(kept)) & LIST:
                return _lines(objects, kept)
    return []


def _lines(objects: Objects, kept: int) -> list[ForwardLine]:
    addresses, _ = objects.items(kept, _MOST_LINES)
    found = []
    for address in reversed(addresses):
        if not objects.flags(objects.type_of(address)) & TEXT:
            return []
        match = _LINE.match(objects.text(address, _MOST_TEXT))
        if match is not None:
            found.append(ForwardLine(match[1], int(match[2]), match[3], (match[4] or "").strip()))
    return found
