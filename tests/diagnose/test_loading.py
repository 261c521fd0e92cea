"""Crashes in the constructors of libraries, and functions that end the process and that Python code called itself."""

from __future__ import annotations

import pytest

from crashkit.diagnose import diagnose, load_catalog
from crashkit.diagnose.case import Case
from crashkit.diagnose.facts import FACTS
from crashkit.model import Crash, Frame, NativeFrame, Signal, Thread
from crashkit.report.text import summary

from ..crashes import CRASHERS, an_interpreter, python_crash
from .causes import analyzed, evidence, first, library

SOURCE = CRASHERS / "library_init.cpp"


def crash(how: str, does: str = "") -> Crash:
    built = library("init", source=SOURCE.read_text())
    folder = python_crash("library_init.py", how, str(built), python=an_interpreter(), environment={"HOW": does} if does else None)
    return analyzed(evidence(folder))


@pytest.mark.slow
@pytest.mark.parametrize(("how", "does"), [("import", "fault"), ("load", "fault"), ("load", "abort")])
def test_a_library_that_crashes_as_it_is_loaded(how: str, does: str) -> None:
    found = crash(how, does)
    assert first(found) == "library-init-crash", [(finding.id, finding.confidence) for finding in found.findings]
    said = found.findings[0].summary
    assert "fill_table of libinit.so" in said and "library_init.py" in said


@pytest.mark.slow
@pytest.mark.parametrize(("how", "does"), [("import", ""), ("load", "destructor")])
def test_what_runs_after_and_at_the_end_is_none(how: str, does: str) -> None:
    found = crash(how, does)
    assert found.signal is not None and found.signal.name == "SIGSEGV"
    assert "library-init-crash" not in [finding.id for finding in found.findings]


@pytest.mark.slow
def test_abort_through_ctypes_is_the_callers() -> None:
    found = crash("abort")
    assert [(finding.id, finding.confidence) for finding in found.findings][:1] == [("self-abort", "certain")]
    assert found.findings[0].summary.startswith("give_up, through ctypes, called abort()")
    answer = " ".join(summary(found, None, False, 200, brief=True))
    assert "give_up (library_init.py:" in answer and "failed in abort" in answer and "libffi" not in answer


def stack(*frames: Frame) -> Case:
    signal = Signal(number=11, name="SIGSEGV")
    return Case(Crash(signal=signal, crashed_thread=7, threads=(Thread(tid=7, crashed=True, frames=frames),)))


def native(function: str | None, module: str) -> NativeFrame:
    return NativeFrame(function=function, module=module)


LOADER = "/lib64/ld-linux-x86-64.so.2"


@pytest.mark.parametrize(
    ("frames", "holds"),
    [
        ((native("f", "/a/libx.so"), native("call_init", LOADER), native("_dl_init", LOADER)), True),
        # One that is linked to the executable is a library, too; the executable's own is none (glibc's csu/libc-start.c).
        ((native("f", "/a/libx.so"), native("call_init", LOADER), native("_dl_init", LOADER), native("_dl_start_user", LOADER)), True),
        ((native("f", "/a/x"), native("call_init", "/lib/libc.so.6"), native("__libc_start_main_impl", "/lib/libc.so.6")), False),
        ((native("f", "/a/x"), native("call_init", ""), native("__libc_start_main@@GLIBC_2.34", "")), False),
        ((native("main", "/a/x"), native("__libc_start_call_main", ""), native("call_init", ""), native("_start", "/a/x")), False),
        ((native("f", "/a/libx.so"), native("_dl_init", LOADER), native("_start", LOADER)), True),
        ((native("f", "/a/libx.so"), native("do_init_fini", "/lib/ld-musl-x86_64.so.1")), True),
        ((native("f", "/a/libx.so"), native(None, LOADER), native("_dl_catch_exception", "/lib/libc.so.6")), True),
        ((native("f", "/a/libx.so"), native("dyld4::Loader::runInitializersBottomUp(dyld4::RuntimeState&)", "/usr/lib/dyld")), True),
        # The loader itself, a destructor, a function that a library resolves late, and PyInit_.
        ((native("do_lookup_x", LOADER), native("_dl_relocate_object", LOADER), native("dl_open_worker", LOADER)), False),
        ((native("f", "/a/libx.so"), native(None, LOADER), native("exit", "/lib/libc.so.6")), False),
        ((native("f", "/a/libx.so"), native("_dl_fini", LOADER), native("exit", "/lib/libc.so.6")), False),
        ((native("PyInit_x", "/a/x.so"), native("_PyImport_LoadDynamicModuleWithSpec", "/usr/bin/python3")), False),
        ((native("call_init", LOADER), native("_dl_init", LOADER)), False),
    ],
)
def test_what_runs_a_constructor(frames: tuple[Frame, ...], holds: bool) -> None:
    assert FACTS["in-constructor"](stack(*frames)).holds is holds


def test_a_better_known_cause_comes_first() -> None:
    frames = (native("std::locale::_Impl::_M_install_facet(int)", "/a/libx.so"), native("call_init", LOADER), native("_dl_init", LOADER))
    found = diagnose(stack(*frames).crash, load_catalog()).findings
    assert [finding.id for finding in found] == ["import-order-libstdcxx"]
