"""From the artefacts of a run to the index of its crashes, one call a step."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple, Optional

from msgspec.structs import replace

from crashkit import __version__
from crashkit.batch.artefact import Artefact, NodeId
from crashkit.batch.cluster import on_cluster
from crashkit.batch.find import find
from crashkit.batch.group import grouped
from crashkit.batch.job import Done, Job, Node, Task
from crashkit.batch.pair import Case, pair
from crashkit.batch.pool import pooled
from crashkit.model import SoftError
from crashkit.report.index.document import Index
from crashkit.secrets.text import Secrets


class Plan(NamedTuple):
    """What there is to do."""

    jobs: tuple[Job, ...]
    programs: Optional[Path]
    """A folder with the executables and libraries that were found beside the evidence."""
    indexes: Path
    """A folder for what the debugger keeps from one crash to the next."""
    files: int
    soft_errors: tuple[SoftError, ...]


def plan(paths: Iterable[tuple[Path, str]], scratch: Path, looked: Optional[Callable[[int, int], None]] = None) -> Plan:
    """Find the evidence below the paths and sort it into crashes; `scratch` must outlive the analyses. Raises OSError if it is full."""
    unpacked, cuts, programs, indexes = (scratch / name for name in ("unpacked", "cuts", "programs", "indexes"))
    for folder in (unpacked, cuts, programs, indexes):
        folder.mkdir(mode=0o700)
    # Workers run elsewhere.
    found = find([(path.absolute(), shown) for path, shown in paths], unpacked, looked)
    paired = pair(found.artefacts)
    jobs = tuple(_job(number, case, found.nodes, cuts) for number, case in enumerate(paired.cases, 1))
    for number, path in enumerate(found.programs):
        # A folder for each: two may have one name.
        (programs / str(number)).mkdir()
        (programs / str(number) / path.name).symlink_to(path.absolute())
    text = Secrets().text
    problems = (replace(error, message=text(error.message)) for error in (*found.soft_errors, *paired.soft_errors))
    return Plan(jobs, programs if found.programs else None, indexes, found.files, tuple(problems))


def _job(number: int, case: Case, nodes: Sequence[NodeId], cuts: Path) -> Job:
    alone = case.main.kind in ("log", "junit")
    paths = [_cut(artefact, cuts) if alone else artefact.path for artefact in case.artefacts]
    # Names of files and tests, and URLs, are what the evidence says, too.
    text = Secrets().text
    shown = [text(artefact.shown) for artefact in case.artefacts]
    unique = dict(zip(paths, shown, strict=True))
    return Job(
        number=number,
        paths=tuple(unique),
        shown=tuple(unique.values()),
        threads=tuple(sorted(case.facts.idents)) if alone else (),
        nodes=tuple(Node(text(node.name), text(node.shown)) for node in nodes),
        signal=text(case.facts.signal or ""),
        executable=text(case.facts.executable or ""),
    )


def _cut(log: Artefact, cuts: Path) -> Path:
    """The one crash of a log that holds several, in a file of its own, where its lines keep their numbers.

    One that names its threads is found by them (`Options.threads`), with all that belongs to it.
    """
    if log.lines is None or log.facts.idents:
        return log.path
    from crashkit.evidence.input import open_input

    first, last = log.lines
    path = cuts / f"{len(list(cuts.iterdir()))}-{log.path.name}"
    with open_input(log.path) as source, path.open("xb") as file:
        for number, line in enumerate(source.file, 1):
            if number > last:
                break
            file.write(line if number >= first else b"\n")
    return path


def analyzed(
    work: Plan,
    task: Task,
    workers: int,
    done: Optional[Callable[[Done], None]] = None,
    baseline: Optional[Index] = None,
    scheduler: Optional[str] = None,
) -> Index:
    """Analyze all crashes and group them. `done` is told of each as it is finished.

    With the address of a Dask scheduler its workers do it, else so many of our own. Raises CrashkitError if there is no such cluster.
    """
    options = task.options
    if work.programs is not None:
        task = replace(task, options=replace(options, extra_dirs=(*options.extra_dirs, work.programs)))
    elif scheduler is None and options.sysroot is None and not options.extra_dirs and not options.path_maps:
        # An index is known by a build-id, which a foreign file may claim: only indexes of this machine's files are kept.
        task = replace(task, options=replace(options, indexes=work.indexes))
    entries = []
    for result in on_cluster(work.jobs, task, scheduler) if scheduler else pooled(work.jobs, task, workers):
        entries.append(result.entry)
        if done:
            done(result)
    index = Index(
        crashkit=__version__,
        time=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        files=work.files,
        entries=tuple(sorted(entries, key=lambda one: one.number)),
        soft_errors=work.soft_errors,
    )
    return grouped(index, baseline)


__all__ = ["Plan", "analyzed", "plan"]
