"""One gdb process: start it, send MI commands, return the response to each, never wait past a deadline.

pygdbmi parses MI; its GdbController is not used, because it returns after a silence instead of on the answer, never reads
stderr (gdb freezes after 64 KiB), and does not notice that gdb died.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import resource
import selectors
import subprocess
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Optional

from crashkit import isolation
from crashkit.errors import DebuggerError
from crashkit.gdb_files import SAFE_START, gdb_file, gdb_program

_START = [
    *SAFE_START,
    "--interpreter=mi3",
    "-iex",
    "set confirm off",
    "-iex",
    "set pagination off",
    "-iex",
    "set styling enabled off",
    # Nothing is loaded but what we place: the dead process's link map is not followed.
    "-iex",
    "set stop-on-solib-events 0",
    "-iex",
    "set print demangle on",
    "-iex",
    "set print asm-demangle on",
    "-iex",
    "set python print-stack none",
    "-iex",
    "set backtrace past-main on",
    "-iex",
    "set backtrace past-entry off",
    "-iex",
    "set max-value-size 65536",
    "-iex",
    "set print entry-values no",
]
_PYTHON = {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONNOUSERSITE": "1"}
"""For the interpreter inside gdb."""
BYTECODE = "CRASHKIT_BYTECODE"
"""The variable that names a private folder where that interpreter keeps bytecode of scripts that it was given."""
_MEMORY_LIMIT = 16 << 30
_MOST_RECORD = 1 << 20
_MOST_COMPLAINT = 8 << 10
_RESPONSE = re.compile(rb"(\d{1,9})\^")
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"')
_INSTALL = "Install gdb 12 or newer with Python support (Debian, Ubuntu: apt-get install gdb)."


class Gdb:
    """A running gdb. `deadline` is in seconds from now and covers every command it will get; `environment` adds variables.

    Raises DebuggerError where gdb cannot be started.
    """

    def __init__(self, deadline: float, program: str = "gdb", environment: Optional[dict[str, str]] = None) -> None:
        self._ends = time.monotonic() + deadline
        self._seconds = deadline
        self._token = 0
        self._responses: dict[int, bytes] = {}
        self._buffer = b""
        self._complaints = b""
        self._banner = ""
        self._talking = threading.Lock()
        path = gdb_program(program)
        if path is None:
            raise DebuggerError(f"{program} is not installed", _INSTALL)
        try:
            self._process = isolation.start(
                [path, *_START],
                extra={**_PYTHON, **(environment or {})},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                new_session=True,
            )
        except OSError as error:
            raise DebuggerError(f"{path} could not be started: {error.strerror}", _INSTALL) from error
        with contextlib.suppress(OSError, ValueError):
            resource.prlimit(self._process.pid, resource.RLIMIT_AS, (_MEMORY_LIMIT, _MEMORY_LIMIT))
            resource.prlimit(self._process.pid, resource.RLIMIT_CORE, (0, 0))
        self._selector = selectors.DefaultSelector()
        for stream in (self._process.stdout, self._process.stderr):
            assert stream is not None
            os.set_blocking(stream.fileno(), False)
            self._selector.register(stream, selectors.EVENT_READ)

    def __enter__(self) -> Gdb:
        return self

    def __exit__(self, kind: Optional[type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]) -> None:
        self.close()

    @property
    def pid(self) -> int:
        """gdb's own process id."""
        return self._process.pid

    @property
    def has_ended(self) -> bool:
        """Whether gdb died, or was ended."""
        return self._process.poll() is not None

    def command(self, text: str) -> dict[str, Any]:
        """Send one MI command and return the payload of its response.

        Raises DebuggerError with gdb's words if it reports an error, dies, or does not respond before the deadline.
        """
        return self.response(self.send(text))

    def send(self, text: str) -> int:
        """Send one MI command without waiting. Returns a token for `response`. Raises DebuggerError if gdb has died."""
        with self._talking:
            self._write(text)
            return self._token

    def response(self, token: int, seconds: float = math.inf) -> dict[str, Any]:
        """The payload of the response to a command that was sent; to be asked for once. Raises DebuggerError as `command` does.

        `seconds` shortens the deadline for it.
        """
        ends = min(self._ends, time.monotonic() + seconds)
        with self._talking:
            while token not in self._responses:
                line = self._line(ends)
                if line.startswith(b'~"GNU gdb') and not self._banner:
                    self._banner = line[2:].split(b"\\n")[0].decode("utf-8", "replace").strip('"\n')
                found = _RESPONSE.match(line)
                if found and int(found[1]) <= self._token:
                    self._responses[int(found[1])] = line
            record = _parsed(self._responses.pop(token))
        payload: dict[str, Any] = record["payload"] or {}
        if record["message"] == "error":
            raise DebuggerError(
                f"gdb: {payload.get('msg', 'an error without a message')}", "Run with --no-gdb to get the rest of the report."
            )
        return payload

    def _write(self, text: str) -> None:
        self._token += 1
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(f"{self._token}{text}\n".encode())
            self._process.stdin.flush()
        except (BrokenPipeError, OSError) as error:
            raise self._died() from error

    def console(self, text: str) -> dict[str, Any]:
        """Run a command of gdb's command line."""
        return self.command(in_console(text))

    def version(self) -> str:
        """gdb's name and version."""
        if not self._banner:
            self.command("-gdb-version")
        return self._banner or "gdb"

    def kill(self) -> None:
        """Kill gdb; a command that another thread waits for fails."""
        if self._process.poll() is None:
            isolation.kill(self._process)

    def close(self) -> None:
        """Kill gdb and wait for it."""
        self.kill()
        self._process.wait()
        # epoll forgets that a pipe has ended when the pipe is closed: a thread that has not seen it yet would wait until the deadline.
        with self._talking:
            self._selector.close()
            for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
                if stream is not None:
                    with contextlib.suppress(OSError):
                        stream.close()

    def _line(self, ends: float) -> bytes:
        while True:
            end = self._buffer.find(b"\n")
            if end >= 0:
                line, self._buffer = self._buffer[:end], self._buffer[end + 1 :]
                return line
            if len(self._buffer) > _MOST_RECORD:
                raise DebuggerError("gdb's response is too long", "Try another version of gdb (--gdb PROGRAM).")
            left = ends - time.monotonic()
            if left <= 0:
                raise DebuggerError(
                    f"gdb did not finish within {self._seconds:.0f} s{self._complaint()}",
                    "Allow more time with --timeout SECONDS.",
                )
            for key, _events in self._selector.select(left):
                self._take(key.fileobj)

    def _take(self, stream: Any) -> None:
        try:
            data = os.read(stream.fileno(), 1 << 16)
        except BlockingIOError:
            return
        stderr = self._process.stderr
        if stderr is not None and stream is stderr:
            self._complaints = (self._complaints + data)[-_MOST_COMPLAINT:]
            if not data:
                self._selector.unregister(stderr)
        elif data:
            self._buffer += data
        else:
            raise self._died()

    def _died(self) -> DebuggerError:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=max(0.1, min(2.0, self._ends - time.monotonic())))
        with contextlib.suppress(OSError, AttributeError):
            self._complaints += os.read(self._process.stderr.fileno(), 1 << 16)  # type: ignore[union-attr]
        status = self._process.poll()
        how = "ended" if status is None else f"was killed by signal {-status}" if status < 0 else f"exited with status {status}"
        return DebuggerError(
            f"gdb {how}{self._complaint()}", "Try another version of gdb (--gdb PROGRAM); the rest of the report is unaffected."
        )

    def _complaint(self) -> str:
        lines = self._complaints.decode("utf-8", "replace").strip().splitlines()
        return f": {lines[-1][:300]}" if lines else ""


def _parsed(line: bytes) -> dict[str, Any]:
    """A result record. Raises DebuggerError for anything else."""
    from pygdbmi import gdbmiparser  # gdb is to be started before

    try:
        if _is_whole(line):
            record: dict[str, Any] = gdbmiparser.parse_response(line.decode("utf-8", "replace").rstrip("\r"))
            if record["type"] == "result":
                return record
    except (IndexError, KeyError, TypeError, ValueError, RecursionError):
        pass
    words = line[:80].decode("utf-8", "replace")
    raise DebuggerError(f"cannot parse gdb's response: {words}", "Try another version of gdb (--gdb PROGRAM).")


def _is_whole(record: bytes) -> bool:
    """Whether strings and brackets are closed: on a record that was cut off pygdbmi's parser never returns."""
    rest = _STRING.sub(b"", record).decode("latin-1")
    open_brackets = []
    for character in rest:
        if character in "[{":
            open_brackets.append("]" if character == "[" else "}")
        elif character in "]}" and (not open_brackets or open_brackets.pop() != character):
            return False
    return '"' not in rest and not open_brackets


def in_console(text: str) -> str:
    """The MI command that runs a command of gdb's command line."""
    return f"-interpreter-exec console {quote(text)}"


def open_core(core: Path, folder: Path) -> str:
    """The MI command that opens the core. gdb's versions differ in how they unquote its path: it gets one in this private folder."""
    link = folder / "core"
    link.symlink_to(core.absolute())
    return f"-target-select core {link}"


def quote(text: str) -> str:
    """As an MI argument (a C string)."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


def commands_file() -> Path:
    """The file that defines our MI commands. Raises DebuggerError where the installation lacks it."""
    found = gdb_file("crashkit_commands.py")
    if found is None:
        raise DebuggerError("crashkit's gdb scripts are missing from the installation", "Reinstall crashkit.")
    return found
