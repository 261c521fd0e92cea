"""A Python exception that says memory was refused: MemoryError, numpy's of an array, torch's of a tensor, the system's own. Pure.

Sources: numpy/_core/_exceptions.py, `_ArrayMemoryError`; torch, c10/core/impl/alloc_cpu.cpp.
"""

from __future__ import annotations

from crashkit.diagnose.case import Case
from crashkit.diagnose.outcome import Outcome, no, unknown
from crashkit.model import Evidence, LogLine
from crashkit.regex import regex

_NAME = regex(r"(?:numpy(?:\.\w{1,40}){1,4}\.)?_?(?:Array)?MemoryError|(?:builtins\.)?MemoryError")
_ARRAY = regex(
    r"Unable to allocate (?P<asked>[\d.]{1,20} (?:[KMGTPE]iB|bytes))"
    r"(?: for an array with shape (?P<shape>\([\d, ]{0,200}\)) and data type (?P<type>[^\s,]{1,80}))?"
)
_TENSOR = regex(r"DefaultCPUAllocator: (?:can't allocate|not enough) memory: you tried to allocate (?P<bytes>\d{1,20}) bytes")
_SYSTEMS = regex(
    r"\[(?:Errno 12|WinError (?:8|14|1455))\]|\bpygame\.error: Out of memory\b|\b(?:re|m)alloc of size (?P<bytes>\d{1,20}) failed"
)
"""What other exceptions say: the system's refusal (ENOMEM, ERROR_COMMITMENT_LIMIT and others), SDL's, Arrow's."""
_LOGGED = regex(r"\b(?:DEBUG|INFO|WARN(?:ING)?|ERROR|CRITICAL|FATAL|Exception (?:ignored )?in)\b")
_UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")


def memory_refused(case: Case) -> Outcome:
    """The last exception of the log says that memory was refused, and how much, where its message does."""
    line = _last(case)
    if line is None:
        return unknown("an exception in a log")
    asked = _asked(line)
    if asked is None:
        return no(f"the last exception is {line.fields.get('exception') or line.text}")
    place = line.fields.get("reported_at")
    return Outcome(True, (Evidence(text=line.text, log=case.crash.log.index(line)),), {**asked, **({"place": place} if place else {})})


def memory_refused_uncaught(case: Case) -> Outcome:
    """The same, and no logger wrote it: what prints an exception so has not caught it, as far as the log shows."""
    found = memory_refused(case)
    line = _last(case)
    if not found.holds or line is None:
        return found
    if "reported_at" not in line.fields:
        return no("its traceback is missing: who printed the line may have caught it")
    if any(_LOGGED.search(before) for before in line.before[-2:]):
        return no("a logger, a thread or a callback wrote the exception, and the program may have gone on")
    status = case.crash.process.exit_status if case.crash.process is not None else None
    return found if status in (None, 1) else no(f"an exception that nobody catches ends in exit status 1, and this was {status}")


def _last(case: Case) -> LogLine | None:
    return next((line for line in reversed(case.crash.log) if line.fields.get("exception")), None)


def _asked(line: LogLine) -> dict[str, str] | None:
    """What was asked for, as far as it is said; None where the exception is another one."""
    message = line.fields.get("message") or line.text
    if (tensor := _TENSOR.search(message)) is not None:
        return {"asked": _size(int(tensor["bytes"])), "made": "a tensor"}
    if (refusal := _SYSTEMS.search(line.text)) is not None:
        return {"asked": _size(int(refusal["bytes"]))} if refusal["bytes"] else {}
    if _NAME.fullmatch(line.fields.get("exception", "")) is None:
        return None
    array = _ARRAY.search(message)
    if array is None:
        return {}
    made = {"made": f"an array of shape {array['shape']} and type {array['type']}"} if array["shape"] else {}
    return {"asked": array["asked"], **made}


def _size(count: int) -> str:
    power = min((max(count, 1).bit_length() - 1) // 10, len(_UNITS) - 1)
    return f"{count} bytes" if power == 0 else f"{count / 1024**power:.3g} {_UNITS[power]}"


MEMORY_ERROR_FACTS = {"memory-refused": memory_refused, "memory-refused-uncaught": memory_refused_uncaught}
