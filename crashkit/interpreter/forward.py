"""The Python lines of the forward pass that torch's anomaly mode kept for the operation whose gradient a thread computes.

The engine of autograd has the node that it evaluates in a thread-local variable (`NodeGuard`, torch/csrc/autograd/node.h). With
`torch.autograd.set_detect_anomaly(True)` each node owns a `PyAnomalyMetadata` (python_anomaly_mode.h), which has a dict whose
`traceback_` is what traceback.format_stack() said as the node was made. Where in the node and in the metadata these are differs between
versions of torch, so the first words of both are tried. Both have virtual functions, so each says of which class it is (Itanium C++ ABI,
"RTTI Layout"): what lies beside a node, or was one, is not taken for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress

import msgspec

from crashkit.interpreter.objects import DICTIONARY, LIST, TEXT, Objects
from crashkit.interpreter.view import TimeUp, Unreadable
from crashkit.regex import regex

_SECONDS = 0.05
_MOST_WORDS = 1000
"""Of a thread's variables."""
_NODE, _METADATA = 32, 12
"""Words of a node, and of its metadata. Every node is larger."""
_NODES, _METADATA_CLASS = "N5torch8autograd", "N5torch8autograd17PyAnomalyMetadataE"
_LONGEST_CLASS = 256
_KEY = "traceback_"
_MOST_LINES = 200
_MOST_TEXT = 4096
_LOWEST = 1 << 16
_LINE = regex(r' {2}File "([^"\n]{1,4000})", line (\d{1,9}), in ([^\n]{1,1000})\n(?: {4}([^\n]{0,2000})\n)?')


class ForwardLine(msgspec.Struct, frozen=True):
    """A frame of the forward pass."""

    file: str
    line: int
    function: str
    source: str
    """The line as it was then; empty where Python did not find it."""


def forward_lines(objects: Objects, words: Iterable[int]) -> list[ForwardLine]:
    """The frames that called the operation, innermost first; [] if nothing was kept.

    `words` are torch's thread-local variables. Where two nodes are found nothing tells which of them is evaluated, and nothing is returned.
    """
    found: dict[int, list[ForwardLine]] = {}
    with suppress(TimeUp), objects.within(_SECONDS):
        for node in _objects(objects, words, _MOST_WORDS, lambda name: name.startswith(_NODES) and name != _METADATA_CLASS):
            found[node] = []
            inside = _words(objects, node + objects.view.word_size, _NODE)
            for metadata in _objects(objects, inside, _NODE, _METADATA_CLASS.__eq__):
                found[node] = found[node] or _kept(objects, metadata)
    return next(iter(found.values())) if len(found) == 1 else []


def _objects(objects: Objects, words: Iterable[int], most: int, wanted: Callable[[str], bool]) -> Iterator[int]:
    """Those of the words that are addresses of objects of a wanted class, by its mangled name; each once."""
    seen: set[int] = set()
    for word in words:
        if word < _LOWEST or word % objects.view.word_size or word in seen:
            continue
        if len(seen) >= most:
            return
        seen.add(word)
        with suppress(Unreadable):
            if wanted(_class(objects, word)):
                yield word


def _class(objects: Objects, address: int) -> str:
    """The mangled name of the object's class. A star before it means that no other library has it."""
    kind = objects.constants.word(objects.view.word(address) - objects.view.word_size)
    return objects.constants.string(objects.constants.word(kind + objects.view.word_size), _LONGEST_CLASS).removeprefix("*")


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
