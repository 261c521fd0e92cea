"""Looks over all files of a job, one at a time: there may be thousands, and only some are of the process that failed first."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Optional

from crashkit.attempt import failed
from crashkit.crashfolder.manifest import OTHERS, RECORDED, Manifest, read_manifest
from crashkit.elf.headers import of_file
from crashkit.environment import RESTARTS, number, rank, world_size
from crashkit.errors import EvidenceError
from crashkit.evidence.core.core import Core, open_core
from crashkit.evidence.gpu.dump import open_dump
from crashkit.evidence.input import Damaged, Input, compression_of, open_input, plain_pieces
from crashkit.evidence.job.paths import processes
from crashkit.evidence.pieces import OURS
from crashkit.job.join import Joined, join
from crashkit.job.recording import Recording
from crashkit.job.word import Who, Word
from crashkit.model import SoftError, Thread

if TYPE_CHECKING:
    from crashkit.evidence.job.log_words import LogWords

MOST_FILES = 20_000
MOST_DEPTH = 8
_MOST_CHOSEN = 16
_UNKNOWN = Who()
_MOST_STACKS = 64
"""Cores of a job whose Python stacks are read: a few tenths of a second each."""


class Stacks(NamedTuple):
    """Where a process stood in Python."""

    crashed: Optional[Thread] = None
    main: Optional[Thread] = None


ReadStacks = Callable[[Core, Input], Stacks]
"""Reads a core's Python stacks; what reads memory is above this package."""


class Survey(NamedTuple):
    """A job, and the files that show the process which failed first."""

    joined: Joined
    chosen: tuple[Path, ...]
    """Files and crash folders; empty if only flight recorders tell of the job."""
    soft_errors: tuple[SoftError, ...]
    incident: Optional[str] = None
    """The id of the crash folder that holds all of it, if one does."""


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


def survey(places: Sequence[Path], read_stacks: Optional[ReadStacks] = None) -> Optional[Survey]:
    """The job that the files in these places are of; None if they are of one process. What cannot be opened is left to `sort_out`."""
    found = _Found()
    files: list[Path] = []
    folders: dict[Path, Manifest] = {}
    for place in dict.fromkeys(places):
        for path, manifest in _walk(place, found.errors):
            if manifest is None:
                files.append(path)
            else:
                folders[path] = manifest
    incident = next(iter(folders.values())).get("id") if len(folders) == 1 and not files else None
    for path, manifest in list(folders.items()):
        inside = {path / OTHERS / name: read_manifest(path / OTHERS / name) for name in manifest.get("others", ())}
        folders.update({other: told for other, told in inside.items() if told is not None})
    several = len({told.get("host") for told in folders.values()}) > 1
    for path, manifest in folders.items():
        # Launchers may call the same host otherwise.
        _crash_folder(path, manifest, found, manifest.get("host") if several else None)
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
    if read_stacks is not None and len(found.cores) > 1:
        _add_stacks(found, read_stacks)
    joined = join(found.words, found.recordings)
    return Survey(joined, _chosen(joined, found, who), tuple(found.errors), incident) if joined is not None else None


def survey_texts(texts: Sequence[Input]) -> Optional[Joined]:
    """The job that texts tell of which are open already, as those from a pipe are."""
    words: list[Word] = []
    for text in texts:
        text.file.seek(0)
        words += _log_words(text.original).read(text.file)
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
                errors.append(SoftError(stage="job", message=f"{place} contains more than {MOST_FILES:,} files: the rest was left out"))
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


def _crash_folder(path: Path, manifest: Manifest, found: _Found, host: Optional[str]) -> None:
    """What a crash folder says of its process; its log may be that of the whole job. `host`: where it ran, if others ran elsewhere."""
    pid = manifest.get("namespace_pid") or manifest.get("pid")
    who = _of_environment(manifest.get("environment", {}))._replace(pid=pid, host=host)
    signal, status = manifest.get("signal"), manifest.get("exit_status")
    at = manifest.get("seen")
    if signal:
        word = Word(who, "fatal", str(path), number=signal, at=at)
    elif status:
        word = Word(who, "exit", str(path), number=status, at=at)
    else:
        word = Word(who, "alive", str(path))
    found.cores[path] = word
    found.words.append(word)
    killed = manifest.get("killed")
    if signal and killed is not None and killed.get("by") == "oom":
        found.words.append(Word(who, "killed", str(path), text=next(iter(killed.get("evidence", ())), "")))
    from crashkit.evidence.flight_recorder import read_recording
    from crashkit.evidence.job import error_file

    for file in manifest.get("files", []):
        name, kind = file.get("name", ""), file.get("kind")
        if kind not in ("log", "rank-log", "faulthandler", "error-file", RECORDED):
            continue
        # A launcher's ranks share its stderr.
        is_own = kind != "log" or manifest.get("is_command", True) or path.parent.name == OTHERS
        try:
            with open_input(path / name) as source:
                if kind == RECORDED:
                    found.recordings.append(read_recording(source.file, str(path / name)))
                    continue
                if kind == "error-file":
                    found.words += error_file.words(source.file.read(error_file.LARGEST), str(path), who) or []
                    continue
                said = _log_words(path / name, who if is_own else Who()).read(source.file)
        except EvidenceError as error:
            found.errors.append(SoftError(stage="evidence", message=str(error), hint=error.hint))
            continue
        if is_own:
            # It is the folder that shows this process.
            said = [one._replace(path=str(path)) if one.who == who else one for one in said]
        else:
            found.texts.append(path / name)
        found.words += said


def _of_environment(environment: dict[str, str]) -> Who:
    local = number(environment, "LOCAL_RANK")
    return Who(rank=rank(environment), local_rank=local, attempt=number(environment, RESTARTS), world=world_size(environment))


def _add_stacks(found: _Found, read_stacks: ReadStacks) -> None:
    """Where the processes of a job stood, as their cores show it."""
    for path in list(found.cores)[:_MOST_STACKS]:
        word = found.cores[path]
        try:
            with open_input(core_of(path)) as source:
                core = open_core(source.file, path, source.size)
                stacks = read_stacks(core, source) if core is not None else Stacks()
        except EvidenceError:
            continue  # without a core; or it is told where the core is read
        except Exception as error:
            found.errors.append(failed("job", f"the reader of {path}", error))
            continue
        if word.kind == "fatal":
            told = word._replace(thread=stacks.crashed or stacks.main, main=stacks.main if stacks.crashed is None else None)
        elif stacks.main is not None:
            told = Word(word.who, "stood", word.path, text="its stack was read", thread=stacks.main)
        else:
            continue
        found.cores[path] = told
        found.words[found.words.index(word)] = told


def core_of(path: Path) -> Path:
    """The core itself. Raises EvidenceError if the crash folder has none."""
    if not path.is_dir():
        return path
    core = next((path / name for name in ("core", "core.zst") if (path / name).is_file() and not (path / name).is_symlink()), None)
    if core is None:
        raise EvidenceError(f"{path} contains no core", "Its log is read instead.")
    return core


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
        return
    from crashkit.evidence.flight_recorder import is_recording, read_recording
    from crashkit.evidence.job import error_file

    if is_recording(source.file):
        found.recordings.append(read_recording(source.file, str(path)))
    elif source.size <= error_file.LARGEST and (told := _error_words(path, source, who)) is not None:
        found.words += told
    else:
        source.file.seek(0)
        log = _log_words(path, who)
        said = log.read(source.file)
        # A rank that said nothing was there.
        found.words += said or ([Word(who, "alive", str(path))] if who.is_known else [])
        found.texts.append(path)


def _log_words(path: Path, who: Who = _UNKNOWN) -> LogWords:
    """Where there is nothing but a core, what reads logs is not imported."""
    from crashkit.evidence.job.log_words import LogWords

    return LogWords(path, who)


def _error_words(path: Path, source: Input, who: Who) -> Optional[list[Word]]:
    from crashkit.evidence.job import error_file

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
    return Word(who._replace(pid=pid), "fatal", str(path), number=number or None)


def _chosen(joined: Joined, found: _Found, who: dict[Path, Who]) -> tuple[Path, ...]:
    """The evidence of the process that failed first; the logs of all processes and of the launcher."""
    own = {word.path for word in joined.words}
    cores = [path for path in found.cores if str(path) in own] or list(found.cores)
    texts = [path for path in found.texts if (path not in who or str(path) in own) and path.parent not in cores[:1]]
    pid = joined.job.root_cause.pid if joined.job.root_cause is not None else None
    gpus = [path for path in found.gpus if len(found.gpus) == 1 or (pid is not None and str(pid) in path.name)]
    return (*cores[:1], *texts[:_MOST_CHOSEN], *gpus, *found.unread)
