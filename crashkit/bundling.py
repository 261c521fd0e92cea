"""Puts a crash and all that another machine needs to analyze it into one file.

The crash is analyzed first: its stacks say which files are needed. Those are the modules on the stacks, whole; of large modules
elsewhere the unwind tables; the debug files of both; the Python sources of the frames; and the metadata from which the versions of
packages are known. Texts are masked, what is binary is not.
"""

from __future__ import annotations

import io
import os
import tokenize
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, Optional

import msgspec
from msgspec.structs import replace as with_changes

from crashkit import __version__
from crashkit.attempt import attempt
from crashkit.crashfolder.bundle import EVIDENCE, ROOT, SCHEMA, SUFFIX, WARNING, WARNING_MINIMAL, BundleManifest, Member, write_bundle
from crashkit.crashfolder.files import is_regular, open_real
from crashkit.crashfolder.manifest import OTHERS, RECORDED, SOURCE, File, Manifest, read_manifest
from crashkit.debugger.direct import DirectReader
from crashkit.elf.file import read_build_id
from crashkit.elf.twin import BIG, write_twin
from crashkit.errors import CollectError, EvidenceError
from crashkit.evidence.bundle import open_archives
from crashkit.evidence.core.describe import describe
from crashkit.evidence.gpu import inductor
from crashkit.evidence.gpu.allocator import masked as masked_snapshot
from crashkit.evidence.gpu.source_files import source_files
from crashkit.evidence.input import Input, open_input, roomy_folder
from crashkit.evidence.module_files import Finder, ModuleFile
from crashkit.evidence.package_versions import metadata_files
from crashkit.evidence.pieces import OURS, Pieces, sort_out
from crashkit.gdb_files import DEBUG_ROOT
from crashkit.model import Crash, Module, PythonFrame
from crashkit.pipeline import Options, Progress, analyze, with_files_of
from crashkit.scratch import Scratch
from crashkit.secrets.text import Secrets, of_environment
from crashkit.stacks.source import readable_source, readable_text

_DELETED = " (deleted)"
_CHUNK = 4 << 20
"""Bytes of a log that are masked at a time, in whole lines."""
_LONGEST_LINE = 1 << 20
_COMPRESSED = (".gz", ".xz", ".zst", ".lz4", ".bz2")
_WHOLE = frozenset({"full", "table", "exports", "none"})
"""What `Module.symbols` says where a frame is in the module."""


class Bundled(NamedTuple):
    """A bundle that was written."""

    path: Path
    size: int
    """Bytes."""
    manifest: BundleManifest


def bundle(
    paths: Sequence[Path],
    target: Optional[Path] = None,
    *,
    options: Optional[Options] = None,
    replace: bool = False,
    progress: Optional[Progress] = None,
    minimal: bool = False,
) -> Bundled:
    """Bundle the evidence of one crash at `paths` into `target` (None: named after the crash, in the working directory).

    `minimal`: in place of the core one with only the memory that a report and debuggers need.

    Raises EvidenceError if a path holds no evidence or cannot be read twice, CollectError if the bundle cannot be written.
    """
    options = msgspec.structs.replace(options or Options(), show_secrets=True)
    for path in paths:
        if str(path) == "-" or (path.exists() and not path.is_file() and not path.is_dir()):
            # It is read twice.
            raise EvidenceError(f"{path} is neither a file nor a folder", "Save the core in a file first, and pass that.")
    with ExitStack() as stack:
        scratch = stack.enter_context(Scratch("bundle", roomy_folder()))
        small = scratch / "core" if minimal else None
        crash = analyze(paths, options=msgspec.structs.replace(options, minimal=small), progress=progress)
        opened = open_archives(paths, stack)
        options = with_files_of(opened, options)
        with opened.by_their_names():
            pieces = sort_out(opened.paths, stack)
        finder = Finder(options.sysroot, options.path_maps, options.extra_dirs, options.debuginfod)
        masking = _Masking(pieces, scratch)
        chosen = _Chosen(crash, finder, options.exe, masking, scratch, _imported(pieces, finder))
        texts = list(_texts(pieces, masking))
        kept = list(_kept(pieces, masking))
        binary = list(_binary_evidence(pieces, [one.member.name for one in (*texts, *kept)], _written(small, crash, pieces)))
        root = sorted([*chosen.modules(), *chosen.sources(), *chosen.packages()], key=lambda member: member.name)
        snapshots = list(_snapshots(pieces, masking))
        recordings = list(_recordings(pieces))
        further = (*texts, *kept, *snapshots, *recordings)
        manifest = _manifest(pieces, (*further, *binary), masking)
        others = _others(pieces, masking)
        members = masking.again([*manifest, *(one.member for one in further), *others.texts, *_first_of_each(root)])
        # A minimal core has what the report needs; what the others' cores hold nobody has gone through.
        living = () if minimal else others.cores
        facts = BundleManifest(
            schema=SCHEMA,
            crashkit=__version__,
            id=crash.id,
            warning=(WARNING_MINIMAL if small is not None and not pieces.gpus else WARNING) if (binary or living) else "",
            missing=tuple(map(masking.text, chosen.missing)),
            versions=_versions(crash),
        )
        path = target or Path(f"{crash.id or 'crash'}{SUFFIX}")
        written = write_bundle(path, [*members, *living, *(piece.member for piece in binary)], facts, replace)
    return Bundled(path, path.stat().st_size, written)


def _written(small: Optional[Path], crash: Crash, pieces: Pieces) -> Optional[Path]:
    """The minimal core, if one was wanted. Raises CollectError."""
    if small is None or pieces.core is None:
        return None
    if not small.exists():
        told = next((error for error in crash.soft_errors if error.stage == "minimal"), None)
        raise CollectError(told.message if told else "no minimal core was written", (told and told.hint) or "Omit --minimal.")
    return small


def _versions(crash: Crash) -> dict[str, str]:
    return dict(sorted(crash.process.versions.items())) if crash.process else {}


def _imported(pieces: Pieces, finder: Finder) -> Sequence[str]:
    """Files of what the process had imported."""
    core, source = pieces.core, pieces.core_input
    if core is None or source is None:
        return ()
    nothing: tuple[str, ...] = ()
    return attempt(
        "bundle", "the reader of imported modules", lambda: DirectReader(core, describe(core, source, finder)).loaded(), nothing, []
    )


def _first_of_each(members: Sequence[Member]) -> list[Member]:
    return list({member.name: member for member in reversed(members)}.values())[::-1]


def _modified(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


# Evidence


class _Piece(NamedTuple):
    """A file of the evidence, and what it was called."""

    original: str
    member: Member


def _texts(pieces: Pieces, masking: _Masking) -> Iterator[_Piece]:
    names: list[str] = []
    for text in pieces.texts:
        name = text.original.name.lstrip(".") or "log"
        if text.compression:
            # It is bundled as it is read.
            name = _uncompressed(name)
        names.append(_free(name, names))
    if names != sorted(names):
        # Their order is that of the report's lines.
        names = [f"{number:03}-{name}" for number, name in enumerate(names)]
    for name, text in zip(names, pieces.texts, strict=True):
        member = Member(f"{EVIDENCE}/{name}", "log", masking.log(text), _modified(text.original), masked=True)
        yield _Piece(text.original.name, member)


def _kept(pieces: Pieces, masking: _Masking) -> Iterator[_Piece]:
    """Sources of GPU kernels from the crash folder."""
    for file in pieces.kept:
        read = readable_source(file.path) if file.kind == SOURCE else None
        if read is not None:
            text, time = read
            member = Member(f"{EVIDENCE}/{file.path.name}", "source", _encoded(masking.source(text)), time, file.name, masked=True)
            yield _Piece(file.path.name, member)


def _snapshots(pieces: Pieces, masking: _Masking) -> Iterator[_Piece]:
    """Snapshots of torch's allocator, when all secrets are known: another length of a text would damage them."""
    names: list[str] = []
    for number, snapshot in enumerate(pieces.snapshots, 1):
        path = Path(snapshot.path)
        with open_input(path) as source:
            data = masked_snapshot(source.file.read(), snapshot.path, masking.everywhere())
        plain = _uncompressed(path.name.lstrip(".")) or f"snapshot-{number}"
        names.append(_free(plain, names))
        yield _Piece(path.name, Member(f"{EVIDENCE}/{names[-1]}", "allocator-snapshot", data, _modified(path)))


def _recordings(pieces: Pieces) -> Iterator[_Piece]:
    """Flight recorder dumps as they are: what they contain are names of functions and files, sizes and times."""
    for file in pieces.kept:
        if file.kind == RECORDED:
            yield _Piece(file.path.name, Member(f"{EVIDENCE}/{file.path.name}", RECORDED, file.path, _modified(file.path)))


def _binary_evidence(pieces: Pieces, taken: Sequence[str], small: Optional[Path]) -> Iterator[_Piece]:
    """GPU cores, then the core, or the `small` one: it is the largest, and more can be done without its end than without anything else."""
    gpus = [("gpu-core", source) for _, source in sorted(pieces.gpus, key=lambda gpu: gpu.source.original.name)]
    core = [("core", pieces.core_input)] if pieces.core_input is not None else []
    names = [name.rpartition("/")[2] for name in taken]
    for kind, source in (*gpus, *core):
        name = source.original.name.lstrip(".") or kind
        # As it was found, also if it is compressed: the report says how large it was.
        found = Path(os.path.realpath(source.original))
        content = small if small is not None and kind == "core" else found
        names.append(_free(_uncompressed(name) if content is small and source.compression else name, names))
        yield _Piece(source.original.name, Member(f"{EVIDENCE}/{names[-1]}", kind, content, _modified(found)))


def _uncompressed(name: str) -> str:
    return name.removesuffix(next((ending for ending in _COMPRESSED if name.endswith(ending)), ""))


def _free(name: str, taken: Sequence[str]) -> str:
    number, free = 1, name
    while free in taken or free in OURS:
        number += 1
        free = f"{number}-{name}"
    return free


def _manifest(pieces: Pieces, evidence: Sequence[_Piece], masking: _Masking) -> Iterator[Member]:
    """The crash folder's, with the names that its files have in the bundle."""
    if pieces.manifest is None:
        return
    known = {str(file.get("name")): file for file in pieces.manifest.get("files", [])}
    files: list[File] = []
    for original, member in evidence:
        file = File(**known.get(original, {"kind": member.kind}))
        file["name"] = member.name.rpartition("/")[2]
        if "path" in file:
            file["path"] = masking.text(file["path"])
        files.append(file)
    clean = {**masking.manifest(pieces.manifest), "files": files}
    yield Member(f"{EVIDENCE}/manifest.json", "manifest", msgspec.json.format(msgspec.json.encode(clean), indent=1), 0.0, masked=True)


class _Others(NamedTuple):
    """What a crash folder has of the other processes of the run."""

    texts: tuple[Member, ...] = ()
    cores: tuple[Member, ...] = ()


def _others(pieces: Pieces, masking: _Masking) -> _Others:
    """The crash folders in this one, as they are; what is no core is masked."""
    texts: list[Member] = []
    cores: list[Member] = []
    if pieces.manifest is None or pieces.folder is None:
        return _Others()
    for name in pieces.manifest.get("others", []):
        folder, place = pieces.folder / OTHERS / name, f"{EVIDENCE}/{OTHERS}/{name}"
        manifest = read_manifest(folder)
        if manifest is None:
            continue
        content = msgspec.json.format(msgspec.json.encode(masking.manifest(manifest)), indent=1)
        texts.append(Member(f"{place}/manifest.json", "manifest", content, 0.0, masked=True))
        for file in manifest.get("files", []):
            path, kind = folder / str(file.get("name")), str(file.get("kind"))
            if not is_regular(path) or path.name == "manifest.json":
                continue
            if kind == RECORDED:
                texts.append(Member(f"{place}/{path.name}", kind, path, _modified(path)))
                continue
            if kind in ("core", "gpu-core"):
                cores.append(Member(f"{place}/{path.name}", kind, path, _modified(path)))
                continue
            with open_input(path) as source:
                texts.append(Member(f"{place}/{path.name}", "log", masking.log(source), _modified(path), masked=True))
    return _Others(tuple(texts), tuple(cores))


# Files of the crashed system


class _Chosen:
    """Which files of the crashed system are needed, by what its stacks say."""

    def __init__(
        self, crash: Crash, finder: Finder, exe: Optional[Path], masking: _Masking, scratch: Path, imported: Sequence[str]
    ) -> None:
        self.missing: list[str] = []
        self._crash = crash
        self._finder = finder
        self._exe = exe
        self._masking = masking
        self._twins = scratch
        self._imported = imported
        self._found: list[str] = []

    def modules(self) -> Iterator[Member]:
        """Modules and their debug files."""
        process, python = self._crash.process, self._crash.python
        main = process.executable if process else None
        needed = {main, python.executable if python else None}
        for thread in self._crash.threads:
            needed |= {frame.module for frame in thread.natives()}
        seen: set[str] = set()
        for module in self._crash.modules:
            if module.path in seen:
                continue
            seen.add(module.path)
            file = self._finder.find(module.path, module.build_id)
            if self._exe is not None and module.path == main and module.found == str(self._exe):
                file = with_changes(file, state="found", path=self._exe)
            whole = module.path in needed or module.symbols in _WHOLE
            yield from self._module(module, file, whole)
            if whole and file.debug is not None:
                yield from self._debug(file.debug)

    def _module(self, module: Module, file: ModuleFile, whole: bool) -> Iterator[Member]:
        name = _in_root(module.path.removesuffix(_DELETED))
        if file.path is None or name is None:
            self.missing.append(module.path)
            return
        self._found.append(module.path)
        member = Member(name, "module", Path(os.path.realpath(file.path)), _modified(file.path), module.path, module.build_id)
        if not whole and file.path.stat().st_size >= BIG and (twin := write_twin(file.path, self._twins)) is not None:
            member = member._replace(kind="unwind-tables", content=twin)
        yield member

    def _debug(self, debug: Path) -> Iterator[Member]:
        for file in (debug, self._finder.shared_debug_file(debug)):
            build_id = read_build_id(file) if file is not None else None
            if file is not None and build_id:
                path = f"{DEBUG_ROOT}/.build-id/{build_id[:2]}/{build_id[2:]}.debug"
                yield Member(f"{ROOT}{path}", "debug-info", Path(os.path.realpath(file)), _modified(file), path, build_id)

    def sources(self) -> Iterator[Member]:
        """The sources that the report shows lines of."""
        base = self._crash.process.environment.get("PWD", "") if self._crash.process else ""
        for file in dict.fromkeys(_source_files(self._crash)):
            path = file if file.startswith("/") else f"{base}/{file}"
            name, here = _in_root(path), self._finder.source(path)
            if name is None or here is None:
                continue
            read = readable_source(here)
            if read is not None:
                text, time = read
                yield Member(name, "source", _encoded(self._masking.source(text)), time, path, masked=True)
        yield from self._generated()

    def _generated(self) -> Iterator[Member]:
        """What torch.compile wrote of the kernels that failed, beside each."""
        failed = dict.fromkeys(one.file for gpu in self._crash.gpu for one in gpu.exceptions if one.file)
        for file in failed:
            here = self._finder.source(file)
            for path, text in inductor.generated(file, (inductor.cache_of(here),) if here is not None else (), readable_text):
                there = str(Path(file).parent.parent / path.parent.name / path.name)
                name = _in_root(there)
                if name is not None:
                    yield Member(name, "source", _encoded(self._masking.source(text)), _modified(path), there, masked=True)

    def packages(self) -> Iterator[Member]:
        """Metadata of the packages whose versions the report tells."""
        files = [*_source_files(self._crash), *self._found, *self._imported]
        for path, here in metadata_files(files, self._finder.folder).items():
            name = _in_root(path)
            if name is not None:
                yield Member(name, "package", self._masking.file(here), _modified(here), path, masked=True)


def _source_files(crash: Crash) -> Iterator[str]:
    """Files of Python frames and of GPU kernels, as the crashed process called them."""
    for thread in crash.threads:
        for frame in (*thread.frames, *thread.python_frames):
            if isinstance(frame, PythonFrame) and frame.file and not frame.file.startswith("<"):
                yield frame.file
    for gpu in crash.gpu:
        yield from source_files(gpu)


def _in_root(path: str) -> Optional[str]:
    """The name in the bundle for a path of the crashed system; None for one that no file has."""
    if not path.startswith("/") or "\0" in path:
        return None
    parts: list[str] = []
    for part in path.split("/"):
        if part == "..":
            del parts[-1:]
        elif part not in ("", "."):
            parts.append(part)
    return "/".join((ROOT, *parts)) if parts else None


def _encoded(text: str) -> bytes:
    """The source in the encoding that it declares."""
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(text.encode("utf-8", "replace")).readline)
    except SyntaxError:
        encoding = "utf-8"
    return text.encode(encoding, "replace")


# Masking


class _Masking:
    """Masks texts; a secret that one of them names, or the process's environment, is masked in all of them."""

    def __init__(self, pieces: Pieces, scratch: Path) -> None:
        self._secrets = Secrets()
        self._scratch = scratch
        self._logs = 0
        if pieces.core is not None:
            entries = pieces.core.arguments_and_environment()[1]
            self._secrets.found.update(of_environment(dict(entry.split("=", 1) for entry in entries if "=" in entry)))

    def source(self, text: str) -> str:
        """Lines of a program; there are as many as before."""
        return self._secrets.text(text, source=True)

    def file(self, path: Path) -> bytes:
        """A small text of another tool's. Raises OSError."""
        with open_real(path) as file:
            return _cleaned(file.read(), self._secrets.text)

    def manifest(self, manifest: Manifest) -> dict[str, Any]:
        """What was recorded of a crash."""
        clean: dict[str, Any] = {}
        for name, value in manifest.items():
            if name == "environment" and isinstance(value, dict):
                clean[name] = self._secrets.environment(value)
            elif name in ("argv", "command") and isinstance(value, list):
                clean[name] = self._secrets.arguments(value)
            else:
                clean[name] = self._each(value)
        return clean

    def _each(self, value: Any) -> Any:
        if isinstance(value, str):
            return self._secrets.text(value)
        if isinstance(value, list):
            return list(map(self._each, value))
        return {key: self._each(item) for key, item in value.items()} if isinstance(value, dict) else value

    def text(self, text: str) -> str:
        """A short text of any kind."""
        return self._secrets.text(text)

    def everywhere(self) -> Callable[[str], str]:
        """Masks short texts, also what other texts showed to be secret."""
        known = self._secrets.repetitions() if self._secrets.found else str
        return lambda text: known(self.text(text))

    def log(self, log: Input) -> Path:
        """A log, which may be large: masked into a file."""
        log.file.seek(0)
        return self._rewritten(log.file, self._secrets.text)

    def _rewritten(self, source: BinaryIO, clean: Callable[[str], str]) -> Path:
        self._logs += 1
        path = self._scratch / f"log-{self._logs}"
        with path.open("wb") as target:
            while chunk := source.read(_CHUNK):
                target.write(_cleaned(chunk + source.readline(_LONGEST_LINE), clean))
        return path

    def again(self, members: Sequence[Member]) -> list[Member]:
        """The texts among the members once more, now that all secrets are known."""
        if not self._secrets.found:
            return list(members)
        clean = self._secrets.repetitions()
        return [self._once_more(member, clean) if member.masked else member for member in members]

    def _once_more(self, member: Member, clean: Callable[[str], str]) -> Member:
        if isinstance(member.content, bytes):
            return member._replace(content=_cleaned(member.content, clean))
        with member.content.open("rb") as source:
            return member._replace(content=self._rewritten(source, clean))


def _cleaned(data: bytes, clean: Callable[[str], str]) -> bytes:
    return clean(data.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")
