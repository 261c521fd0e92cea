"""Check whether a crash would leave evidence here. Each finding comes with its fix."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple, Optional

from crashkit import isolation
from crashkit.collect.host import asan, cuda, outlook
from crashkit.collect.host.limits import FILTER, NEEDED, core_limit
from crashkit.collect.host.outlook import Facts
from crashkit.collect.host.program import program_of
from crashkit.collect.host.snapshot import working_folder
from crashkit.crashfolder.store import Store, home
from crashkit.crashfolder.temporary import temporary_parent
from crashkit.debugger.gdb.libpython_file import is_trusted
from crashkit.elf.file import has_dwarf, read_build_id
from crashkit.errors import CollectError
from crashkit.gdb_files import DEBUG_ROOT, SAFE_START, gdb_program
from crashkit.history.address import INSTALL, NONE, VARIABLE, chosen, default, installed
from crashkit.history.index import shown
from crashkit.history.spool import Spool, waiting_anywhere

_GDB_NEEDED = 12
_SECONDS = 30


class Finding(NamedTuple):
    """The result of one check."""

    check: str
    state: str
    """ok, warning or problem."""
    message: str
    mend: Optional[str] = None
    """A command or an action that fixes it."""


def examine(command: tuple[str, ...] = ()) -> list[Finding]:
    """All findings for a command started here and now; for this interpreter if none is given."""
    facts = outlook.gather(working_folder())
    findings = [*core_findings(facts), filter_finding(_filter()), *store_findings(), *history_findings(), *gdb_findings()]
    findings += [ptrace_finding(), asan_finding()]
    findings += interpreter_findings(command)
    if os.path.exists("/proc/driver/nvidia/version") or any(name.startswith("CUDA_") for name in os.environ):
        findings += cuda_findings(os.environ)
    findings.append(
        Finding(
            "container",
            "ok",
            "running in a container: the core pattern is set on the host" if facts.container else "not running in a container",
        )
    )
    return findings


def core_findings(facts: Facts) -> Iterator[Finding]:
    """Core limit, core pattern, setuid and core name."""
    problems = outlook.judge(facts)
    soft, hard = core_limit()
    for problem in problems:
        if problem.fatal and can_trace():
            yield Finding("core", "warning", f"{problem.message}; crashkit run traces the command with gdb instead", problem.mend)
        else:
            yield Finding("core", "problem" if problem.fatal else "warning", problem.message, problem.mend)
    if not problems:
        limit = "unlimited" if hard < 0 else f"{hard} bytes"
        raised = "" if soft == hard else " (the soft limit is lower; crashkit run raises it)"
        yield Finding("core limit", "ok", f"cores can be written: hard limit {limit}{raised}")
    if not outlook.judge(facts._replace(hard_limit=-1)):
        yield Finding("core pattern", "ok", _who_gets_it(facts))
    if facts.suid_dumpable == 0 and os.geteuid() == 0:
        yield Finding(
            "setuid",
            "warning",
            "a process that changes its user (gunicorn --user) leaves no core: fs.suid_dumpable is 0",
            "Start it as that user, or run: sysctl -w fs.suid_dumpable=2 with an absolute core_pattern (as root, on the host)",
        )
    if facts.pattern.kind == "file" and not facts.pattern.unique:
        yield Finding(
            "core name",
            "ok",
            f"all processes use the same core name ({facts.pattern.text}): crashkit run saves each core before the next overwrites it",
            "sysctl -w kernel.core_uses_pid=1 (as root, on the host)",
        )
    if older := older_core(facts):
        yield Finding(
            "older core",
            "warning",
            f"the next crash overwrites {older}, unless it runs under crashkit run with a soft core limit of 0",
            f"mv {older} {older}.old",
        )


def older_core(facts: Facts) -> Optional[str]:
    """A core that the next one would overwrite, where the pattern has one name for all."""
    name = os.path.basename(facts.pattern.text)
    if facts.folder is None or facts.pattern.unique or "%" in name:
        return None
    path = os.path.join(facts.folder, name)
    return path if os.path.lexists(path) else None


def can_trace() -> bool:
    """Whether crashkit run can save a core with gdb where the kernel writes none."""
    return shutil.which("gdb") is not None and ptrace_finding().state == "ok"


def _who_gets_it(facts: Facts) -> str:
    if facts.pattern.handler:
        return f"cores go to {facts.pattern.handler}; crashkit run fetches them from there"
    where = facts.folder if facts.pattern.relative is False else "the working directory of the crashed process"
    return f"the kernel writes {facts.pattern.text!r} into {where}"


def _filter() -> Optional[int]:
    try:
        return int(FILTER.read_text(), 16)
    except (OSError, ValueError):
        return None


def filter_finding(current: Optional[int]) -> Finding:
    """Check a value of coredump_filter; None if it cannot be read. Pure."""
    if current is None:
        return Finding("coredump filter", "warning", "cannot read /proc/self/coredump_filter")
    if current & NEEDED != NEEDED:
        return Finding(
            "coredump filter",
            "warning",
            f"cores lack memory that stacks need: coredump_filter is {current:#x}",
            "echo 0x33 > /proc/self/coredump_filter",
        )
    return Finding("coredump filter", "ok", f"cores contain heaps, stacks and ELF headers: coredump_filter is {current:#x}")


def store_findings() -> Iterator[Finding]:
    """Check that the crash store is writable and its disk has space."""
    path = home()
    try:
        free = Store().free()
    except CollectError as error:
        yield _no_store(str(error), error.hint)
        return
    if not os.access(path, os.W_OK | os.X_OK):
        yield _no_store(f"{path} is not writable", "Set CRASHKIT_HOME to a writable folder.")
    elif free < 1 << 30:
        yield Finding(
            "crash store",
            "warning",
            f"only {free >> 20} MiB free in {path}",
            "Free some space, or set CRASHKIT_HOME to a folder on another disk.",
        )
    else:
        yield Finding("crash store", "ok", f"{path}, {free >> 30} GiB free")


def _no_store(message: str, mend: Optional[str]) -> Finding:
    """crashkit run keeps its crashes in a temporary folder then, where there is one."""
    parent = temporary_parent()
    if parent is None:
        return Finding("crash store", "problem", message, mend)
    return Finding("crash store", "warning", f"{message}: crashkit run keeps crashes below {parent} instead", mend)


def history_findings() -> Iterator[Finding]:
    """Whether crashes are recorded in a history, and whether some wait for it."""
    index = chosen(None, os.environ, home())
    if index == NONE:
        why = "SQLAlchemy is not installed" if not installed() else f"{VARIABLE} is {NONE}, or the crash store cannot be written"
        yield Finding("history", "ok", f"no history of crashes is kept: {why}", None if installed() else INSTALL)
    else:
        yield Finding("history", "ok", f"crashes are recorded in {shown(index)}; crashkit groups lists them")
    own = len(Spool(home(), default(home())).waiting())
    if own:
        yield Finding("history", "ok", f"{own} more will be recorded at the next crash, or when crashkit groups is run")
    if waiting := waiting_anywhere(home()) - own:
        yield Finding(
            "history",
            "warning",
            f"{waiting} {'crash waits' if waiting == 1 else 'crashes wait'} in {home()} for a history that was unavailable",
            "crashkit groups, with the same --index",
        )


def asan_finding(root: Path = Path("/")) -> Finding:
    """Whether `crashkit run --asan` would find its library below `root`."""
    try:
        return Finding("asan", "ok", f"crashkit run --asan finds errors that corrupt memory, with {asan.library(root)}")
    except CollectError as error:
        return Finding("asan", "ok", "no libasan.so: crashkit run --asan is not possible", error.hint)


def gdb_findings() -> Iterator[Finding]:
    """Check that gdb (or cuda-gdb, where there is no other) runs, is new enough and has Python."""
    program = gdb_program()
    if program is None:
        yield Finding("gdb", "warning", "gdb is not installed: reports lack arguments and most native names", "apt-get install gdb")
        return
    question = "python import sys; print('python', sys.version_info[0])"
    try:
        answer = isolation.run([program, *SAFE_START, "-batch", "--version"], _SECONDS)
        python = isolation.run([program, *SAFE_START, "-batch", "-ex", question], _SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        yield Finding("gdb", "problem", f"cannot run {program}: {error}", "apt-get install --reinstall gdb")
        return
    first = (answer.stdout.splitlines() or ["unknown version"])[0]
    version = re.search(r"(\d{1,9})\.\d\S{0,99}$", first)
    if version is not None and int(version.group(1)) < _GDB_NEEDED:
        yield Finding("gdb", "problem", f"{first} is too old", f"Install gdb {_GDB_NEEDED} or newer.")
    elif "python 3" not in python.stdout:
        yield Finding("gdb", "problem", f"{first} was built without Python", "apt-get install gdb (gdb-minimal has no Python)")
    else:
        yield Finding("gdb", "ok", f"{first}, with Python")


def ptrace_finding() -> Finding:
    """Whether tracing is allowed, from Yama's ptrace_scope and our user. A container's seccomp filter shows only on a real attempt."""
    try:
        scope = int(Path("/proc/sys/kernel/yama/ptrace_scope").read_text())
    except (OSError, ValueError):
        scope = 0
    words = {
        0: "processes may trace other processes of the same user",
        1: "only an ancestor may trace a process; crashkit run --capture ptrace takes care of that",
        2: "only root may trace processes",
        3: "no process may be traced",
    }
    if scope >= 2 and not (scope == 2 and os.geteuid() == 0):
        return Finding(
            "ptrace", "warning", f"{words[min(scope, 3)]}: --capture ptrace will not work", "sysctl -w kernel.yama.ptrace_scope=1 (as root)"
        )
    return Finding("ptrace", "ok", words[min(scope, 3)])


def interpreter_findings(command: tuple[str, ...]) -> Iterator[Finding]:
    """Check that the command's interpreter has debug info and libpython.py."""
    program, failure = program_of(command)
    if program is None:
        yield Finding("command", "problem", failure or "unknown", "Give the full path of the program, or add its folder to PATH.")
        return
    if "python" not in program.name:
        yield Finding("command", "ok", f"{program} is not a Python interpreter; any Python that it starts is examined when it crashes")
        return
    module = _library(program) or program
    script = _libpython_script(program, module)
    debug = has_debug_info(module)
    if debug and script is not None and not is_trusted(script.resolve()):
        yield Finding(
            "interpreter",
            "warning",
            f"{script} will not be run: it or a folder above it is writable by others, or belongs to another user",
            f"chmod go-w on it and on each folder above it, or pass it: crashkit analyze --libpython {script}",
        )
        return
    if debug and script is not None:
        yield Finding("interpreter", "ok", f"{module} has debug info, and {script}")
        return
    missing = [word for word, there in (("debug info", debug), ("libpython.py for gdb", script is not None)) if not there]
    yield Finding(
        "interpreter",
        "ok",
        f"{module} has no {' and no '.join(missing)}: Python stacks are read without gdb, interpreter frames have no line numbers",
        f"apt-get install {program.name}-dbg" if str(program).startswith("/usr/bin/") else None,
    )


def _library(program: Path) -> Optional[Path]:
    """The libpython that a shared build loads; None for a static build."""
    return next(iter(sorted(program.parent.parent.glob(f"lib/lib{program.name}*.so.*"))), None)


def _libpython_script(program: Path, module: Path) -> Optional[Path]:
    auto_load = Path("/usr/share/gdb/auto-load")
    names = [file.with_name(f"{file.name}-gdb.py") for file in (program, module)]
    return next((name for name in [*names, *(auto_load / str(name).lstrip("/") for name in names)] if name.is_file()), None)


def has_debug_info(module: Path) -> bool:
    """Whether the module or the debug file of its build-id has DWARF."""
    if has_dwarf(module):
        return True
    build_id = read_build_id(module)
    return build_id is not None and Path(DEBUG_ROOT, ".build-id", build_id[:2], f"{build_id[2:]}.debug").is_file()


def cuda_findings(environment: Mapping[str, str]) -> Iterator[Finding]:
    """Check the variables that enable GPU core dumps. Pure."""
    if environment.get("CUDA_ENABLE_COREDUMP_ON_EXCEPTION") != "1":
        yield Finding("CUDA core dumps", "warning", "a GPU exception would leave no GPU core dump", "crashkit run --cuda -- COMMAND")
        return
    unset = [name for name in cuda.variables({}, Path("/")) if name not in environment]
    if "CUDA_COREDUMP_FILE" in environment and not environment["CUDA_COREDUMP_FILE"].startswith("/"):
        yield Finding(
            "CUDA core dumps",
            "warning",
            "CUDA_COREDUMP_FILE is relative: the dump may end up in any folder",
            "Unset CUDA_COREDUMP_FILE and use crashkit run --cuda.",
        )
    elif unset:
        yield Finding("CUDA core dumps", "ok", f"on; not set: {', '.join(unset)}", "crashkit run --cuda sets them")
    else:
        yield Finding("CUDA core dumps", "ok", "on")
