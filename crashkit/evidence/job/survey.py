"""Looks over all files of a job, one at a time: there may be thousands, and only some are of the process that failed first."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, Optional

from crashkit.attempt import failed
from crashkit.crashfolder.manifest import Manifest, read_manifest
from crashkit.elf.headers import of_file
from crashkit.errors import EvidenceError
from crashkit.evidence.core.core import Core, open_core
from crashkit.evidence.flight_recorder import is_recording, read_recording
from crashkit.evidence.gpu.dump import open_dump
from crashkit.evidence.input import Damaged, Input, compression_of, open_input, plain_pieces
from crashkit.evidence.job import error_file
from crashkit.evidence.job.log_words import LogWords
from crashkit.evidence.job.paths import processes
from crashkit.evidence.pieces import OURS
from crashkit.job.join import Joined, join
from crashkit.job.recording import Recording
from crashkit.job.word import Who, Word
from crashkit.model import SoftError

MOST_FILES = 20_000
MOST_DEPTH = 8
_MOST_CHOSEN = 16


class Survey(NamedTuple):
    """A job, and the files that show the process which failed first."""

    joined: Joined
    chosen: tuple[Path, ...]
    """Files and crash folders; empty if only flight recorders tell of the job."""
    soft_errors: tuple[SoftError, ...]


class _Found:
    """What the files hold."""

    def __init__(self) -> None:
        self.words: list[Word] = []
        self.recordings: list[Recording] = []
        self.texts: list[Path] = []
        self.cores: dict[Path, Word] = {}
        """Cores and crash folders, with what they say."""
        self.gpus: list[Path] = []
        self.unread: list[Path] = []
        """The only compressed file, if it is a core: unpacking it twice may take minutes."""
        self.errors: list[SoftError] = []


def survey(places: Sequence[Path]) -> Optional[Survey]:
    """The job that the files in these places are of; None if they are of one process. What cannot be opened is left to `sort_out`."""
    found = _Found()
    files: list[Path] = []
    for place in dict.fromkeys(places):
        for path, manifest in _walk(place, found.errors):
            if manifest is None:
                files.append(path)
            else:
                _crash_folder(path, manifest, found)
    who = processes(files)
    packed = [path for path in files if _is_packed(path)]
    if len(packed) == 1 and _is_core(packed[0]):
        found.unread = packed
        files.remove(packed[0])
    for path in files:
        try:
            with open_input(path) as source:
                _read(path, source, who.get(path, Who()), found)
        except EvidenceError as error:
            if len(files) > 1:
                found.errors.append(SoftError(stage="evidence", message=str(error), hint=error.hint))
        except Exception as error:
            found.errors.append(failed("job", f"the reader of {path}", error))
    joined = join(found.words, found.recordings)
    return Survey(joined, _chosen(joined, found, who), tuple(found.errors)) if joined is not None else None


def survey_texts(texts: Sequence[Input]) -> Optional[Joined]:
    """The job that texts tell of which are open already, as those from a pipe are."""
    words: list[Word] = []
    for text in texts:
        text.file.seek(0)
        words += LogWords(text.original).read(text.file)
    return join(words)


def _walk(place: Path, errors: list[SoftError]) -> Iterator[tuple[Path, Optional[Manifest]]]:
    """Regular files below the place, and crash folders with their manifests. Links are not followed but for the place itself."""
    if not place.is_dir():
        if place.is_file():
            yield place, None
        return
    if (manifest := read_manifest(place)) is not None:
        yield place, manifest
        return
    count = 0
    for folder, names, files in os.walk(place):
        here = Path(folder)
        names[:] = sorted(name for name in names if not name.startswith(".")) if len(here.parts) - len(place.parts) < MOST_DEPTH else []
        for name in list(names):
            if (manifest := read_manifest(here / name)) is not None:
                names.remove(name)
                yield here / name, manifest
        for name in sorted(files):
            path = here / name
            if name.startswith(".") or name in OURS or path.is_symlink() or not path.is_file() or not path.stat().st_size:
                continue
            count += 1
            if count > MOST_FILES:
                errors.append(SoftError(stage="job", message=f"{place} holds more than {MOST_FILES:,} files: the rest was left out"))
                return
            yield path, None


def _is_packed(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return compression_of(file.read(8)) is not None
    except OSError:
        return False


def _is_core(path: Path) -> bool:
    """Whether this compressed file starts as cores do; also where its start cannot be unpacked."""
    try:
        with path.open("rb") as file:
            return next(plain_pieces(file), b"").startswith(b"\x7fELF")
    except (OSError, Damaged):
        return True


def _crash_folder(path: Path, manifest: Manifest, found: _Found) -> None:
    environment = manifest.get("environment", {})
    who = _of_environment(environment)._replace(pid=manifest.get("namespace_pid") or manifest.get("pid"))
    number = manifest.get("signal")
    word = Word(who, "fatal", str(path), text="a crash folder", number=number) if number else Word(who, "alive", str(path))
    found.cores[path] = word
    found.words.append(word)


def _of_environment(environment: dict[str, str]) -> Who:
    def number(name: str) -> Optional[int]:
        text = environment.get(name, "")
        return int(text) if text.isdecimal() and len(text) < 9 else None

    rank = next((value for name in ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK") if (value := number(name)) is not None), None)
    return Who(rank=rank, local_rank=number("LOCAL_RANK"))


def _read(path: Path, source: Input, who: Who, found: _Found) -> None:
    dump = open_dump(of_file(source.file), source.size)
    if dump is not None:
        found.gpus.append(path)
        return
    core = open_core(source.file, path, source.size)
    if core is not None:
        word = _of_core(path, core)
        found.cores[path] = word
        found.words.append(word)
    elif is_recording(source.file):
        found.recordings.append(read_recording(source.file, str(path)))
    elif source.size <= error_file.LARGEST and (told := _error_words(path, source, who)) is not None:
        found.words += told
    else:
        source.file.seek(0)
        log = LogWords(path, who)
        said = log.read(source.file)
        # A rank that said nothing was there.
        found.words += said or ([Word(who, "alive", str(path))] if who.is_known else [])
        found.texts.append(path)


def _error_words(path: Path, source: Input, who: Who) -> Optional[list[Word]]:
    source.file.seek(0)
    if source.file.read(1) != b"{":
        return None
    source.file.seek(0)
    return error_file.words(source.file.read(error_file.LARGEST), str(path), who)


def _of_core(path: Path, core: Core) -> Word:
    entries = core.arguments_and_environment()[1]
    who = _of_environment(dict(entry.split("=", 1) for entry in entries if "=" in entry))
    number = core.signal.number if core.signal is not None else next((status.signal for status in core.statuses), 0)
    pid = core.process.pid if core.process is not None else None
    return Word(who._replace(pid=pid), "fatal", str(path), text="a core", number=number or None)


def _chosen(joined: Joined, found: _Found, who: dict[Path, Who]) -> tuple[Path, ...]:
    """The evidence of the process that failed first; the logs of all processes and of the launcher."""
    own = {word.path for word in joined.words}
    cores = [path for path in found.cores if str(path) in own] or list(found.cores)
    texts = [path for path in found.texts if path not in who or str(path) in own]
    pid = joined.job.root_cause.pid if joined.job.root_cause is not None else None
    gpus = [path for path in found.gpus if len(found.gpus) == 1 or (pid is not None and str(pid) in path.name)]
    return (*cores[:1], *texts[:_MOST_CHOSEN], *gpus, *found.unread)
