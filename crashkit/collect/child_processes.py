"""What the children are that a live process waits for, and what those wait for themselves.

Sources: proc_pid_syscall(5), proc_pid_stat(5).
"""

from __future__ import annotations

import platform
from collections.abc import Mapping
from typing import Optional

from crashkit.arch import named
from crashkit.collect.host.proc import numbers, text_of
from crashkit.collect.open_files import open_files
from crashkit.naming.waits import KINDS
from crashkit.secrets.text import Secrets
from crashkit.stacks.waits import FILE_CALLS, NO_FILE, kind_of_call

_MOST_CHILDREN = 3
_MOST_COMMAND = 120
_LONGEST = 1 << 16
_MOST_DEPTH = 3
"""Of children that wait for children."""
_STATES = {
    "D": "it waits in the kernel, which no signal interrupts",
    "R": "it runs",
    "T": "it was stopped by a signal, until SIGCONT",
    "t": "a debugger holds it",
    "Z": "it has ended",
}


def awaited_children(pid: int, children: tuple[int, ...]) -> dict[int, str]:
    """In words, by pid: the children that some thread of the process waits for; empty if none does, or nothing may be looked at."""
    calls = [call for tid in numbers(f"/proc/{pid}/task") if (call := _call(f"/proc/{pid}/task/{tid}")) is not None]
    waits = [call for call in calls if kind_of_call(call[0]) == "child"]
    told = {child for name, arguments in waits for child in children if awaited_child(name, arguments) in (None, child)}
    return {child: _described(child, _MOST_DEPTH) for child in sorted(told)[:_MOST_CHILDREN]}


def awaited_child(name: str, arguments: tuple[int, ...]) -> Optional[int]:
    """The pid that wait4(2) or waitid(2) waits for; None for any child."""
    pid = arguments[0] if name == "wait4" else arguments[1] if arguments[0] == 1 else 0
    return pid if 0 < pid < NO_FILE else None


def _described(pid: int, depth: int) -> str:
    """`process 812 (sleep 1000): it waits for a point in time`, without what looks like a secret in its arguments."""
    # It is also kept where no report is made.
    arguments = Secrets().arguments(text_of(f"/proc/{pid}/cmdline", _LONGEST).rstrip("\0").split("\0"))
    command = " ".join(" ".join(arguments).split()) or text_of(f"/proc/{pid}/comm").strip()
    shown = command if len(command) <= _MOST_COMMAND else f"{command[:_MOST_COMMAND]}..."
    return f"process {pid}" + (f" ({shown})" if shown else "") + f": {_state(pid, depth)}"


def _state(pid: int, depth: int) -> str:
    text = text_of(f"/proc/{pid}/stat")
    letter = text[text.rfind(")") + 1 :].strip()[:1]
    call = _call(f"/proc/{pid}")
    if letter != "S" and (letter != "D" or call is None):
        return _STATES.get(letter, "its state cannot be read")
    if call is None:
        return "it is asleep"
    name, arguments = call
    kind = kind_of_call(name)
    if name in FILE_CALLS and (file := open_files(pid).get(arguments[0])) is not None:
        words = KINDS.get(file.kind, "a file")
        return f"it waits for {file.name if file.name.startswith('a ') else f'{words} {file.name}'}"
    if kind == "child" and depth > 1:
        awaited = awaited_child(name, arguments) or next(iter(_children(pid)), None)
        return f"it waits for {_described(awaited, depth - 1)}" if awaited is not None else "it waits for a child process"
    if kind in ("socket", "file", "open"):
        return f"it is in {name}()"
    return f"it waits for {KINDS[kind]}" if kind in KINDS else "it waits for a lock" if name == "futex" else f"it is in {name}()"


def _children(pid: int) -> list[int]:
    return [int(word) for tid in numbers(f"/proc/{pid}/task") for word in text_of(f"/proc/{pid}/task/{tid}/children").split()]


def _call(folder: str) -> Optional[tuple[str, tuple[int, ...]]]:
    """The system call that a thread sleeps in, and its arguments."""
    words = text_of(f"{folder}/syscall").split()
    names: Mapping[int, str] = named(platform.machine()).system_calls
    if len(words) < 7 or not words[0].isdecimal() or int(words[0]) not in names:
        return None
    return names[int(words[0])], tuple(int(word, 16) for word in words[1:7])
