"""Memory of Python's that native code has overwritten: what of it is damaged is named, and that its user is only the victim."""

from __future__ import annotations

import pytest

from crashkit.model import Crash, Finding
from crashkit.pipeline import Options, analyze
from tests.crashes import Interpreter, a_debuggable_interpreter, every_interpreter, needs_gdb, python_crash, some_interpreters

VARIABLES = {"text": "holder", "number": "holder", "in_a_list": "holder", "in_a_local": "one"}


def crash_of(kind: str, python: Interpreter, gdb: str | None = None) -> Crash:
    return analyze(python_crash("overwritten.py", kind, python=python).core, options=Options(gdb=gdb))


def check(finding: Finding, variable: str) -> None:
    assert (finding.id, finding.confidence) == ("object-overwritten", "certain")
    assert f"`{variable}` has an object at 0x" in finding.summary
    assert any("--asan" in fix for fix in finding.fix)


@pytest.mark.slow
@pytest.mark.parametrize("kind", VARIABLES)
@pytest.mark.parametrize("python", every_interpreter())
def test_an_object_without_a_type(kind: str, python: Interpreter) -> None:
    check(crash_of(kind, python).findings[0], VARIABLES[kind])


@pytest.mark.slow
@pytest.mark.parametrize("python", every_interpreter())
def test_a_pointer_in_place_of_an_object_is_no_null_pointer(python: Interpreter) -> None:
    crash = crash_of("item", python)
    assert crash.signal is not None and (crash.signal.reason, crash.signal.address) == ("unmapped", 0x49)
    assert "0x41 was used as a pointer, a number that is too small for one" in (crash.signal.detail or "")
    finding = crash.findings[0]
    assert (finding.id, finding.confidence) == ("object-overwritten", "certain")
    assert "`names` has the pointer 0x41 in place of an object" in finding.summary


@needs_gdb
@pytest.mark.slow
def test_an_object_without_a_type_beside_libpython() -> None:
    check(crash_of("number", a_debuggable_interpreter(), "gdb").findings[0], "holder")


@pytest.mark.slow
@pytest.mark.parametrize("python", every_interpreter())
def test_a_freed_block(python: Interpreter) -> None:
    """Python's allocator fails when it gives the block away. Without debug info it is a part of another function, which has a name."""
    crash = crash_of("freed", python)
    if not python.has_debug_info:
        assert {finding.id for finding in crash.findings if finding.confidence == "certain"} == {"unmapped-access"}
        return
    finding = crash.findings[0]
    assert (finding.id, finding.confidence) == ("heap-corruption-overflow", "likely")


@pytest.mark.slow
@pytest.mark.parametrize("python", some_interpreters("3.11"))
def test_an_object_that_is_whole_is_not_the_cause(python: Interpreter) -> None:
    assert [finding.id for finding in crash_of("null", python).findings] == ["null-deref"]
