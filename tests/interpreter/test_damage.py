"""Cores cut short and heaps overwritten: what survives is shown, nothing is made up, and no damage costs time or another thread."""

from __future__ import annotations

import random
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec
import pytest

from crashkit.evidence.core.constants import read_constant
from crashkit.evidence.core.core import Core
from crashkit.evidence.module_files import ModuleFile
from crashkit.interpreter.finding import Found, Module, find
from crashkit.interpreter.frames import FrameState, Stack
from crashkit.interpreter.layouts import Layout, Version
from crashkit.interpreter.objects import Objects
from crashkit.interpreter.read import PythonState, read_python
from crashkit.interpreter.threads import threading_contents
from crashkit.interpreter.view import View
from crashkit.memory import Memory, MemoryThread, scanned
from crashkit.memory.pages import SIZE
from crashkit.model import Mapping
from crashkit.pipeline import Options, analyze
from tests.crashes import Interpreter, an_interpreter, every_interpreter, python_crash, some_interpreters, these_versions
from tests.interpreter.process import MORE, idents, interpreter_of, main_ident, opened, state_of
from tests.interpreter.recorded import VERSIONS, recorded
from tests.interpreter.test_read import DEEP

_SAMPLES = 150 * MORE
_PATIENCE = 3.0


class Survivors:
    """Which parts of a whole core's Python state lie in its first bytes."""

    def __init__(self, core: Core, layout: Layout, limit: int) -> None:
        self._core, self._layout, self._limit, self._view = core, layout, limit, View(core)

    def has(self, address: int, size: int) -> bool:
        segment = self._core.segment(address)
        return segment is not None and segment.position + address - segment.start + size <= self._limit

    def frame(self, frame: FrameState) -> bool:
        layout = self._layout.frame
        return self.has(frame.address, 8 + max(layout.previous, layout.code, layout.instruction, layout.owner or 0))

    def is_end_known(self, outermost: FrameState) -> bool:
        """Whether it shows that nothing is behind a stack's outermost frame: from 3.12 on, it leads to an entry on the C stack."""
        layout = self._layout.frame
        link = self._view.word(outermost.address + layout.previous)
        return not link or (self.has(link + layout.previous, 8) and (layout.owner is None or self.has(link + layout.owner, 1)))

    def is_of_generator(self, address: int) -> bool:
        """Whether the frame lies in a generator or a coroutine, as from 3.11 on."""
        owner = self._layout.frame.owner
        return owner is not None and self._view.byte(address + owner) == 1

    def text(self, frame: FrameState, place: int) -> bool:
        code = self._code(frame)
        text = self._view.word(code + place)
        return self.has(code, self._layout.code.qualified_name or self._layout.code.lines) and self.has(text, self._layout.text.data + 8)

    def line(self, frame: FrameState) -> bool:
        code = self._code(frame)
        table = self._view.word(code + self._layout.code.lines)
        length = self._view.word(table + self._layout.bytes.length)
        return self.has(code, self._layout.code.lines + 8) and self.has(table, self._layout.bytes.data + length)

    def _code(self, frame: FrameState) -> int:
        return self._view.word(frame.address + self._layout.frame.code) & ~7

    def reachable(self, state: int, frames: Sequence[FrameState]) -> list[FrameState]:
        """The frames from the innermost one on, up to the first that is lost, or whose place nothing sure tells.

        Links tell it; from 3.11 on the data stack, too, where all code objects are there: a frame is as long as its code object says. Where
        some are lost, what lies in their frames may still tell it.
        """
        if not self.has(state, 8 + max(field for field in msgspec.structs.astuple(self._layout.thread) if field is not None)):
            return []
        on_data_stack = self._layout.thread.chunk is not None and all(self.frame(frame) and self.sized(frame) for frame in frames)
        cframe = self._layout.thread.cframe if self._layout.cframe and self._layout.cframe.frame is not None else None
        if cframe is not None and not on_data_stack and not self.has(self._view.word(state + cframe), 24):
            return []
        for index, frame in enumerate(frames):
            if not self.frame(frame) or (index and not on_data_stack and not self.way(frames[index - 1], frame.address)):
                return list(frames[:index])
        return list(frames)

    def sized(self, frame: FrameState) -> bool:
        code = self._layout.code
        return self.has(self._code(frame), 4 + max(code.frame_slots or 0, code.stack_size or 0))

    def way(self, frame: FrameState, outer: int) -> bool:
        """Whether the links outwards are there: where an interpreter call begins, they lead over a frame on the C stack."""
        layout = self._layout.frame
        address = self._view.word(frame.address + layout.previous)
        while address and address != outer:
            if not self.has(address, 8 + max(layout.previous, layout.owner or 0)):
                return False
            address = self._view.word(address + layout.previous)
        return True


def without_variables(core: Core, found: Found, version: Version, names: set[str]) -> Overwritten:
    """The memory with the values of these variables of `threading` overwritten."""
    view = View(core)
    objects = Objects(view, found.layout, version)
    contents = threading_contents(objects, found.interpreters[0])
    assert contents is not None
    values = {item.value for item in objects.dictionary(contents) if objects.text(item.key) in names}
    assert len(values) == len(names)
    return Overwritten(core, {value + found.layout.object.type + 8 * place: 0xDEADBEEF for value in values for place in range(6)})


def layout_of_core(core: Core) -> Layout:
    module, version = interpreter_of(core)
    found = find(View(core), [Module(module, Path(module.path))], version, idents(core))
    assert isinstance(found, Found)
    return found.layout


@pytest.mark.slow
@pytest.mark.parametrize("percent", [97, 95, 90, 80, 60, 5])
@pytest.mark.parametrize("python", every_interpreter())
def test_every_frame_whose_memory_is_there_is_shown(python: Interpreter, percent: int, tmp_path: Path) -> None:
    check_truncated(python_crash("threads.py", python=python).core, percent, tmp_path)


@pytest.mark.parametrize("percent", [97, 95, 90, 80, 60])
@pytest.mark.parametrize("version", VERSIONS)
def test_the_same_of_a_free_threaded_build(version: str, percent: int, tmp_path: Path) -> None:
    check_truncated(recorded(version, "known_threads.py", tmp_path).core, percent, tmp_path)


def check_truncated(path: Path, percent: int, temporary: Path) -> None:
    limit = path.stat().st_size * percent // 100
    with path.open("rb") as file:
        (temporary / "cut").write_bytes(file.read(limit))
    with opened(path) as core, opened(temporary / "cut") as cut:
        # The interpreter's file says where the type of frames or of generators is, if none of them is known.
        has_file = Path(interpreter_of(core)[0].path).exists()
        whole, ours = state_of(core), state_of(cut, with_file=has_file)
        assert whole is not None
        survivors = Survivors(core, layout_of_core(core), limit)
        found = {thread.state.ident: thread for thread in ours.threads} if ours else {}
        survived = {frame.address: frame for thread in whole.threads for frame in thread.stack.inner if survivors.frame(frame)}
        shown = [frame.address for thread in found.values() for frame in (*thread.stack.inner, *thread.stack.outer)]
        unplaced = [frame.address for chain in ours.unplaced for frame in chain] if ours else []
        assert len({*shown, *unplaced}) == len(shown) + len(unplaced) and survived.keys() >= {*shown, *unplaced}
        missing = survived.keys() - {*shown, *unplaced}
        assert not missing or (not has_file and all(survivors.is_of_generator(one) for one in missing))
        for thread in whole.threads:
            addresses = [frame.address for frame in thread.stack.inner]
            expected = survivors.reachable(thread.state.address, thread.stack.inner)
            if thread.state.ident not in found:
                assert not expected
                continue
            stack = found[thread.state.ident].stack
            check_true(stack, addresses)
            assert len(stack.inner) >= len(expected)
            # What was found behind a gap may be all there is, and what the outermost frame leads to, on the C stack, may be lost.
            lacks = [frame.address for frame in stack.inner] != addresses
            assert stack.gap or stack.cut == lacks or (stack.cut and not survivors.is_end_known(thread.stack.inner[-1]))
            for frame in (*stack.inner, *stack.outer):
                true = survived[frame.address]
                assert true.code is not None
                if survivors.text(true, survivors._layout.code.name):
                    assert frame.code is not None and frame.code.name == true.code.name
                if survivors.text(true, survivors._layout.code.file):
                    assert frame.code is not None and frame.code.file == true.code.file
                if frame.code is not None:
                    assert frame.code.name in (true.code.name, None) and frame.code.file in (true.code.file, None)
                    assert (frame.position == true.position) if survivors.line(true) else frame.position is None


def check_true(stack: Stack, true: Sequence[int]) -> None:
    """These are frames of the thread, in their order: the innermost ones, and behind a gap the outermost ones."""
    inner, outer = [frame.address for frame in stack.inner], [frame.address for frame in stack.outer]
    if stack.gap and not outer:
        inner, outer = [], inner
    assert inner == list(true[: len(inner)])
    rest = iter(true[len(inner) :])
    assert all(address in rest for address in outer)
    assert not stack.gap or outer[-1] == true[-1]


class Without:
    """A `Memory` without the interpreter's variables, which lie late in a core."""

    def __init__(self, core: Core, missing: range) -> None:
        self._core, self._missing = core, missing
        self.architecture, self.word, self.page, self.file_at = core.architecture, core.word, core.page, core.file_at

    def read(self, address: int, size: int) -> bytes:
        return self._core.read(address, size) if address not in self._missing else b""

    def scan(self, start: int, end: int) -> Iterator[tuple[int, bytes]]:
        return scanned(self, start, end)

    def mappings(self) -> Sequence[Mapping]:
        return self._core.mappings()

    def threads(self) -> Sequence[MemoryThread]:
        return self._core.threads()


@pytest.mark.slow
@pytest.mark.parametrize("python", these_versions("3.12", "3.13"))
def test_names_in_the_interpreters_file_are_read_from_it(python: Interpreter) -> None:
    """From 3.12 on, names that CPython uses itself, such as `run`, are constants of its own."""
    made = python_crash("threads.py", python=python)
    with opened(made.core) as core:
        module, version = interpreter_of(core)
        memory = Without(core, range(module.base, module.end))
        files = {module.path: ModuleFile("found", Path(module.path))}

        def constants(address: int, size: int) -> bytes:
            return read_constant(memory, files, address, size)  # type: ignore[arg-type]

        names = []
        for read in (None, constants):
            state = read_python(memory, [Module(module, None)], version, idents(core), read)
            assert state is not None
            stacks = {thread.state.ident: [frame.code and frame.code.name for frame in thread.stack.inner] for thread in state.threads}
            names.append(next(stack for stack in stacks.values() if "wait_for_event" in stack))
        assert None in names[0] and names[1][0] == "wait" and "run" in names[1]


class Overwritten:
    """A `Memory` with some words replaced; notes which words are read."""

    def __init__(self, memory: Memory, words: dict[int, int] | None = None) -> None:
        self._memory, self._words = memory, words or {}
        self.architecture, self.word, self.page = memory.architecture, memory.word, SIZE
        self.reads: set[tuple[int, int]] = set()

    def read(self, address: int, size: int) -> bytes:
        data = bytearray(self._memory.read(address, size))
        for place, word in self._words.items():
            for index, byte in enumerate(struct.pack("<Q", word)):
                if address <= place + index < address + len(data):
                    data[place + index - address] = byte
        return bytes(data)

    def scan(self, start: int, end: int) -> Iterator[tuple[int, bytes]]:
        for at, data in self._memory.scan(start, end):
            yield at, self.read(at, len(data))

    def mappings(self) -> Sequence[Mapping]:
        return self._memory.mappings()

    def threads(self) -> Sequence[MemoryThread]:
        return self._memory.threads()


class Noting(View):
    """Notes every word that is read."""

    noted: set[int]

    def word(self, address: int) -> int:
        Noting.noted.add(address)
        return super().word(address)


def walked(memory: Memory, module: Module, version: Version, known: dict[int, int]) -> PythonState | None:
    state = read_python(memory, [module], version, known)
    for thread in state.threads if state else ():
        for frame in thread.stack.inner:
            state.variables(frame)  # type: ignore[union-attr]
    return state


def words_of(core: Memory, module: Module, version: Version, known: dict[int, int], look: Callable[[PythonState], object]) -> list[int]:
    """Where the words are that `look` reads of an interpreter that is already known."""
    Noting.noted = set()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("crashkit.interpreter.read.View", Noting)
        state = read_python(core, [module], version, known)
        assert state is not None
        Noting.noted.clear()
        look(state)
    return sorted(Noting.noted)


def garbage(rng: random.Random, place: int, words: Sequence[int]) -> Iterator[int]:
    """What may stand where a pointer stood."""
    yield rng.choice(
        [0, 1, place, place - 8, rng.choice(words), rng.choice(words) & ~0xFFF, rng.getrandbits(64), rng.getrandbits(47), 1 << 63]
    )


@pytest.mark.long
@pytest.mark.parametrize("python", some_interpreters("3.8", "3.11", "3.12", "3.13"))
def test_damage_is_survived_in_bounded_time(python: Interpreter) -> None:
    check_damage(python_crash("threads.py", python=python).core)


def check_damage(path: Path, samples: int = _SAMPLES) -> None:
    with opened(path) as core:
        loaded, version = interpreter_of(core)
        module, known = Module(loaded, Path(loaded.path)), idents(core)
        Noting.noted = set()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("crashkit.interpreter.read.View", Noting)
            whole = walked(core, module, version, known)
        assert whole is not None
        words = sorted(Noting.noted)
        assert len(words) > 500
        rng = random.Random(14)
        slowest, unharmed = 0.0, 0
        for _ in range(samples):
            damage = {place: word for place in rng.sample(words, rng.choice([1, 1, 5, 50])) for word in garbage(rng, place, words)}
            began = time.process_time()
            state = walked(Overwritten(core, damage), module, version, known)
            slowest = max(slowest, time.process_time() - began)
            unharmed += state is not None and len(state.threads) == len(whole.threads)
        assert slowest < _PATIENCE
        # Most damage is to one word of one object.
        assert unharmed > samples // 3


@pytest.mark.slow
@pytest.mark.parametrize("python", some_interpreters("3.8", "3.11", "3.13"))
def test_damaged_frames_cost_no_other_thread(python: Interpreter) -> None:
    made = python_crash("threads.py", python=python)
    with opened(made.core) as core:
        loaded, version = interpreter_of(core)
        module, known, layout = Module(loaded, Path(loaded.path)), idents(core), layout_of_core(core)
        whole = read_python(core, [module], version, known)
        assert whole is not None
        hurt = whole.threads[0].stack.inner
        for frame in hurt[1:4]:
            for word in (0, frame.address, hurt[0].address, 0xDEADBEEF, 1 << 63, (1 << 64) - 8):
                for place in (layout.frame.previous, layout.frame.code, layout.frame.instruction):
                    state = read_python(Overwritten(core, {frame.address + place: word}), [module], version, known)
                    assert state is not None and len(state.threads) == len(whole.threads)
                    # What stood further in than the damage is as it was, and so are all others.
                    inner = [one.address for one in state.threads[0].stack.inner]
                    assert inner[: hurt.index(frame)] == [one.address for one in hurt[: hurt.index(frame)]]
                    assert len(inner) <= len(hurt)
                    for thread, true in zip(state.threads[1:], whole.threads[1:], strict=True):
                        assert [one.position for one in thread.stack.inner] == [one.position for one in true.stack.inner]
                    if place == layout.frame.previous and word:
                        assert state.threads[0].stack.cut


COSTLY = """
import ctypes
emptied = {number: None for number in range(200000)}
for number in range(199999):
    del emptied[number]
def crash(many):
    again = [many, [many], {1: many}]
    return ctypes.string_at(16)
crash([dict(emptied) for _ in range(1)] + [emptied] * 50 + [[emptied, emptied, [emptied]] for _ in range(60)])
"""


@pytest.mark.slow
@pytest.mark.parametrize("python", some_interpreters("3.8", "3.11"))
def test_values_take_bounded_time(python: Interpreter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "costly.py").write_text(COSTLY)
    monkeypatch.setattr("crashkit.interpreter.values._PATIENCE", 0.1)
    with opened(python_crash(tmp_path / "costly.py", python=python).core) as core:
        state = state_of(core)
        assert state is not None
        frame = next(frame for frame in state.threads[0].stack.inner if frame.code and frame.code.name == "crash")
        began = time.process_time()
        values = {value.name: value.text for value in state.variables(frame)}
        assert time.process_time() - began < _PATIENCE
        assert values.keys() == {"many", "again"} and "not read" in values["again"]


@pytest.mark.parametrize(("limit", "lines"), [("_MOST_FRAMES", True), ("_MOST_TABLES", False)])
def test_all_threads_together_are_bounded(limit: str, lines: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(python_crash("threads.py", python=an_interpreter()).core) as core:
        monkeypatch.setattr(f"crashkit.interpreter.frames.{limit}", 10)
        state = state_of(core)
        assert state is not None and len(state.threads) == 7
        frames = [frame for thread in state.threads for frame in thread.stack.inner]
        assert 0 < len(frames) <= 10 if lines else len(frames) > 30
        assert all((frame.position is not None) == lines for frame in frames)
        assert any(thread.stack.cut for thread in state.threads) == lines


def test_a_deep_stack_is_counted_in_bounded_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "deep.py").write_text(DEEP)
    with opened(python_crash(tmp_path / "deep.py", python=an_interpreter()).core) as core:
        monkeypatch.setattr("crashkit.interpreter.frames.INNER", 1000)
        monkeypatch.setattr("crashkit.interpreter.frames._MOST_LINKS", 500)
        state = state_of(core)
        assert state is not None
        stack = state.threads[0].stack
        assert stack.cut and len(stack.inner) == 1000 and 1000 < (stack.total or 0) <= 1500


@pytest.mark.slow
@pytest.mark.parametrize("python", every_interpreter())
def test_threads_have_their_names_without_threadings_table(python: Interpreter) -> None:
    """The frames that a thread begins with have its `Thread`. To the main thread's, any frame of `threading` leads."""
    with opened(python_crash("threads.py", python=python).core) as core:
        loaded, version = interpreter_of(core)
        modules, known = [Module(loaded, Path(loaded.path))], idents(core)
        whole, found = read_python(core, modules, version, known), find(View(core), modules, version, known)
        assert whole is not None and found is not None
        damage = {one + found.layout.interpreter.modules: 0xDEADBEEF for one in found.interpreters}
        names = [thread.name for thread in whole.threads]
        ours = read_python(Overwritten(core, damage), modules, version, known)
        assert ours is not None and [thread.name for thread in ours.threads] == names
        assert len(whole.threads) == 7
        # With the table lost as well, and the main thread's own object.
        for lost in ({"_active"}, {"_active", "_main_thread"}):
            ours = read_python(without_variables(core, found, version, lost), modules, version, known, main=main_ident(core))
            assert ours is not None and [thread.name for thread in ours.threads] == names


NEVER_IMPORTED = """
import sys, ctypes
sys.modules.pop("threading", None)
ctypes.string_at(16)
"""


@pytest.mark.slow
@pytest.mark.parametrize("python", every_interpreter())
def test_without_threading_the_main_thread_has_no_name(python: Interpreter, tmp_path: Path) -> None:
    (tmp_path / "never.py").write_text(NEVER_IMPORTED)
    with opened(python_crash(tmp_path / "never.py", python=python).core) as core:
        loaded, version = interpreter_of(core)
        modules, known = [Module(loaded, Path(loaded.path))], idents(core)
        found = find(View(core), modules, version, known)
        assert found is not None
        damage = {one + found.layout.interpreter.modules: 0xDEADBEEF for one in found.interpreters}
        for memory in (core, Overwritten(core, damage)):
            state = read_python(memory, modules, version, known, main=main_ident(core))
            assert state is not None and [thread.name for thread in state.threads] == [None]


@pytest.mark.slow
@pytest.mark.parametrize("python", these_versions("3.6", "3.8", "3.10"))
def test_frames_of_a_broken_stack_are_found_in_the_heap(python: Interpreter, tmp_path: Path) -> None:
    """The outer ones say whose they are; of the inner ones nothing does, and the report names them."""
    folder = python_crash("threads.py", python=python)
    data = bytearray(folder.core.read_bytes())
    with opened(folder.core) as core:
        whole, layout = state_of(core), layout_of_core(core)
        assert whole is not None and layout.thread.frame is not None
        hurt = next(thread for thread in whole.threads if thread.name == "sorter")
        frames = hurt.stack.inner
        for place in (hurt.state.address + layout.thread.frame, frames[1].address + layout.frame.previous):
            segment = core.segment(place)
            assert segment is not None
            # It has to be somewhere in memory, or nobody takes it for a frame.
            at, word = segment.position + place - segment.start, whole.threads[0].state.address
            data[at : at + 8] = struct.pack("<Q", word)
    (tmp_path / "core").write_bytes(data)
    with opened(tmp_path / "core") as core:
        ours = state_of(core)
        assert ours is not None
        stacks = {thread.name: [frame.address for frame in thread.stack.inner] for thread in whole.threads}
        shown = {thread.name: [frame.address for frame in thread.stack.inner] for thread in ours.threads}
        assert shown == {**stacks, "sorter": stacks["sorter"][2:]}
        assert [[frame.address for frame in chain] for chain in ours.unplaced] == [stacks["sorter"][:2]]
    messages = [error.message for error in analyze(tmp_path / "core", options=Options(gdb=None)).soft_errors]
    inner = ", ".join(f"{one.code.name} (threads.py:{one.position.line})" for one in frames[:2] if one.code and one.position)
    assert f"2 more Python frames were running, but what tells in which thread is lost: {inner}" in messages
    assert "inner Python frames of one thread may be missing: what leads to them is lost" in messages


@pytest.mark.slow
@pytest.mark.parametrize("python", these_versions("3.6", "3.8", "3.10"))
def test_a_frame_that_was_freed_is_not_running(python: Interpreter) -> None:
    """Its memory begins with the address of the next free block, where the count of references was.

    Nor is what lies behind a pointer to the type of frames elsewhere, such as on a C stack: it has no names to look up.
    """
    with opened(python_crash("threads.py", python=python).core) as core:
        module, version = interpreter_of(core)
        whole, layout = state_of(core), layout_of_core(core)
        assert whole is not None and layout.thread.frame is not None
        hurt = next(thread for thread in whole.threads if thread.name == "sorter")
        inner, second = (frame.address for frame in hurt.stack.inner[:2])
        somewhere = whole.threads[0].state.address
        lost = {hurt.state.address + layout.thread.frame: somewhere, second + layout.frame.previous: somewhere}
        without_names = {second + layout.frame.code + 16: 0}
        for freed, left in (({}, [inner, second]), ({second: 0x7F00_0000_1000}, [inner]), ({second: 0}, [inner]), (without_names, [inner])):
            damaged = Overwritten(core, {**lost, **freed})
            state = read_python(damaged, [Module(module, None)], version, idents(core), main=main_ident(core))
            assert state is not None
            assert [frame.address for chain in state.unplaced for frame in chain] == left
