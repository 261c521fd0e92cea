"""Finds the evidence among the artefacts of a run, by content: in folders, and in zip and tar archives within them."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, Optional

import msgspec

from crashkit.attempt import failed
from crashkit.batch import facts, nodes
from crashkit.batch.archives import Budget, first_members, members, plain_head
from crashkit.batch.artefact import Artefact, Facts, NodeId
from crashkit.batch.kinds import ARCHIVES, HEAD, is_program_text, kind_of
from crashkit.crashfolder import bundle
from crashkit.crashfolder.manifest import read_manifest
from crashkit.errors import EvidenceError
from crashkit.evidence.input import Limits, open_input
from crashkit.evidence.text.log import read_crashes
from crashkit.limits import MOST_FOUND
from crashkit.model import SoftError

MANIFEST = "manifest.json"
_OURS = frozenset({MANIFEST, "report.json", "report.html", "analysis.log", "index.html", "index.json"})
WRITTEN = frozenset({"crashes", "index.html", "index.json", "summary.md", "crashes.sarif", "junit.xml", "gl-code-quality-report.json"})
"""What an earlier run wrote beside its index."""
_NEVER = frozenset({".git", ".hg", ".svn", "node_modules", "__pycache__"})
_MOST_JUNIT = 64 << 20
_MOST_LOG = 1 << 30
"""Bytes of a compressed log that are read."""
_MOST_PROGRAMS = 2000


class Found(NamedTuple):
    """What lay there."""

    artefacts: tuple[Artefact, ...]
    nodes: tuple[NodeId, ...]
    programs: tuple[Path, ...]
    """Executables and libraries beside the evidence."""
    files: int
    """How many files were looked at."""
    soft_errors: tuple[SoftError, ...]


Progress = Callable[[int, int], None]
"""Called with the numbers of files looked at and of artefacts found."""


def find(paths: Iterable[tuple[Path, str]], scratch: Path, progress: Optional[Progress] = None) -> Found:
    """All evidence below the paths, each with what the user calls it. `scratch` takes what comes out of archives."""
    search = _Search(scratch, progress or (lambda files, artefacts: None))
    for path, shown in paths:
        search.take(path, shown)
    return Found(
        tuple(search.artefacts),
        tuple({node.name: node for node in search.nodes}.values()),
        tuple(search.programs),
        search.files,
        tuple(search.problems),
    )


class _Search:
    def __init__(self, scratch: Path, progress: Progress) -> None:
        self.budget = Budget(scratch)
        self.progress = progress
        self.artefacts: list[Artefact] = []
        self.nodes: list[NodeId] = []
        self.programs: list[Path] = []
        self.problems: list[SoftError] = []
        self.files = 0
        self._seen: set[tuple[int, int]] = set()

    def take(self, path: Path, shown: str, depth: int = 0) -> None:
        """A file or a folder; whatever goes wrong with it is a problem, and the others go on."""
        try:
            self._take(path, shown, depth)
        except EvidenceError as error:
            self._problem(_without(str(error), path, shown), error.hint)
        except OSError as error:
            self._problem(f"{shown} cannot be read: {error.strerror}", "Run as its owner or as root.")
        except Exception as error:
            self.problems.append(failed("find", f"the reader of {shown}", error))

    def _take(self, path: Path, shown: str, depth: int) -> None:
        if self.files >= MOST_FOUND:
            if self.files == MOST_FOUND:
                self._problem(f"only the first {MOST_FOUND:,} files were examined", "Pass the folders that contain the evidence.")
            self.files += 1
            return
        try:
            status = path.stat()
        except FileNotFoundError:
            if path.is_symlink():
                self._problem(f"{shown} is a broken link to {path.readlink()}", "Keep what it points to as an artefact, too.")
            else:
                self._problem(f"{shown} does not exist", "Check the path; the step that makes it may have failed.")
            return
        if (status.st_dev, status.st_ino) in self._seen:
            return
        self._seen.add((status.st_dev, status.st_ino))
        if stat.S_ISDIR(status.st_mode):
            self._folder(path, shown, depth)
        elif not stat.S_ISREG(status.st_mode):
            self._problem(f"{shown} is {_special(status.st_mode)}: it was left out", "Only files and folders are read.")
        else:
            self.files += 1
            self.progress(self.files, len(self.artefacts))
            self._file(path, shown, status.st_size, depth)

    def _folder(self, folder: Path, shown: str, depth: int) -> None:
        manifest = read_manifest(folder)
        names = sorted(entry.name for entry in folder.iterdir())
        if manifest is not None:
            cores = []
            for file in manifest.get("files", []):
                if file.get("kind") == "core":
                    with suppress(EvidenceError, OSError):
                        cores.append(facts.of_core(folder / file.get("name", ""))[1])
            self._found("folder", folder, shown, facts.of_folder(manifest, cores, folder.stat().st_mtime))
            return
        written = WRITTEN if "index.json" in names and _is_index(folder / "index.json") else frozenset()
        for name in names:
            if name not in _NEVER and name not in written:
                place = folder / name
                if place.is_symlink() and place.is_dir():
                    continue  # it may lead anywhere, and round in circles
                self.take(place, f"{shown.rstrip('/')}/{name}", depth)

    def _file(self, path: Path, shown: str, size: int, depth: int) -> None:
        name = shown.rpartition("/")[2]
        if name in _OURS:
            return
        with path.open("rb") as file:
            head = file.read(HEAD)
        if not head:
            if name.startswith("core") or name.endswith(".nvcudmp"):
                self._problem(f"{shown} is empty", "The disk was full, or the limit for cores too small (ulimit -c): crashkit doctor.")
            return
        kind = kind_of(head)
        if kind == "compressed":
            kind = kind_of(plain_head(path))
        if kind in ARCHIVES:
            self._archive(path, shown, depth)
        elif kind == "core":
            self._found(*_core(path, shown))
        elif kind == "program" and depth == 0 and len(self.programs) < _MOST_PROGRAMS:
            self.programs.append(path)
        elif kind == "junit" and size <= _MOST_JUNIT:
            self._junit(path, shown)
        elif kind == "text" and not is_program_text(name):
            self._log(path, shown, name)

    def _archive(self, path: Path, shown: str, depth: int) -> None:
        if _is_bundle(path):
            self._found("bundle", path, shown, Facts(time=path.stat().st_mtime, has_stack=True))
            return
        if depth >= self.budget.depth:
            self._problem(f"{shown} was not unpacked: it is nested in {depth} other archives", "Unpack it yourself.")
            return
        folders: dict[Path, str] = {}
        for member in members(path, shown, self.budget, _wanted, self.problems):
            folder = member.name.rpartition("/")[0]
            folders[member.path.parent] = f"{shown}!{folder}" if folder else shown
        for place, named in folders.items():
            if read_manifest(place) is not None:
                self.take(place, named, depth + 1)
                continue
            for file in sorted(place.iterdir()):
                self.take(file, f"{named}/{file.name}" if "!" in named[len(shown) :] else f"{named}!{file.name}", depth + 1)

    def _log(self, path: Path, shown: str, name: str, kind: str = "log") -> None:
        with open_input(path, Limits(size=_MOST_LOG)) as source:
            crashes = read_crashes(source)
            source.file.seek(0)
            self.nodes += nodes.of_lines(_lines(source.file), shown)
        when = path.stat().st_mtime
        for part, evidence in crashes:
            lines = (part.first, part.last) if len(crashes) > 1 else None
            self._found(kind, path, shown, facts.of_log(part, evidence, name, when), lines)

    def _junit(self, path: Path, shown: str) -> None:
        with open_input(path, Limits(size=_MOST_JUNIT)) as source:
            document = source.file.read()
        try:
            found, said = nodes.of_junit(document, shown)
        except ValueError as error:
            self._problem(f"{shown} is not a JUnit file: {error}", "The run may have been killed while it wrote it.")
            return
        self.nodes += found
        if not said.strip():
            return
        # Its output is a log of its own: a dump in it may be all that is left of a crash.
        text = self.budget.place(shown, "junit-output.log")
        text.write_text(said, encoding="utf-8", errors="replace")
        os.utime(text, (path.stat().st_mtime,) * 2)
        self._log(text, shown, shown.rpartition("/")[2], "junit")

    def _found(self, kind: str, path: Path, shown: str, known: Facts, lines: Optional[tuple[int, int]] = None) -> None:
        self.artefacts.append(Artefact(kind, path, shown, known, lines))

    def _problem(self, message: str, hint: str) -> None:
        self.problems.append(SoftError(stage="find", message=message, hint=hint))


def _core(path: Path, shown: str) -> tuple[str, Path, str, Facts]:
    kind, known = facts.of_core(path)
    return kind, path, shown, known


def _lines(file: Iterable[bytes]) -> Iterator[str]:
    return (line.decode("utf-8", "replace") for line in file if nodes.may_name(line))


def _wanted(name: str, head: bytes) -> bool:
    """Whether a member of an archive may be evidence, or belongs to a crash folder."""
    base = name.rpartition("/")[2]
    if base == MANIFEST:
        return True
    if kind_of(head) in ("text", "junit"):
        return not is_program_text(base) and base not in _OURS
    return kind_of(head) not in (None, "program")


def _is_bundle(path: Path) -> bool:
    """Whether an archive is a bundle: its first file is a manifest that says so."""
    with suppress(Exception):
        ((name, text),) = first_members(path, bundle.MOST_MANIFEST)
        if name.rpartition("/")[2] == bundle.MANIFEST:
            manifest = msgspec.json.decode(text)
            return isinstance(manifest, dict) and str(manifest.get("schema", "")).startswith("crashkit.bundle/")
    return False


def _is_index(path: Path) -> bool:
    with suppress(OSError), path.open("rb") as file:
        return b'"crashkit.index/' in file.read(200)
    return False


def _special(mode: int) -> str:
    kinds = ((stat.S_ISFIFO, "a FIFO"), (stat.S_ISSOCK, "a socket"), (stat.S_ISCHR, "a device"), (stat.S_ISBLK, "a device"))
    return next((name for test, name in kinds if test(mode)), "not a file")


def _without(message: str, path: Path, shown: str) -> str:
    """What a reader said, with the user's name for the file in place of where it was unpacked."""
    return message.replace(str(path), shown)
