"""Pointers that a Python line handed to native code through ctypes or cffi, where the address that failed is no null pointer.

Also null pointers that a tuple or list has in place of items. Pure.
"""

from __future__ import annotations

import re
from itertools import dropwhile, groupby, takewhile
from typing import Optional

from msgspec.structs import replace

from crashkit.diagnose.case import MEMORY_FAULTS, Case
from crashkit.diagnose.outcome import Outcome, no, unknown
from crashkit.diagnose.places import python_line
from crashkit.memory import mapping_at
from crashkit.model import Evidence, NativeFrame, PythonFrame
from crashkit.naming.addresses import is_null
from crashkit.naming.handed import ADDRESS, handed_on, is_foreign_call
from crashkit.naming.own_code import python_frames
from crashkit.naming.values import Value, bad_pointer, expression, number, source_line, unset_items, used
from crashkit.regex import regex

_INT = 1 << 32
"""ctypes passes and returns a number as a C int, unless it is told otherwise (`argtypes`, `restype`)."""
_SIGNED = (1 << 64) - (1 << 31)
_NEAR = 4096
_LARGE = 64 << 20
"""Bytes of a mapping that has an address for too many numbers: reservations, models."""
_FEW = 16
"""A number that is no address ends like one of a mapping in less than one of so many cases."""
_MOST_ITEMS = 8
_GONE = frozenset({"unmapped", "non-canonical"})
_WHOLE = "the code that failed was called through cffi, which cuts no pointer"
_LITERAL = regex(r"[(,]\s{0,8}(None|\d{1,4})\s{0,8}[,)]")
_DATA = regex(r"\bdata at (0x[0-9a-f]{1,16})\b")
_ACCESS = regex(
    r"(?:[a-zA-NP-Z]|vBOOL|bool)_[gs]et(?:_sw)?|Pointer_(?:ass_)?(?:item|subscript)|Pointer_get_contents|PyCData_[gs]et|_PyCData_set\b.{0,20}"
)
"""Those of Modules/_ctypes/cfield.c and _ctypes.c; not `O_get`, which goes on to the object that it finds."""
_REACH = 1 << 30
"""Bytes behind the memory of an executable with fixed addresses in which its heap lies (brk(2) begins there, at a random distance)."""
_CALLBACK = regex(r"ffi_closure\w{0,40}|closure_fcn|_CallPythonObject|general_invoke_callback")
"""libffi, Modules/_ctypes/callbacks.c and cffi: C calls a Python function."""
_NO_ACCESS = "what failed is no access of ctypes"
_CALLED = regex(r"(?<![\w.])[\w.]{1,200}(?=\s{0,8}\()")


def argument_cut(case: Case) -> Outcome:
    """A variable of the line has an address of which the fault address is the lower 32 bits, and there is memory at the whole one."""
    address = _handed_address(case)
    if isinstance(address, Outcome):
        return address
    if not _is_of_32_bits(address):
        return no("the fault address has more than 32 bits")
    if _through_cffi(case):
        return no(_WHOLE)
    for value in _values(case):
        whole = _address_in(value.text)
        if whole is None or _is_of_32_bits(whole):
            continue
        mapping = mapping_at(case.crash.mappings, whole)
        if mapping is not None and 0 <= address % _INT - whole % _INT < _NEAR:
            found = _outcome(case, value, f"there is memory at {whole:#x}, of which {address % _INT:#x} is the lower half")
            return replace(found, fields={**found.fields, "pointer": _pointer_of(value)})
    return no("no variable of the line has an address that ends like the fault address")


def result_cut(case: Case) -> Outcome:
    """The fault address has 32 bits, a variable of the line has it, and there is memory at an address that ends in the same ones."""
    value = _handed_value(case, of_32_bits=True)
    if isinstance(value, Outcome):
        return value
    own = _address_of(value) % _INT
    found = _completed(own, case)
    if found is None:
        return no("there is no memory at any address that ends like the fault address")
    return _outcome(case, value, f"as an address this is {own:#x}, and there is memory at {found:#x}, whose lower half it is")


def pointer_of_32_bits(case: Case) -> Outcome:
    """A variable of the line has the fault address, or one just before it, and that has 32 bits: of those that malloc returns, few have."""
    value = _handed_value(case, of_32_bits=True)
    if isinstance(value, Outcome):
        return value
    if _is_by_the_heap(case, _address_of(value)):
        return no("the memory of this program has addresses of 32 bits, too")
    return _outcome(case, value, f"as an address this is {_address_of(value) % _INT:#x}, and nothing is mapped there")


def pointer_handed_on(case: Case) -> Outcome:
    """A variable of the line has the fault address, or one just before it, and nothing is there."""
    value = _handed_value(case, of_32_bits=False)
    if isinstance(value, Outcome):
        return value
    if mapping_at(case.crash.mappings, _address_of(value)) is not None:
        return no("there is memory at the address that the variable has: the access went past its end")
    found = _outcome(case, value, "nothing is mapped there")
    giver = _giver(case, value)
    return found if giver is None else replace(found, fields={**found.fields, "giver": python_line(giver)})


def _giver(case: Case, value: Value) -> Optional[PythonFrame]:
    """The Python frame whose call of C has called back, where C gave the function the pointer as an argument."""
    frames = case.crashed.thread.frames if case.crashed is not None else ()
    if value.name not in value.frame.args or value.frame not in frames:
        return None
    outwards = frames[frames.index(value.frame) + 1 :]
    between = (frame for frame in takewhile(lambda frame: not isinstance(frame, PythonFrame), outwards) if isinstance(frame, NativeFrame))
    foreign = [is_foreign_call(frame) or _CALLBACK.fullmatch(frame.function or "") is not None for frame in between]
    # ctypes, the C code that it called, and ctypes again, which calls back. An errcheck function is called by ctypes, too, but not by C.
    if [is_through for is_through, _ in groupby(dropwhile(lambda is_through: not is_through, foreign))][:3] != [True, False, True]:
        return None
    return next((frame for frame in outwards if isinstance(frame, PythonFrame)), None)


def unset_item(case: Case) -> Outcome:
    """A null pointer was used, and a tuple or list that the line names has null pointers in place of items."""
    signal = case.crash.signal
    if signal is None or signal.name not in MEMORY_FAULTS or signal.address is None:
        return unknown("the fault address")
    if not is_null(signal.address):
        return no("it is no null pointer")
    found = next(((value, unset) for value in _values(case) if (unset := unset_items(value.text))), None)
    if found is None:
        return no("no tuple or list in the line has an item that was never set")
    value, unset = found
    items = (
        f"item {unset[0]} is a null pointer" if len(unset) == 1 else f"items {', '.join(map(str, unset[:_MOST_ITEMS]))} are null pointers"
    )
    return _outcome(case, value, items)


def null_handed_on(case: Case) -> Outcome:
    """A null pointer was used by what ctypes or cffi called, or by its callee, and no variable has it: an argument may."""
    signal, stack = case.crash.signal, case.crashed
    if signal is None or signal.name not in MEMORY_FAULTS or signal.address is None or stack is None:
        return unknown("the fault address")
    if not is_null(signal.address) or ADDRESS not in handed_on(stack.thread):
        return no("it is no null pointer, or the code that failed was not called through ctypes or cffi")
    first = stack.natives[0].frame if stack.natives else None
    if first is None or is_foreign_call(first):
        return no("what failed is the call itself")
    return no("a variable has it") if bad_pointer(stack.thread, signal) is not None else Outcome(True)


def small_literal(case: Case) -> Outcome:
    """The Python line calls with None or a small number as it stands there."""
    frames = python_frames(case.crashed.thread) if case.crashed is not None else []
    if not frames or not frames[0].source:
        return unknown("the source of the line")
    found = _LITERAL.search(frames[0].source)
    return Outcome(True, (Evidence(text=f"{found[1]} in the line"),)) if found else no("no argument is None or a small number as it stands")


def accessed_by_ctypes(case: Case) -> Outcome:
    """ctypes itself failed as it read or wrote a field, an item or what a pointer leads to."""
    first = case.crashed.natives[0] if case.crashed is not None and case.crashed.natives else None
    if first is None:
        return unknown("what failed")
    if "/_ctypes." not in first.module:
        return no(_NO_ACCESS)
    told = first.name or _running(case)
    if told is None:
        return unknown("what ctypes did")
    if _ACCESS.fullmatch(told) is None if first.name else told.endswith(")"):
        return no(_NO_ACCESS)
    return Outcome(True, (Evidence(text=told, frame=first.index),), {"thing": "a ctypes object (a field, an item, a pointer)"})


def _running(case: Case) -> Optional[str]:
    """The Python expression that was running, where its columns are known."""
    line = next(iter(python_frames(case.crashed.thread)), None) if case.crashed is not None else None
    source = source_line(line) if line is not None and line.columns is not None and not line.source_changed else None
    return None if line is None or source is None else source[slice(*(expression(line) or (None,)))].rstrip()


def null_result(case: Case) -> Outcome:
    """ctypes itself used a null pointer: what a C function returned, or had at the address of a result, where an object should be."""
    accessed = accessed_by_ctypes(case)
    if accessed.holds:
        return no("ctypes read or wrote a field, an item or what a pointer leads to")
    signal, stack = case.crash.signal, case.crashed
    first = stack.natives[0] if stack is not None and stack.natives else None
    if first is None or "/_ctypes." not in first.module:
        return no("ctypes itself used no null pointer, as far as is known")
    if accessed.missing is not None:  # an undecided fix would be shown
        return no(f"not known: {accessed.missing}")
    if signal is None or signal.name not in MEMORY_FAULTS or signal.address is None:
        return unknown("the fault address")
    if not is_null(signal.address):
        return no("ctypes itself used no null pointer")
    return Outcome(True)


def called_through_ctypes(case: Case) -> Outcome:
    """The code that failed was called by ctypes, or by what this one called."""
    thread = case.crashed.thread if case.crashed is not None else None
    if thread is None or ADDRESS not in handed_on(thread) or _through_cffi(case):
        return no("it was not called through ctypes")
    return Outcome(True)


def _handed_value(case: Case, of_32_bits: bool) -> Value | Outcome:
    """The variable of the line that has the fault address, or one just before it, where that has no more than 32 bits, or more."""
    address = _handed_address(case)
    if isinstance(address, Outcome):
        return address
    if _through_cffi(case):
        if of_32_bits:
            return no(_WHOLE)
    elif _is_of_32_bits(address) != of_32_bits and (of_32_bits or not _is_by_the_heap(case, address)):
        return no("the fault address has more than 32 bits" if of_32_bits else "the fault address has 32 bits, as hardly any of memory has")
    value = bad_pointer(case.crashed.thread, case.crash.signal) if case.crashed is not None else None
    return no("no variable of the line has the fault address") if value is None else value


def _through_cffi(case: Case) -> bool:
    """Whether cffi called the code that failed: it knows the types of the arguments and of the result, and cuts no pointer."""
    return case.crashed is not None and any("/_cffi_backend." in native.module for native in case.crashed.failing)


def _address_in(text: str) -> Optional[int]:
    """The number or the pointer that a variable has, or the address of the array's data: `array.ctypes.data` hands on that."""
    data = _DATA.search(text)
    return int(data[1], 16) if data is not None else number(text)


def _pointer_of(value: Value) -> str:
    """The expression that has the address."""
    of_data = {"<numpy.ndarray": ".ctypes.data", "<torch.": ".data_ptr()"}
    return value.name + next((end for begins, end in of_data.items() if value.text.startswith(begins)), "")


def _address_of(value: Value) -> int:
    return number(value.text) or 0


def variable_called(case: Case) -> Outcome:
    """A variable of the Python line has the address that was called: nobody need have overwritten a pointer to a function."""
    signal, stack = case.crash.signal, case.crashed
    if signal is None or signal.access is None or stack is None:
        return unknown("what was called")
    if signal.access != "execute":
        return no("nothing was called")
    value = bad_pointer(stack.thread, signal)
    if value is None or (number(value.text) or 0) != signal.address:
        return no("no variable of the line has the address")
    return Outcome(True, (Evidence(text=f"{value.name} = {value.text}", thread=stack.thread.tid),))


def _handed_address(case: Case) -> int | Outcome:
    """The fault address, if the code that failed may have got it of a Python line."""
    signal = case.crash.signal
    if signal is None or signal.name not in MEMORY_FAULTS or signal.address is None or case.crashed is None:
        return unknown("the fault address")
    if is_null(signal.address):
        return no("it is a null pointer")
    if signal.reason is None:
        return unknown("whether there is memory at the address")
    if signal.reason not in _GONE:
        return no("there is memory at the address")
    if ADDRESS not in handed_on(case.crashed.thread):
        return no("the code that failed was not called through ctypes or cffi")
    return int(signal.address)


def _is_of_32_bits(address: int) -> bool:
    return address < _INT or address >= _SIGNED


def _is_by_the_heap(case: Case, address: int) -> bool:
    """Whether an address of 32 bits may be a whole one: an executable with fixed addresses, as Debian's Python, has its heap there."""
    return any("w" in (one.permissions or "") and one.start <= address < one.end + _REACH for one in case.crash.mappings if one.end < _INT)


def _values(case: Case) -> list[Value]:
    frames = python_frames(case.crashed.thread) if case.crashed is not None else []
    return [value for frame in frames[:2] for value in used(frame)]


def _completed(low: int, case: Case) -> Optional[int]:
    """The first address of memory with these lower 32 bits, rather of memory that may be written.

    None in a process that has memory for many of all such numbers.
    """
    candidates = [one for one in case.crash.mappings if "r" in (one.permissions or "r") and one.end - one.start < _LARGE]
    if sum(one.end - one.start for one in candidates) > _INT // _FEW:
        return None
    for mapping in sorted(candidates, key=lambda one: "w" not in (one.permissions or "")):
        whole = mapping.start - mapping.start % _INT + low
        whole += _INT if whole < mapping.start else 0
        if _INT <= whole < mapping.end:
            return whole
    return None


def _outcome(case: Case, value: Value, why: str) -> Outcome:
    called = _CALLED.search(value.frame.source or "")
    tid = case.crashed.thread.tid if case.crashed is not None else None
    fields = {"variable": value.name, "value": value.text, "why": why}
    if (origin := _origin(value)) is not None:
        fields["origin"] = origin
    evidence = Evidence(text=f"{value.name} = {value.text}; {why}", thread=tid)
    return Outcome(True, (evidence,), fields if called is None else {**fields, "foreign": called[0]})


def _origin(value: Value) -> Optional[str]:
    """The function whose result the variable got, as the source above the line calls it: `lib.open` of `handle = lib.open(path)`."""
    above = value.frame.context[: max(0, (value.frame.line or 0) - (value.frame.context_start or 0))]
    assigned = re.compile(rf"\s{{0,200}}{re.escape(value.name)}\s{{0,8}}=\s{{0,8}}([\w.]{{1,200}})\(")
    found = (match for line in reversed(above) if (match := assigned.match(line)))
    return next((match[1] for match in found if "." in match[1]), None)


POINTER_FACTS = {
    "argument-cut": argument_cut,
    "result-cut": result_cut,
    "pointer-of-32-bits": pointer_of_32_bits,
    "pointer-handed-on": pointer_handed_on,
    "unset-item": unset_item,
    "null-handed-on": null_handed_on,
    "null-result": null_result,
    "accessed-by-ctypes": accessed_by_ctypes,
    "small-literal": small_literal,
    "variable-called": variable_called,
    "called-through-ctypes": called_through_ctypes,
}
