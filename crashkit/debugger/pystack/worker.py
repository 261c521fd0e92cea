"""Reads a core's stacks with PyStack; a program of its own, because PyStack may die, hang or eat memory on a hostile core.

Usage: python -I -S worker.py REQUEST RESULT, both JSON files. Imports nothing of crashkit.

REQUEST: path (what to add to sys.path), core, executable, search_path, locals, native, python, inner, outer, variables, text,
memory (bytes).
RESULT: threads, each tid, gil (1, 0, -1 unknown), version, total and the frames `inner` (innermost first) and `outer`.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import sys
import threading
from typing import Any

_STACK = 1 << 30
"""PyStack recurses once a frame, about 1 KB each: room for a stack of a million frames, used only as far as needed."""

_LONGEST = 4096
"""Characters of a name: LONGEST_TEXT of crashkit.limits."""


def main(request_path: str, result_path: str) -> None:
    """Do what the request file asks and write the result file. Does not return: ends the process with status 0."""
    with open(request_path, encoding="utf-8") as file:  # noqa: PTH123 (starts faster)
        request = json.load(file)
    sys.path += request["path"]
    # The kernel ends us with the process that started us (PR_SET_PDEATHSIG).
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(1, 9, 0, 0, 0)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if request["memory"]:
        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        limit = request["memory"] if hard == resource.RLIM_INFINITY else min(request["memory"], hard)
        resource.setrlimit(resource.RLIMIT_AS, (limit, hard))
    threading.stack_size(_STACK)
    worker = threading.Thread(target=work, args=(request, result_path))
    worker.start()
    worker.join()
    # Taking a deep chain of frames apart recurses too, and is not needed.
    os._exit(0)


def work(request: dict[str, Any], result_path: str) -> None:
    """Write the stacks, or the error that PyStack raised, to the result file."""
    result: dict[str, Any]
    try:
        result = {"threads": stacks(request)}
    except Exception as error:
        result = {"error": f"{type(error).__name__}: {error}"}
    with open(result_path, "x", encoding="ascii") as file:  # noqa: PTH123
        # Values of a dead process may hold lone surrogates: ASCII carries them.
        json.dump(result, file, ensure_ascii=True)


def stacks(request: dict[str, Any]) -> list[dict[str, Any]]:
    """Every thread of the core as plain data. Raises whatever PyStack raises."""
    from pystack.engine import NativeReportingMode, StackMethod, get_process_threads_for_core

    mode = NativeReportingMode.ALL if request["native"] else NativeReportingMode.OFF
    # It has no mode without Python frames, but without a way to find an interpreter it finds none.
    method = StackMethod.AUTO if request["python"] else StackMethod(0)
    arguments = (request["core"], request["executable"], request["search_path"] or None, mode, request["locals"])
    try:
        threads = get_process_threads_for_core(*arguments, method=method)
    except Exception:
        if not request["python"]:
            raise
        # Without symbols and sections the interpreter is found by searching memory, which is slow.
        threads = get_process_threads_for_core(*arguments, method=StackMethod.ALL)
    return [describe(thread, request) for thread in threads]


def describe(thread: Any, request: dict[str, Any]) -> dict[str, Any]:
    """A thread as plain data; both ends of a deep stack. `dataclasses.asdict` would follow prev and next for ever."""
    chain = []
    frame = thread.frame
    while frame is not None:
        if not frame.is_shim:
            chain.append(frame)
        frame = frame.next
    chain.reverse()
    inner, outer = request["inner"], request["outer"]
    deep = len(chain) > inner + outer
    natives = thread.native_frames[::-1] if request["native"] else []
    deep_native = len(natives) > inner + outer
    return {
        "tid": thread.tid,
        "gil": thread.holds_the_gil,
        "version": list(thread.python_version or ()),
        "total": len(chain),
        "inner": [python_frame(one, request) for one in (chain[:inner] if deep else chain)],
        "outer": [python_frame(one, request) for one in (chain[-outer:] if deep else ())],
        "native_total": len(natives),
        "native_inner": [native_frame(one) for one in (natives[:inner] if deep_native else natives)],
        "native_outer": [native_frame(one) for one in (natives[-outer:] if deep_native else ())],
    }


def python_frame(frame: Any, request: dict[str, Any]) -> dict[str, Any]:
    """A Python frame as plain data, with at most `variables` locals of `text` characters each."""
    limit, text = request["variables"], request["text"]
    # PyStack gives arguments in reverse.
    arguments = [str(name) for name in reversed(list(frame.arguments))]
    values = {**{name: frame.arguments[name] for name in reversed(list(frame.arguments))}, **frame.locals}
    return {
        "function": cut(frame.code.scope, _LONGEST),
        "file": cut(frame.code.filename, _LONGEST),
        "line": frame.code.location.lineno,
        "columns": columns(frame.code.location),
        "entry": frame.is_entry,
        "args": [cut(name, _LONGEST) for name in arguments[:limit]],
        "locals": {cut(str(name), _LONGEST): cut(str(value), text) for name, value in list(values.items())[:limit]},
    }


def columns(at: Any) -> tuple[int, int] | None:
    """Start and end of the expression, in bytes of its line; the end is 0 where it is on another line. None before 3.11."""
    if at.end_lineno < at.lineno or at.column < 0 or (at.column, at.end_column) == (0, 0):
        return None
    return at.column, at.end_column if at.end_lineno == at.lineno else 0


def cut(value: str, most: int) -> str:
    """`value`, cut to `most` characters and an ellipsis."""
    return value if len(value) <= most else value[:most] + "…"


def native_frame(frame: Any) -> dict[str, Any]:
    """A native frame as plain data."""
    function, file, module = (cut(name, _LONGEST) for name in (frame.symbol, frame.path, frame.library))
    return {"pc": frame.address, "function": function, "file": file, "line": frame.linenumber, "module": module}


if __name__ == "__main__":
    main(*sys.argv[1:])
