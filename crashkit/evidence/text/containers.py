"""`docker ps -a`, `docker inspect`, and the same of podman.

Sources: docker's cli/command/formatter/container.go, and daemon/container/state.go for `Exited (137) 2 minutes ago`; podman's
cmd/podman/containers/ps.go. For `inspect` docker's api/types/container/container.go (`State`, then `Name`) and podman's
libpod/define/container_inspect.go.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Optional

from crashkit.evidence.text.listing import Ended, Listing, format_of, of_shell

_STATE = '"State": {'
_ENDED = re.compile(r"(?<=  )(?:Up |Created|Paused|Restarting \(\d{1,3}\)|Exited \((?P<code>\d{1,3})\)|Dead|Removal In Progress)")


def _read(lines: Iterable[str]) -> Iterator[Ended]:
    for row, line in enumerate(lines):
        if match := _ENDED.search(line):
            status = of_shell(int(match["code"])) if match["code"] else None
            yield Ended(line.split()[-1], line.strip(), status, runs=match[0].startswith("Up"), row=row)


_FACT = re.compile(r'^ *"(?P<key>Running|OOMKilled|ExitCode|Name)": "?/?(?P<value>[\w.-]{1,200})"?,?$')


def _inspected(lines: Iterable[str]) -> Iterator[Ended]:
    """The first name behind a state is the container's own."""
    state: Optional[dict[str, str]] = {}
    told = 0
    for row, line in enumerate(lines):
        if line.strip() == _STATE:
            state = {}
        elif state is not None and (match := _FACT.match(line)):
            state.setdefault(match["key"], match["value"])
            told = row if match["key"] == "ExitCode" else told
            if match["key"] == "Name":
                code = state.get("ExitCode", "")
                out_of_memory, runs = state.get("OOMKilled") == "true", state.get("Running") == "true"
                text = ", ".join(f"{key}: {state[key]}" for key in ("Name", "ExitCode", "OOMKilled") if key in state)
                status = of_shell(int(code)) if code.isdecimal() and not runs else None
                yield Ended(match["value"], text, status, out_of_memory, runs, told)
                state = None


def _inspect(launcher: str, indent: str) -> Listing:
    return Listing(
        launcher,
        ('"State": {',),
        re.compile(rf'^{indent}"State": \{{$'),
        re.compile(r'^ *(?:["{}\[\]]|-?\d|true|false|null)'),
        _inspected,
    )


def _listing(launcher: str, gap: str) -> Listing:
    return Listing(
        launcher,
        ("CONTAINER ID",),
        re.compile(rf"^CONTAINER ID{gap}IMAGE {{2,}}COMMAND .{{0,400}}\bSTATUS .{{0,400}}\bNAMES *$"),
        re.compile(r"^[0-9a-f]{12,64} "),
        _read,
    )


# docker puts three blanks between columns, podman two: behind 12 digits, or 64 with --no-trunc. JSON is indented by four and by five.
FORMATS = (
    format_of(_listing("podman", "(?: {2}| {54})")),
    format_of(_listing("docker", " {3,}")),
    format_of(_inspect("podman", " {10}")),
    format_of(_inspect("docker", " *")),
)
