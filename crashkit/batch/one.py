"""Analyzes one crash of many: its report on disk, its entry for the index."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Optional

import msgspec
from msgspec.structs import replace

from crashkit import __version__
from crashkit.batch.archives import first_members
from crashkit.batch.artefact import NodeId
from crashkit.batch.job import Done, Job, Recording, Task
from crashkit.batch.nodes import of_crash as test_of
from crashkit.batch.repository import Repository
from crashkit.crashfolder.bundle import EVIDENCE
from crashkit.crashfolder.manifest import MOST_MANIFEST, Manifest, decode_manifest, read_manifest
from crashkit.errors import CrashkitError
from crashkit.history.entry import Entry as Recorded
from crashkit.history.entry import of_crash, of_manifest
from crashkit.model import Crash
from crashkit.pipeline import analyze
from crashkit.report import json
from crashkit.report.index.document import Entry
from crashkit.report.index.entry import InRepository, entry
from crashkit.report.renderer import renderer

FORMATS = ("html", "json")
FOLDER = "crashes"


def done(job: Job, task: Task) -> Done:
    """The job done. Whatever goes wrong with this crash is told in its entry: it stays in the list."""
    began = time.monotonic()
    try:
        crash = analyze(job.paths, options=replace(task.options, threads=job.threads))
        crash = _renamed(crash, dict(zip(map(str, job.paths), job.shown, strict=True)))
        report = _write(crash, task.out / FOLDER / job.name)
        nodes = [NodeId(node.name, node.shown) for node in job.nodes]
        found = entry(
            crash,
            job.number,
            evidence=job.shown,
            report=f"{FOLDER}/{job.name}/{report}",
            test=test_of(crash, nodes),
            in_repository=_in_repository(task.repository),
        )
        found = replace(found, test=_in_place(found))
        recorded = _recorded(crash, job, task)
    except CrashkitError as error:
        return failed(job, task, f"{_plain(str(error), job)}. {error.hint}")
    except Exception as error:
        words = " ".join(str(error).split())[:300]
        return failed(job, task, f"{type(error).__name__}: {words} (a bug in crashkit: please report it)")
    return Done(number=job.number, entry=found, recorded=recorded, seconds=round(time.monotonic() - began, 3))


def _in_place(found: Entry) -> Optional[str]:
    """The test's node id from the root of the repository: pytest prints it from where it was started, the stack knows no folder."""
    if found.test is None:
        return None
    file, _, rest = found.test.partition("::")
    name = PurePosixPath(file).name
    path = next((place.path for place in found.stack if place.path and PurePosixPath(place.path).name == name), None)
    return f"{path}::{rest}" if path else found.test


def _recorded(crash: Crash, job: Job, task: Task) -> Optional[Recorded]:
    """What the history keeps of it."""
    run = task.recording
    if run is None:
        return None
    return of_crash(crash, _place(job, run), host=run.host, release=run.release, manifest=_manifest(job.paths[0]))


def _manifest(path: Path) -> Optional[Manifest]:
    """That of a crash folder, or of a crash folder in a bundle, where it stands behind the bundle's own."""
    if path.is_dir():
        return read_manifest(path)
    with suppress(Exception):
        name, text = first_members(path, MOST_MANIFEST, 2)[1]
        if name == f"{EVIDENCE}/manifest.json":
            return decode_manifest(text)
    return None


def _place(job: Job, run: Recording) -> str:
    return f"{run.place}/{job.name} {job.shown[0]}"


def failed(job: Job, task: Task, why: str) -> Done:
    """The result for a crash that could not be analyzed: an entry without a report, and for the history what is known without one."""
    entry = Entry(number=job.number, evidence=job.shown, what=f"{job.shown[0]} could not be analyzed", failed=why)
    run = task.recording
    if run is None:
        return Done(number=job.number, entry=entry)
    known: Manifest = {"signal_name": job.signal, "executable": job.executable, "crashkit": __version__}
    manifest = _manifest(job.paths[0]) or known
    return Done(number=job.number, entry=entry, recorded=of_manifest(manifest, _place(job, run), host=run.host, release=run.release))


def _write(crash: Crash, folder: Path) -> str:
    """Write the report, readable by this user only; returns the name of the page."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for name in FORMATS:
        one = renderer(name)
        path = folder / one.file
        path.unlink(missing_ok=True)
        path.touch(0o600, exist_ok=False)
        path.write_bytes(one.render(crash))
    return renderer(FORMATS[0]).file


def _renamed(crash: Crash, names: Mapping[str, str]) -> Crash:
    """The crash with the user's names for files that were taken out of archives or cut out of logs."""
    moved = {path: shown for path, shown in names.items() if path != shown}
    if not moved:
        return crash
    document = json.encode(crash)
    for path, shown in moved.items():
        document = document.replace(_quoted(path), _quoted(shown))
    return json.decode(document)


def _quoted(text: str) -> bytes:
    return msgspec.json.encode(text.encode("utf-8", "replace").decode("utf-8"))[1:-1]


def _plain(message: str, job: Job) -> str:
    for path, shown in zip(map(str, job.paths), job.shown, strict=True):
        message = message.replace(path, shown)
    return message


@cache
def _in_repository(root: Optional[Path]) -> InRepository:
    nothing: Callable[[str, bool], Optional[str]] = lambda file, own: None  # noqa: E731
    return Repository(root).find if root else nothing


def warm() -> None:
    """Load what every analysis needs, once."""
    from crashkit.diagnose import load_catalog

    load_catalog()
    for name in FORMATS:
        renderer(name).warm()


__all__: Sequence[str] = ["FOLDER", "done", "failed", "warm"]
