"""Code that was compiled at run time has no name and no file: where numba is loaded, it may have left an array."""

from __future__ import annotations

import re

import msgspec
import pytest

from crashkit.diagnose import diagnose, load_catalog
from crashkit.model import Address, Crash, Module
from crashkit.pipeline import analyze
from crashkit.report import text, wording

from ..crashes import an_interpreter, python_crash

NUMBA = Module(path="/v/lib/python3.11/site-packages/numba/_dispatcher.cpython-311-x86_64-linux-gnu.so")


def confidence(crash: Crash) -> str | None:
    found = diagnose(msgspec.structs.replace(crash, findings=(), modules=(*crash.modules, NUMBA)), load_catalog()).findings
    return next((finding.confidence for finding in found if finding.id == "numba-no-bounds-check"), None)


@pytest.mark.slow
def test_it_may_have_left_an_array() -> None:
    """Machine code in memory without a file stands for what numba compiled."""
    crash = analyze(python_crash("faults.py", "no_access", python=an_interpreter()).core)
    assert "numba-no-bounds-check" not in [finding.id for finding in crash.findings]
    assert confidence(crash) == "likely"


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["no_access", "unmapped_call"])
def test_the_address_of_the_code_is_not_told_as_what_was_accessed(kind: str) -> None:
    crash = analyze(python_crash("faults.py", kind, python=an_interpreter()).core)
    assert crash.signal is not None and crash.thread is not None
    told = re.findall(r"(?:read|called) at (0x\w+)", wording.sentence(crash))
    assert told == ([str(crash.signal.address)] if kind == "unmapped_call" else [])
    assert kind == "unmapped_call" or "read in code at 0x" in wording.sentence(crash)
    (line,) = [line for line in text.summary(crash, None, color=False, width=200) if line.startswith("  native ")]
    assert line.count("0x") == 1


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["null", "no_exec", "unmapped_call", "outside"])
def test_a_library_or_a_jump_did_not(kind: str) -> None:
    assert confidence(analyze(python_crash("faults.py", kind, python=an_interpreter()).core)) is None


@pytest.mark.slow
def test_a_null_pointer_is_no_index() -> None:
    crash = analyze(python_crash("faults.py", "no_access", python=an_interpreter()).core)
    assert crash.signal is not None
    signal = msgspec.structs.replace(crash.signal, reason="null-pointer", address=Address(0x28), code_name="SEGV_MAPERR")
    assert confidence(msgspec.structs.replace(crash, signal=signal)) is None
