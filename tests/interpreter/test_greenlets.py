"""Greenlets, held to what greenlet itself told the program right before it crashed."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import time
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from crashkit.debugger.contract import NativeStack
from crashkit.elf.core_file import Laid, core_head
from crashkit.elf.headers import Word
from crashkit.evidence.core.core import Core
from crashkit.evidence.core.modules import loaded_modules
from crashkit.evidence.interpreter import find_interpreter
from crashkit.interpreter.finding import Module, find
from crashkit.interpreter.greenlets import Greenlets
from crashkit.interpreter.layouts import Version
from crashkit.interpreter.read import read_python
from crashkit.interpreter.search import places_of
from crashkit.interpreter.view import View
from crashkit.memory.live import LiveProcess
from crashkit.model import Crash, Greenlet, NativeFrame, PythonFrame, Thread
from crashkit.pipeline import Options, analyze
from crashkit.report import html, text, wording
from crashkit.shorten import shortened
from crashkit.stacks.greenlets import of_greenlet
from tests.crashes import CRASHERS, Folder, Interpreter, at_hand, every_interpreter, needs_gdb, python_crash, some_interpreters
from tests.interpreter.process import MORE, idents, interpreter_of, main_ident, opened
from tests.interpreter.recorded import VERSIONS as FREE_THREADED
from tests.interpreter.recorded import recorded
from tests.interpreter.test_damage import Overwritten, garbage, words_of
from tests.interpreter.test_held import Hidden
from tests.packages import folder_with

_PATIENCE, _SLACK = 0.3, 0.2
"""Seconds of processor time."""
_SAMPLES = 40 * MORE

# Each layout that greenlet had: 1.1 in the object itself, then in a structure, from 3.1 on one that names the object.
VERSIONS = [
    ("3.8", "1.1.3"),
    ("3.7", "2.0.2"),
    ("3.10", "2.0.2"),
    ("3.11", "2.0.2"),
    ("3.11", "3.0.3"),
    ("3.12", "3.0.3"),
    ("3.11", "3.1.1"),
]


def told(made: Folder) -> dict[int, dict[str, Any]]:
    """By address."""
    lines = json.loads(next(line for line in made.stderr.splitlines() if line.startswith("{")))
    return {int(address, 16): one for address, one in lines.items()}


def ours(crash: Crash) -> dict[int, dict[str, Any]]:
    return {
        int(one.address or 0): {
            "type": (one.type or "").rpartition(".")[2],
            "state": one.state,
            "parent": hex(crash.greenlets[one.parent].address or 0) if one.parent is not None else None,
            "frames": [[frame.function, frame.line] for frame in one.frames],
        }
        for one in crash.greenlets
    }


@cache
def analyzed(core: Path, gdb: str | None = None) -> Crash:
    return analyze(core, options=Options(gdb=gdb))


def crashed(python: Interpreter, *packages: str, script: str = "greenlets.py") -> Folder:
    return python_crash(script, str(folder_with(python, *packages)), python=python)


def check(made: Folder) -> Crash:
    crash = analyzed(made.core)
    assert ours(crash) == told(made)
    mains = [one.main for one in crash.greenlets if one.parent is None]
    assert all(mains) and len(mains) == len(crash.threads)
    assert {one.thread for one in crash.greenlets} == {thread.tid for thread in crash.threads}
    assert [one.state == "running" for one in crash.greenlets] == [index < len(mains) for index in range(len(crash.greenlets))]
    return crash


@pytest.mark.network
@pytest.mark.slow
@pytest.mark.parametrize("python", every_interpreter())
def test_they_are_what_the_program_saw(python: Interpreter) -> None:
    crash = check(crashed(python, "greenlet"))
    assert len(crash.greenlets) == 11


@pytest.mark.network
@pytest.mark.slow
@pytest.mark.parametrize(("version", "package"), VERSIONS)
def test_of_each_layout_that_greenlet_had(version: str, package: str) -> None:
    python = at_hand(version)
    if python is None:
        pytest.skip(f"no Python {version} here: pyenv install {version}")
    check(crashed(python, f"greenlet=={package}"))


@pytest.mark.network
@pytest.mark.slow
@pytest.mark.parametrize("python", some_interpreters("3.6", "3.9", "3.13"))
def test_of_gevent(python: Interpreter) -> None:
    crash = check(crashed(python, "gevent", script="gevent_server.py"))
    current, hub = crash.greenlets[0], next(one for one in crash.greenlets if one.type == "Hub")
    assert (current.type or "").startswith("gevent.") and (current.type or "").endswith(".Greenlet")
    assert current.parent == crash.greenlets.index(hub) and hub.parent is not None and crash.greenlets[hub.parent].main
    line = next(frame.line for frame in reversed(list(crash.threads[0].pythons())))
    sentence = f"Greenlet of handle_request (gevent_server.py:{line}), child of Hub of run (hub.py:"
    assert (wording.in_greenlet(crash) or "").startswith(sentence) and sentence.endswith("hub.py:")
    assert sentence in " ".join("\n".join(text.summary(crash, None, color=False, width=200)).split())
    page = html.render(crash)
    assert sentence in page and 'id="greenlets"' in page and "Greenlet of sleeps (gevent_server.py" in page


@pytest.mark.network
@pytest.mark.slow
@needs_gdb
@pytest.mark.parametrize("python", some_interpreters("3.6", "3.8", "3.11", "3.12"))
def test_the_whole_stack_of_the_greenlet_that_crashed(python: Interpreter) -> None:
    """Both stacks are one, and end where the greenlet began."""
    crash = analyzed(crashed(python, "gevent", script="gevent_server.py").core, "gdb")
    thread = crash.thread
    assert thread is not None and not thread.python_frames, [error.message for error in crash.soft_errors]
    assert [frame.function for frame in thread.pythons()] == ["string_at"] + ["handle_request"] * 101
    assert any("g_initialstub" in (frame.function or "") or "inner_bootstrap" in (frame.function or "") for frame in thread.natives())
    assert not any((frame.function or "") in ("main", "Py_RunMain", "Py_BytesMain", "Py_Main") for frame in thread.natives())


@pytest.mark.network
@pytest.mark.slow
@pytest.mark.parametrize("python", some_interpreters("3.8", "3.12"))
def test_of_a_live_process(python: Interpreter) -> None:
    folder = folder_with(python, "greenlet")
    command: list[str | Path] = [python.path, CRASHERS / "greenlets.py", folder, "wait"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        assert child.stderr is not None
        truth = {int(address, 16): one for address, one in json.loads(child.stderr.readline()).items()}
        child.send_signal(signal.SIGSTOP)
        os.waitpid(child.pid, os.WUNTRACED)
        with LiveProcess(child.pid) as live:
            found = find_interpreter(loaded_modules(live), str(python.path))
            assert found is not None
            state = read_python(live, [Module(found.module, Path(found.module.path))], Version(*python.version[:2]), {})
            assert state is not None
            read = state.greenlets()
            greenlets, in_time = read.found, read.in_time
        child.kill()
    assert in_time and {one.address for one in greenlets} == truth.keys()
    for one in greenlets:
        assert one.state == truth[one.address]["state"]
        frames = [[frame.code.name, frame.position.line] for frame in one.frames if frame.code and frame.position]
        assert frames == truth[one.address]["frames"]


@pytest.mark.network
@pytest.mark.slow
@pytest.mark.parametrize("python", some_interpreters("3.8", "3.13"))
def test_damage_is_survived_in_bounded_time(python: Interpreter, monkeypatch: pytest.MonkeyPatch) -> None:
    made = crashed(python, "greenlet")
    truth = told(made)
    with opened(made.core) as core:
        loaded, version = interpreter_of(core)
        module, known = Module(loaded, Path(loaded.path)), idents(core)
        found: set[int] = set()
        words = words_of(core, module, version, known, lambda state: found.update(one.address for one in state.greenlets().found))
        assert found == truth.keys()
        monkeypatch.setattr("crashkit.interpreter.greenlets._PATIENCE", _PATIENCE)
        rng = random.Random(14)
        unharmed = 0
        for _ in range(_SAMPLES):
            damage = {place: word for place in rng.sample(words, rng.choice([1, 5, 50])) for word in garbage(rng, place, words)}
            state = read_python(Overwritten(core, damage), [module], version, known)
            began = time.process_time()
            read = state.greenlets() if state is not None else Greenlets()
            # The search and the reading have their time each.
            assert time.process_time() - began < 2 * _PATIENCE + _SLACK
            unharmed += len(read.found) >= len(truth) - 2
        assert unharmed > _SAMPLES // 4


@pytest.mark.network
@pytest.mark.slow
@pytest.mark.parametrize("python", some_interpreters("3.11"))
def test_a_search_that_was_ended_says_so(python: Interpreter, monkeypatch: pytest.MonkeyPatch) -> None:
    made = crashed(python, "greenlet")
    monkeypatch.setattr("crashkit.interpreter.greenlets._PATIENCE", 0.0)
    crash = analyze(made.core, options=Options(gdb=None))
    assert [error.message for error in crash.soft_errors if error.stage == "greenlets"] == [
        "the search for greenlets took too long and was ended: 0 were read, and there may be more"
    ]


def native(*functions: str) -> tuple[NativeFrame, ...]:
    return tuple(NativeFrame(function=function) for function in functions)


def functions(stack: NativeStack) -> list[str | None]:
    return [frame.function for frame in (*stack.frames, *stack.outer)]


EVALUATION = "_PyEval_EvalFrameDefault"


@pytest.mark.parametrize(
    ("frames", "kept"),
    [
        (["strlen", EVALUATION, "inner_bootstrap", "g_initialstub", "g_switch", EVALUATION, "main"], 4),
        (["strlen", EVALUATION, "greenlet::UserGreenlet::g_initialstub", "g_switch", "main"], 3),
        # Put into its caller; and a switch to another greenlet, which leaves the stack as it is.
        (["strlen", EVALUATION, "greenlet::refs::UserGreenlet::g_switch", "green_switch", EVALUATION, "main"], 3),
        (["slp_switch", "g_switch", "green_switch", EVALUATION, "main"], 5),
        (["strlen", EVALUATION, "main"], 3),
        ([], 0),
    ],
)
def test_a_native_stack_ends_where_the_greenlet_began(frames: list[str], kept: int) -> None:
    assert functions(of_greenlet(NativeStack(native(*frames), cut=True))) == frames[:kept]
    deep = of_greenlet(NativeStack(native("a", "b"), native(*frames), between=7))
    assert functions(deep) == ["a", "b", *frames[:kept]] and deep.between == 7
    if kept < len(frames):
        assert not of_greenlet(NativeStack(native(*frames), native("x"), cut=True, between=7)).cut
        assert functions(of_greenlet(NativeStack(native(*frames), native("x"), between=7))) == frames[:kept]


def test_words_for_what_is_not_known() -> None:
    thread = Thread(tid=7, crashed=True, frames=(PythonFrame(function="f", file="/a/b.py", line=3),))
    greenlets = (Greenlet(state="running", thread=7, parent=9), Greenlet(state="suspended", thread=7), Greenlet(state="running", main=True))
    crash = Crash(crashed_thread=7, threads=(thread,), greenlets=greenlets)
    assert wording.in_greenlet(crash) == "greenlet of f (b.py:3), beside 1 more"
    assert wording.in_greenlet(Crash(greenlets=greenlets)) is None
    assert [wording.greenlet_name(crash, one) for one in greenlets[1:]] == ["greenlet", "main greenlet"]
    assert "greenlet of f (b.py:3)" in html.render(crash)


def test_a_report_that_is_cut_refers_to_no_greenlet_that_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("crashkit.limits.OTHER_BYTES", 2000)
    monkeypatch.setattr("crashkit.limits.COROUTINE_BYTES", 0)
    greenlets = tuple(Greenlet(type="x" * 100, parent=99 if index else 0) for index in range(100))
    kept = shortened(Crash(greenlets=greenlets)).greenlets
    assert 1 < len(kept) < 50 and [one.parent for one in kept] == [0, *[None] * (len(kept) - 1)]


def test_memory_that_was_never_touched_costs_little(tmp_path: Path) -> None:
    """A free-threaded build reserves a gigabyte, which is in the core as zeros."""
    path, size = tmp_path / "core", 1 << 30
    head, (position,) = core_head(62, Word(8, "<"), b"", [Laid(0x10000000, size, 6, size)])
    needle = 0x7F0011223344
    with path.open("wb") as file:
        file.write(head)
        file.truncate(position + size)
        file.seek(position + size - 64)
        file.write(needle.to_bytes(8, "little"))
    with path.open("rb") as source, Core(source, path, position + size) as core:
        began = time.process_time()
        assert list(places_of(View(core), [needle], size)) == [0x10000000 + size - 64]
        assert time.process_time() - began < 1.5, "it is one of 3 s that all may take"


def check_without_states(core: Core) -> None:
    """Frames of suspended greenlets are on no stack, and are not said to run; where nobody knows them, the report says that.

    From 3.12 on, those of the thread's current greenlet are told by its C stack, once the others are known.
    """
    module, version = interpreter_of(core)
    modules, known, main = [Module(module, Path(module.path))], idents(core), main_ident(core)
    whole, found = read_python(core, modules, version, known, main=main), find(View(core), modules, version, known)
    assert whole is not None and found is not None and len(whole.threads) == 2
    modules_lost = {one + found.layout.interpreter.modules: 0xDEADBEEF for one in found.interpreters}
    true = {thread.state.ident: [frame.address for frame in thread.stack.inner] for thread in whole.threads}
    suspended = {frame.address for one in whole.greenlets().found for frame in one.stood.inner}
    assert len(suspended) > 50
    for lost in whole.threads:
        hidden = [range(lost.state.address, lost.state.address + 512)]
        for words in ({}, modules_lost):
            ours = read_python(Hidden(core, words, hidden), modules, version, known, main=main)
            assert ours is not None
            shown = {one.state.ident: [frame.address for frame in (*one.stack.inner, *one.stack.outer)] for one in ours.threads}
            unplaced = [frame.address for chain in ours.unplaced for frame in chain]
            if version >= (3, 12) and not words:
                assert shown == true
            else:
                assert shown == {ident: addresses for ident, addresses in true.items() if ident != lost.state.ident}
                assert set(unplaced) >= set(true[lost.state.ident])
            assert ours.may_be_suspended == bool(words) == (not suspended.isdisjoint(unplaced))


@pytest.mark.parametrize("version", FREE_THREADED)
def test_without_a_threads_state_no_suspended_frame_is_said_to_run(version: str, tmp_path: Path) -> None:
    with opened(recorded(version, "greenlets.py", tmp_path).core) as core:
        check_without_states(core)


@pytest.mark.network
@pytest.mark.slow
@pytest.mark.parametrize("python", some_interpreters("3.8", "3.10", "3.11", "3.12", "3.13"))
def test_the_same_of_each_version(python: Interpreter) -> None:
    with opened(crashed(python, "greenlet").core) as core:
        check_without_states(core)
