"""Thread states that no list leads to: found by what their threads hold, in their own storage and on their C stacks."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from crashkit.evidence.core.core import Core
from crashkit.interpreter.finding import Module, find
from crashkit.interpreter.layouts import Layout
from crashkit.interpreter.read import PythonState, read_python
from crashkit.interpreter.threads import states_of
from crashkit.interpreter.view import View
from crashkit.pipeline import Options, analyze
from tests.crashes import Interpreter, every_interpreter, library_crash, python_crash
from tests.interpreter.process import idents, interpreter_of, lines, opened, state_of
from tests.interpreter.recorded import VERSIONS, recorded
from tests.interpreter.test_damage import Overwritten, layout_of_core
from tests.test_stacks_truth import python_lines, true_lines
from tests.test_support_matrix import made, sid_is_there
from tests.truth import Line, faulthandler

Words = dict[int, int]


def links(layout: Layout, interpreter: int, states: Sequence[int]) -> Iterator[Words]:
    """Every link of an interpreter's list of thread states, overwritten in two ways, each way with every third link: as an early end, a
    cycle, garbage."""
    head = interpreter + layout.interpreter.threads
    words = (0, states[0], interpreter, states[-1] + 8, 0xDEADBEEF, 1 << 63)
    for index, place in enumerate((head, *(state + layout.thread.next for state in states[:-1]))):
        for word in words[index % 3 :: 3]:
            yield {place: word}


def garbled(layout: Layout, interpreter: int, states: Sequence[int]) -> Iterator[Words]:
    """Several of the links at once."""
    rng = random.Random(14)
    places = [interpreter + layout.interpreter.threads, *(state + layout.thread.next for state in states)]
    for _ in range(8):
        yield {place: rng.choice([0, 1, rng.getrandbits(47), *states]) for place in rng.sample(places, 3)}


def stacks(state: PythonState | None) -> dict[int, list[Line]]:
    return {thread.state.ident: lines(thread) for thread in state.threads} if state else {}


def check(core: Core, damages: Callable[[Layout, int, Sequence[int]], Iterator[Words]]) -> None:
    module, version = interpreter_of(core)
    modules, known = [Module(module, Path(module.path))], idents(core)
    found = find(View(core), modules, version, known)
    assert found is not None
    (interpreter,) = found.interpreters
    whole = state_of(core)
    assert whole is not None
    true, names = stacks(whole), {thread.state.ident: thread.name for thread in whole.threads}
    assert len(true) == len(core.threads())
    for words in damages(found.layout, interpreter, states_of(View(core), found.layout, interpreter)):
        state = read_python(Overwritten(core, words), modules, version, known)
        assert state is not None
        ours = [thread for thread in state.threads if thread.state.ident in known]
        assert {thread.state.ident: lines(thread) for thread in ours} == true, words
        assert {thread.state.ident: thread.name for thread in ours} == names
        assert len(ours) == len(true), "no thread has two states"


@pytest.mark.slow
@pytest.mark.parametrize("damages", [links, garbled])
@pytest.mark.parametrize("python", every_interpreter())
def test_a_damaged_list_costs_no_thread(python: Interpreter, damages: Callable[..., Iterator[Words]]) -> None:
    with opened(python_crash("threads.py", python=python).core) as core:
        check(core, damages)


@pytest.mark.slow
@pytest.mark.parametrize("damages", [links, garbled])
@pytest.mark.parametrize("version", VERSIONS)
def test_a_damaged_list_costs_no_thread_of_a_free_threaded_build(
    version: str, damages: Callable[..., Iterator[Words]], tmp_path: Path
) -> None:
    with opened(recorded(version, "known_threads.py", tmp_path).core) as core:
        check(core, damages)


@pytest.mark.chroot
@pytest.mark.slow
@pytest.mark.skipif(not sid_is_there(), reason="no Debian sid here: run as root with CRASHKIT_TEST_CHROOT=1")
@pytest.mark.parametrize("damages", [links, garbled])
def test_a_damaged_list_costs_no_thread_of_314(damages: Callable[..., Iterator[Words]]) -> None:
    with opened(made("3.14 of Debian sid, from a container, debug info").folder.core) as core:
        check(core, damages)


class Hidden(Overwritten):
    """A `Memory` with a list of thread states that is broken, and without these ranges of addresses."""

    def __init__(self, core: Core, words: Words, hidden: Sequence[range]) -> None:
        super().__init__(core, words)
        self._hidden = hidden

    def read(self, address: int, size: int) -> bytes:
        end = min([one.start for one in self._hidden if address < one.start < address + size], default=address + size)
        return b"" if any(address in one for one in self._hidden) else super().read(address, end - address)


def storage(core: Core) -> list[range]:
    """What lies around the thread pointers."""
    pointers = [thread.registers[core.architecture.thread_pointer or ""] for thread in core.threads()]
    return [range(pointer - 2048, pointer + 2048) for pointer in pointers]


def c_stacks(core: Core) -> list[range]:
    """What lies behind the stack pointers: all but the main thread's storage is on their stacks."""
    kept = storage(core)
    starts = [thread.registers[core.architecture.stack_pointer] for thread in core.threads()]
    return [range(start, min([one.start for one in kept if one.start > start] + [start + (256 << 10)])) for start in starts]


def broken(core: Core, hidden: Sequence[range] = (), also: Words | None = None) -> PythonState | None:
    """What is read where the link behind the newest thread state is lost."""
    module, version = interpreter_of(core)
    modules = [Module(module, Path(module.path))]
    found = find(View(core), modules, version, idents(core))
    assert found is not None
    newest = states_of(View(core), found.layout, found.interpreters[0])[0]
    return read_python(
        Hidden(core, {newest + found.layout.thread.next: 0xDEADBEEF, **(also or {})}, hidden), modules, version, idents(core)
    )


@pytest.mark.slow
@pytest.mark.parametrize("hidden", [storage, c_stacks])
@pytest.mark.parametrize("python", every_interpreter())
def test_either_road_is_enough(python: Interpreter, hidden: Callable[[Core], list[range]]) -> None:
    with opened(python_crash("threads.py", python=python).core) as core:
        true, ours = state_of(core), broken(core, hidden(core))
        assert true is not None and ours is not None and len(true.threads) == 7
        assert {thread.state.ident: thread.state.address for thread in ours.threads} == {
            thread.state.ident: thread.state.address for thread in true.threads
        }


@pytest.mark.parametrize("hidden", [storage, c_stacks])
@pytest.mark.parametrize("version", VERSIONS)
def test_either_road_is_enough_in_a_free_threaded_build(version: str, hidden: Callable[[Core], list[range]], tmp_path: Path) -> None:
    with opened(recorded(version, "known_threads.py", tmp_path).core) as core:
        ours = broken(core, hidden(core))
        assert ours is not None and stacks(ours) == stacks(state_of(core))


CALLED_BACK = """
import ctypes
def called():
    pass
callback = ctypes.CFUNCTYPE(None)(called)
ctypes.CDLL({library!r}).call_back(callback)
ctypes.string_at(16)
"""


@pytest.mark.slow
@pytest.mark.parametrize("python", every_interpreter())
def test_a_thread_whose_state_was_freed_has_none(python: Interpreter, tmp_path: Path) -> None:
    """It lies in memory as it was, but for what malloc() wrote into it, and its address may still be on the C stack."""
    with opened(library_crash("called_back.c", CALLED_BACK, tmp_path, python).core) as core:
        assert len(core.threads()) == 2
        ours = broken(core)
        assert ours is not None and stacks(ours) == stacks(state_of(core)) and len(ours.threads) == 1


@pytest.mark.slow
@pytest.mark.parametrize("python", every_interpreter())
def test_of_two_answers_neither_is_believed(python: Interpreter) -> None:
    with opened(python_crash("threads.py", python=python).core) as core:
        true, layout = state_of(core), layout_of_core(core)
        assert true is not None
        listed = true.threads[-2]
        registers = next(thread.registers for thread in core.threads() if thread.tid == idents(core)[listed.state.ident])
        pointer = registers[core.architecture.thread_pointer or ""]
        fields = [layout.thread.ident, layout.thread.native_id, layout.thread.interpreter, layout.thread.next, layout.thread.previous]
        # Another one just like it, where the thread's stack has not grown to.
        copy = registers[core.architecture.stack_pointer] - (1 << 14) & ~7
        view = View(core)
        words = {copy + field: view.word(listed.state.address + field) for field in fields if field is not None}
        shown = [broken(core, c_stacks(core), also) for also in ({}, {**words, pointer - 1024: copy})]
        states = [{thread.state.address for thread in one.threads} if one else set() for one in shown]
        assert listed.state.address in states[0] and states[1].isdisjoint({listed.state.address, copy})


@pytest.mark.slow
@pytest.mark.parametrize("python", every_interpreter())
def test_the_report_has_all_stacks_and_says_what_is_damaged(python: Interpreter, tmp_path: Path) -> None:
    folder = python_crash("threads.py", python=python)
    data = bytearray(folder.core.read_bytes())
    with opened(folder.core) as core:
        state, layout = state_of(core), layout_of_core(core)
        assert state is not None
        newest = state.threads[0].state.address
        segment = core.segment(newest)
        assert segment is not None
        place = segment.position + newest + layout.thread.next - segment.start
    data[place : place + 8] = b"overflow"
    (tmp_path / "core").write_bytes(data)
    crash, truth = analyze(tmp_path / "core", options=Options(gdb=None)), faulthandler(folder.stderr)
    assert len(crash.threads) == len(truth) == 7
    assert all(python_lines(thread) == true_lines(truth[int(thread.pthread or 0)]) for thread in crash.threads)
    assert "the interpreter's list of threads is damaged: 6 threads were found by their own storage or C stacks" in [
        error.message for error in crash.soft_errors
    ]
