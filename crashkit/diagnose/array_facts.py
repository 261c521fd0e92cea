"""Arrays and tensors in variables, by whose shape and strides the fault address is in their memory; buffers that end below it. Pure."""

from __future__ import annotations

from crashkit.diagnose.case import Case
from crashkit.diagnose.outcome import Outcome, no, unknown
from crashkit.model import AccessedArray, Evidence
from crashkit.naming.own_code import is_own, python_frames
from crashkit.naming.values import used
from crashkit.regex import regex

_GONE = frozenset({"unmapped", "no-access"})
_OPERAND = regex(r"\[([^\]]{1,80})\]")
_REGISTER = regex(r"[a-z][a-z0-9]{1,5}")
_PAGE = 4096
_STEP = 1 << 16
"""Bytes between one access and the next of code that goes through memory in steps: the end of the memory lies between two of them."""


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
    if array_larger_than_memory(case).holds:
        return no("the first part of its memory is there")
    reason = case.crash.signal.reason if case.crash.signal is not None else None
    if reason is None:
        return unknown("whether there is memory at the address")
    return _outcome(case, array, {}) if reason in _GONE else no("there is memory at the address")


def array_larger_than_memory(case: Case) -> Outcome:
    """The array's memory is there from its start on, without a gap, and ends before the fault address."""
    array = _array(case)
    if isinstance(array, Outcome):
        return array
    signal = case.crash.signal
    if signal is None or signal.reason not in _GONE:
        return no("there is memory at the address, or that is not known")
    last = _end_of_memory(_open_from(case), int(array.start) + 1)
    if last is None or not 0 <= _address(case) - last < _STEP:
        return no("its memory is not there from its start on")
    return _outcome(case, array, {"array_start": f"{array.start}", "there": _bytes(last - array.start)})


def past_handed_buffer(case: Case) -> Outcome:
    """The line that called the code which failed names a buffer, and memory that may be accessed goes on from its end to the fault address.

    Who accesses one element after the other comes to this address, and gets no further.
    """
    return _past(case, _handed(case, _PAGE))


def past_buffer(case: Case) -> Outcome:
    """The same of code that may go in larger steps; or a buffer in any variable ends in the last page before the fault address."""
    near = [one for one in _reaching(case, _PAGE) if _address(case) - _end(one) < _PAGE]
    return _past(case, _handed(case, _STEP) or near)


def counts_from_buffer(case: Case) -> Outcome:
    """The address that faulted was counted from the first byte of a buffer in a variable: a register of the faulting operand has that."""
    faulting = next((one for one in case.crash.instructions if one.faulting), None)
    if faulting is None or case.crashed is None or not case.crashed.thread.registers:
        return unknown("the faulting instruction, or the registers")
    names = {name for operand in _OPERAND.findall(faulting.text) for name in _REGISTER.findall(operand)}
    bases = {int(value) for name, value in case.crashed.thread.registers.items() if name in names}
    return _past(case, _begin_at(bases, _below(case))[:1])


def buffer_in_register(case: Case) -> Outcome:
    """The line that called the code which failed names a buffer that ends before the address, and a register has its start."""
    if case.crashed is None or not case.crashed.thread.registers:
        return unknown("the registers")
    held = {int(value) for value in case.crashed.thread.registers.values()}
    return _past(case, _begin_at(held, [one for one in _below(case) if _is_handed(case, one)]))


def _begin_at(addresses: set[int], buffers: list[AccessedArray]) -> list[AccessedArray]:
    return [one for one in buffers if {int(one.start), int(one.owner_start or one.start)} & addresses]


def _past(case: Case, buffers: list[AccessedArray]) -> Outcome:
    """The buffer that ends in the last page before the fault address, else the only one: of two that are further away, either may be it."""
    signal = case.crash.signal
    if signal is None or signal.address is None:
        return unknown("the fault address")
    if signal.array is not None:
        return no("an array in a variable has the fault address in its memory")
    near = [one for one in buffers if _address(case) - _end(one) < _PAGE] or buffers
    if not near:
        return no("no buffer in a variable ends where the memory before the fault address does")
    if len(near) > 1:
        return no("several buffers end before the fault address")
    away = _address(case) - _end(near[0])
    return _outcome(case, near[0], {"beyond": f"{_bytes(away)} past the end" if away else "directly past the end"})


def _handed(case: Case, step: int) -> list[AccessedArray]:
    return [one for one in _reaching(case, step) if _is_handed(case, one)]


def _below(case: Case) -> list[AccessedArray]:
    """The buffers that end before the fault address, where that is none of what may be accessed; the nearest first."""
    signal = case.crash.signal
    if signal is None or signal.reason not in (_GONE | {"read-only"}) or signal.access == "execute":
        return []
    return list(signal.below)


def _reaching(case: Case, step: int) -> list[AccessedArray]:
    """The buffers behind whose end all memory may be accessed in that way, up to less than one such step, in bytes, before the address."""
    open_from = _open_from(case)
    return [one for one in _below(case) if _leads(open_from, _end(one), _address(case), step)]


def _open_from(case: Case) -> dict[int, int]:
    """The memory that may be accessed in the way that failed: ends by starts."""
    signal = case.crash.signal
    needed = "w" if signal is not None and signal.access == "write" else "r"
    return {int(one.start): int(one.end) for one in case.crash.mappings if needed in (one.permissions or "")}


def _leads(open_from: dict[int, int], end: int, address: int, step: int) -> bool:
    """Whether memory goes on from the last byte of a buffer, with no gap, up to a step before the address."""
    last = _end_of_memory(open_from, end)
    return last is not None and 0 <= address - last < step and not any(last < start <= address for start in open_from)


def _end_of_memory(open_from: dict[int, int], end: int) -> int | None:
    """Where the memory ends that goes on, with no gap, from the byte before `end`; None if that is none of it."""
    last = next((stop for start, stop in open_from.items() if start < end <= stop), None)
    for _ in open_from:
        if last not in open_from:
            break
        last = open_from[last]
    return last


def _end(buffer: AccessedArray) -> int:
    """Of the memory that it is a view of, if that ends later."""
    return max(int(buffer.end), int(buffer.owner_end or 0))


def _is_handed(case: Case, buffer: AccessedArray) -> bool:
    """Whether it is a variable that the innermost line of the user's own names, or one in the libraries that it called."""
    frames = python_frames(case.crashed.thread) if case.crashed is not None else []
    own = next((index for index, frame in enumerate(frames) if is_own(frame)), len(frames))
    named = {
        value.name.partition(".")[0]
        for frame in frames[: own + 1]
        if (frame.function, frame.file, frame.line) == (buffer.function, buffer.file, buffer.line)
        for value in used(frame)
    }
    return buffer.variable.partition(".")[0].partition("[")[0] in named


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


ARRAY_FACTS = {
    "array-beyond-owner": array_beyond_owner,
    "array-memory-gone": array_memory_gone,
    "array-larger-than-memory": array_larger_than_memory,
    "counts-from-buffer": counts_from_buffer,
    "buffer-in-register": buffer_in_register,
    "past-handed-buffer": past_handed_buffer,
    "past-buffer": past_buffer,
}
