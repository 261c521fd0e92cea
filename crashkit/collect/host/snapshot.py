"""Information in /proc about a running process. Its command name and arguments are untrusted text."""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Optional

from crashkit.collect.host.proc import text_of
from crashkit.collect.host.program import program_of
from crashkit.crashfolder.files import open_real
from crashkit.environment import PLACE, rank
from crashkit.evidence.package_versions import package_paths, package_versions
from crashkit.evidence.python_version import version_in_file

_MAX_TEXT = 65536
_MAX_MAPS = 4 << 20


class Stat(NamedTuple):
    """Part of /proc/PID/stat, proc_pid_stat(5)."""

    name: str
    state: str
    ppid: int
    group: int
    session: int
    start: int
    """Clock ticks since boot."""
    exit_code: int
    """As in wait(2); 0 if we may not trace the process."""
    ticks: int = 0
    """Clock ticks for which its threads ran."""


def parse_stat(text: str) -> Optional[Stat]:
    """Parse /proc/PID/stat; None if malformed. The name may contain parentheses, spaces and newlines: the last `)` ends it."""
    opening, closing = text.find("("), text.rfind(")")
    fields = text[closing + 1 :].split()
    if opening < 0 or closing < opening or len(fields) < 50:
        return None
    try:
        parent, group, session, start, status, user, system = (int(fields[index]) for index in (1, 2, 3, 19, 49, 11, 12))
        return Stat(text[opening + 1 : closing], fields[0], parent, group, session, start, status, user + system)
    except ValueError:
        return None


def read_stat(pid: int) -> Optional[Stat]:
    """The stat of a process; None if it is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return parse_stat(file.read(4096).decode("utf-8", "replace"))
    except OSError:
        return None


class ProcessSnapshot(NamedTuple):
    """A process as it was at one moment."""

    pid: int
    start: int
    """Clock ticks since boot."""
    ppid: int
    name: str
    argv: tuple[str, ...]
    executable: Optional[str]
    cwd: Optional[str]
    namespace_pid: int
    """The pid that the process itself sees."""
    libraries: tuple[str, ...]
    """Packages (`.../site-packages/torch`), and CUDA and Python libraries, among its mapped files."""
    first_seen: float
    """As of time.monotonic()."""
    place: tuple[tuple[str, str], ...] = ()
    """The variables that tell which process of which job it is (`environment.PLACE`)."""
    stderr: Optional[str] = None
    """Of a process of a job: the file that its stderr goes to."""

    @property
    def rank(self) -> Optional[int]:
        """Its rank within its job; what a rank starts inherits it."""
        return rank(dict(self.place))


def snapshot(pid: int) -> Optional[ProcessSnapshot]:
    """Look at a process; None if it is gone, has released its memory, or is a kernel thread."""
    stat = read_stat(pid)
    if stat is None or stat.state in "ZX":
        return None
    arguments = _read(pid, "cmdline")
    executable = _link(pid, "exe")
    if not arguments and executable is None:
        return None
    place = _place(pid)
    return ProcessSnapshot(
        pid,
        stat.start,
        stat.ppid,
        stat.name,
        tuple(arguments.rstrip("\0").split("\0")),
        executable,
        _link(pid, "cwd"),
        namespace_pid(_read(pid, "status")) or pid,
        telling_paths(_read(pid, "maps", _MAX_MAPS)),
        time.monotonic(),
        place,
        _link(pid, "fd/2") if rank(dict(place)) is not None else None,
    )


def started(pid: int, argv: Sequence[str], environment: Mapping[str, str]) -> Optional[ProcessSnapshot]:
    """What is known of a child that was just started, also if it has ended already; None if it is gone."""
    stat = read_stat(pid)
    if stat is None:
        return None
    place = tuple((name, value) for name, value in environment.items() if name in PLACE)
    name, program = os.path.basename(argv[0]), program_of((argv[0],), environment.get("PATH"))[0]
    executable = str(program) if program is not None else None
    return ProcessSnapshot(pid, stat.start, os.getpid(), name, tuple(argv), executable, working_folder(), pid, (), time.monotonic(), place)


def _place(pid: int) -> tuple[tuple[str, str], ...]:
    pairs = (entry.partition("=") for entry in _read(pid, "environ").split("\0"))
    return tuple((name, value) for name, _, value in pairs if name in PLACE)


def namespace_pid(status: str) -> Optional[int]:
    """The innermost pid of NSpid in the text of /proc/PID/status; None if absent."""
    match = re.search(r"^NSpid:(?:.*\D)?(\d+)$", status, re.MULTILINE)
    return int(match.group(1)) if match else None


_TELLING = re.compile(r"^.*/lib(?:cuda|cudart|python\d)[^/]*\.so[^/]*$")


def telling_paths(maps: str) -> tuple[str, ...]:
    """The packages and the CUDA and Python libraries among the mapped files of /proc/PID/maps."""
    files = tuple(dict.fromkeys(line[at:] for line in maps.splitlines() if (at := line.find("/")) >= 0))
    return (*package_paths(files), *filter(_TELLING.match, files))


def working_folder() -> str:
    """Working directory of this process. If it was removed, os.getcwd() raises; here it is `/path (deleted)`."""
    return _link(os.getpid(), "cwd") or "/"


def _read(pid: int, name: str, limit: int = _MAX_TEXT) -> str:
    return text_of(f"/proc/{pid}/{name}", limit)


def _link(pid: int, name: str) -> Optional[str]:
    try:
        return os.readlink(f"/proc/{pid}/{name}")
    except OSError:
        return None


def versions(executable: Optional[str], libraries: Iterable[str]) -> dict[str, str]:
    """Versions of Python, of the packages that these mapped files are part of, of CUDA and its driver; nothing is imported."""
    libraries = tuple(libraries)
    found = package_versions(libraries)
    for text in (executable or "", *libraries):
        match = re.search(r"python(\d\.\d+)", text)
        if match:
            found.setdefault("python", match.group(1))
    for path in libraries:
        match = re.search(r"/libcudart\.so\.([\d.]+)$", path)
        if match:
            found.setdefault("cuda", match.group(1))
    if any("/libcuda.so" in path for path in libraries):
        with contextlib.suppress(OSError):
            text = Path("/proc/driver/nvidia/version").read_text(errors="replace")
            match = re.search(r"Kernel Module\D{0,200}?\s(\d+\.[\d.]+)", text)
            if match:
                found["driver"] = match.group(1)
    full = _python_version(executable)
    if full is None and executable and "python" in found:
        shared = (path for path in libraries if "/libpython" in path)
        full = version_in_file(Path(next(shared, executable)), found["python"])
    if full:
        found["python"] = full
    return found


def _head(path: Path) -> str:
    """The beginning of a file beside what crashed. Raises OSError."""
    with open_real(path) as file:
        return file.read(_MAX_TEXT).decode("utf-8", "replace")


def _python_version(executable: Optional[str]) -> Optional[str]:
    """The full version, from the header next to the executable or from `pyvenv.cfg`."""
    if not executable or "python" not in executable:
        return None
    root = Path(executable).parent.parent
    for path, expression in (
        *((header, r'#define PY_VERSION\s+"([^"]+)"') for header in sorted(root.glob("include/python3*/patchlevel.h"))[:1]),
        (root / "pyvenv.cfg", r"(?m)^version(?:_info)?\s*=\s*(\d[\w.]+)"),
    ):
        with contextlib.suppress(OSError):
            match = re.search(expression, _head(path))
            if match:
                return match.group(1)
    return None
