"""Services that docker compose, foreman, honcho or overmind started together: which ended first, and which were only stopped."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Optional

import pytest

from crashkit.model import Crash, Job
from crashkit.pipeline import analyze

SERVICES = Path(__file__).parents[2] / "fixtures" / "jobs" / "services"
STARTED = re.compile(r".*(?:started with pid|started \(pid=)")
RECORDED = sorted(SERVICES.glob("*.log"))
SAID = {
    "raise": "ValueError: bad job 7",
    "segfault": "SIGSEGV",
    "exit": "exit status 3",
    "end": None,
    "interrupted": None,
}
"""What is to be said of the worker; None: no service failed."""


def job(crash: Crash) -> Job:
    assert crash.job is not None
    return crash.job


def blamed(found: Job) -> Optional[str]:
    return found.root_cause.name if found.root_cause is not None else None


def roles(found: Job) -> dict[Optional[str], Optional[str]]:
    return {process.name: process.role for process in found.processes}


def is_right(found: Job, failure: str, kind: str, names: tuple[str, str, str]) -> None:
    worker, *others = names
    said = SAID[failure]
    assert found.kind == kind
    assert {role for name, role in roles(found).items() if name in others} == {"stopped"}
    if said is None:
        assert found.root_cause is None or found.root_cause.what is None
        return
    assert blamed(found) == worker and found.root_cause is not None and said in (found.root_cause.what or "")
    assert roles(found) == {worker: "root-cause", **dict.fromkeys(others, "stopped")}
    if failure == "raise":
        where = found.root_cause.where
        assert where is not None and (where.function, where.line) == ("take", 10)


@pytest.mark.parametrize("log", RECORDED, ids=lambda log: log.stem)
def test_what_was_stopped_is_not_to_blame(log: Path) -> None:
    """The other services logged an exception that they caught, before the worker failed."""
    launcher, failure = log.stem.split("-")
    is_right(job(analyze(log)), failure, launcher, ("worker.1", "web.1", "clock.1"))


STATUSES = {"raise": 1, "segfault": 139, "exit": 3, "end": 0}


def by_compose(failure: str, version: int, *, bare: bool = False) -> list[str]:
    """foreman's output as docker compose with `--abort-on-container-exit` would have printed it: only its own lines are not real."""
    own = {service: service if bare else f"{service}-1" if version > 1 else f"{service}_1" for service in ("worker", "web", "clock")}
    container = {service: name if bare or version > 1 else f"job_{name}" for service, name in own.items()}
    lines = [f"Attaching to {', '.join(container.values())}"]
    ends = []
    for line in (SERVICES / f"foreman-{failure}.log").read_text().splitlines():
        service, said = line.split(" ", 1)[1].split("|", 1)
        service = service.strip().removesuffix(".1")
        if STARTED.match(line) or service == "system":
            continue
        if re.match(r" (?:exited with code|terminated by)", said):
            ends.append(f"{container[service]} exited with code {STATUSES[failure] if service == 'worker' else 137}")
        else:
            lines.append(f"{own[service]:<8} |{said}")
    stops = ["Aborting on container exit..."]
    if version > 4:
        stops = [" Compose Stopping Aborting on container exit...", *(f" Container job-{name} Stopping " for name in container.values())]
    return [*lines, ends[0], *stops, *ends[1:]]


@pytest.mark.parametrize("failure", STATUSES)
@pytest.mark.parametrize(("version", "bare"), [(1, False), (2, False), (5, False), (2, True)])
def test_docker_compose(failure: str, version: int, bare: bool, tmp_path: Path) -> None:
    log = tmp_path / "up.log"
    log.write_text("\n".join(by_compose(failure, version, bare=bare)) + "\n")
    end = "" if bare else "_1" if version == 1 else "-1"
    is_right(job(analyze(log)), failure, "docker compose", (f"worker{end}", f"web{end}", f"clock{end}"))


def test_the_line_that_tells_of_the_abort_may_come_late(tmp_path: Path) -> None:
    """stdout and stderr of docker compose were written to one file."""
    lines = by_compose("exit", 2)
    lines.append(lines.pop(next(index for index, line in enumerate(lines) if line.startswith("Aborting"))))
    log = tmp_path / "up.log"
    log.write_text("\n".join(lines) + "\n")
    assert roles(job(analyze(log))) == {"worker-1": "root-cause", "web-1": "stopped", "clock-1": "stopped"}


def test_overmind(tmp_path: Path) -> None:
    lines = []
    for line in (SERVICES / "foreman-raise.log").read_text().splitlines():
        service, said = line.split(" ", 1)[1].split("|", 1)
        service, said = service.strip().removesuffix(".1"), said[1:]
        if service == "system":
            lines += ["web      | Interrupting...", "clock    | Interrupting..."]
            continue
        said = re.sub(r"^started with pid (\d+)$", r"Started with pid \1...", said)
        said = re.sub(r"^exited with code", "Exited with code", said)
        lines.append(f"{service:<8} | {re.sub(r'^terminated by SIGTERM$', 'Exited with code 143', said)}")
    log = tmp_path / "overmind.log"
    log.write_text("\n".join(lines) + "\n")
    is_right(job(analyze(log)), "raise", "overmind", ("worker", "web", "clock"))


def test_a_service_that_lives_on_did_not_fail(tmp_path: Path) -> None:
    """Without `--abort-on-container-exit` the others run on: what they logged before is no failure."""
    lines = [line for line in by_compose("exit", 2) if not line.endswith("137") and not line.startswith("Aborting")]
    log = tmp_path / "up.log"
    log.write_text("\n".join(lines) + "\n")
    found = job(analyze(log))
    assert blamed(found) == "worker-1"
    assert roles(found) == {"worker-1": "root-cause", "web-1": "waited", "clock-1": "waited"}


def test_who_fails_because_of_another_is_not_the_first(tmp_path: Path) -> None:
    """The database ended without a word; then who needs it raised an exception of its own."""
    log = tmp_path / "up.log"
    log.write_text(
        "Attaching to db-1, app-1\ndb-1 exited with code 3\napp-1  | Traceback (most recent call last):\n"
        'app-1  |   File "/srv/app.py", line 5, in ask\napp-1  |     connect()\n'
        "app-1  | ConnectionRefusedError: [Errno 111] Connection refused\napp-1 exited with code 1\n"
    )
    found = job(analyze(log))
    assert blamed(found) == "db-1" and roles(found) == {"db-1": "root-cause", "app-1": "failed"}


@pytest.mark.parametrize("line", ["python exited with code 1", "make exited with code 2", "web | 3 exited with code 1 of 7"])
def test_others_say_such_words_of_their_processes(line: str, tmp_path: Path) -> None:
    log = tmp_path / "build.log"
    log.write_text(f'{line}\nnpm exited with code 1\nTraceback (most recent call last):\n  File "a.py", line 1, in f\nValueError: 1\n')
    assert analyze(log).job is None
