"""`kubectl get pods` and `kubectl describe pod`.

Sources: kubernetes' pkg/printers/internalversion/printers.go (`printPod`: the reason of the container that ended, `ExitCode:1` or
`Signal:9` where it has none) and kubectl's pkg/describe/describe.go (`describeContainers`, `describeStatus`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Optional

from crashkit.evidence.text.listing import Ended, Listing, format_of, of_shell

_OUT_OF_MEMORY = "OOMKilled"
_POD = re.compile(r"^(?:\S+ +)??(?P<name>[a-z0-9][-a-z0-9.]{0,252}) +\d+/\d+ +(?P<status>\S+) +\d")
_STATUS = re.compile(r"(?:Init:)?(?:ExitCode:(?P<code>\d{1,3})|Signal:(?P<signal>\d{1,2}))$")

_CONTAINER = re.compile(r"^ *(?P<name>[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?): *$")
_STATE = re.compile(r"^ *(?P<last>Last )?State: +(?P<state>\w+)$")
_REASON = re.compile(r"^ *Reason: +(?P<reason>\w+)$")
_CODE = re.compile(r"^ *Exit Code: +(?P<code>\d{1,3})$")


def _pods(lines: Iterable[str]) -> Iterator[Ended]:
    for row, line in enumerate(lines):
        if match := _POD.match(line):
            status, said = match["status"], _STATUS.match(match["status"])
            number = None
            if said is not None:
                number = of_shell(int(said["code"])) if said["code"] else -int(said["signal"])
            yield Ended(match["name"], line.strip(), number, status.endswith(_OUT_OF_MEMORY), status == "Running", row)


def _containers(lines: Iterable[str]) -> Iterator[Ended]:
    """Of the two states of a container, the one that tells of an end; the current one counts first."""
    name: Optional[str] = None
    found: dict[str, list[Ended]] = {}
    state, reason = "", ""
    for row, line in enumerate(lines):
        if match := _CONTAINER.match(line):
            name, state, reason = match["name"], "", ""
        elif match := _STATE.match(line):
            state, reason = match["state"], ""
            if name is not None and state == "Running":
                found.setdefault(name, []).append(Ended(name, line.strip(), runs=True, row=row))
        elif match := _REASON.match(line):
            reason = match["reason"]
        elif (match := _CODE.match(line)) and name is not None and state == "Terminated":
            told = f"{reason}, {line.strip()}" if reason else line.strip()
            found.setdefault(name, []).append(Ended(name, told, of_shell(int(match["code"])), reason == _OUT_OF_MEMORY, row=row))
    for states in found.values():
        yield next((one for one in states if one.crashed or one.status), states[0])


PODS = Listing(
    "kubernetes",
    (" READY ",),
    re.compile(r"^(?:NAMESPACE +)?NAME +READY +STATUS +RESTARTS +AGE\b"),
    re.compile(r"^\S+ +(?:\S+ +)?\d+/\d+ +\S"),
    _pods,
)
DESCRIBED = Listing(
    "kubernetes",
    ("Containers:",),
    re.compile(r"^ *(?:Init )?Containers: *$"),
    re.compile(r"^(?! *(?:Conditions|Volumes|Events|QoS Class):)(?=.*\S)"),
    _containers,
)
FORMATS = (format_of(PODS), format_of(DESCRIBED))
