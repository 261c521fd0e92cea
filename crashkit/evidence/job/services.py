"""What docker compose, foreman, honcho and overmind say of the services that they run: how each ended, and which they stopped themselves.

Formats: docker compose 1.29 and 2 to 5 (cmd/formatter/logs.go, pkg/compose/), foreman 0.87 (lib/foreman/engine.rb), honcho 2.0
(honcho/manager.py), overmind 2 (start/process.go).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import BinaryIO, NamedTuple, Optional

from crashkit.evidence.text.prefixes import clean, strip
from crashkit.evidence.text.skim import telling_lines
from crashkit.job.word import SERVICES, Who, Word
from crashkit.naming.signals import signal_name, signal_number

COMPOSE = "docker compose"
_SHELL = 128
_LONGEST_TEXT = 1000
_MOST_NAMES = 1000

_ABORTS = "Aborting on container exit"
"""docker compose stops all other services after the first has ended. The line may stand behind what follows from it."""
_ATTACHING = re.compile(r"^Attaching to (?P<names>[\w., -]{1,4000})$")
_NAME = r"[A-Za-z0-9][\w.-]{0,100}"
_NUMBERED = re.compile(r"[-_.]\d{1,6}$")
_CLOCK = r"(?:\d\d:\d\d:\d\d )?"
_PREFIX = re.compile(rf"^{_CLOCK}(?P<name>{_NAME}) +\| ?(?P<text>.*)$")


class _Line(NamedTuple):
    launcher: str
    kind: str
    """exit, stopped, or stops-all: from here on, the launcher ends all services."""
    contains: str
    pattern: re.Pattern[str]
    is_own: bool = False
    """Whether the line has the prefix of the service that it is about."""


_LINES = tuple(
    _Line(launcher, kind, contains, re.compile(pattern), is_own)
    for launcher, kind, contains, pattern, is_own in (
        (COMPOSE, "exit", "exited with code ", rf"^(?P<name>{_NAME}) exited with code (?P<status>\d{{1,3}})(?: \(restarting\))?$", False),
        (COMPOSE, "stops-all", _ABORTS, rf"^(?: ?Compose Stopping )?{_ABORTS}", False),
        (COMPOSE, "stops-all", "Gracefully stopping...", r"^\W{0,4}(?:\^C)?Gracefully [Ss]topping\.\.\.", False),
        ("foreman", "exit", "exited with code ", r"^exited with code (?P<status>\d{1,3})$", True),
        ("foreman", "exit", "terminated by SIG", r"^terminated by (?P<signal>SIG[A-Z0-9]{2,8})$", True),
        ("foreman", "stops-all", " to all processes", rf"^{_CLOCK}system +\| sending SIG\w{{3,4}} to all processes$", False),
        ("honcho", "exit", " stopped (rc=", rf"^{_CLOCK}system +\| (?P<name>{_NAME}) stopped \(rc=(?P<status>-?\d{{1,3}})\)$", False),
        ("honcho", "stopped", "sending SIG", rf"^{_CLOCK}system +\| sending SIG\w{{3,4}} to (?P<name>{_NAME}) \(pid \d", False),
        ("overmind", "exit", "Exited with code ", r"^Exited with code (?P<status>\d{1,3})$", True),
        ("overmind", "stopped", "Interrupting...", r"^Interrupting\.\.\.$", True),
        ("overmind", "stopped", "Killing...", r"^Killing\.\.\.$", True),
    )
)
TEXTS = tuple(dict.fromkeys(line.contains for line in _LINES))
_OF_NAMES = ("exited with code ", "Exited with code ", "Attaching to ", _ABORTS)


class Services:
    """Reads the lines of one log, which is looked through for the names of its services first."""

    def __init__(self, file: BinaryIO) -> None:
        self._names: set[str] = set()
        self._aborts = False
        """Whether docker compose was to stop all services once one has ended."""
        self._stops = False
        self._ended: set[str] = set()
        for _, _, raw in telling_lines(file, _OF_NAMES, lambda: False):
            self._learn(clean(raw))

    def _learn(self, text: str) -> None:
        if _ABORTS in text:
            self._aborts = True
        if match := _ATTACHING.match(text):
            self._names.update(match["names"].split(", ")[:_MOST_NAMES])
        elif (match := _PREFIX.match(text)) and len(self._names) < _MOST_NAMES:
            name, said = match["name"], match["text"]
            if any(line.is_own and line.kind == "exit" and line.pattern.match(said) for line in _LINES):
                self._names.add(name)

    def strip(self, text: str) -> tuple[str, str]:
        """As `prefixes.strip`, also where the prefix is a bare name that is known to be a service's."""
        name, said = strip(text)
        if not name and (match := _PREFIX.match(said)) and match["name"] in self._names:
            return match["name"], match["text"]
        return name, said

    def words(self, name: str, text: str) -> Iterator[Word]:
        """What a line says. `name`: whose prefix it has."""
        for line in _LINES:
            if line.contains not in text or line.is_own != bool(name) or not (match := line.pattern.match(text)):
                continue
            if line.kind == "stops-all":
                self._stops = True
                return
            about = name or match["name"]
            if line.launcher == COMPOSE and not self._is_container(about):
                continue
            who, said = Who(name=about), text.strip()[:_LONGEST_TEXT]
            if line.kind == "stopped":
                yield Word(who, "stopped", text=said, launcher=line.launcher)
                return
            status = _status(match)
            yield Word(who, "exit", text=said, number=status, launcher=line.launcher)
            if self._stops or (self._aborts and self._ended):
                yield Word(who, "stopped", text=said, launcher=line.launcher)
            elif status and not self._ended:
                yield Word(who, "first", text=said, launcher=line.launcher)
            self._ended.add(about)
            return

    def _is_container(self, name: str) -> bool:
        """Others say of their processes that they `exited with code 1`, too."""
        return self._aborts or name in self._names or _NUMBERED.search(name) is not None


def _status(match: re.Match[str]) -> Optional[int]:
    told = match.groupdict()
    if told.get("signal"):
        number = signal_number(told["signal"])
        return -number if number is not None else None
    status = int(match["status"])
    is_signal = _SHELL < status < 2 * _SHELL and signal_name(status - _SHELL).startswith("SIG")
    return _SHELL - status if is_signal else status


def under_one_name(words: Iterable[Word]) -> list[Word]:
    """docker compose 1 calls `job_web_1` what it shows as `web_1`. Of which service no end is told, that one lives on."""
    several = list(words)
    about = {word.who.name for word in several if word.launcher in SERVICES and word.who.name}
    if not about:
        return several
    speakers = {word.who.name for word in several if word.launcher not in SERVICES and word.who.name}
    jobs = {name[: -len(speaker)] for name in about for speaker in speakers if name.endswith((f"_{speaker}", f"-{speaker}"))}
    job = jobs.pop() if len(jobs) == 1 else ""
    found = [
        word._replace(who=word.who._replace(name=(word.who.name or "").removeprefix(job))) if word.launcher in SERVICES else word
        for word in several
    ]
    ended = {word.who.name for word in found if word.kind == "exit" and word.launcher in SERVICES}
    return [*found, *(Word(Who(name=name), "lives") for name in sorted(speakers - ended))] if ended else found
