"""asyncio's lists of tasks of 3.14, with every link overwritten in every way: bounded by what is read, and no task is made up."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from crashkit.interpreter.finding import Module, find
from crashkit.interpreter.objects import Objects
from crashkit.interpreter.read import read_python
from crashkit.interpreter.task_lists import build_of, listed
from crashkit.interpreter.view import View
from tests.interpreter.process import idents, interpreter_of, opened
from tests.interpreter.recorded import recorded
from tests.interpreter.test_damage import Overwritten

_MOST_READS = 3
"""How many times as much may be read as of the undamaged lists."""


class Counted(Overwritten):
    """Counts the reads."""

    count = 0

    def read(self, address: int, size: int) -> bytes:
        self.count += 1
        return super().read(address, size)


def broken(nodes: Sequence[int], head: int) -> Iterator[dict[int, int]]:
    """Every link as an end, a self reference, a short and a long cycle, a step into nothing, and all at once."""
    for place in (head, *nodes):
        for word in (0, place, head, nodes[0], nodes[-1], place + 8, 0xDEADBEEF, 1 << 63, (1 << 64) - 8):
            yield {place: word}
    for step in range(1, len(nodes)):
        yield {place: nodes[(index * step + 1) % len(nodes)] for index, place in enumerate(nodes)}


def test_every_link_of_the_lists_of_tasks_may_be_damaged(tmp_path: Path) -> None:
    with opened(recorded("3.14t", "waiting_tasks.py", tmp_path).core) as core:
        module, version = interpreter_of(core)
        modules, known = [Module(module, None)], idents(core)
        found = find(View(core), modules, version, known)
        assert found is not None
        healthy = Counted(core)
        interpreter = found.interpreters[0]
        true = [one.address for one in listed(Objects(View(healthy), found.layout, version), interpreter, 1000)]
        node_at = build_of(Objects(View(core), found.layout, version)).of_a_task[-1]
        nodes = list(dict.fromkeys(address + node_at for address in true))
        head = next(link for link in (View(core).word(node + 8) for node in nodes) if link not in nodes)
        whole = read_python(core, modules, version, known)
        assert whole is not None and len(nodes) >= 8
        tasks = {task.address for task in whole.tasks(lambda _name: None).found}
        for words in broken(nodes, head):
            memory = Counted(core, words)
            shown = [one.address for one in listed(Objects(View(memory), found.layout, version), interpreter, 1000)]
            assert memory.count < _MOST_READS * healthy.count and len(shown) <= len(true) + len(words) + 1, words
            state = read_python(Overwritten(core, words), modules, version, known)
            assert state is not None
            read = state.tasks(lambda _name: None)
            assert {task.address for task in read.found} <= tasks, words
            if words.keys() == {nodes[-1]}:
                assert {task.address for task in read.found} == tasks, "only what lies behind a damaged link may be lost"
