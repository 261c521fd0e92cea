"""Fetch a core from the program that the kernel piped it to: from systemd-coredump with coredumpctl, from apport's folders."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import stat
import subprocess
import time
from pathlib import Path
from typing import Optional

from crashkit import isolation
from crashkit.collect.host.core_pattern import CorePattern
from crashkit.crashfolder.files import create, open_regular

APPORT_CORES = Path("/var/lib/apport/coredump")
APPORT_REPORTS = Path("/var/crash")


def fetch(pattern: CorePattern, pid: int, since: float, cwd: Optional[str], target: Path, patience: float = 30.0) -> Optional[str]:
    """Write the core of `pid`, which died after `since` (epoch seconds), to `target`; the reason of a failure, else None.

    Waits up to `patience` seconds until the handler has the core.
    """
    deadline = time.monotonic() + patience
    while True:
        if pattern.handler == "systemd-coredump":
            failure = _from_coredumpctl(pid, since, target)
        elif pattern.handler == "apport":
            failure = _from_apport(pid, since, cwd, target)
        else:
            return f"the kernel piped the core to {pattern.text}"
        if failure is None or time.monotonic() > deadline:
            return failure
        time.sleep(0.5)


def _from_coredumpctl(pid: int, since: float, target: Path) -> Optional[str]:
    program = isolation.find_program("coredumpctl")
    if program is None:
        return "the kernel piped the core to systemd-coredump, and coredumpctl is not installed"
    stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(since - 1))
    command = [program, "dump", "-1", "--quiet", "--no-pager", f"--since={stamp}", f"--output={target}", f"COREDUMP_PID={pid}"]
    try:
        result = isolation.run(command, 120)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"coredumpctl failed: {error}"
    if result.returncode == 0 and target.exists() and target.stat().st_size:
        target.chmod(0o600)
        return None
    with contextlib.suppress(OSError):
        target.unlink()
    return f"coredumpctl has no core of process {pid}: {' '.join(result.stderr.split())[:300]}"


def apport_names(names: list[str], pid: int) -> list[str]:
    """Files of this process in apport's core folder: core.EXE.UID.BOOT-ID.PID.TICKS."""
    return [name for name in names if re.fullmatch(rf"core\..*\.\d+\.[0-9a-f-]{{36}}\.{pid}\.\d+", name)]


def _from_apport(pid: int, since: float, cwd: Optional[str], target: Path) -> Optional[str]:
    candidates = []
    with contextlib.suppress(OSError):
        candidates = [APPORT_CORES / name for name in apport_names(os.listdir(APPORT_CORES), pid)]
    if cwd is not None:
        candidates += [Path(cwd) / "core", Path(cwd) / f"core.{pid}"]
    for path in candidates:
        with contextlib.suppress(OSError), contextlib.ExitStack() as stack:
            # Anyone may have put a link or a FIFO there.
            found = stack.enter_context(open_regular(path))
            if os.fstat(found.fileno()).st_mtime >= since - 1:
                shutil.copyfileobj(found, stack.enter_context(create(target)), 1 << 20)
                return None
    program = isolation.find_program("apport-unpack")
    if program is not None:
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            return _unpack_apport(program, pid, since, target)
    return f"apport left no core of process {pid} in {APPORT_CORES}, {APPORT_REPORTS} or its working directory"


def _unpack_apport(program: str, pid: int, since: float, target: Path) -> Optional[str]:
    """apport's reports contain the core in base64; its own tool unpacks them.

    Everyone may write into its folder, links and FIFOs too: only reports of root's or our own are unpacked.
    """
    for report in APPORT_REPORTS.glob("*.crash"):
        about = os.lstat(report)
        if not stat.S_ISREG(about.st_mode) or about.st_uid not in (0, os.geteuid()) or about.st_mtime < since - 1:
            continue
        folder = target.parent / ".apport"
        try:
            if isolation.run([program, str(report), str(folder)], 300).returncode:
                continue
            status = (folder / "ProcStatus").read_text(errors="replace")
            if re.search(rf"^Pid:\s*{pid}$", status, re.MULTILINE):
                os.rename(folder / "CoreDump", target)
                return None
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    return f"no report in {APPORT_REPORTS} is about process {pid}"
