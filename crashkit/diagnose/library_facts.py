"""A function of the C library that goes through memory byte by byte, and came to where that ends. Pure."""

from __future__ import annotations

from crashkit.diagnose.case import MEMORY_FAULTS, Case
from crashkit.diagnose.outcome import Outcome, no, unknown
from crashkit.model import Evidence
from crashkit.naming.functions import libc_name
from crashkit.naming.values import bad_pointer
from crashkit.regex import regex

_TEXTS = "str(?:n?cpy|n?cat|n?len|n?cmp|chr|rchr|chrnul|n?casecmp|n?dup|str|spn|cspn|pbrk)|stpn?cpy|rawmemchr"
_GOES_THROUGH = regex(rf"_*(?:mem(?:cpy|move|pcpy|set|chr|rchr|cmp|mem)|bcmp|{_TEXTS}|w(?:cs|mem)\w{{2,8}})")
_LOOKS_FOR_ZERO = regex(rf"_*(?:{_TEXTS}|wcs\w{{2,8}})")


def ran_to_end_of_memory(case: Case) -> Outcome:
    """It failed directly behind memory that it may access: it was given a length that is too large, or a text without its end.

    An access that begins before the end of a page and ends behind it faults at the page's end. No variable has that address: else it was
    given a pointer to it, and what was there may be gone.
    """
    signal, stack = case.crash.signal, case.crashed
    if signal is None or signal.name not in MEMORY_FAULTS or signal.address is None or stack is None:
        return unknown("the fault address")
    if not case.crash.mappings:
        return unknown("the mappings of the process")
    first = stack.innermost
    name = libc_name(first.name) if first is not None else ""
    if first is None or _GOES_THROUGH.fullmatch(name) is None:
        return no("it did not fail in a function that goes through memory")
    needed = "w" if signal.access == "write" else "r"
    ends = [one.end for one in case.crash.mappings if needed in (one.permissions or "") and one.end == signal.address]
    if not ends or any(one.start <= signal.address < one.end and needed in (one.permissions or "") for one in case.crash.mappings):
        return no("the fault address is not directly behind memory that may be accessed")
    if bad_pointer(stack.thread, signal) is not None:
        return no("a variable has the address itself")
    evidence = Evidence(text=f"the memory before {ends[0]:#x} may be accessed", thread=stack.thread.tid, frame=first.index)
    lacks = "a text without the zero byte at its end" if _LOOKS_FOR_ZERO.fullmatch(name) else "a length that is larger than the memory"
    did = "wrote" if needed == "w" else "read"
    return Outcome(True, (evidence,), {"ran": f"{name} {did} to the end of the memory, {ends[0]:#x}, and beyond", "lacks": lacks})


LIBRARY_FACTS = {"ran-to-end-of-memory": ran_to_end_of_memory}
