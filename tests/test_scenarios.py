"""The scenarios of CPython's test_faulthandler and of PyStack's tests, as programs of our own: answered at least as well as PyStack does.

docs/scenarios.md is written by `CRASHKIT_WRITE_DOCS=1 pytest tests/test_scenarios.py`, compared otherwise.
"""

from __future__ import annotations

import os
import shutil
import signal
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from crashkit.debugger.pystack.debugger import PystackDebugger
from crashkit.model import Crash, NativeFrame, PythonFrame
from crashkit.pipeline import Options, analyze
from crashkit.report import answer, text, wording

from .crashes import (
    CRASHERS,
    NO_DEBUG_INFO,
    NO_STRIPPED,
    Folder,
    Interpreter,
    a_debuggable_interpreter,
    an_interpreter,
    build_library,
    crash,
    interpreters,
    made_once,
    needs_gdb,
    needs_x86_64,
    once,
    python_crash,
    some_interpreters,
)

PAGE = Path(__file__).parent.parent / "docs" / "scenarios.md"
FAULTHANDLER, PYSTACK, TEST_GDB = "faulthandler", "PyStack", "test_gdb"


class Scenario(NamedTuple):
    """A function of fixtures/crashers/scenarios.py, and what is true of its crash."""

    name: str
    suite: str
    signal: str
    reason: str
    stack: str
    """The functions of the crashed thread, innermost first, without `string_at` of ctypes."""
    others: str = ""
    """The innermost own function of each of the other threads, or more of them: `inner/outer`."""
    says: str = ""
    """The process's last words."""
    values: tuple[tuple[str, str], ...] = ()
    """Of variables of the innermost own function."""
    faulthandler: bool = True
    stripped: bool = False
    """By an interpreter without symbols and debug info."""
    library: str = ""
    """The source of a library whose folder or file the program is given."""
    loads: str = ""
    """A module of that library which the answer is to know."""
    marks: str = ""
    """The expression of the innermost own line that was running."""
    moved: bool = False
    """The interpreter's files are in another folder by the time of the analysis, which is told so (`--path-map`)."""


NULL = ("SIGSEGV", "null-pointer")
ASYNCIO = "_run _run_once run_forever run_until_complete run run"
SENT = "raised"
SCENARIOS = (
    Scenario("read_null", FAULTHANDLER, *NULL, "read_null <module>"),
    Scenario("read_null_without_the_gil", FAULTHANDLER, *NULL, "read_null_without_the_gil <module>"),
    Scenario("write_wild", FAULTHANDLER, "SIGSEGV", "unmapped", "write_wild <module>"),
    Scenario("sigsegv", FAULTHANDLER, "SIGSEGV", SENT, "raise_signal sigsegv <module>"),
    Scenario("sigbus", FAULTHANDLER, "SIGBUS", SENT, "raise_signal sigbus <module>"),
    Scenario("sigill", FAULTHANDLER, "SIGILL", SENT, "raise_signal sigill <module>"),
    Scenario("sigfpe", FAULTHANDLER, "SIGFPE", SENT, "raise_signal sigfpe <module>"),
    Scenario("sigabrt", FAULTHANDLER, "SIGABRT", "abort", "sigabrt <module>"),
    Scenario("fatal_error", FAULTHANDLER, "SIGABRT", "abort", "fatal_error <module>", says="Fatal Python error: said by a test"),
    Scenario(
        "fatal_error_without_the_gil",
        FAULTHANDLER,
        "SIGABRT",
        "abort",
        "fatal_error_without_the_gil <module>",
        says="Fatal Python error: PyThreadState_Get: the function must be called with the GIL held",
    ),
    Scenario("stack_overflow", FAULTHANDLER, "SIGSEGV", "stack-overflow", "stack_overflow <module>"),
    Scenario("dump_ext_modules", FAULTHANDLER, *NULL, "read_null dump_ext_modules <module>", library="extension.c", loads="extension.so"),
    Scenario("enable_file", FAULTHANDLER, *NULL, "read_null enable_file <module>", faulthandler=False),
    Scenario("enable_one_thread", FAULTHANDLER, *NULL, "read_null run", faulthandler=False),
    Scenario("disabled", FAULTHANDLER, *NULL, "read_null disabled <module>", faulthandler=False),
    Scenario("with_threads", FAULTHANDLER, *NULL, "read_null with_threads <module>", others="wait wait wait"),
    Scenario("in_a_thread", FAULTHANDLER, *NULL, "read_null run"),
    Scenario("in_a_thread", PYSTACK, *NULL, "read_null run"),
    Scenario("deep", PYSTACK, *NULL, "read_null " + "recursive " * 51 + "deep <module>"),
    Scenario("in_a_generator", PYSTACK, *NULL, "read_null generator in_a_generator <module>"),
    Scenario("in_a_comprehension", PYSTACK, *NULL, "read_null <genexpr> in_a_comprehension <module>"),
    Scenario("called_back_from_c", PYSTACK, *NULL, "read_null compare called_back_from_c <module>"),
    Scenario("in_a_finalizer", PYSTACK, *NULL, "read_null __del__ in_a_finalizer <module>"),
    Scenario("in_a_handler", PYSTACK, *NULL, "read_null handle in_a_handler <module>"),
    Scenario("code_in_a_string", PYSTACK, *NULL, "read_null made <module> code_in_a_string <module>"),
    Scenario("in_except", PYSTACK, *NULL, "read_null in_except <module>"),
    Scenario(
        "with_locals",
        PYSTACK,
        *NULL,
        "with_locals <module>",
        values=(("number", "42"), ("text", "'a text'"), ("items", "[1, 2, 3]")),
    ),
    Scenario("with_threads", PYSTACK, *NULL, "read_null with_threads <module>", others="wait wait wait", stripped=True),
    Scenario("with_locals", PYSTACK, *NULL, "with_locals <module>", values=(("number", "42"), ("text", "'a text'")), stripped=True),
    Scenario(
        "fatal_error_without_the_gil",
        FAULTHANDLER,
        "SIGABRT",
        "abort",
        "fatal_error_without_the_gil <module>",
        says="Fatal Python error: PyThreadState_Get: the function must be called with the GIL held",
        stripped=True,
    ),
    Scenario("in_a_collection", FAULTHANDLER, *NULL, "read_null __del__ in_a_collection <module>"),
    Scenario("in_a_collection", PYSTACK, *NULL, "read_null __del__ in_a_collection <module>"),
    Scenario("in_a_weak_reference", PYSTACK, *NULL, "read_null dies in_a_weak_reference <module>"),
    Scenario("in_a_closed_generator", PYSTACK, *NULL, "read_null closes in_a_closed_generator <module>"),
    Scenario("at_the_end", PYSTACK, *NULL, "read_null"),
    Scenario("with_a_long_name", FAULTHANDLER, *NULL, "read_null " + "x" * 600 + " <module> with_a_long_name <module>"),
    Scenario("while_the_gil_is_waited_for", PYSTACK, *NULL, "read_null while_the_gil_is_waited_for <module>", others="spins"),
    Scenario("frozen", PYSTACK, *NULL, "read_null frozen <module>"),
    Scenario(
        "with_builtin_values",
        TEST_GDB,
        *NULL,
        "with_builtin_values <module>",
        values=(("module", "<module 'sys'>"), ("kind", "<class 'dict'>"), ("function", "<built-in function len>")),
    ),
    Scenario("with_huge_values", PYSTACK, *NULL, "with_huge_values <module>", values=(("number", "<an int of 20001 bits>"),)),
    Scenario("called_in_a_thread_of_c", PYSTACK, *NULL, "read_null <lambda>", others="thread_of_c"),
    Scenario(
        "fatal_error_in_a_thread_of_c",
        FAULTHANDLER,
        "SIGABRT",
        "abort",
        "",
        others="thread_of_c",
        says="Fatal Python error: PyThreadState_Get: the function must be called with the GIL held",
    ),
    Scenario("in_a_subinterpreter", PYSTACK, *NULL, "inner <module> in_a_subinterpreter <module>"),
    Scenario(
        "in_nested_subinterpreters",
        PYSTACK,
        *NULL,
        "innermost <module> middle <module> outer <module> nested in_nested_subinterpreters <module>",
    ),
    Scenario(
        "in_nested_subinterpreters_of_threads",
        PYSTACK,
        *NULL,
        "read_null in_nested_subinterpreters_of_threads <module>",
        others=" ".join(["innermost/<module>/middle/<module>/outer/<module>/nested/run"] * 2),
    ),
    Scenario("marked", PYSTACK, *NULL, "marked <module>", marks="ctypes.string_at(0)"),
    Scenario("moved", PYSTACK, *NULL, "read_null moved <module>", moved=True),
    Scenario("with_a_second_runtime", PYSTACK, *NULL, "read_null with_a_second_runtime <module>", library="second_runtime.c"),
    Scenario("at_the_end_of_a_task", PYSTACK, "SIGABRT", "abort", ASYNCIO + " at_the_end_of_a_task <module>"),
    Scenario(
        "with_trashed_values",
        PYSTACK,
        *NULL,
        "with_trashed_values <module>",
        values=(("bad_item", "(4, <unreadable at 0xbad>, 6)"), ("null_item", "(7, <NULL>, 9)"), ("whole", "'whole'")),
    ),
    Scenario("after_the_end", PYSTACK, "SIGABRT", "abort", ""),
    Scenario("with_an_object_without_a_type", TEST_GDB, *NULL, "with_an_object_without_a_type <module>", values=(("number", "42"),)),
)
# The machinery of `threading`, and the function of ctypes that faults.
NOT_OWN = {"_bootstrap", "_bootstrap_inner", "string_at", "in_another_thread", "_wait_for_tstate_lock", "in_a_thread", "enable_one_thread"}


class Answer(NamedTuple):
    """How much of what is true a crash tells."""

    signal: str
    stack: str
    others: str
    values: str
    """Of variables, the place in the line, the library that was loaded."""


EXACT, PARTLY, NOTHING, ASKED_NOT = "exact", "partly", "nothing", ""
RANK = {ASKED_NOT: 0, NOTHING: 0, PARTLY: 1, EXACT: 2}


def folder_of(scenario: Scenario) -> Folder:
    python = an_interpreter()
    if scenario.stripped:
        python = next((one for one in interpreters() if not one.has_debug_info), None) or pytest.skip(NO_STRIPPED)
    if scenario.moved:
        return moved(scenario, python)
    libraries = [library_of(scenario, python)] if scenario.library else []
    return python_crash("scenarios.py", scenario.name, *libraries, python=python, faulthandler=scenario.faulthandler)


@cache
def library_of(scenario: Scenario, python: Interpreter) -> str:
    """The library that is built from the scenario's source; its folder if it is an extension module."""
    library = made_once(f"{Path(scenario.library).stem}-{python.name}", lambda folder: build_library(scenario.library, folder, python))
    return str(library.parent if scenario.loads else library)


def moved(scenario: Scenario, python: Interpreter) -> Folder:
    """The crash of a copy of the interpreter, whose files were in `before` and are in `after`."""

    def make(folder: Path) -> Folder:
        prefix = python.path.parent.parent
        before = folder / "before"
        for name in ("bin", "lib"):
            (before / name).mkdir(parents=True)
        program = shutil.copy(python.path, before / "bin")
        for library in prefix.glob("lib/libpython3*.so.1.0"):
            shutil.copy(library, before / "lib")
        variables = {"PYTHONHOME": str(prefix), "LD_LIBRARY_PATH": str(before / "lib")}
        made = crash([program, CRASHERS / "scenarios.py", scenario.name], folder, variables)
        before.rename(folder / "after")
        return made

    return once(f"{python.name}-moved", make)


def options_of(scenario: Scenario) -> Options:
    folder = folder_of(scenario).path
    return Options(gdb=None, path_maps=((str(folder / "before"), folder / "after"),) if scenario.moved else ())


@cache
def ours(scenario: Scenario) -> Crash:
    return analyze(folder_of(scenario).core, options=options_of(scenario))


@cache
def of_pystack(scenario: Scenario) -> Crash:
    """What PyStack alone reads."""
    return analyze(folder_of(scenario).core, options=options_of(scenario), debuggers=[PystackDebugger(60)])


def own(frames: object) -> list[str]:
    return [frame.function for frame in frames if frame.function not in NOT_OWN]  # type: ignore[attr-defined]


def verdict(found: list[str], true: list[str]) -> str:
    if not true:
        return ASKED_NOT
    parts = [{part for each in one for part in each.split("/")} for one in (found, true)]
    return EXACT if found == true else PARTLY if parts[0] & parts[1] else NOTHING


def marked(frame: PythonFrame) -> str:
    """The expression that its columns mark."""
    line = frame.context[frame.line - frame.context_start] if frame.line and frame.context_start else ""
    return line[slice(*frame.columns)] if frame.columns else ""


def judged(crash: Crash, scenario: Scenario) -> Answer:
    thread, true = crash.thread, scenario.stack.split()
    frames = list(thread.pythons()) if thread else []
    stacks = [own(other.pythons()) for other in crash.threads if other is not thread]
    # The innermost function, or as many as are asked for.
    deepest = scenario.others.partition(" ")[0].count("/") + 1
    waiting = sorted("/".join(stack[:deepest]) for stack in stacks if stack)
    values = {name: value for frame in frames if frame.function == scenario.name for name, value in frame.locals.items()}
    asked = [*(name for name, _ in scenario.values), *filter(None, [scenario.marks, scenario.loads])]
    told = [name for name, value in scenario.values if values.get(name) == value]
    told += [scenario.marks for frame in frames if frame.function == scenario.name and marked(frame) == scenario.marks]
    told += [scenario.loads for module in crash.modules if Path(module.path).name == scenario.loads]
    said = not scenario.says or any(scenario.says in line.text for line in crash.log if line.from_core)
    named = crash.signal is not None and (crash.signal.name, crash.signal.reason) == (scenario.signal, scenario.reason)
    if scenario.says and folder_of(scenario).status == -signal.SIGSEGV:
        # 3.13.5 and its neighbours fail themselves while they tell of the fatal error.
        named = crash.signal is not None and crash.signal.name == "SIGSEGV"
    return Answer(
        EXACT if named and said else PARTLY,
        verdict(own(frames), true),
        verdict(waiting, sorted(scenario.others.split())),
        verdict(told, asked),
    )


pytestmark = [needs_x86_64(), pytest.mark.slow]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: f"{scenario.suite}-{scenario.name}{'-stripped' * scenario.stripped}")
def test_answered(scenario: Scenario) -> None:
    """Everything that is true, and no part of it worse than PyStack's answer."""
    mine = judged(ours(scenario), scenario)
    assert set(mine) <= {EXACT, ASKED_NOT}, (mine, [own(thread.pythons()) for thread in ours(scenario).threads], ours(scenario).signal)
    other = judged(of_pystack(scenario), scenario)
    assert all(RANK[told] >= RANK[theirs] for told, theirs in zip(mine[1:], other[1:], strict=True))


@pytest.mark.parametrize(("name", "call"), [("sigabrt", "os.abort()"), ("sigfpe", "os.kill()")])
def test_the_sentence_names_what_the_line_called(name: str, call: str) -> None:
    """And not the interpreter's function for it, os_abort_impl."""
    scenario = next(one for one in SCENARIOS if one.name == name)
    assert f" by {call}, called from " in wording.sentence(analyze(folder_of(scenario).core))


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("in_a_finalizer", "__del__ of Closing"),
        ("in_a_collection", "__del__ of Cycle, run by the garbage collector"),
        ("in_a_weak_reference", "the callback dies of a weak reference"),
        ("in_a_closed_generator", "the end of the generator closes"),
        ("at_the_end", "read_null, run at the end of the program"),
        ("read_null", None),
        ("in_a_generator", None),
        ("called_back_from_c", None),
        ("called_with_a_dead_reference", None),
        ("in_except", None),
    ],
)
def test_what_ran_a_finalizer_without_the_interpreter_s_symbols(name: str, told: str | None) -> None:
    scenario = Scenario(name, PYSTACK, *NULL, "", stripped=True)
    found = answer.answer(ours(scenario))
    assert found is not None
    assert (found.finalizer or "").startswith(told) if told else found.finalizer is None


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("in_a_finalizer", "__del__ of Closing, run as the last reference went away"),
        ("in_a_collection", "__del__ of Cycle, run by the garbage collector"),
        ("in_a_weak_reference", "the callback dies of a weak reference, run as the last reference went away"),
        ("in_a_closed_generator", "the end of the generator closes, run as the last reference went away"),
        ("at_the_end", "read_null, registered with atexit, run at the end of the program"),
        ("read_null", None),
        ("in_a_generator", None),
        ("frozen", None),
    ],
)
def test_the_first_screen_says_what_ran_a_finalizer(name: str, told: str | None) -> None:
    if not an_interpreter().has_debug_info:
        pytest.skip(NO_DEBUG_INFO)  # what is known without it: the test above
    crash = ours(next(one for one in SCENARIOS if one.name == name))
    found = answer.answer(crash)
    assert found is not None
    assert found.finalizer == told
    assert told is None or f", in {told}: " in "\n".join(text.summary(crash, None, color=False, width=300))


def test_without_the_moved_files_the_stack_is_read_and_the_option_named() -> None:
    scenario = next(one for one in SCENARIOS if one.moved)
    crash = analyze(folder_of(scenario).core, options=Options(gdb=None))
    assert judged(crash, scenario).stack == EXACT
    assert any("--path-map" in (error.hint or "") for error in crash.soft_errors)


def test_a_thread_that_runs_subinterpreters_keeps_its_name() -> None:
    crash = ours(next(one for one in SCENARIOS if one.name == "in_nested_subinterpreters_of_threads"))
    assert sorted(thread.name or "" for thread in crash.threads) == ["MainThread", "Thread-1 (nested)", "Thread-2 (nested)"]


@pytest.mark.parametrize("python", some_interpreters("3.11", "3.12", "3.13"))
def test_an_evaluation_that_ends_its_last_frame_has_none(python: Interpreter) -> None:
    """What the frame held runs a finalizer written in C."""
    crash = analyze(python_crash("scenarios.py", "at_the_end_of_a_task", python=python).core, options=Options(gdb=None))
    found = answer.answer(crash)
    assert crash.thread is not None and not crash.thread.python_frames
    assert found is not None and found.finalizer == "a finalizer (__del__), run as the last reference went away"


@needs_gdb
def test_what_called_an_inline_function_of_a_header_failed() -> None:
    crash = analyze(python_crash("scenarios.py", "a_list_without_the_gil", python=a_debuggable_interpreter()).core)
    assert crash.thread is not None
    assert any(isinstance(frame, NativeFrame) and frame.trust == "inline" for frame in crash.thread.frames)
    assert "in PyList_New, called from " in wording.sentence(crash)


@pytest.mark.parametrize("faulthandler", [False, True])
def test_the_stack_pointer_of_the_core_is_used_only_where_it_is_that_of_the_call(faulthandler: bool) -> None:
    found = analyze(python_crash("scenarios.py", "call_null", python=an_interpreter(), faulthandler=faulthandler).core).findings[0]
    assert found.id == "null-function-call"
    assert any("$rsp" in fix for fix in found.fix) == (not faulthandler)


def test_a_signal_of_another_process_is_not_explained_as_sigterm() -> None:
    crash = analyze(python_crash("scenarios.py", "sent_by_a_child", python=an_interpreter(), faulthandler=False).core)
    told, found = answer.answer(crash), crash.findings[0]
    assert told is not None
    assert answer.line(told, crash.signal).endswith(": was in wait4")
    assert found.id == "killed-by-sigterm"
    assert not any("SIGTERM" in fix or "SIGABRT" in fix for fix in found.fix)


def table() -> str:
    rows = [
        "| scenario | suite | why it died | words | Python stack | PyStack's | other threads | PyStack's | values | PyStack's |",
        "|" + "---|" * 10,
    ]
    for scenario in SCENARIOS:
        mine, theirs = judged(ours(scenario), scenario), judged(of_pystack(scenario), scenario)
        cells = [
            f"`{scenario.name}`{', stripped' if scenario.stripped else ''}",
            scenario.suite,
            f"{scenario.signal}, {scenario.reason}",
            scenario.says and f"`{scenario.says}`",
        ]
        cells += [mine.stack, theirs.stack, mine.others, theirs.others, mine.values, theirs.values]
        rows.append("| " + " | ".join(cells) + " |")
    return "\n".join(rows) + "\n"


def test_the_page() -> None:
    before, mark, _ = PAGE.read_text().partition("<!-- table -->\n")
    assert mark
    if os.environ.get("CRASHKIT_WRITE_DOCS"):
        PAGE.write_text(before + mark + table())
        pytest.skip("written, not compared")
    assert PAGE.read_text() == before + mark + table()
