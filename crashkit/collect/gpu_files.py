"""Copies into a crash folder what explains a GPU core: the kernels' sources, what torch.compile generated, snapshots of torch's allocator.

On another machine, or after the next run, these files are gone or others. Only what belongs to this run is taken: the sources that the
GPU core's line tables name, the generated code that names the failed kernel, what torch.compile wrote for this pid, and snapshots
newer than the run where the command wrote them. All of it is masked, and bounded in number and size.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple, Optional

from crashkit.crashfolder.files import open_owned
from crashkit.crashfolder.manifest import SNAPSHOT, SOURCE, File
from crashkit.crashfolder.work import Work
from crashkit.elf.headers import of_file
from crashkit.errors import EvidenceError
from crashkit.evidence.gpu import inductor
from crashkit.evidence.gpu.allocator import is_snapshot, masked
from crashkit.evidence.gpu.describe import describe_dump
from crashkit.evidence.gpu.dump import open_dump
from crashkit.evidence.gpu.source_files import source_files
from crashkit.evidence.input import open_input
from crashkit.model import Gpu
from crashkit.stacks.source import source_text

MOST_SOURCES = 64
MOST_SOURCE_BYTES = 16 << 20
"""Of all sources together."""
MOST_SNAPSHOTS = 4
LARGEST_SNAPSHOT = 64 << 20
_MOST_ENTRIES = 4096
"""Files looked at in one folder."""
_MOST_ARGUMENTS = 256
_OLD = 60.0
"""Seconds between a snapshot and the crash after which the report says so."""
_SNAPSHOT_SUFFIXES = (".pickle", ".pkl")
_CACHE = "TORCHINDUCTOR_CACHE_DIR"
_DEBUG = "TORCH_COMPILE_DEBUG_DIR"
_GRAPHS = "torch_compile_debug/run_*-pid_{pid}/torchinductor/*/fx_graph_readable.py"
"""torch/_dynamo/utils.py (get_debug_dir), torch/_inductor/debug.py: with TORCH_COMPILE_DEBUG=1."""
_LONGEST_NAME = 80

Clean = Callable[[str], str]


class Run(NamedTuple):
    """The process that left the GPU cores."""

    pid: int
    """As it knew it."""
    cwd: Optional[str]
    argv: Sequence[str]
    environment: Mapping[str, str]
    began: float
    """When the run began, seconds since the epoch."""
    ended: float
    rank: Optional[int] = None
    """Of a job: its other processes write snapshots of their own."""


class Masks(NamedTuple):
    """How what is copied is masked."""

    text: Clean
    source: Clean
    """Lines of a program."""


def copy_files(dumps: Sequence[str], run: Run, work: Work, masks: Optional[Masks]) -> tuple[list[File], list[str]]:
    """Copy the files into the crash folder that holds these GPU cores; entries for its manifest, and what was left out.

    Never raises: what cannot be read is not there.
    """
    notes: list[str] = []
    try:
        gpus = [gpu for name in dumps if (gpu := _described(work.path / name)) is not None]
        owners = frozenset({0, os.geteuid(), *(status.st_uid for name in dumps if (status := work.stat(name)) is not None)})
        return [*_sources(gpus, run, work, masks, owners, notes), *_snapshots(run, work, masks, owners, notes)], notes
    except Exception as error:  # of readers, on what the process left: none is worth the crash
        return [], [*notes, f"sources and snapshots for the GPU core were not kept: {type(error).__name__}: {error}"]


def _described(path: Path) -> Optional[Gpu]:
    try:
        with open_input(path) as source:
            dump = open_dump(of_file(source.file), source.size)
            return describe_dump(dump, path) if dump is not None else None
    except (OSError, EvidenceError):
        return None


# Sources


def _sources(gpus: Sequence[Gpu], run: Run, work: Work, masks: Optional[Masks], owners: frozenset[int], notes: list[str]) -> Iterator[File]:
    left = MOST_SOURCE_BYTES
    number = 0
    for name, real in dict(_wanted_sources(gpus, run, owners)).items():
        found = _read_source(real, owners)
        if found is None:
            continue
        text, changed = found
        data = (masks.source(text) if masks is not None else text).encode("utf-8", "replace")
        if number == MOST_SOURCES or len(data) > left:
            notes.append(f"only {MOST_SOURCES} files or {MOST_SOURCE_BYTES >> 20} MiB of the GPU kernels' sources were kept")
            return
        left -= len(data)
        number += 1
        shown = masks.text(name) if masks is not None else name
        yield _written(work, _entry("source", number, real.name), data, changed, SOURCE, shown)


def _wanted_sources(gpus: Sequence[Gpu], run: Run, owners: frozenset[int]) -> Iterator[tuple[str, Path]]:
    """Names that the process knew the files by, and where they are."""
    base = Path(run.cwd or "/")

    def read(path: Path) -> Optional[str]:
        found = _read_source(path, owners)
        return found[0] if found else None

    kernels = dict.fromkeys(one.file for gpu in gpus for one in gpu.exceptions if one.file)
    for name in dict.fromkeys(name for gpu in gpus for name in source_files(gpu)):
        if "\0" not in name and not name.startswith("<"):
            yield name, base / name
    for kernel in kernels:
        place = inductor.cache_of(base / kernel)
        caches = (place, *(base / run.environment[one] for one in (_CACHE,) if run.environment.get(one)))
        if place is not None:
            for path, _ in inductor.generated(kernel, caches, read):
                yield str(path), path
    debug = base / run.environment.get(_DEBUG, "")
    for path in islice(sorted(debug.glob(_GRAPHS.format(pid=run.pid))), MOST_SOURCES):
        yield str(path), path


def _read_source(path: Path, owners: frozenset[int]) -> Optional[tuple[str, float]]:
    try:
        file, real = open_owned(path, owners)
        with file:
            return source_text(file, real)
    except (OSError, SyntaxError, UnicodeDecodeError, ValueError):
        return None


# Snapshots of torch's allocator


def _snapshots(run: Run, work: Work, masks: Optional[Masks], owners: frozenset[int], notes: list[str]) -> Iterator[File]:
    found: dict[tuple[int, int], tuple[float, Path]] = {}
    for path in _candidates(run):
        try:
            file, real = open_owned(path, owners)
            with file:
                status = os.fstat(file.fileno())
                if run.began <= status.st_mtime <= run.ended + 1 and is_snapshot(file):
                    found[status.st_dev, status.st_ino] = status.st_mtime, real
        except (OSError, ValueError):
            continue
    mine = [(time, path) for time, path in found.values() if _is_of(path, run)]
    number = 0
    for changed, path in sorted(mine, reverse=True):
        if number == MOST_SNAPSHOTS:
            notes.append(f"more than {MOST_SNAPSHOTS} snapshots of torch's allocator: only the newest were kept")
            return
        try:
            file, _ = open_owned(path, owners)
            with file:
                content = file.read(LARGEST_SNAPSHOT + 1)
            if len(content) > LARGEST_SNAPSHOT:
                notes.append(f"the snapshot {path} of torch's allocator is larger than {LARGEST_SNAPSHOT >> 20} MiB and was not kept")
                continue
            data = content if masks is None else masked(content, str(path), masks.text)
        except (OSError, EvidenceError) as error:
            notes.append(f"the snapshot {path} of torch's allocator was not kept: {error}")
            continue
        number += 1
        if run.ended - changed > _OLD:
            age = f"{(run.ended - changed) / 60:.0f} min"
            notes.append(f"the snapshot {path} of torch's allocator is {age} older than the crash: the blocks may have changed since")
        shown = masks.text(str(path)) if masks is not None else str(path)
        yield _written(work, _entry("snapshot", number, path.name), data, changed, SNAPSHOT, shown)


def _candidates(run: Run) -> Iterator[Path]:
    """Where the command may have written one: what its arguments name, and the folders that they name or it worked in."""
    base = Path(run.cwd or "/")
    named = [one for text in run.argv[1:_MOST_ARGUMENTS] for one in (text, text.partition("=")[2]) if one]
    named += [value for value in run.environment.values() if value.endswith(_SNAPSHOT_SUFFIXES)]
    folders = [base] if run.cwd else []
    for name in named:
        path = base / name
        try:
            mode = os.stat(path).st_mode
        except (OSError, ValueError):
            continue
        if stat.S_ISREG(mode):
            yield path
        elif stat.S_ISDIR(mode):
            folders.append(path)
    for folder in dict.fromkeys(folders):
        yield from _within(folder)


def _within(folder: Path) -> Iterable[Path]:
    try:
        with os.scandir(folder) as entries:
            return [Path(entry.path) for entry in islice(entries, _MOST_ENTRIES) if entry.name.endswith(_SNAPSHOT_SUFFIXES)]
    except OSError:
        return []


def _is_of(path: Path, run: Run) -> bool:
    """Whether this process wrote it. Of a job's process, only a name with its rank or pid tells: addresses of ranks are alike."""
    numbers = {int(one) for one in re.findall(r"[0-9]{1,20}", path.name)}
    return run.rank is None or not numbers.isdisjoint((run.rank, run.pid))


# Both


def _entry(kind: str, number: int, name: str) -> str:
    return f"{kind}.{number}.{re.sub(r'[^A-Za-z0-9_.-]', '_', name)[-_LONGEST_NAME:]}"


def _written(work: Work, entry: str, data: bytes, changed: float, kind: str, path: str) -> File:
    work.write(entry, data)
    # Lines of a source that is newer than the crash are not believed.
    os.utime(entry, (changed, changed), dir_fd=work.descriptor, follow_symlinks=False)
    return {"name": entry, "kind": kind, "size": len(data), "path": path}
