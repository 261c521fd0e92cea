"""What a `contextlib.ExitStack` or `AsyncExitStack` will leave: it keeps the bound `__exit__` of each context in a deque.

Sources: Lib/contextlib.py (`_exit_callbacks`, `_create_exit_wrapper`), Modules/_collectionsmodule.c (`dequeobject`, `block`).
"""

from __future__ import annotations

from collections.abc import Iterator

from crashkit.interpreter.objects import Objects
from crashkit.interpreter.values import Values

_STACKS = frozenset({"ExitStack", "AsyncExitStack"})
_MOST = 200
_PER_BLOCK = 64
# Behind PyObject_HEAD, in words: ob_size, leftblock, rightblock, leftindex. A block: leftlink, data, rightlink.
_SIZE, _FIRST_BLOCK, _FIRST_INDEX = 0, 1, 3
_DATA, _NEXT_BLOCK = 1, 1 + _PER_BLOCK


def exits(objects: Objects, values: Values, stack: int) -> Iterator[int]:
    """The addresses of the bound exits that a stack keeps, the first entered first; nothing if it is no such stack. Raises Unreadable."""
    if values.type_name(objects.type_of(stack)).rpartition(".")[2] not in _STACKS:
        return
    callbacks = objects.attribute(stack, "_exit_callbacks")
    if not callbacks or values.type_name(objects.type_of(callbacks)).rpartition(".")[2] != "deque":
        return
    view, word = objects.view, objects.view.word_size
    own = callbacks + objects.head
    block, index = view.word(own + _FIRST_BLOCK * word), view.word(own + _FIRST_INDEX * word)
    for _ in range(min(view.word(own + _SIZE * word), _MOST)):
        if index >= _PER_BLOCK:
            block, index = view.word(block + _NEXT_BLOCK * word), 0
        entry = objects.tuple(view.word(block + (_DATA + index) * word), 2)
        if len(entry) == 2:
            yield entry[1]
        index += 1
