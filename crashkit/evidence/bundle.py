"""Opens archives of one crash: bundles, and tar and zip archives of a crash folder or of a core with its logs.

They are unpacked into private folders. Of a bundle the checksums are compared, and its `root` stands for the crashed system. What
comes out of an archive came with the crash: it is read, and never run.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Optional

import msgspec
from msgspec.structs import replace

from crashkit.crashfolder.files import is_regular
from crashkit.crashfolder.manifest import read_manifest
from crashkit.elf.file import open_elf
from crashkit.elf.headers import ET_CORE
from crashkit.errors import CrashkitError, EvidenceError
from crashkit.evidence.archive_kind import archive_kind
from crashkit.evidence.input import roomy_folder
from crashkit.evidence.pieces import OURS
from crashkit.model import Crash, SoftError, Source
from crashkit.scratch import Scratch

if TYPE_CHECKING:
    from crashkit.crashfolder.bundle import BundleManifest
    from crashkit.evidence.archive import Budget, Unpacked

_DEEPEST = 3
"""An artefact of CI is a zip; in it is the bundle, or an archive of a crash folder."""
_NAMED = 5
"""Files in one message."""


class Opened(NamedTuple):
    """The evidence after its archives were unpacked."""

    paths: tuple[Path, ...]
    """The evidence itself, in folders that are deleted when the analysis ends."""
    root: Optional[Path] = None
    """What a bundle has of the crashed system's files, by their paths there."""
    loose: tuple[Path, ...] = ()
    """Unpacked folders in which modules may lie anywhere."""
    names: tuple[tuple[Path, Path], ...] = ()
    """Each unpacked folder, and the archive that the user knows."""
    soft_errors: tuple[SoftError, ...] = ()

    @property
    def folders(self) -> tuple[Path, ...]:
        """All folders of files that came with the crash."""
        return (*self.loose, *([self.root.parent] if self.root else []))

    def named(self, crash: Crash) -> Crash:
        """The crash with the archives' names in place of temporary folders."""
        if not self.names:
            return crash
        renamed: Crash = self._renamed(crash)
        # What a bundle has lies at the path that it had in the crashed system.
        root = self._text(str(self.root))
        modules = tuple(replace(one, found=None) if one.found == f"{root}{one.path}" else one for one in renamed.modules)
        return replace(renamed, modules=modules, source=self._of_archive(crash, renamed.source))

    def _of_archive(self, crash: Crash, source: Optional[Source]) -> Optional[Source]:
        place = Path(crash.source.path) if crash.source else None
        archive = next((name for folder, name in self.names if place is not None and place.is_relative_to(folder)), None)
        return replace(source, archive=self._text(str(archive))) if source is not None and archive is not None else source

    @contextmanager
    def by_their_names(self) -> Iterator[None]:
        """Within, errors name the archives, not temporary folders."""
        try:
            yield
        except CrashkitError as error:
            if self.names:
                raise type(error)(self._text(str(error)), self._text(error.hint)) from error
            raise

    def _text(self, text: str) -> str:
        # The innermost archive was unpacked last, and is named by the one that it was in.
        for folder, archive in reversed(self.names):
            text = text.replace(str(folder), str(archive))
        return text

    def _renamed(self, value: Any) -> Any:
        if isinstance(value, str):
            return self._text(value)
        if isinstance(value, msgspec.Struct):
            changes = {}
            for name in value.__struct_fields__:
                before = getattr(value, name)
                after = self._renamed(before)
                if after is not before and after != before:
                    changes[name] = after
            return replace(value, **changes) if changes else value
        if isinstance(value, tuple):
            return tuple(map(self._renamed, value))
        if isinstance(value, dict):
            return {self._renamed(key): self._renamed(item) for key, item in value.items()}
        return value


def open_archives(places: Sequence[Path], stack: ExitStack) -> Opened:
    """The evidence at these places, archives unpacked; `stack` deletes what was unpacked.

    An archive that cannot be unpacked, or has no evidence, is a soft error beside other evidence.
    Raises EvidenceError if there is none, CollectError for a bundle of a newer crashkit.
    """
    opened = Opened(())
    unread: list[EvidenceError] = []
    for place in places:
        try:
            opened = _open(place, opened, stack, None, 0)
        except EvidenceError as error:
            unread.append(error)
    if unread and not opened.paths:
        raise unread[0]
    told = (SoftError(stage="archive", message=str(error), hint=error.hint) for error in unread)
    return opened._replace(soft_errors=(*opened.soft_errors, *told))


def _open(place: Path, opened: Opened, stack: ExitStack, budget: Optional[Budget], depth: int) -> Opened:
    if depth > _DEEPEST or archive_kind(place) is None:
        return opened._replace(paths=(*opened.paths, place))
    try:
        folder = stack.enter_context(Scratch("unpacked", roomy_folder()))
        from crashkit.crashfolder.bundle import MANIFEST
        from crashkit.evidence.archive import Budget, unpack

        budget = budget or Budget.of(place)
        unpacked = unpack(place, folder, budget)
    except OSError as error:
        hint = "Free space in TMPDIR, or set it to a folder with free space."
        raise EvidenceError(f"{place} cannot be unpacked: {error.strerror}", hint) from error
    opened = opened._replace(names=(*opened.names, (folder, place)), soft_errors=(*opened.soft_errors, *unpacked.soft_errors))
    with opened.by_their_names():
        if MANIFEST in unpacked.files:
            return _of_bundle(place, folder, unpacked, opened)
        return _of_archive(place, folder, unpacked, opened, stack, budget, depth)


def _of_bundle(place: Path, folder: Path, unpacked: Unpacked, opened: Opened) -> Opened:
    from crashkit.crashfolder.bundle import EVIDENCE, ROOT, read_bundle_manifest

    manifest = read_bundle_manifest(folder)
    if not any(name.startswith(f"{EVIDENCE}/") for name in unpacked.files):
        raise EvidenceError(f"{place} contains no evidence of a crash", "It is a bundle whose end is missing: copy it again.")
    (folder / ROOT).mkdir(exist_ok=True)
    # A second bundle has nothing to say of the same system: sort_out refuses its core.
    return opened._replace(
        paths=(*opened.paths, folder / EVIDENCE),
        root=opened.root or folder / ROOT,
        soft_errors=(*opened.soft_errors, *_unlike(place, manifest, unpacked)),
    )


def _unlike(place: Path, manifest: Optional[BundleManifest], unpacked: Unpacked) -> Iterator[SoftError]:
    """What the manifest says otherwise."""
    from crashkit.crashfolder.bundle import MANIFEST

    if manifest is None:
        message = f"{place}: {MANIFEST} is damaged, so the checksums of its files are unknown"
        yield SoftError(stage="archive", message=message, hint="Copy the bundle again if you still have it.")
        return
    missing = [file.name for file in manifest.files if file.name not in unpacked.files]
    differing = [file.name for file in manifest.files if unpacked.files.get(file.name, file.sha256) != file.sha256]
    for names, what in ((missing, "missing from the bundle"), (differing, "not as bundled: the checksum differs")):
        if names:
            some = ", ".join(names[:_NAMED]) + (f" and {len(names) - _NAMED:,} more" if len(names) > _NAMED else "")
            message = f"{place}: {some} {'is' if len(names) == 1 else 'are'} {what}"
            yield SoftError(stage="archive", message=message, hint="Copy the bundle again if you still have it.")


def _of_archive(place: Path, folder: Path, unpacked: Unpacked, opened: Opened, stack: ExitStack, budget: Budget, depth: int) -> Opened:
    opened = opened._replace(loose=(*opened.loose, folder))
    files = [folder / name for name in unpacked.files]
    crashes = sorted({file.parent for file in files if file.name == "manifest.json" and read_manifest(file.parent) is not None})
    before = len(opened.paths)
    if crashes:
        return opened._replace(paths=(*opened.paths, *crashes))
    for file in files:
        if _may_be_evidence(file):
            opened = _open(file, opened, stack, budget, depth + 1)
    if len(opened.paths) == before:
        raise EvidenceError(f"{place} contains no evidence of a crash", "Pass an archive of a core, its logs or a crash folder.")
    return opened


def _may_be_evidence(file: Path) -> bool:
    """Neither ours, nor hidden, nor a module, which is found where it lies."""
    if file.name.startswith(".") or file.name in OURS or not is_regular(file) or not file.stat().st_size:
        return False
    elf = open_elf(file)
    return elf is None or elf.header.kind == ET_CORE
