"""Stacks of 3.11 and newer whose links are lost with the C stack: read from the data stack, or not at all."""

from __future__ import annotations

import itertools
import random
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

import msgspec
import pytest

from crashkit.evidence.core.core import Core
from crashkit.interpreter.finding import Module
from crashkit.interpreter.frame_fields import globals_at
from crashkit.interpreter.objects import Objects
from crashkit.interpreter.read import PythonState, read_python
from crashkit.interpreter.view import View
from crashkit.memory import MemoryThread, mapping_at, scanned
from crashkit.model import Mapping
from tests.crashes import Interpreter, python_crash, these_versions
from tests.interpreter.process import idents, interpreter_of, main_ident, opened, state_of
from tests.interpreter.recorded import VERSIONS, recorded
from tests.interpreter.test_damage import check_true, layout_of_core
from tests.interpreter.test_held import Hidden
from tests.test_support_matrix import made, sid_is_there

_PAGE = 4096
_SAMPLES = 30
_PART = 16 * 1024
"""Bytes of the first part of a data stack (Python/pystate.c, `DATA_STACK_CHUNK_SIZE`)."""

ENTANGLED = """
import asyncio, ctypes, functools, threading

def crash(x):
    return ctypes.string_at(16)

def numbers(n):
    for i in range(n):
        yield crash(i)

async def inner():
    return sum(map(int, sorted(numbers(3), key=abs)))

async def outer():
    return await inner()

class Made:
    def __init__(self):
        self.values = list(map(lambda _: asyncio.run(outer()), [1]))

def deep(n):
    if not n:
        return Made()
    if n % 50 == 0:
        return max([n], key=lambda _: deep(n - 1))
    if n % 70 == 0:
        return functools.reduce(lambda a, b: next(deep(n - 1) for _ in (1,)), [1, 2])
    return deep(n - 1)

def waits(started):
    started.set()
    list(map(lambda _: threading.Event().wait(), [1]))

for _ in range(2):
    started = threading.Event()
    threading.Thread(target=waits, args=(started,), daemon=True).start()
    started.wait()
deep(700)
"""
"""Python called by C called by Python: from generators, coroutines, key functions. Deep enough for several parts of a data stack."""

SIMPLE = "import ctypes\ndef crash(): ctypes.string_at(16)\ncrash()\n"

BEING_MADE = """
import ctypes

class Key(str):
    __hash__ = str.__hash__
    def __eq__(self, other):
        return %s

def called(first, name=None):
    return first

def calls():
    called(1)
    return called(**{Key("names"): 1})

calls()
"""
"""While the arguments of a call are put in their places, its frame lies on the data stack, but does not run."""

PROGRAMS = {
    "simple": SIMPLE,
    "entangled": ENTANGLED,
    "being-made": BEING_MADE % "ctypes.string_at(16)",
    "being-made-in-c": BEING_MADE % "max([1], key=lambda _: ctypes.string_at(16))",
}


class Holed:
    """A `Memory` in which pages are lost, as in a truncated core."""

    def __init__(self, core: Core, lost: frozenset[int]) -> None:
        self._core, self._lost = core, lost
        self.architecture, self.word, self.page, self.file_at = core.architecture, core.word, core.page, core.file_at

    def read(self, address: int, size: int) -> bytes:
        for page in range(address // _PAGE, (address + size - 1) // _PAGE + 1):
            if page in self._lost:
                size = max(0, page * _PAGE - address)
                break
        return self._core.read(address, size) if size else b""

    def scan(self, start: int, end: int) -> Iterator[tuple[int, bytes]]:
        return scanned(self, start, end)

    def mappings(self) -> Sequence[Mapping]:
        return self._core.mappings()

    def threads(self) -> Sequence[MemoryThread]:
        return self._core.threads()


def state_without(core: Core, lost: frozenset[int]) -> PythonState | None:
    module, version = interpreter_of(core)
    return read_python(Holed(core, lost), [Module(module, Path(module.path))], version, idents(core))


def pages(start: int, end: int) -> frozenset[int]:
    return frozenset(range(start // _PAGE, -(-end // _PAGE)))


def c_stacks(core: Core) -> frozenset[int]:
    """The pages of all threads' C stacks."""
    return frozenset().union(*each_c_stack(core))


def each_c_stack(core: Core) -> list[frozenset[int]]:
    """The pages of each thread's C stack; the main thread's is the highest memory that can be written.

    The crashed one, which comes first, is the main thread, on the stack of faulthandler's handler.
    """
    mappings = core.mappings()
    highest = max((one for one in mappings if "w" in (one.permissions or "")), key=lambda one: int(one.start))
    found = [highest]
    for thread in core.threads()[1:]:
        mapping = mapping_at(mappings, thread.registers[core.architecture.stack_pointer])
        assert mapping is not None
        found.append(mapping)
    return [pages(int(one.start), int(one.end)) for one in found]


@pytest.mark.slow
@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("python", these_versions("3.11", "3.12", "3.13", "3.14"))
def test_every_frame_is_found_without_any_c_stack(python: Interpreter, program: str, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAMS[program])
    with opened(python_crash(tmp_path / "program.py", python=python).core) as core:
        whole, ours = state_without(core, frozenset()), state_without(core, c_stacks(core))
        assert whole is not None and ours is not None and ours.lost_threads == 0
        assert sum(len(thread.stack.inner) for thread in whole.threads) > (720 if program == "entangled" else 1)
        for thread, true in zip(ours.threads, whole.threads, strict=True):
            assert not true.stack.cut
            if program.startswith("being-made") and whole.version >= (3, 13):
                # Such a frame may also be one that handles a signal before its first instruction.
                assert thread.stack.cut and 0 < len(thread.stack.inner) < len(true.stack.inner)
            else:
                assert thread.stack == true.stack


@pytest.mark.slow
@pytest.mark.parametrize("python", these_versions("3.11", "3.12", "3.13", "3.14"))
def test_frames_are_found_on_data_stacks_whose_threads_states_are_lost(python: Interpreter, tmp_path: Path) -> None:
    """Those that generators and coroutines hold, too, and no other thread's."""
    (tmp_path / "program.py").write_text(ENTANGLED)
    with opened(python_crash(tmp_path / "program.py", python=python).core) as core:
        check_without_states(core)


@pytest.mark.slow
@pytest.mark.parametrize("python", these_versions("3.11", "3.12", "3.13", "3.14"))
def test_of_very_many_frames_the_outermost_are_read_which_say_whose_they_are(
    python: Interpreter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "program.py").write_text(ENTANGLED)
    with opened(python_crash(tmp_path / "program.py", python=python).core) as core:
        whole = state_of(core)
        assert whole is not None
        deep = max(whole.threads, key=lambda thread: len(thread.stack.inner))
        monkeypatch.setattr("crashkit.interpreter.frames.INNER", 50)
        module, version = interpreter_of(core)
        hidden = [range(deep.state.address, deep.state.address + 512)]
        ours = read_python(Hidden(core, {}, hidden), [Module(module, None)], version, idents(core), main=main_ident(core))
        found = next(thread.stack for thread in ours.threads if thread.state.ident == deep.state.ident) if ours else None
        assert found is not None and len(found.inner) == 50
        assert [frame.address for frame in found.inner] == [frame.address for frame in deep.stack.inner[-50:]]


@pytest.mark.parametrize("version", VERSIONS)
def test_the_same_of_a_free_threaded_build(version: str, tmp_path: Path) -> None:
    with opened(recorded(version, "known_threads.py", tmp_path).core) as core:
        check_without_states(core)


@pytest.mark.chroot
@pytest.mark.slow
@pytest.mark.skipif(not sid_is_there(), reason="no Debian sid here: run as root with CRASHKIT_TEST_CHROOT=1")
def test_the_same_of_314() -> None:
    crash = made("3.14 of Debian sid, from a container, debug info")
    with opened(crash.folder.core) as core:
        check_without_states(core, crash.folder.program)


@pytest.mark.slow
@pytest.mark.parametrize("python", these_versions("3.13", "3.14"))
def test_the_same_where_the_c_stacks_of_several_threads_are_one_mapping(python: Interpreter, monkeypatch: pytest.MonkeyPatch) -> None:
    """As since glibc 2.42, if the kernel puts them next to each other: the guard is no mapping of its own."""
    with opened(python_crash("threads.py", python=python).core) as core:
        merged: list[Mapping] = []
        for one in core.mappings():
            before = merged[-1] if merged else one
            of_stacks = before.path is one.path is None and before.permissions == "rw-" and one.permissions in ("rw-", "---")
            if of_stacks and before.end == one.start:
                one = msgspec.structs.replace(merged.pop(), end=one.end)
            merged.append(one)
        descriptors = [thread.registers[core.architecture.thread_pointer or ""] for thread in core.threads()]
        if len({mapping_at(merged, one) for one in descriptors}) == len({mapping_at(core.mappings(), one) for one in descriptors}):
            pytest.skip("the kernel put no two of these stacks next to each other")
        monkeypatch.setattr(core, "mappings", lambda: merged)
        check_without_states(core)


def check_without_states(core: Core, file: Path | None = None) -> None:
    layout, (loaded, version) = layout_of_core(core), interpreter_of(core)
    known, main, modules = idents(core), main_ident(core), [Module(loaded, file or Path(loaded.path))]
    whole = read_python(core, modules, version, known)
    assert whole is not None and layout.frame.owner is not None
    for lost in (*([thread] for thread in whole.threads), whole.threads[1:], whole.threads):
        hidden = [range(thread.state.address, thread.state.address + 512) for thread in lost]
        if layout.cframe is not None:
            # In 3.11 and 3.12 C stacks lead to all frames.
            hidden += c_stacks_of(core, {known[thread.state.ident] for thread in lost})
        ours = read_python(Hidden(core, {}, hidden), modules, version, known, main=main)
        assert ours is not None and len(ours.threads) == len(whole.threads) and ours.stateless_threads == len(lost)
        found = {thread.state.ident: thread for thread in ours.threads}
        for thread in whole.threads:
            addresses = [frame.address for frame in thread.stack.inner]
            if thread in lost:
                stack = found[thread.state.ident].stack
                check_true(stack, addresses)
                assert [frame.address for frame in stack.inner] == addresses and stack.cut and stack.gap
                assert [frame.code for frame in stack.inner if frame.code is None] == []
            else:
                assert found[thread.state.ident].stack == thread.stack
            assert found[thread.state.ident].name == thread.name


def c_stacks_of(core: Core, tids: Collection[int]) -> list[range]:
    each = zip(core.threads(), each_c_stack(core), strict=True)
    return [range(min(stack) * _PAGE, (max(stack) + 1) * _PAGE) for thread, stack in each if thread.tid in tids]


@pytest.mark.slow
@pytest.mark.parametrize("python", these_versions("3.11", "3.12", "3.13", "3.14"))
def test_a_generator_that_was_freed_or_waits_is_not_running(python: Interpreter) -> None:
    with opened(python_crash("threads.py", python=python).core) as core:
        module, version = interpreter_of(core)
        whole, layout, view = state_of(core), layout_of_core(core), View(core)
        generator, frame = layout.generator, layout.frame
        modules = [Module(module, Path(module.path))]
        assert whole is not None and generator.frame is not None and generator.state is not None and frame.owner is not None
        sorter = next(thread for thread in whole.threads if thread.name == "sorter")
        addresses = [one.address for one in sorter.stack.inner]
        held = next(address for address in addresses if view.byte(address + frame.owner) == 1)
        start, state = held - generator.frame, held - generator.frame + generator.state
        waiting = {state - state % 8: view.word(state - state % 8) | 0xFF << 8 * (state % 8)}
        others = [address for address in addresses if address != held]
        without_names = {held + globals_at(Objects(view, layout, version)): 0}
        # Neither its thread's state nor, in 3.11 and 3.12, its C stack leads to it.
        hidden = [range(sorter.state.address, sorter.state.address + 512)]
        hidden += c_stacks_of(core, {idents(core)[sorter.state.ident]}) if layout.cframe is not None else []
        for damage, left in (({}, addresses), ({start: 0}, others), (waiting, others), (without_names, others)):
            ours = read_python(Hidden(core, damage, hidden), modules, version, idents(core), main=main_ident(core))
            found = next(thread for thread in ours.threads if thread.state.ident == sorter.state.ident) if ours else None
            assert found is not None and [one.address for one in found.stack.inner] == left


@pytest.mark.slow
@pytest.mark.parametrize("script", [ENTANGLED, None])
@pytest.mark.parametrize("python", these_versions("3.11", "3.12"))
def test_a_c_stack_leads_to_all_frames_of_a_thread_whose_state_is_lost(python: Interpreter, script: str | None, tmp_path: Path) -> None:
    """Those that generators and coroutines hold, too."""
    (tmp_path / "program.py").write_text(script or "")
    with opened(python_crash(tmp_path / "program.py" if script else "threads.py", python=python).core) as core:
        module, version = interpreter_of(core)
        whole = state_of(core)
        assert whole is not None and len(whole.threads) >= 3
        for lost in (*([thread] for thread in whole.threads), whole.threads[1:]):
            hidden = [range(thread.state.address, thread.state.address + 512) for thread in lost]
            ours = read_python(Hidden(core, {}, hidden), [Module(module, None)], version, idents(core), main=main_ident(core))
            assert ours is not None and ours.stateless_threads == len(lost) and ours.unplaced == ()
            assert {one.state.ident: (one.name, one.stack) for one in ours.threads} == {
                one.state.ident: (one.name, one.stack) for one in whole.threads
            }


@pytest.mark.slow
@pytest.mark.parametrize("python", these_versions("3.11", "3.12", "3.13", "3.14"))
def test_of_what_is_left_nothing_is_made_up(python: Interpreter, tmp_path: Path) -> None:
    """Whatever pages are lost besides: the frames are the true ones from the innermost on, and a stack that lacks some is cut."""
    (tmp_path / "program.py").write_text(ENTANGLED)
    with opened(python_crash(tmp_path / "program.py", python=python).core) as core:
        stacks = c_stacks(core)
        whole = state_without(core, frozenset())
        assert whole is not None
        true = {thread.state.address: [frame.address for frame in thread.stack.inner] for thread in whole.threads}
        frames = [frame for thread in whole.threads for frame in thread.stack.inner]
        matters = sorted({address // _PAGE for frame in frames if frame.code for address in (frame.address, frame.code.address)})
        rng = random.Random(14)
        several = [frozenset(rng.choices(matters, k=rng.choice([2, 3, 10]))) for _ in range(_SAMPLES)]
        whole_stacks = 0
        for lost in (*(frozenset([page]) for page in matters), *several):
            ours = state_without(core, lost | (stacks if rng.random() < 0.8 else frozenset()))
            for thread in ours.threads if ours else ():
                theirs = true[thread.state.address]
                check_true(thread.stack, theirs)
                # What was found behind a gap may be all there is.
                assert thread.stack.gap or thread.stack.cut == ([frame.address for frame in thread.stack.inner] != theirs)
                whole_stacks += not thread.stack.cut
        assert whole_stacks > _SAMPLES // 2


@pytest.mark.slow
@pytest.mark.parametrize("python", these_versions("3.11", "3.12", "3.13", "3.14"))
def test_what_lies_in_the_newer_parts_of_a_data_stack_is_read_without_the_oldest(python: Interpreter, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(ENTANGLED)
    with opened(python_crash(tmp_path / "program.py", python=python).core) as core:
        whole = state_without(core, frozenset())
        assert whole is not None
        deep = max(whole.threads, key=lambda thread: len(thread.stack.inner))
        frames = [frame.address for frame in deep.stack.inner]
        oldest = pages(frames[-1], frames[-1] + _PART)
        ours = state_without(core, c_stacks(core) | oldest)
        shown = next(thread.stack for thread in ours.threads if thread.state.address == deep.state.address) if ours else None
        expected = list(itertools.takewhile(lambda address: address // _PAGE not in oldest, frames))
        assert shown is not None and not shown.gap
        assert shown is not None and [frame.address for frame in shown.inner] == expected and shown.cut and len(expected) > 300


@pytest.mark.slow
@pytest.mark.parametrize("python", these_versions("3.11", "3.12", "3.13", "3.14"))
def test_a_lost_code_object_costs_no_frame_that_another_one_names(python: Interpreter, tmp_path: Path) -> None:
    """Without it, nobody says how long its frame is. Links lead from frame to frame in 3.11; later, over lost entry frames, too."""
    (tmp_path / "program.py").write_text(ENTANGLED)
    with opened(python_crash(tmp_path / "program.py", python=python).core) as core:
        stacks, whole = c_stacks(core), state_without(core, frozenset())
        assert whole is not None
        true = {thread.state.address: [frame.address for frame in thread.stack.inner] for thread in whole.threads}
        frames = [frame for thread in whole.threads for frame in thread.stack.inner]
        codes = {frame.code.address // _PAGE for frame in frames if frame.code} - {frame.address // _PAGE for frame in frames}
        shown = 0
        for code in codes:
            ours = state_without(core, stacks | {code})
            assert ours is not None
            for thread in ours.threads:
                theirs, addresses = true[thread.state.address], [frame.address for frame in (*thread.stack.inner, *thread.stack.outer)]
                check_true(thread.stack, theirs)
                assert thread.stack.cut or addresses == theirs
                shown += len(addresses)
        assert shown > len(codes) * len(frames) * (0.6 if whole.version < (3, 12) else 0.1)


@pytest.mark.slow
@pytest.mark.parametrize("codes", ["all codes", "no code"])
@pytest.mark.parametrize("python", these_versions("3.11", "3.12", "3.13", "3.14"))
def test_frames_on_either_side_of_a_lost_generator_are_found(python: Interpreter, codes: str) -> None:
    """A key function that `sorted` calls, below a generator: nothing leads from one to the other when the generator is lost."""
    with opened(python_crash("threads.py", python=python).core) as core:
        layout, (module, version) = layout_of_core(core), interpreter_of(core)
        modules, known = [Module(module, Path(module.path))], idents(core)
        whole = read_python(core, modules, version, known)
        assert whole is not None and layout.frame.owner is not None
        owner, hidden = layout.frame.owner, [range(min(stack) * _PAGE, (max(stack) + 1) * _PAGE) for stack in each_c_stack(core)]
        sorter = next(thread for thread in whole.threads if thread.name == "sorter")
        on_data_stack = [frame.address for frame in sorter.stack.inner if View(core).byte(frame.address + owner) == 0]
        lost = [frame for frame in sorter.stack.inner if frame.address not in on_data_stack]
        assert lost and len(on_data_stack) == 6
        hidden += [range(frame.address, frame.address + 64) for frame in lost]
        if codes == "no code":
            hidden += [range(frame.code.address, frame.code.address + 64) for frame in sorter.stack.inner if frame.code]
        ours = read_python(Hidden(core, {}, hidden), modules, version, known)
        stack = next(thread.stack for thread in ours.threads if thread.state.ident == sorter.state.ident) if ours else None
        assert stack is not None and stack.cut and stack.gap
        assert [frame.address for frame in (*stack.inner, *stack.outer)] == on_data_stack
        check_true(stack, [frame.address for frame in sorter.stack.inner])
