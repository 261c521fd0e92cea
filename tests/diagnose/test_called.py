"""Code that is called where none is, or no longer: a core tells what was mapped there."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from crashkit.diagnose import diagnose, load_catalog
from crashkit.model import Address, Crash, Finding, Mapping, Signal
from crashkit.pipeline import analyze
from crashkit.report.wording import sentence
from tests.crashes import CRASHERS, Folder, Interpreter, python_crash, some_interpreters
from tests.diagnose.causes import library
from tests.diagnose.synthetic import crash
from tests.packages import folder_with


def made(kind: str, python: Interpreter, *arguments: str) -> Folder:
    built = library("called", "-xc", source=(CRASHERS / "called.c").read_text())
    return python_crash("called.py", kind, str(built), *arguments, python=python)


def first(subject: Crash) -> Finding:
    return subject.findings[0]


@pytest.mark.slow
@pytest.mark.parametrize("python", some_interpreters("3.8", "3.11", "3.13"))
def test_a_library_that_was_unloaded_under_its_thread(python: Interpreter) -> None:
    finding = first(analyze(made("unloaded", python).core))
    assert (finding.id, finding.confidence) == ("jump-to-unmapped", "certain")
    assert finding.summary is not None and "a library that was there has probably been unloaded" in finding.summary
    assert finding.fix[0].startswith("LD_DEBUG=files ")


@pytest.mark.network
@pytest.mark.slow
@pytest.mark.parametrize("python", some_interpreters("3.8", "3.11", "3.13"))
def test_a_callback_of_cffi_that_was_freed(python: Interpreter) -> None:
    finding = first(analyze(made("cffi", python, str(folder_with(python, "cffi"))).core))
    assert (finding.id, finding.confidence) == ("ctypes-callback-freed", "likely")


@pytest.mark.slow
@pytest.mark.parametrize("python", some_interpreters("3.11"))
def test_code_that_a_library_made_may_be_no_callback(python: Interpreter) -> None:
    found = analyze(made("generated", python).core).findings
    assert [one.confidence for one in found if one.id == "ctypes-callback-freed"] == ["possible"]
    assert ("null-deref", "certain") in [(one.id, one.confidence) for one in found]


@pytest.mark.slow
@pytest.mark.parametrize(("call", "is_null"), [("small_call", False), ("null_call", True)])
def test_a_number_that_is_called_is_no_null_pointer(call: str, is_null: bool) -> None:
    subject = analyze(python_crash("faults.py", call).core)
    assert subject.signal is not None and subject.signal.access == "execute"
    assert subject.signal.reason == ("null-pointer" if is_null else "unmapped")
    for told in (subject.signal.detail or "", sentence(subject)):
        assert ("null" in told.lower()) == is_null


@pytest.mark.slow
@pytest.mark.parametrize(("given", "id"), [("small", "jump-to-unmapped"), ("data", "jump-into-data")])
def test_what_was_passed_as_a_function(given: str, id: str) -> None:
    finding = first(analyze(python_crash("passed_as_function.py", given).core))
    assert finding.id == id
    told, *others = finding.fix
    assert told.startswith("Check `compare` before ") and told.endswith(", and native code called that as a function.")
    assert not any("--asan" in fix for fix in others), others


def beside(mappings: tuple[Mapping, ...], address: int) -> list[str]:
    subject = crash(signal="SIGSEGV", reason="unmapped", access="execute", address=address, frames="?? > call [own.so]")
    thread = subject.threads[0]
    innermost = replace(thread.frames[0], pc=Address(address))
    thread = replace(thread, frames=(innermost, *thread.frames[1:]))
    (finding,) = diagnose(replace(subject, threads=(thread,), mappings=mappings), load_catalog()).findings
    assert finding.id == "jump-to-unmapped"
    return list(finding.fix)


def test_a_gap_without_a_library_beside_it_says_nothing_of_one() -> None:
    def at(start: int, end: int, path: str | None = None) -> Mapping:
        return Mapping(start=Address(start), end=Address(end), permissions="rw-", path=path)

    library = at(0x7F0000020000, 0x7F0000030000, "/usr/lib/libfoo.so.1.2")
    heap = at(0x7F0000000000, 0x7F0000010000)
    assert "which library is unloaded" in beside((heap, library), 0x7F0000018000)[0]
    for mappings in ((heap, at(0x7F0000020000, 0x7F0000030000)), (library, at(0x7F1000000000, 0x7F1000001000, "/usr/lib/libc.so.6"))):
        assert any(
            "if the pointer was overwritten" in text for text in beside(mappings, 0x7F0000018000 if heap in mappings else 0x7F0800000000)
        )


def test_memory_that_failed_is_not_the_programs_fault() -> None:
    subject = crash(signal="SIGBUS", address=0x7F0000018000, frames="memcpy [libc.so.6] > call [own.so]")
    failed = replace(subject, signal=Signal(number=7, name="SIGBUS", code=4, code_name="BUS_MCEERR_AR", address=Address(0x7F0000018000)))
    (finding,) = [one for one in diagnose(failed, load_catalog()).findings if one.confidence == "certain"]
    assert finding.id == "hardware-memory-error"
