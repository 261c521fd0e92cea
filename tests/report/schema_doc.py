"""Writes docs/report-schema.md from the model: `python -m tests.report.schema_doc > docs/report-schema.md`."""

from __future__ import annotations

import ast
import inspect
import sys
import types
import typing
from collections.abc import Iterator
from itertools import pairwise

import msgspec

from crashkit import model
from crashkit.evidence.input import _FORMATS

INTRODUCTION = f"""\
# report.json

The report as a document: UTF-8, one JSON object, schema `{model.SCHEMA}`. `crashkit analyze` writes it beside `report.html`, and
`crashkit analyze --json` prints it and nothing else. In Python, `crashkit.report.json.decode(document)` gives the `Crash` back and
`crashkit.report.json.schema()` a JSON Schema (2020-12).

## What readers can rely on

- `schema` is always there. Within `{model.SCHEMA}` fields are added, never renamed, removed or given another type.
- Every other field may be null or absent: absent means not known (an empty list, an empty object and `false` stay out as well).
- Ignore fields that you do not know. Survive values that you do not know: names of signals, reasons, trusts, confidences, symbol states
  and kinds of frames are open sets, and those listed here are the ones written today.
- Addresses are strings, `0x` and 16 hexadecimal digits; offsets are `0x` and as many digits as they need. Sizes are numbers of bytes.
- Frames stand innermost first: the first one is where the thread was. Native and Python frames of a thread are interleaved, except where
  `python_frames` is present.
- Findings stand best first; their ids do not change between releases.
- Strings come from a crashed process and may hold anything, such as escape sequences or markup: clean them before you show them.
  What was not Unicode is U+FFFD. A document is always valid UTF-8 and ends with one newline.
"""

# What a field means where its name and the model say too little.
MEANING = {
    "Crash.crashkit": "Version of crashkit that wrote the document.",
    "Crash.id": "Names this crash: time, process id and executable.",
    "Crash.schema": f"`{model.SCHEMA}`.",
    "Crash.source": "What was analysed.",
    "Crash.process": "The process that crashed.",
    "Crash.signal": "The signal that ended it, and why it was sent.",
    "Crash.python": "The interpreter inside it.",
    "Crash.crashed_thread": "The tid of the thread that the signal hit.",
    "Crash.threads": "All threads.",
    "Crash.modules": "Files mapped into the process: executable and libraries.",
    "Crash.mappings": "The address space.",
    "Crash.log": "Telling lines of the logs.",
    "Crash.findings": "Known failures that match, best first.",
    "Crash.fingerprint": "Equal for equal crashes.",
    "Crash.soft_errors": "What could not be done, and how to get it.",
    "Source.path": "As it was given.",
    "Source.truncated": "True where the file is shorter than its headers say.",
    "Source.compression": f"How the file was packed: {', '.join(_FORMATS)}.",
    "Process.pid": "Process id, as the kernel of the crashed system numbered it.",
    "Process.ppid": "Process id of its parent.",
    "Process.uid": "Its user's id.",
    "Process.argv": "The command line, an argument an item.",
    "Process.architecture": "Such as x86_64.",
    "Signal.number": "As the kernel counts: 11.",
    "Signal.name": "SIGSEGV and the like.",
    "Signal.code": "si_code, as the kernel gave it.",
    "Signal.code_name": "SEGV_MAPERR and the like.",
    "Signal.sender_pid": "Who sent the signal, where a process did.",
    "PythonRuntime.version": "Such as 3.11.7.",
    "PythonRuntime.debug_info": "True where the interpreter has DWARF debug info here.",
    "PythonRuntime.finalizing": "True where the interpreter was shutting down.",
    "PythonRuntime.free_threaded": "True for a build without the GIL.",
    "NativeFrame.function": "Demangled, as the debugger gives it.",
    "NativeFrame.file": "Its source file, as the debug info names it.",
    "NativeFrame.line": "Line in that file, from 1.",
    "NativeFrame.module": "The file whose code this is.",
    "NativeFrame.offset": "Of the program counter from the module's base.",
    "NativeFrame.pc": "Program counter.",
    "NativeFrame.args": "Arguments as the debugger prints them, by name.",
    "NativeFrame.locals": "Local variables as the debugger prints them, by name.",
    "PythonFrame.function": "The code object's name.",
    "PythonFrame.file": "The code object's file.",
    "PythonFrame.line": "Line in that file, from 1.",
    "PythonFrame.locals": "The repr of local variables, arguments among them, bounded, by name.",
    "ElidedFrames.count": "How many.",
    "Thread.tid": "Thread id, as the kernel numbers it.",
    "Thread.name": "The kernel's name of the thread.",
    "Thread.crashed": "True for the thread that the signal hit.",
    "Thread.holds_gil": "Whether it held the GIL.",
    "Module.path": "As the crashed system named it.",
    "Module.build_id": "GNU build-id, hexadecimal.",
    "Module.base": "Where it was loaded.",
    "Module.size": "Bytes from its first to its last mapping.",
    "Mapping.start": "First address.",
    "Mapping.end": "First address after it.",
    "Mapping.path": "The file it maps.",
    "Mapping.offset": "Of the range within that file.",
    "Instruction.address": "Where it stands.",
    "Instruction.text": "Disassembled, Intel syntax.",
    "Instruction.function": "The function it belongs to.",
    "Instruction.faulting": "True for the one that faulted.",
    "LogLine.path": "The log.",
    "Evidence.text": "The fact, in words.",
    "Evidence.module": "Path of the module that it is about.",
    "Finding.id": "Stable name of the signature.",
    "Finding.title": "The failure, in a few words.",
    "Finding.severity": "high, medium, low.",
    "Finding.cause": "Why this failure happens.",
    "Finding.evidence": "What it rests on.",
    "Finding.references": "Where to read on.",
    "Fingerprint.hash": "Short hash of `frames`.",
    "Fingerprint.frames": "The functions that identify the crash, innermost first.",
    "SoftError.stage": "The stage that failed.",
    "SoftError.message": "What could not be done, in one line.",
}

HEADS = {"NativeFrame": "In `frames`, with `kind` `native`.", "PythonFrame": "In `frames`, with `kind` `python`."}
HEADS["ElidedFrames"] = "In `frames`, with `kind` `elided`. Frames left out of the middle of a stack."


def document() -> str:
    parts = [INTRODUCTION]
    for struct in structs():
        head = HEADS.get(struct.__name__) or inspect.cleandoc(struct.__doc__ or "")
        parts.append(f"## {struct.__name__}\n\n{head}".rstrip() if struct is not model.Crash else "## The document")
        parts.append("\n".join(("| field | type | meaning |", "|---|---|---|", *rows(struct))))
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"


def structs() -> list[type[msgspec.Struct]]:
    """Crash first, then in the order of its fields."""
    found: list[type[msgspec.Struct]] = []
    waiting: list[type[msgspec.Struct]] = [model.Crash]
    while waiting:
        struct = waiting.pop(0)
        if struct not in found:
            found.append(struct)
            waiting += [kind for hint in hints(struct).values() for kind in inside(hint)]
    return found


def hints(struct: type[msgspec.Struct]) -> dict[str, typing.Any]:
    return typing.get_type_hints(struct)


def inside(hint: typing.Any) -> Iterator[type[msgspec.Struct]]:
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        yield hint
    for part in typing.get_args(hint):
        yield from inside(part)


def rows(struct: type[msgspec.Struct]) -> Iterator[str]:
    told = docstrings(struct)
    for field in msgspec.structs.fields(struct):
        words = [told.get(field.name), MEANING.get(f"{struct.__name__}.{field.name}")]
        meaning = " ".join(word for word in words if word)
        if not meaning:
            raise LookupError(f"{struct.__name__}.{field.name} has no docstring in the model and no meaning here")
        yield f"| `{field.encode_name}` | {shown(hints(struct)[field.name])} | {meaning.replace('|', chr(92) + '|')} |"


def docstrings(struct: type[msgspec.Struct]) -> dict[str, str]:
    """A field's docstring is the string that follows it in the source."""
    body = ast.parse(inspect.getsource(struct)).body[0].body  # type: ignore[attr-defined]
    return {
        field.target.id: " ".join(text.value.value.split())
        for field, text in pairwise(body)
        if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant)
    }


def shown(hint: typing.Any) -> str:
    names = {str: "string", int: "integer", float: "number", bool: "boolean", model.Address: "address", model.Offset: "offset"}
    if hint in names:
        return names[hint]
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return f"[{hint.__name__}](#{hint.__name__.lower()})"
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if origin is tuple:
        return f"list of {shown(parts[0])}"
    if origin is dict:
        return f"object of {shown(parts[1])}"
    if origin in (typing.Union, types.UnionType):
        return " or ".join(shown(part) for part in parts if part is not type(None))
    raise LookupError(f"no name for {hint}")


if __name__ == "__main__":
    sys.stdout.write(document())
