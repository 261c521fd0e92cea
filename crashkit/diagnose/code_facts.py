"""Where execution was: what is mapped there, or around it where nothing is. Pure."""

from __future__ import annotations

from typing import Optional

from crashkit.diagnose.case import Case
from crashkit.diagnose.outcome import Outcome, no, unknown
from crashkit.memory import mapping_at
from crashkit.model import Evidence, Mapping, NativeFrame
from crashkit.naming.machinery import handler_end
from crashkit.regex import regex

_FARTHEST = 64 << 20
"""Bytes between an address and the nearest library, and of a gap that one may have left: more lie between the areas of an address space."""
_ZEROS, _MANY = "0000", 4
"""add byte ptr [rax], al; and how many more of them follow: a padding of zeros is shorter."""
_LIBRARY = regex(r"\.so(?:\.[\d.]{1,40})?$")


_LIBM = regex(r"(?:^|/)libm[.-]")
_WITH_FLOATS = regex(
    r"_*(?:ieee754_)?(?:log(?:2|10|1p)?|exp(?:2|m1|10)?|pow|sqrt|cbrt|hypot|a?(?:sin|cos|tan)h?|atan2|erfc?|[lt]?gamma)[fl]?(?:_\w{1,20})?"
)
_OF_LIBM_ONLY = regex(r"^__|[a-z0-9][fl]$")


def gap_among_libraries(case: Case) -> Outcome:
    """The address that was executed lies in a gap among what is mapped of libraries, as one leaves that is unloaded."""
    native = case.crashed.innermost if case.crashed is not None else None
    if case.crashed is None or native is None or native.frame.pc is None or not case.crash.mappings:
        return unknown("where the crashed thread was running, and what was mapped")
    pc = int(native.frame.pc)
    if mapping_at(case.crash.mappings, pc) is not None:
        return no("memory is mapped where the crashed thread was running")
    before = max((int(one.end) for one in case.crash.mappings if one.end <= pc), default=0)
    behind = min((int(one.start) for one in case.crash.mappings if one.start > pc), default=1 << 64)
    distances = ((min(abs(pc - int(one.end)), abs(int(one.start) - pc)), one) for one in case.crash.mappings if _library(one))
    distance, nearest = min(distances, key=lambda pair: pair[0], default=(_FARTHEST, None))
    if nearest is None or distance >= _FARTHEST or behind - before > _FARTHEST:
        return no("no library is mapped near it")
    size, name = f"{behind - before:,}", _library(nearest) or ""
    text = f"nothing is mapped in {size} bytes near {name}"
    return Outcome(True, (Evidence(text=text, thread=case.crashed.thread.tid, frame=native.index),), {"near": name, "gap": size})


def in_generated_code(case: Case) -> Outcome:
    """The code that failed is in no file and has no name: it was compiled at run time."""
    if case.crashed is None or not case.crash.mappings:
        return unknown("where the crashed thread was running")
    frames = case.crashed.thread.frames
    start = handler_end(frames)
    first = frames[start] if start < len(frames) else None
    if not isinstance(first, NativeFrame) or first.pc is None:
        return unknown("where the crashed thread was running")
    home = mapping_at(case.crash.mappings, first.pc)
    if first.function or first.module or home is None or home.path or "x" not in (home.permissions or ""):
        return no("the code that failed is that of a file")
    evidence = Evidence(text=f"{first.pc} is in memory without a file", thread=case.crashed.thread.tid, frame=start)
    return Outcome(True, (evidence,))


def code_of_zeros(case: Case) -> Outcome:
    """What a library was to execute is zeros: two bytes of them are an instruction, which no compiler makes and which writes to [rax]."""
    at = next((index for index, one in enumerate(case.crash.instructions) if one.faulting), None)
    if at is None or not case.crash.mappings:
        return unknown("the faulting instruction, and what was mapped")
    faulting, *behind = case.crash.instructions[at:]
    mapping = mapping_at(case.crash.mappings, faulting.address)
    name = _library(mapping) if mapping is not None else None
    if any(one.bytes != _ZEROS for one in (faulting, *behind[:_MANY])) or len(behind) < _MANY:
        return no("the code is not zeros")
    if name is None or mapping is None or mapping.path is None:
        return no("it is not the code of a library")
    return Outcome(
        True, (Evidence(text=f"at {faulting.address}, the code of {name} is zeros", module=mapping.path),), {"zeroed": mapping.path}
    )


def _library(mapping: Mapping) -> Optional[str]:
    """The name of the library of which something is mapped here."""
    name = (mapping.path or "").rpartition("/")[2]
    return name if _LIBRARY.search(name) else None


def in_libm(case: Case) -> Outcome:
    """The innermost frame is one of libm's functions that compute with floats, and so divide no integers."""
    native = case.crashed.innermost if case.crashed is not None else None
    if case.crashed is None or native is None or not native.name:
        return unknown("the function that failed")
    # Without its file, `pow` may be anybody's.
    known = _LIBM.search(native.module) if native.module else native.frame.file is None and _OF_LIBM_ONLY.search(native.name)
    if not known or _WITH_FLOATS.fullmatch(native.name) is None:
        return no("it is no function of libm's")
    return Outcome(True, (Evidence(text=native.name, thread=case.crashed.thread.tid, frame=native.index),))


CODE_FACTS = {
    "gap-among-libraries": gap_among_libraries,
    "in-generated-code": in_generated_code,
    "in-libm": in_libm,
    "code-of-zeros": code_of_zeros,
}
