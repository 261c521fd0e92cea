"""Arrays and tensors in variables, by whose shape and strides the fault address is in their memory. Pure."""

from __future__ import annotations

from crashkit.diagnose.case import Case
from crashkit.diagnose.outcome import Outcome, no, unknown
from crashkit.model import AccessedArray, Evidence

_GONE = frozenset({"unmapped", "no-access"})


def array_beyond_owner(case: Case) -> Outcome:
    """The array is a view of another one, and reaches beyond the memory that this one has."""
    array = _array(case)
    if isinstance(array, Outcome):
        return array
    if array.owner is None or array.owner_start is None or array.owner_end is None:
        return no("the size of the memory that the array is a view of is unknown")
    address = _address(case)
    if array.owner_start <= address < array.owner_end:
        return no("the address is in the memory of the array that it is a view of")
    behind = address >= array.owner_end
    away = address - array.owner_end if behind else array.owner_start - address
    where = f"{away:,} bytes {'past its end' if behind else 'before its start'}" if away else "directly past its end"
    return _outcome(
        case,
        array,
        {
            "owner": array.owner,
            "owner_size": _bytes(array.owner_end - array.owner_start),
            "beyond": where,
        },
    )


def array_memory_gone(case: Case) -> Outcome:
    """The array describes memory that is not there, or that nobody may access."""
    array = _array(case)
    if isinstance(array, Outcome):
        return array
    if array_beyond_owner(case).holds:
        return no("the array reaches beyond the memory that it is a view of")
    reason = case.crash.signal.reason if case.crash.signal is not None else None
    if reason is None:
        return unknown("whether there is memory at the address")
    return _outcome(case, array, {}) if reason in _GONE else no("there is memory at the address")


def _array(case: Case) -> AccessedArray | Outcome:
    signal = case.crash.signal
    if signal is None or signal.address is None:
        return unknown("the fault address")
    if signal.array is None:
        return no("no array in a variable has the fault address in its memory")
    return signal.array


def _address(case: Case) -> int:
    signal = case.crash.signal
    return signal.address if signal is not None and signal.address is not None else 0


def _outcome(case: Case, array: AccessedArray, fields: dict[str, str]) -> Outcome:
    stack = next((one for one in case.stacks if one.thread.tid == array.thread), case.crashed)
    pythons = stack.pythons if stack is not None else []
    place = (array.function, array.file, array.line)
    at = next((index for index, frame in pythons if (frame.function, frame.file, frame.line) == place), None)
    text = f"{array.variable} is {array.description}, which is the memory from {array.start} to {array.end}"
    told = {"variable": array.variable, "array": array.description, "array_size": _bytes(array.end - array.start), **fields}
    return Outcome(True, (Evidence(text=text, thread=stack.thread.tid if stack is not None else None, frame=at),), told)


def _bytes(count: int) -> str:
    return f"{count:,} bytes"


ARRAY_FACTS = {"array-beyond-owner": array_beyond_owner, "array-memory-gone": array_memory_gone}
