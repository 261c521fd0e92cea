"""A pointer that a Python line handed to C through ctypes: cut to 32 bits, or of memory that is gone."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from crashkit.diagnose.case import Case
from crashkit.diagnose.facts import FACTS
from crashkit.model import Address, Crash, Mapping, NativeFrame, PythonFrame, Signal, Thread
from crashkit.pipeline import analyze
from crashkit.report.text import first_answer
from tests.crashes import Interpreter, an_interpreter, python_crash, some_interpreters, stripped_interpreters
from tests.packages import folder_with

SIGNATURES = {
    "result": ("ctypes-pointer-truncated", "likely", "libc.malloc.restype"),
    "text": ("ctypes-pointer-truncated", "likely", "libc.strerror.restype"),
    "argument": ("ctypes-pointer-truncated", "certain", "libc.memset.argtypes"),
    "dangling": ("foreign-pointer-dangling", "likely", "keep what owns the memory"),
    "behind": ("foreign-pointer-dangling", "likely", "keep what owns the memory"),
    "literal": ("null-deref", "certain", "Compare the arguments in "),
    "no_object": ("null-deref", "certain", "library.function.restype = ctypes.c_void_p   # it returned NULL"),
    "field": ("foreign-pointer-dangling", "certain", "Look at the address behind a ctypes object"),
    "item": ("foreign-pointer-dangling", "certain", "Look at the address behind a ctypes object"),
    "starred": ("null-deref", "certain", "Check `fields[0]` before "),
    "given": ("foreign-pointer-dangling", "likely", "Compare what "),
    "without_gil": ("gil-not-held", "likely", "ctypes.PyDLL(name)"),
}

PLACES = {"given": "compare"}


@pytest.mark.slow
@pytest.mark.parametrize("kind", SIGNATURES)
def test_the_pointer_is_named(kind: str) -> None:
    _check(kind, an_interpreter())


@pytest.mark.slow
@pytest.mark.parametrize("python", stripped_interpreters())
@pytest.mark.parametrize("kind", ["no_object", "field", "item", "given"])
def test_without_the_names_of_ctypes(kind: str, python: Interpreter) -> None:
    _check(kind, python)


@pytest.mark.long
@pytest.mark.parametrize("python", some_interpreters("3.6", "3.8", "3.11", "3.13"))
@pytest.mark.parametrize("kind", SIGNATURES)
def test_with_every_version(kind: str, python: Interpreter) -> None:
    if kind == "without_gil" and python.version < (3, 10):
        pytest.skip("a list can be made without the GIL up to Python 3.9")
    _check(kind, python)


@pytest.mark.network
@pytest.mark.slow
@pytest.mark.parametrize("python", some_interpreters("3.11"))
def test_the_data_of_an_array(python: Interpreter) -> None:
    """The number is not in any variable."""
    finding = analyze(python_crash("pointers.py", "array", str(folder_with(python, "numpy")), python=python).core).findings[0]
    assert (finding.id, finding.confidence) == ("ctypes-pointer-truncated", "certain")
    assert "`zeros`" in (finding.summary or "") and "ctypes.c_void_p(zeros.ctypes.data)" in finding.fix[0]


def _check(kind: str, python: Interpreter) -> None:
    if kind == "no_object" and python.version >= (3, 14):
        pytest.skip("from Python 3.14 on ctypes reports a null pointer in place of an object as an error")
    crash = analyze(python_crash("pointers.py", kind, python=python).core)
    (finding,) = crash.findings
    assert (finding.id, finding.confidence) == SIGNATURES[kind][:2], finding
    assert SIGNATURES[kind][2] in finding.fix[0] and f"{PLACES.get(kind, kind)} (pointers.py:" in first_answer(crash)


WHOLE = 0x7F12_3456_7000
MAPPINGS = (Mapping(start=Address(WHOLE), end=Address(WHOLE + 0x1000), permissions="rw-"),)
THROUGH = ("memset", "ffi_call_unix64", "ffi_call_int", "_ctypes_callproc")


def crash(address: int, natives: tuple[str, ...] = THROUGH, reason: str = "unmapped", **values: int) -> Case:
    line = PythonFrame(function="f", file="/srv/app.py", line=3, source=f"lib.memset({', '.join(values)})", locals=_texts(values))
    frames = (*(NativeFrame(function=name) for name in natives), line)
    return Case(
        Crash(
            signal=Signal(number=11, name="SIGSEGV", address=Address(address), reason=reason),
            threads=(Thread(tid=1, crashed=True, frames=frames),),
            mappings=MAPPINGS,
        )
    )


def _texts(values: dict[str, int]) -> dict[str, str]:
    return {name: str(value) for name, value in values.items()}


@pytest.mark.parametrize(
    ("case", "holding"),
    [
        (crash(0x3456_7010, block=WHOLE + 0x10), {"argument-cut"}),
        (crash(0x3456_7030, block=WHOLE + 0x10), {"argument-cut"}),  # a field
        (crash(0x9999_0010, block=WHOLE + 0x10), set()),
        (crash(0x3456_7010, block=0x3456_7010), {"result-cut", "pointer-of-32-bits"}),
        (crash(0x3456_9010, block=0x3456_9010), {"pointer-of-32-bits"}),  # no memory ends like it
        (crash(WHOLE + 0x1010, block=WHOLE + 0xF00), set()),  # past the end of memory that is there
        (crash(0x7F99_3456_7010, block=0x7F99_3456_7010), {"pointer-handed-on"}),
        (crash(0x3456_7010, block=WHOLE + 0x1010), set()),  # there is no memory at the whole address
        (crash(0x3456_7010, ("memset", "Engine::run"), block=0x3456_7010), set()),
        (crash(0x3456_7010, reason="read-only", block=0x3456_7010), set()),
        (crash(0x10, block=16), set()),
        (crash(0x3456_7010, size=100), set()),
    ],
)
def test_what_is_a_pointer_of_the_line(case: Case, holding: set[str]) -> None:
    names = ("argument-cut", "result-cut", "pointer-of-32-bits", "pointer-handed-on")
    assert {name for name in names if FACTS[name](case).holds} == holding


@pytest.mark.parametrize("sizes", [[6 << 30], [60 << 20] * 9])
def test_garbage_ends_like_some_address_of_a_large_process(sizes: list[int]) -> None:
    starts = [0x7F00_0000_0000 + (number << 32) for number in range(len(sizes))]
    mappings = tuple(
        Mapping(start=Address(start), end=Address(start + size), permissions="rw-") for start, size in zip(starts, sizes, strict=True)
    )
    case = crash(0x0264_6162, header=0x0264_6162)
    assert not FACTS["result-cut"](Case(replace(case.crash, mappings=mappings))).holds


def test_a_negative_number_is_the_same_address() -> None:
    low = WHOLE % (1 << 32) | 1 << 31
    mapping = replace(MAPPINGS[0], start=Address(0x7F00 << 32 | low), end=Address((0x7F00 << 32 | low) + 0x1000))
    number = low - (1 << 32)
    case = crash(number % (1 << 64), block=number)
    outcome = FACTS["result-cut"](Case(replace(case.crash, mappings=(mapping,))))
    assert outcome.holds and hex(0x7F00 << 32 | low) in outcome.evidence[0].text


@pytest.mark.parametrize(("module", "cut"), [("_ctypes", True), ("_cffi_backend", False)])
def test_cffi_cuts_no_pointer(module: str, cut: bool) -> None:
    """It knows the types: a pointer of 32 bits was wrong before."""
    path = f"/usr/lib/{module}.cpython-311-x86_64-linux-gnu.so"
    line = PythonFrame(function="f", file="/srv/app.py", line=3, source="C.strlen(p)", locals={"p": "3735928559"})
    frames = (NativeFrame(function="strlen"), NativeFrame(function="ffi_call_unix64", module=path), NativeFrame(module=path), line)
    signal = Signal(number=11, name="SIGSEGV", address=Address(0xDEADBEEF), reason="unmapped")
    case = Case(Crash(signal=signal, threads=(Thread(tid=1, crashed=True, frames=frames),), mappings=MAPPINGS))
    assert FACTS["pointer-of-32-bits"](case).holds is cut
    assert FACTS["pointer-handed-on"](case).holds is not cut
