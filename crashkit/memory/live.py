"""Reads the memory of a live process on this host, without stopping or tracing it.

Needs the permissions of ptrace (`PTRACE_MODE_ATTACH_REALCREDS`, ptrace(2)): the same user, or CAP_SYS_PTRACE; Yama may restrict more.
Values read at different times may be inconsistent.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Optional

from crashkit.arch import Architecture, of_machine
from crashkit.elf.headers import Word, bounded, of_descriptor, read_header
from crashkit.errors import EvidenceError
from crashkit.memory import PAGE, MemoryThread, scanned
from crashkit.memory.stop import missing_right
from crashkit.model import Address, Mapping, Offset

_MOST_READ = 1 << 30
_MOST_OFFSET = (1 << 63) - 1


class LiveProcess:
    """A running process: a `Memory`. Use as a context manager, or `close` it.

    Raises EvidenceError if there is no such process or reading it is not permitted.
    """

    page = PAGE

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._open_files = ExitStack()
        try:
            # Everything is opened through this folder: a later process with the same number is not mistaken for this one.
            self._folder = self._open(f"/proc/{pid}")
            self._memory = self._open("mem", self._folder)
            header = read_header(bounded(of_descriptor(self._open("exe", self._folder)), 64))
            if header is None:
                raise EvidenceError(f"the executable of process {pid} is not an ELF file", "Only native processes can be read.")
        except FileNotFoundError as error:
            self.close()
            raise EvidenceError(f"no process {pid}", "Pass the pid of a running process, as shown by `ps`.") from error
        except OSError as error:
            self.close()
            raise EvidenceError(f"cannot read the memory of process {pid}: {error.strerror}", missing_right(pid)) from error
        except EvidenceError:
            self.close()
            raise
        self.architecture: Architecture = of_machine(header.machine)
        self.word: Word = header.word

    def _open(self, name: str, folder: Optional[int] = None) -> int:
        descriptor = os.open(name, os.O_RDONLY | os.O_CLOEXEC, dir_fd=folder)
        self._open_files.callback(os.close, descriptor)
        return descriptor

    def __enter__(self) -> LiveProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all open files of the process."""
        self._open_files.close()

    def read_into(self, address: int, target: memoryview) -> int:
        """Read memory into the target; how many bytes there were."""
        try:
            return os.preadv(self._memory, [target], address)
        except (OSError, OverflowError):
            return 0

    def read(self, address: int, size: int) -> bytes:
        """Memory at the address; short or empty if nothing is mapped there or the process has ended."""
        parts = []
        size = min(size, _MOST_READ)
        while size > 0 and 0 <= address <= _MOST_OFFSET:
            try:
                part = os.pread(self._memory, size, address)
            except OSError:
                break
            if not part:
                break
            parts.append(part)
            address += len(part)
            size -= len(part)
        return b"".join(parts)

    def scan(self, start: int, end: int) -> Iterator[tuple[int, bytes]]:
        """What is there between the addresses, up to the first gap."""
        return scanned(self, start, end)

    def mappings(self) -> list[Mapping]:
        """The address space from /proc/PID/maps (proc(5)); empty if the process has ended.

        The names of files are those that the process sees, as in a kernel's core: below a chroot, /proc names them as we see them.
        """
        try:
            with os.fdopen(os.open("maps", os.O_RDONLY | os.O_CLOEXEC, dir_fd=self._folder), "rb") as file:
                lines = file.read().splitlines()
            root = os.readlink("root", dir_fd=self._folder).encode("utf-8", "surrogateescape")
        except OSError:
            return []
        return [_mapping(line, root.rstrip(b"/") + b"/") for line in lines]

    def threads(self) -> list[MemoryThread]:
        """All threads, the main thread first; without registers, which are readable only in a stopped thread."""
        try:
            descriptor = os.open("task", os.O_RDONLY | os.O_CLOEXEC, dir_fd=self._folder)
            try:
                tids = sorted(int(entry.name) for entry in os.scandir(descriptor))
            finally:
                os.close(descriptor)
        except OSError:
            return []
        return [MemoryThread(tid, {}) for tid in sorted(tids, key=lambda tid: tid != self.pid)]


def _mapping(line: bytes, root: bytes) -> Mapping:
    # 7f1c00000000-7f1c00021000 r-xp 00001000 fe:01 1234   /usr/lib/libc.so.6
    fields = line.split(None, 5)
    start, end = (Address(int(number, 16)) for number in fields[0].split(b"-"))
    name = fields[5] if len(fields) > 5 else None
    if name is not None and name.startswith(root):
        name = name[len(root) - 1 :]
    path = name.decode("utf-8", "backslashreplace") if name is not None else None
    offset = Offset(int(fields[2], 16)) if path and path.startswith("/") else None
    return Mapping(start=start, end=end, permissions=fields[1][:3].decode("ascii"), path=path, offset=offset)
