"""Where the kernel writes a core: /proc/sys/kernel/core_pattern, per core(5) and fs/coredump.c. Pure."""

from __future__ import annotations

import re
from typing import NamedTuple, Optional

FIELDS: dict[str, str] = {
    "p": r"\d+",  # pid in the process's own namespace
    "P": r"\d+",  # pid in the initial namespace
    "i": r"\d+",  # tid
    "I": r"\d+",  # tid in the initial namespace
    "u": r"\d+",
    "g": r"\d+",
    "d": r"\d",  # dump mode
    "s": r"\d+",  # signal
    "t": r"\d+",  # seconds since the epoch
    "h": r"[^/]*",  # host name
    "e": r"[^/]*",  # comm; the kernel writes "!" for "/"
    "f": r"[^/]*",  # file name of the executable
    "E": r"[^/]*",  # path of the executable, "!" for "/"
    "c": r"\d+",  # soft core limit
    "C": r"\d+",  # CPU
    "F": r"\d*",  # pidfd, for pipes
}
"""Regular expression for the value of each % field."""

_FIELD = re.compile(r"%(.?)", re.DOTALL)


class CorePattern(NamedTuple):
    """The core_pattern setting."""

    text: str
    """As in /proc/sys/kernel/core_pattern, without the newline."""
    kind: str
    """file, pipe, socket or none."""
    uses_pid: bool = False
    """core_uses_pid: the kernel appends `.PID` if the pattern has no %p."""

    @property
    def relative(self) -> bool:
        """Whether the path is relative to the working directory of the dying process."""
        return self.kind == "file" and not self.text.startswith("/")

    @property
    def program(self) -> str:
        """Path of the program that a pipe starts; empty for other kinds."""
        return self.text[1:].split()[0] if self.kind == "pipe" and self.text[1:].split() else ""

    @property
    def handler(self) -> str:
        """The program that receives a piped core: systemd-coredump, apport, abrt, wsl, discarded, other; empty for files."""
        if self.kind == "socket":
            return "other"
        if self.kind != "pipe":
            return ""
        name = self.program.rsplit("/", 1)[-1]
        for known, handler in HANDLERS.items():
            if name.startswith(known):
                return handler
        return "other"

    @property
    def unique(self) -> bool:
        """Whether two processes never get the same name."""
        return self.kind == "file" and (self.uses_pid or bool(re.search(r"%[pPiI]", self.text.replace("%%", ""))))


HANDLERS = {
    "systemd-coredump": "systemd-coredump",
    "apport": "apport",
    "abrt-hook-ccpp": "abrt",
    "abrt": "abrt",
    "wsl-capture-crash": "wsl",
    "false": "discarded",
    "true": "discarded",
}


def parse(text: str, uses_pid: bool = False) -> CorePattern:
    """The pattern as the kernel reads it. An empty pattern without core_uses_pid writes no core; with it the name is `.PID`."""
    text = text.rstrip("\n")
    if text.startswith("|"):
        return CorePattern(text, "pipe")
    if text.startswith("@"):  # a socket, since Linux 6.16
        return CorePattern(text, "socket")
    if not text and not uses_pid:
        return CorePattern(text, "none")
    has_pid = bool(re.search(r"%p", text.replace("%%", "")))
    return CorePattern(text, "file", uses_pid and not has_pid)


def _expand(text: str, values: dict[str, str]) -> str:
    def replace(match: re.Match[str]) -> str:
        name = match.group(1)
        if name == "%":
            return "%"
        return values.get(name, "*") if name in FIELDS else ""  # the kernel drops a field that it does not know

    return _FIELD.sub(replace, text)


def name_expression(pattern: CorePattern) -> re.Pattern[str]:
    """Matches the full path (absolute patterns) or the path below the working directory (relative ones) of any core.

    The group `pid` is the pid in the process's own namespace, if the name contains it.
    """
    seen_pid = False
    parts = []
    last = 0
    for match in _FIELD.finditer(pattern.text):
        parts.append(re.escape(pattern.text[last : match.start()]))
        last = match.end()
        name = match.group(1)
        if name == "%":
            parts.append("%")
        elif name == "p" and not seen_pid:
            parts.append(r"(?P<pid>\d+)")
            seen_pid = True
        elif name in FIELDS:
            parts.append(FIELDS[name])
    parts.append(re.escape(pattern.text[last:]))
    if pattern.uses_pid:
        parts.append(r"\.(?P<pid>\d+)")
    return re.compile("".join(parts))


def folder_glob(pattern: CorePattern) -> str:
    """The directory part of a file pattern, with `*` for each field; empty for the working directory."""
    folder, slash, _ = pattern.text.rpartition("/")
    expanded = _expand(folder, {})
    return expanded or slash


def resolve(pattern: CorePattern, fields: dict[str, str], cwd: str) -> Optional[str]:
    """The path of the core of one process, from the values of the fields (keys as in FIELDS); None for pipes.

    A missing field becomes `*`, so that the path is a glob. `/` in a value becomes `!`, as the kernel does.
    """
    if pattern.kind != "file":
        return None
    safe = {key: value.replace("/", "!") for key, value in fields.items()}
    name = _expand(pattern.text, safe)
    if pattern.uses_pid:
        name += "." + safe.get("p", "*")
    return name if name.startswith("/") else f"{cwd.rstrip('/')}/{name}"
