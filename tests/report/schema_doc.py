"""Writes docs/report-schema.md from the model: `python -m tests.report.schema_doc > docs/report-schema.md`."""

from __future__ import annotations

import ast
import inspect
import sys
import types
import typing
from collections.abc import Iterator
from functools import cache
from itertools import pairwise

import msgspec

from crashkit import model
from crashkit.evidence.input import _FORMATS

INTRODUCTION = f"""\
# report.json

The report as a document: UTF-8, one JSON object, schema `{model.SCHEMA}`. `crashkit analyze` writes it next to `report.html`, and
`crashkit analyze --json` prints only this document. In Python, `crashkit.report.json.decode(document)` returns the `Crash` and
`crashkit.report.json.schema()` returns a JSON Schema (2020-12).

## What readers can rely on

- `schema` is always present. Within `{model.SCHEMA}` fields are added, never renamed, removed or given another type.
- Every other field may be null or absent: absent means unknown (empty lists, empty objects and `false` are omitted as well).
- Ignore unknown fields, and accept unknown values: names of signals, reasons, trusts, confidences, symbol states and kinds of frames
  are open sets. This document lists the values written today.
- Addresses are strings, `0x` and 16 hexadecimal digits; offsets are `0x` and as many digits as needed. Sizes are in bytes.
- Frames are listed innermost first: the first one is where the thread was. Native and Python frames of a thread are interleaved,
  except where `python_frames` is present.
- Findings are listed best match first; their ids do not change between releases.
- Strings come from a crashed process and may contain anything, such as escape sequences or markup: sanitize them before display.
  Bytes that are not valid Unicode become U+FFFD. A document is always valid UTF-8 and ends with one newline.
"""

# What a field means where its name and the model say too little.
MEANING = {
    "Crash.crashkit": "Version of crashkit that wrote the document.",
    "Crash.id": "Identifies this crash: time, process id and executable.",
    "Crash.schema": f"`{model.SCHEMA}`.",
    "Crash.source": "What was analysed.",
    "Crash.process": "The process that crashed.",
    "Crash.signal": "The signal that ended it, and why it was sent.",
    "Crash.python": "The interpreter inside it.",
    "Crash.crashed_thread": "The tid of the thread that received the signal.",
    "Crash.threads": "All threads.",
    "Crash.modules": "Files mapped into the process: executable and libraries.",
    "Crash.mappings": "The address space.",
    "Crash.log": "Significant lines of the logs.",
    "Crash.findings": "Known failures that match, best first.",
    "Crash.looked_for": "Known failures that came close.",
    "LookedFor.id": "Stable name of the signature.",
    "LookedFor.title": "The failure, in a few words.",
    "Crash.fingerprint": "Equal for equal crashes.",
    "Crash.soft_errors": "What could not be done, and what to try.",
    "Source.path": "Path as passed by the caller.",
    "Source.truncated": "True if the file is shorter than its headers declare.",
    "Source.compression": f"Compression of the file: {', '.join(_FORMATS)}.",
    "Process.pid": "Process id in the crashed system.",
    "Process.ppid": "Parent process id.",
    "Process.uid": "User id.",
    "Process.argv": "The command line, one item per argument.",
    "Process.architecture": "Such as x86_64.",
    "Signal.number": "Signal number, such as 11.",
    "Signal.name": "Such as SIGSEGV.",
    "Signal.code": "si_code, as reported by the kernel.",
    "Signal.code_name": "Such as SEGV_MAPERR.",
    "Signal.sender_pid": "Process that sent the signal, if a process sent it.",
    "PendingSignal.number": "Signal number, such as 10.",
    "PendingSignal.name": "Such as SIGUSR1.",
    "PythonRuntime.version": "Such as 3.11.7.",
    "PythonRuntime.debug_info": "True if DWARF debug info of the interpreter was found.",
    "PythonRuntime.finalizing": "True if the interpreter was shutting down.",
    "PythonRuntime.free_threaded": "True for a build without the GIL.",
    "NativeFrame.function": "Demangled, as printed by the debugger.",
    "NativeFrame.file": "Source file, as named in the debug info.",
    "NativeFrame.line": "Line in that file, from 1.",
    "NativeFrame.module": "The file that contains the code.",
    "NativeFrame.offset": "Offset of the program counter from the module's base.",
    "NativeFrame.pc": "Program counter.",
    "NativeFrame.args": "Arguments by name, as printed by the debugger.",
    "NativeFrame.locals": "Local variables by name, as printed by the debugger.",
    "PythonFrame.function": "The code object's name.",
    "PythonFrame.file": "The code object's file.",
    "PythonFrame.line": "Line in that file, from 1.",
    "PythonFrame.locals": "The repr of local variables by name, including arguments, limited in length.",
    "ElidedFrames.count": "Number of omitted frames.",
    "Thread.tid": "Kernel thread id.",
    "Thread.name": "The kernel's name of the thread.",
    "Thread.crashed": "True for the thread that received the signal.",
    "Thread.holds_gil": "True if the thread held the GIL.",
    "Module.path": "Path in the crashed system.",
    "Module.build_id": "GNU build-id, hexadecimal.",
    "Module.base": "Load address.",
    "Module.size": "Bytes from its first to its last mapping.",
    "Mapping.start": "First address.",
    "Mapping.end": "First address after it.",
    "Mapping.path": "The mapped file.",
    "Mapping.offset": "Offset of the range in that file.",
    "Instruction.address": "Address of the instruction.",
    "Instruction.text": "Disassembly, Intel syntax.",
    "Instruction.function": "The function it belongs to.",
    "Instruction.faulting": "True for the one that faulted.",
    "GpuException.device": "Index of the GPU.",
    "GpuException.demangled": "The kernel's full C++ name, if it has one.",
    "GpuException.mangled": "The kernel's name as compiled.",
    "GpuException.grid": "Blocks in x, y and z.",
    "GpuException.block": "Threads of a block in x, y and z.",
    "GpuException.cluster": "Blocks of a cluster in x, y and z, if the kernel was launched with clusters.",
    "GpuException.code": "Number of the exception (CUDBGException_t).",
    "GpuException.thread_index": "Of the first faulting thread.",
    "GpuException.pc": "Program counter on the GPU.",
    "GpuException.file": "Source file of the innermost frame, as named in the line table.",
    "GpuException.line": "Line in that file, from 1.",
    "GpuException.lowest": "First of the addresses that the faulting threads used.",
    "GpuPlace.warps": "How many warps were there.",
    "GpuPlace.function": "The function, inlined or not.",
    "GpuPlace.file": "Source file.",
    "GpuPlace.line": "Line in that file, from 1.",
    "GpuPlace.offset": "Offset in the function.",
    "GpuKernel.demangled": "Its full C++ name, if it has one.",
    "GpuKernel.mangled": "Its name as compiled.",
    "GpuKernel.device": "Index of the GPU.",
    "GpuKernel.grid": "Blocks in x, y and z.",
    "GpuKernel.block": "Threads of a block in x, y and z.",
    "GpuKernel.warps": "The number of warps that were on the GPU.",
    "GpuKernel.file": "Source file.",
    "GpuDevice.name": "Such as NVIDIA H200.",
    "Gpu.path": "Path as passed by the caller.",
    "Gpu.pid": "Process id, from the file's name.",
    "Gpu.size": "Bytes of the dump, unpacked.",
    "Gpu.truncated": "True if the file is shorter than its headers declare.",
    "Gpu.driver": "Version of the driver.",
    "Gpu.devices": "The GPUs that the process used.",
    "Gpu.kernels": "Kernels on the GPUs, those with most warps first.",
    "Gpu.launched_from": "The CPU side.",
    "LogLine.path": "Path of the log.",
    "Job.world_size": "How many ranks it had, as far as the evidence shows.",
    "Job.root_cause": "What failed first.",
    "JobProcess.rank": "Its rank in the job.",
    "JobProcess.pid": "Process id on its host.",
    "JobProcess.host": "The host, as its launcher names it.",
    "JobProcess.where": "Where it failed, or where it was.",
    "JobCause.name": "What the lines of the process are marked with, if it has no rank.",
    "JobCause.pid": "Process id on its host.",
    "JobCause.attempt": "Which start of the job it is about, from 0, if there were several.",
    "JobCause.where": "The line.",
    "JobPlace.function": "The function.",
    "JobPlace.file": "Source file.",
    "JobPlace.line": "Line in that file, from 1.",
    "JobCall.dtypes": "Types of its input tensors.",
    "JobCall.where": "The user's own line.",
    "JobCollective.group": "Name of the process group.",
    "JobCollective.sequence": "Number of the collective in its group, as torch counts.",
    "Evidence.text": "The fact in one sentence.",
    "Evidence.module": "Path of the module concerned.",
    "Finding.id": "Stable name of the signature.",
    "Finding.title": "The failure, in a few words.",
    "Finding.severity": "high, medium, low.",
    "Finding.cause": "Why this failure happens.",
    "Finding.evidence": "Facts that support the finding.",
    "Finding.references": "Further reading.",
    "Fingerprint.hash": "Short hash of `frames`.",
    "Fingerprint.frames": "The functions that identify the crash, innermost first.",
    "SoftError.stage": "The stage that failed.",
    "SoftError.message": "What could not be done, in one line.",
}

HEADS = {"NativeFrame": "In `frames`, with `kind` `native`.", "PythonFrame": "In `frames`, with `kind` `python`."}
HEADS["ElidedFrames"] = "In `frames`, with `kind` `elided`. Frames omitted from the middle of a stack."


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


@cache
def classes(module: str) -> dict[str, ast.ClassDef]:
    body = ast.parse(inspect.getsource(sys.modules[module])).body
    return {one.name: one for one in body if isinstance(one, ast.ClassDef)}


def docstrings(struct: type[msgspec.Struct]) -> dict[str, str]:
    """A field's docstring is the string that follows it in the source."""
    body = classes(struct.__module__)[struct.__name__].body
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
