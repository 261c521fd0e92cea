"""PyStack's rows as our frames. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Optional

from crashkit.debugger.contract import NativeStack, PythonStack
from crashkit.evidence.core.walk import MOST_FRAMES, Walked
from crashkit.model import Address, NativeFrame, PythonFrame
from crashkit.naming.mangled import demangled

_UNKNOWN = "???"


def python_stacks(threads: Sequence[dict[str, Any]]) -> dict[int, PythonStack]:
    """By tid. Several states of one thread (subinterpreters) give one stack: the deepest.

    Thread names are omitted: PyStack reads this host's.
    """
    return {thread["tid"]: _python_stack(thread) for thread in sorted(threads, key=_depth) if thread["total"]}


def native_stacks(threads: Sequence[dict[str, Any]]) -> dict[int, NativeStack]:
    """By tid. A stack without any function name is omitted."""
    stacks = {thread["tid"]: _native_stack(thread) for thread in sorted(threads, key=_depth)}
    return {tid: stack for tid, stack in stacks.items() if any(frame.function for frame in stack.frames)}


def version(threads: Sequence[dict[str, Any]]) -> Optional[str]:
    """Major and minor of the crashed interpreter."""
    versions = {tuple(thread["version"]) for thread in threads if thread["version"]}
    return ".".join(map(str, max(versions))) if versions else None


def _depth(thread: dict[str, Any]) -> int:
    return int(thread["total"])


def _python_stack(thread: dict[str, Any]) -> PythonStack:
    return PythonStack(
        frames=tuple(map(_python_frame, thread["inner"])),
        name=None,
        holds_gil=None if thread["gil"] < 0 else thread["gil"] > 0,
        outer=tuple(map(_python_frame, thread["outer"])),
        total=int(thread["total"]) if thread["outer"] else None,
    )


def walked_stacks(walks: Mapping[int, Sequence[Walked]]) -> dict[int, NativeStack]:
    """By tid: stacks with code that has no unwind tables, where PyStack ends or guesses."""
    return {tid: NativeStack(tuple(map(_walked_frame, frames)), cut=len(frames) >= MOST_FRAMES) for tid, frames in walks.items()}


def _walked_frame(frame: Walked) -> NativeFrame:
    function = _SIGNAL_RETURN if frame.is_signal else demangled(frame.function) if frame.function else None
    return NativeFrame(function=function, pc=Address(frame.pc), trust="signal" if frame.is_signal else None)


def _native_stack(thread: dict[str, Any]) -> NativeStack:
    frames, outer = tuple(map(_native_frame, thread["native_inner"])), tuple(map(_native_frame, thread["native_outer"]))
    # PyStack does not tell whether its walk reached the stack's end.
    return NativeStack(frames, outer, cut=True, between=thread["native_total"] - len(frames) - len(outer) if outer else None)


def _python_frame(row: dict[str, Any]) -> PythonFrame:
    return PythonFrame(
        function=_name(row["function"]),
        file=_name(row["file"]),
        line=row["line"] if row["line"] > 0 else None,
        columns=(row["columns"][0], row["columns"][1]) if row.get("columns") else None,
        args=tuple(map(_text, row["args"])),
        locals={_text(name): _text(value) for name, value in row["locals"].items()},
        origin="pystack",
        entry=row["entry"],
    )


# What glibc has the kernel return to from a signal handler (sysdeps/unix/sysv/linux/x86_64/libc_sigaction.c): the fault lies below it.
_SIGNAL_RETURN = "__restore_rt"


def _native_frame(row: dict[str, Any]) -> NativeFrame:
    function = _text(row["function"])
    inlined = function.endswith(" (inlined)")
    # Of a function without a name, PyStack gives the module as its file.
    known = row["file"] not in ("", _UNKNOWN) and (function != _UNKNOWN or row["line"])
    return NativeFrame(
        function=None if function == _UNKNOWN else function.removesuffix(" (inlined)"),
        file=_text(row["file"]) if known else None,
        line=row["line"] or None,
        module=_text(row["module"]) or None,
        pc=Address(row["pc"]) if row["pc"] else None,
        trust="inline" if inlined else "signal" if function == _SIGNAL_RETURN else None,
    )


def _name(value: str) -> Optional[str]:
    """None for what PyStack 1.7 reads where a name is Latin-1 but not ASCII: bytes before its text (`getStringFromAddress`)."""
    return None if "\0" in value else _text(value)


def _text(value: str) -> str:
    """JSON carries lone surrogates, which no encoder takes: escaped."""
    return value.encode("utf-8", "backslashreplace").decode()
