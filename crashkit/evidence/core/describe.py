"""The first description of a crash, from the core's notes alone: in milliseconds and without gdb."""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple, Optional, Union

from msgspec.structs import replace

from crashkit.arch.contract import SignalFrame
from crashkit.arch.operands import Access
from crashkit.crashfolder.ids import identity
from crashkit.elf import notes
from crashkit.elf.file import read_build_id
from crashkit.environment import shown
from crashkit.evidence.core import fault, signal_frame
from crashkit.evidence.core.constants import read_constant
from crashkit.evidence.core.core import Core
from crashkit.evidence.core.disassembly import REACH, disassemble
from crashkit.evidence.core.freed_block import freed_block
from crashkit.evidence.core.modules import LoadedModule, Placed, loaded_modules, place_executable
from crashkit.evidence.core.stack_words import words_into
from crashkit.evidence.core.thread_stack import set_apart, thread_stack
from crashkit.evidence.core.walk import Steps, untabled_steps
from crashkit.evidence.input import Input
from crashkit.evidence.interpreter import Interpreter, find_interpreter
from crashkit.evidence.module_files import Finder, ModuleFile
from crashkit.evidence.python_version import version_in_core, version_in_file
from crashkit.limits import FINDING_SECONDS
from crashkit.memory import mapping_at, string_at
from crashkit.model import Address, Crash, Instruction, Mapping, Module, Process, PythonRuntime, Signal, SoftError, Source, Thread
from crashkit.naming.signals import NOT_FROM_PROCESS, SI_KERNEL, SI_USER, code_name, signal_name, signals_gained
from crashkit.naming.times import utc

PF_FORKNOEXEC = 0x40
"""include/linux/sched.h: forked but did not exec."""
_LONGEST_INSTRUCTION = 16
_LONGEST_CALL = 8
_STACK_WINDOW = 64
_MOST_WALKED = 500
"""Threads."""
_LONGEST_TEXT, _STEP = 4096, 64
_SENT_TO_ANOTHER = "this thread sent the signal to another one of the process"
_SENDER_UNKNOWN = "a thread of the process sent the signal to the whole process: which one is not known"


class Fault(NamedTuple):
    """One reading of the evidence: the signal, and where the thread was when it came."""

    pc: Optional[int]
    signal: Optional[Signal]
    registers: dict[str, int]
    instructions: tuple[Instruction, ...]


class Scene(NamedTuple):
    """The described crash, with what later stages need."""

    crash: Crash
    modules: tuple[LoadedModule, ...]
    files: dict[str, ModuleFile]
    """Maps each module's path to the file found on this machine."""
    interpreter: Optional[Interpreter]
    entry: Optional[int]
    """Entry point of the process (AT_ENTRY)."""
    faults: tuple[Fault, ...] = ()
    """The signal as it was sent, then each fault that a signal handler may have hidden, the outermost last: that one is in `crash`."""
    sent: Optional[Fault] = None
    """The signal as it was sent, by the registers of the instant."""
    blocked: int = 0
    """Signals that the crashed thread had blocked, as it died: bit n-1 for signal n."""
    handlers: tuple[SignalFrame, ...] = ()
    """What looks like signal frames on its stack, the innermost first."""
    counter: str = ""
    """The register with the program counter."""
    forged: Optional[str] = None
    """Why no debugger should read the core."""
    on_stacks: Optional[dict[str, tuple[int, ...]]] = None
    """Addresses in each module, by its path, that may be return addresses (`stack_words`); None where that was not looked for."""
    steps: Steps = Steps()
    """The callers of frames whose code has no unwind tables, as musl's."""


def describe(core: Core, source: Input, finder: Finder, executable: Optional[Path] = None) -> Scene:
    """Describe the crash in `core`. `executable`, if given, is used as the crashed executable's file."""
    modules = tuple(loaded_modules(core))
    main = core.executable()
    files, unlooked = _files(modules, finder)
    process = _process(core, main)
    soft_errors = [*source.soft_errors, *core.soft_errors, *unlooked]
    if not core.files and core.statuses:
        alone = _executable_alone(core, executable)
        if isinstance(alone, SoftError):
            soft_errors.append(alone)
        elif executable is not None:
            core.add_files(alone.mappings)
            modules, main = (alone.module,), alone.module.path
            files = {main: ModuleFile("unverified", executable)}
    elif executable is not None and main is not None:
        soft_errors += _use_executable(executable, main, modules, files)
    soft_errors += [
        SoftError(stage="modules", message=file.detail or "another build", hint=file.hint)
        for file in files.values()
        if file.state == "mismatch"
    ]
    if core.truncated:
        soft_errors.append(
            SoftError(
                stage="notes",
                message=f"the core is truncated: {core.missing:,} bytes of memory are missing",
                hint="Allow the whole core to be written: ulimit -c unlimited, enough free disk space, and enough time.",
            )
        )
    signalled = _signalled(core, files)
    faults = signalled.faults
    # Where the last one is a fault, too, only the stack can tell whether a handler of an earlier one failed: see `stacks.handler`.
    _, signal, crashed_registers, instructions = faults[0 if _is_fault(faults[0]) else -1] if faults else Fault(None, None, {}, ())
    interpreter = find_interpreter(modules, main) or _renamed_interpreter(core, modules, main)
    threads = tuple(
        Thread(
            tid=thread.tid,
            crashed=index == 0 and signal is not None,
            pthread=_optional(core.architecture.pthread(thread.registers, thread.tid, core.read)),
            registers={name: Address(value) for name, value in (crashed_registers if index == 0 else thread.registers).items()},
        )
        for index, thread in enumerate(core.threads())
    )
    if main != process.executable:
        process = replace(process, executable=main)
    registers = [*(thread.registers for thread in core.threads()), *(fault.registers for fault in faults)]
    on_stacks = words_into(core, modules, registers)
    steps = untabled_steps(core, modules, files, {one.tid: one.registers for one in core.threads()[:_MOST_WALKED]})
    crash = Crash(
        id=identity(_written(source.original), process.pid, main or process.name),
        time=utc(_written(source.original)),
        source=Source(
            path=str(source.original),
            kind="core",
            size=source.original_size,
            truncated=core.truncated,
            missing=core.missing or None,
            compression=source.compression,
            minimal=core.left is not None,
        ),
        process=process,
        signal=signal,
        python=_runtime(core, interpreter, files) if interpreter else None,
        crashed_thread=threads[0].tid if threads and signal else None,
        threads=threads,
        modules=tuple(
            Module(
                path=module.path,
                build_id=module.build_id,
                base=Address(module.base),
                size=module.end - module.base,
                symbols={"missing": "missing", "mismatch": "mismatch"}.get(files[module.path].state, "not-needed"),
                found=_elsewhere(module.path, files[module.path]),
            )
            for module in modules
        ),
        mappings=tuple(core.mappings()),
        instructions=instructions,
        soft_errors=tuple(soft_errors),
    )
    return Scene(
        crash,
        modules,
        files,
        interpreter,
        core.auxv.get(notes.AT_ENTRY),
        tuple(faults),
        signalled.sent,
        core.statuses[0].blocked if core.statuses else 0,
        signalled.frames,
        core.architecture.program_counter,
        core.forged,
        on_stacks,
        steps,
    )


def _files(modules: Sequence[LoadedModule], finder: Finder) -> tuple[dict[str, ModuleFile], tuple[SoftError, ...]]:
    """The file of each module; once looking for them has taken too long, the rest counts as missing."""
    files: dict[str, ModuleFile] = {}
    unlooked = 0
    began = time.process_time()
    found: dict[tuple[str, Optional[str]], ModuleFile] = {}
    for module in modules:
        wanted = (module.path, module.build_id)
        if wanted in found:
            files[module.path] = found[wanted]
        elif time.process_time() - began < FINDING_SECONDS:
            files[module.path] = found[wanted] = finder.find(*wanted)
        elif module.path not in files:
            files[module.path] = ModuleFile("missing", detail=f"{module.path} was not looked for")
            unlooked += 1
    if not unlooked:
        return files, ()
    message = f"{unlooked:,} modules were not looked for: finding the others took {FINDING_SECONDS:.0f} s of processor time"
    return files, (SoftError(stage="modules", message=message),)


def _runtime(core: Core, interpreter: Interpreter, files: dict[str, ModuleFile]) -> PythonRuntime:
    module, minor = interpreter.module, interpreter.version
    file = files[module.path].path
    version = version_in_core(core, module, minor) or (version_in_file(file, minor) if file else None) or minor
    return PythonRuntime(version=version, executable=module.path, free_threaded=interpreter.free_threaded)


def _renamed_interpreter(core: Core, modules: Sequence[LoadedModule], main: Optional[str]) -> Optional[Interpreter]:
    """An executable that contains CPython under another name, known by the version that it keeps as text."""
    module = next((module for module in modules if module.path == main), None)
    version = version_in_core(core, module, None) if module else None
    return Interpreter(module, ".".join(version.split(".")[:2]), False) if module and version else None


def _optional(address: Optional[int]) -> Optional[Address]:
    return None if address is None else Address(address)


def _elsewhere(path: str, file: ModuleFile) -> Optional[str]:
    return str(file.path) if file.path and str(file.path) != path else None


def _use_executable(executable: Path, main: str, modules: tuple[LoadedModule, ...], files: dict[str, ModuleFile]) -> list[SoftError]:
    wanted = next((module.build_id for module in modules if module.path == main), None)
    there = read_build_id(executable)
    if wanted and there != wanted:
        return [
            SoftError(
                stage="modules",
                message=f"{executable} is not the executable that crashed: its build-id is {there or 'missing'}, the core has {wanted}",
                hint=f"The core names {main}: pass that file, or omit --exe.",
            )
        ]
    files[main] = ModuleFile("found" if wanted else "unverified", executable)
    return []


def _executable_alone(core: Core, executable: Optional[Path]) -> Union[Placed, SoftError]:
    """The only module that can be placed in a core without a list of mapped files: one of qemu-user, or one with truncated notes."""
    name = string_at(core, core.auxv.get(notes.AT_EXECFN, 0)) or (core.process.name.decode("utf-8", "replace") if core.process else "")
    found = place_executable(executable, name or str(executable), core.auxv) if executable else None
    if found is not None:
        return found
    if executable is not None:
        message = f"{executable} is not the executable that crashed, or the core does not record its load address"
        return SoftError(stage="modules", message=message, hint=f"The core names {name}: pass that file." if name else None)
    return SoftError(
        stage="modules",
        message="the core does not list the process's mapped files, so functions cannot be named",
        hint=f"Pass the executable{f' ({name})' if name else ''} with --exe.",
    )


def _process(core: Core, main: Optional[str]) -> Process:
    arguments, environment = core.arguments_and_environment()
    info = core.process
    if not arguments and info:
        arguments = info.arguments.decode("utf-8", "backslashreplace").split()
    return Process(
        pid=info.pid if info else None,
        ppid=info.ppid if info else None,
        uid=info.uid if info else None,
        name=info.name.decode("utf-8", "backslashreplace") if info else None,
        executable=main,
        argv=tuple(arguments),
        architecture=core.architecture.name,
        forked=bool(info.flags & PF_FORKNOEXEC) if info else None,
        environment=_environment(environment),
    )


def _environment(entries: Sequence[str]) -> dict[str, str]:
    variables = dict(entry.split("=", 1) for entry in entries if "=" in entry)
    kept = shown(variables)
    # Where the process was started: relative names of source files count from there.
    return {**kept, "PWD": variables["PWD"]} if "PWD" in variables else kept


class _Signalled(NamedTuple):
    """What the notes say of the signal."""

    faults: list[Fault]
    """First as it was sent, then each fault that a signal handler may have hidden, the outermost last."""
    sent: Optional[Fault] = None
    frames: tuple[SignalFrame, ...] = ()


def _signalled(core: Core, files: dict[str, ModuleFile]) -> _Signalled:
    if not core.statuses:
        return _Signalled([])
    number = core.signal.number if core.signal else core.statuses[0].signal
    if not number:
        return _Signalled([Fault(None, None, core.statuses[0].registers, ())])
    raw = _raw_signal(core, number)
    mappings, frames, found, hidden = _handled(core, files, raw)
    if core.signal_of_any_thread and not found and not _is_fault(_fault(core, files, raw, mappings, None)):
        # Whichever thread's handler called kill() or pthread_kill() may have gone on since.
        first, others = core.statuses[0].tid, []
        for status in core.statuses[1:]:
            core.put_first(status.tid)
            if _handled(core, files, raw).hidden:
                others.append(status.tid)
        core.put_first(others[0] if len(others) == 1 else first)
        mappings, frames, found, hidden = _handled(core, files, raw)
    elif found and not hidden and found[0].signal is not None and found[0].signal.reason == "sent" and core.put_sender_first():
        # A handler such as faulthandler's sent it again in the thread that the kernel had chosen.
        raw = replace(raw, code=SI_USER, code_name=code_name(number, SI_USER), sender_pid=core.process.pid if core.process else None)
        mappings, frames, found, hidden = _handled(core, files, raw)
    sent = _fault(core, files, raw, mappings, None)
    if core.sent_to_another and sent.signal is not None and sent.signal.reason in ("abort", "raised"):
        sent = sent._replace(signal=replace(sent.signal, reason="raised", detail=_SENT_TO_ANOTHER))
    any_thread = core.signal_of_any_thread and raw.code == SI_USER and len(core.statuses) > 1 and not found
    if any_thread and sent.signal is not None and sent.signal.reason == "raised":
        sent = sent._replace(signal=replace(sent.signal, detail=_SENDER_UNKNOWN))
    # Without a fault behind it, the innermost frame still shows whether the handler raised the signal in its own name.
    faults = [sent, *hidden] if hidden or _is_fault(sent) or _of_another(core, frames, number) else [next(iter(found), sent)]
    return _Signalled(faults, sent, tuple(frames))


def _of_another(core: Core, frames: Sequence[SignalFrame], number: int) -> bool:
    """Whether the handler was one of another signal than that which ended the process: that one is blocked while it runs."""
    gained = signals_gained(core.statuses[0].blocked, frames[0].blocked) if frames else frozenset()
    return bool(gained) and number not in gained


class _Handled(NamedTuple):
    """What the signal frames on the first thread's stack tell."""

    mappings: Sequence[Mapping]
    """With that stack set apart."""
    frames: list[SignalFrame]
    found: list[Fault]
    hidden: list[Fault]
    """Of these, the faults that a handler hid."""


def _handled(core: Core, files: dict[str, ModuleFile], raw: Signal) -> _Handled:
    registers = core.statuses[0].registers
    mappings = set_apart(core.mappings(), thread_stack(core, registers.get(core.architecture.thread_pointer or "")))
    frames: list[SignalFrame] = []
    if raw.code is not None:
        frames = signal_frame.chain(core, registers.get(core.architecture.stack_pointer, 0), mappings)
    masks = [core.statuses[0].blocked, *(frame.blocked for frame in frames)]
    found = [_fault(core, files, raw, mappings, frame, signals_gained(*pair)) for frame, pair in zip(frames, pairwise(masks), strict=True)]
    return _Handled(mappings, frames, found, [fault for fault in found if fault.signal is not None and fault.signal.recovered])


def _is_fault(fault: Fault) -> bool:
    """Whether the kernel sent the signal for what the thread itself did."""
    return fault.signal is not None and fault.signal.code is not None and fault.signal.code > 0 and not fault.signal.recovered


def _fault(
    core: Core,
    files: dict[str, ModuleFile],
    raw: Signal,
    mappings: Sequence[Mapping],
    frame: Optional[SignalFrame],
    handled: frozenset[int] = frozenset(),
) -> Fault:
    registers = {**core.statuses[0].registers, **(frame.registers if frame else {})}
    pc = registers.get(core.architecture.program_counter)
    sp = registers.get(core.architecture.stack_pointer)
    code = read_constant(core, files, pc, _LONGEST_INSTRUCTION) if pc is not None else b""
    signal = fault.explain(
        raw,
        core.architecture,
        registers,
        code,
        mappings,
        frame.trap if frame else None,
        pid=core.process.pid if core.process else None,
        stack=core.read(sp, _STACK_WINDOW) if sp is not None else b"",
        info=frame.info if frame else None,
        handled=handled,
        before=read_constant(core, files, pc - 1, 1) if frame and pc else b"",
        read=core.read,
    )
    used = _accesses(core, files, signal, code, registers)
    if used and (block := freed_block(core, signal, used, registers, mappings)) is not None:
        signal = replace(signal, freed=Address(block))
    instructions: tuple[Instruction, ...] = ()
    if pc is not None and code:
        start = pc - len(_code_before(core, files, pc, mappings))
        instructions = disassemble(read_constant(core, files, start, pc - start + REACH), start, pc, core.architecture)
    return Fault(pc, signal, registers, instructions)


def _accesses(core: Core, files: dict[str, ModuleFile], signal: Signal, code: bytes, registers: dict[str, int]) -> Sequence[Access]:
    """The memory that the instruction which failed uses; of a jump to where no code is, the memory that the call took its target from."""
    arch = core.architecture
    if signal.reason is None:
        return ()
    if signal.access != "execute":
        decoded = arch.decode(code, registers) if code else None
        return decoded.accesses if decoded is not None else ()
    sp = registers.get(arch.stack_pointer)
    back = arch.return_address(registers, core.read(sp, core.word.size)) if sp is not None else None
    if back is None or back < _LONGEST_CALL:
        return ()
    before = read_constant(core, files, back - _LONGEST_CALL, _LONGEST_CALL)
    calls = (arch.decode(before[at:], registers) for at in range(len(before)))
    # Where one instruction ends, several may begin, of which one was run.
    ending = (one for at, one in enumerate(calls) if one is not None and one.mnemonic == "call" and one.size == len(before) - at)
    return [access for one in ending for access in one.accesses if access.kind == "read"]


def _raw_signal(core: Core, number: int) -> Signal:
    info = core.signal
    if info is None:
        return Signal(number=number, name=signal_name(number))
    sent = info.code <= 0
    return Signal(
        number=number,
        name=signal_name(number),
        code=info.code,
        code_name=code_name(number, info.code),
        address=None if sent or info.code == SI_KERNEL else Address(info.address),
        sender_pid=info.pid if sent and info.code not in NOT_FROM_PROCESS else None,
    )


def text_at(core: Core, files: dict[str, ModuleFile], address: int) -> Optional[str]:
    """The string at the address, from the core or from the module's file: constants are not dumped by default. None if unreadable."""
    data = b""
    while len(data) < _LONGEST_TEXT and b"\0" not in data:
        part = read_constant(core, files, address + len(data), _STEP) or read_constant(core, files, address + len(data), 1)
        if not part:
            break
        data += part
    text, end, _ = data.partition(b"\0")
    return text.decode("utf-8", "backslashreplace") if end else None


def _code_before(core: Core, files: dict[str, ModuleFile], pc: int, mappings: Sequence[Mapping]) -> bytes:
    home = mapping_at(mappings, pc)
    # What lies in front of the code's mapping is something else.
    most = pc - int(home.start) if home is not None else REACH
    for reach in (min(REACH, most), min(64, most), min(16, most)):
        data = read_constant(core, files, pc - reach, reach)
        if len(data) == reach:
            return data
    return b""


def _written(path: Path) -> Optional[float]:
    """When the file was last written to, in seconds since the epoch."""
    try:
        return path.stat().st_mtime
    except OSError:
        return None
