"""Null pointers in place of items of a tuple or list, which native code left unset."""

from __future__ import annotations

import pytest

from crashkit.naming.values import unset_items
from crashkit.pipeline import Options, analyze
from tests.crashes import Interpreter, a_debuggable_interpreter, every_interpreter, needs_gdb, python_crash, some_interpreters

FINDINGS = {
    "tuple": ("row", "items 0, 1, 2 are null pointers", "api.PyTuple_New"),
    "list": ("rows", "item 0 is a null pointer", "api.PyList_New"),
}


def check(kind: str, python: Interpreter, gdb: str | None) -> None:
    finding = analyze(python_crash("unset_items.py", kind, python=python).core, options=Options(gdb=gdb)).findings[0]
    variable, unset, maker = FINDINGS[kind]
    assert (finding.id, finding.confidence) == ("unset-item", "likely")
    assert all(part in finding.summary for part in (f"`{variable}`", unset, f"made by {maker}"))
    assert any(maker in fix for fix in finding.fix)


@pytest.mark.slow
@pytest.mark.parametrize("kind", FINDINGS)
@pytest.mark.parametrize("python", every_interpreter())
def test_they_are_named(kind: str, python: Interpreter) -> None:
    check(kind, python, None)


@pytest.mark.slow
@needs_gdb
@pytest.mark.parametrize("kind", FINDINGS)
def test_they_are_named_beside_libpython(kind: str) -> None:
    check(kind, a_debuggable_interpreter(), "gdb")


@pytest.mark.slow
@pytest.mark.parametrize("python", some_interpreters("3.11"))
def test_text_that_looks_so_is_not_the_cause(python: Interpreter) -> None:
    crash = analyze(python_crash("unset_items.py", "none", python=python).core)
    assert "unset-item" not in [finding.id for finding in crash.findings]


@pytest.mark.parametrize(
    ("text", "unset"),
    [
        ("(1, <NULL>, 0x0)", [1, 2]),
        ("[<NULL>]", [0]),
        ("[(<NULL>, 2), 3]", []),
        ("(1, '<NULL>, 0x0', \"0x0\")", []),
        ("<NULL>", []),
        ("{1: <NULL>}", []),
        ("(f(1, 2), <NULL>, …", [1]),
        ("()", []),
    ],
)
def test_items_of_a_value(text: str, unset: list[int]) -> None:
    assert unset_items(text) == unset
