"""Whose memory the fault address is: numpy and torch access what shape and strides say, and a core tells which array that was."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from crashkit.diagnose.case import Case
from crashkit.diagnose.facts import FACTS
from crashkit.diagnose.outcome import Outcome
from crashkit.interpreter.arrays import covered
from crashkit.interpreter.view import Unreadable
from crashkit.model import AccessedArray, Address, Crash, Finding, Signal
from crashkit.pipeline import analyze
from tests.crashes import NO_TORCH, Folder, Interpreter, python_crash, some_interpreters
from tests.packages import folder_with

OF_NUMPY = "a"
"""The name in numpy's own function: where a test installs it, it looks like the user's code."""
needs_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason=NO_TORCH)


def told(made: Folder) -> dict[str, Any]:
    facts: dict[str, Any] = json.loads(next(line for line in made.stderr.splitlines() if line.startswith("{")))
    return facts


def array(made: Folder) -> tuple[Crash, AccessedArray]:
    """What is found, held to what the program said."""
    crash, truth = analyze(made.core), told(made)
    assert crash.signal is not None and crash.signal.array is not None
    one = crash.signal.array
    assert (one.start, one.end) == (truth["start"], truth["end"]), one
    assert one.description.endswith(str(tuple(truth["shape"]))) or "on cpu" in one.description
    assert crash.signal.address is not None and one.start <= crash.signal.address < one.end
    return crash, one


def first(crash: Crash) -> Finding:
    return crash.findings[0]


@pytest.mark.network
@pytest.mark.slow
@pytest.mark.parametrize("python", some_interpreters("3.6", "3.8", "3.11", "3.13"))
@pytest.mark.parametrize(("kind", "variable", "beyond"), [("strided", "view", "past its end"), ("backwards", OF_NUMPY, "before its start")])
def test_a_view_beyond_its_array(kind: str, variable: str, beyond: str, python: Interpreter) -> None:
    crash, one = array(python_crash("array_memory.py", kind, str(folder_with(python, "numpy")), python=python))
    assert one.variable == variable and one.owner == f"float{'64' if kind == 'strided' else '32'} (64, 1024)"
    assert first(crash).id == "array-view-out-of-bounds" and beyond in first(crash).summary
    assert (first(crash).evidence[-1].frame, crash.signal and crash.signal.name) != (None, "SIGBUS")


@pytest.mark.network
@pytest.mark.slow
@pytest.mark.parametrize("python", some_interpreters("3.8", "3.11", "3.13"))
def test_shared_memory_that_was_closed(python: Interpreter) -> None:
    crash, one = array(python_crash("array_memory.py", "shared_memory", str(folder_with(python, "numpy")), python=python))
    assert (one.variable, one.description, one.owner) == (OF_NUMPY, "uint32 (4, 256, 256)", None)
    assert (first(crash).id, first(crash).confidence) == ("array-memory-gone", "likely")


@pytest.mark.torch
@pytest.mark.slow
@needs_torch
def test_a_tensor_of_unmapped_memory() -> None:
    crash, one = array(python_crash("array_memory.py", "tensor", python=Path(sys.executable)))
    assert (one.variable, one.description) == ("batches[1]", "float32 (3, 256, 256)")
    assert first(crash).id == "array-memory-gone"


@pytest.mark.torch
@pytest.mark.slow
@needs_torch
def test_a_tensor_that_is_larger_than_its_memory() -> None:
    """Its memory is not gone: the first part of it is there."""
    crash, _ = array(python_crash("array_memory.py", "too_large", python=Path(sys.executable)))
    assert [(one.id, one.confidence) for one in crash.findings[:1]] == [("array-larger-than-memory", "likely")]
    assert "1,048,576 bytes of memory" in first(crash).summary and "of which 524,288 bytes are there" in first(crash).summary


@pytest.mark.torch
@pytest.mark.slow
@needs_torch
def test_a_fault_elsewhere_is_no_array_s() -> None:
    crash = analyze(python_crash("array_memory.py", "owned", python=Path(sys.executable)).core)
    assert crash.signal is not None and crash.signal.array is None
    assert not [finding for finding in crash.findings if finding.id.startswith("array-")]


VIEW = AccessedArray(
    variable="view",
    description="float64 (9, 9)",
    start=Address(0x7000),
    end=Address(0x9000),
    owner="float64 (4, 4)",
    owner_start=Address(0x7800),
    owner_end=Address(0x8000),
)
ALONE = replace(VIEW, owner=None, owner_start=None, owner_end=None)


def outcome(fact: str, address: int | None, array: AccessedArray | None, reason: str | None = "unmapped") -> Outcome:
    at = None if address is None else Address(address)
    return FACTS[fact](Case(Crash(signal=Signal(number=11, name="SIGSEGV", address=at, reason=reason, array=array))))


@pytest.mark.parametrize(
    ("address", "where"),
    [(0x8000, "directly past its end"), (0x8010, "16 bytes past its end"), (0x77F0, "16 bytes before its start")],
)
def test_where_the_owner_ends(address: int, where: str) -> None:
    told = outcome("array-beyond-owner", address, VIEW)
    assert told.holds and told.fields["beyond"] == where
    assert (told.fields["array_size"], told.fields["owner_size"]) == ("8,192 bytes", "2,048 bytes")


def test_what_speaks_against_it() -> None:
    inside, alone = outcome("array-beyond-owner", 0x7FFF, VIEW), outcome("array-beyond-owner", 0x8000, ALONE)
    assert not inside.holds and not alone.holds and inside.why != alone.why
    assert not outcome("array-memory-gone", 0x7FFF, ALONE, "read-only").holds
    assert outcome("array-memory-gone", 0x7FFF, ALONE, "no-access").holds
    assert outcome("array-memory-gone", 0x7FFF, ALONE, None).missing
    assert outcome("array-memory-gone", 0x7FFF, VIEW).holds and not outcome("array-memory-gone", 0x8000, VIEW).holds
    for fact in ("array-beyond-owner", "array-memory-gone"):
        assert outcome(fact, None, None).missing == "the fault address"
        assert not outcome(fact, 0x8000, None).missing and outcome(fact, 0x8000, None).why


@pytest.mark.parametrize("shape", [(1 << 62,), (1 << 62, 2)])
def test_more_than_an_address_space_is_no_extent(shape: tuple[int, ...]) -> None:
    for strides in ([8] * len(shape), [-(1 << 20)] * len(shape)):
        with pytest.raises(Unreadable):
            covered(0x7F0000000000, shape, strides, 8)
    assert covered(0x1000, (4, 3), (-16, 4), 4) == range(0x1000 - 48, 0x1000 + 12)
