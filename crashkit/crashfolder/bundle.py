"""The bundle: one file with a crash and all that another machine needs to analyze it.

A bundle is a tar archive, compressed with zstd. Its members are regular files:

    bundle.json         what is in it: `BundleManifest`
    evidence/           the core, GPU cores, logs; of a crash folder also its manifest.json
    root/               files of the crashed system by their paths there: modules, debug files, sources, package metadata

bundle.json stands first and the core last, so that a truncated bundle still says what is missing. The same evidence gives the same
bytes, but for another version of crashkit.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import io
import os
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple, Optional, Union

import msgspec

from crashkit.crashfolder.files import create, open_real
from crashkit.errors import CollectError
from crashkit.prepared import prepared

SCHEMA = "crashkit.bundle/1"
SUFFIX = ".tar.zst"
MANIFEST, EVIDENCE, ROOT = "bundle.json", "evidence", "root"
WARNING = (
    "The core is the memory of the process as it was: it holds passwords, keys and data of users. "
    "It is not masked. Share it only with people who may see them."
)
WARNING_MINIMAL = (
    "The minimal core holds the stacks and the values that the report shows. What looks like a secret there was overwritten with zeros; "
    "other data of users may be in it."
)
MOST_MANIFEST = 32 << 20
_CHUNK = 1 << 20
_LEVEL = 6


class BundledFile(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One file of a bundle."""

    name: str
    """Its name in the archive."""
    kind: str
    """core, gpu-core, allocator-snapshot, flight-recorder, log, manifest, module, unwind-tables (a large module of which only that is
    here), debug-info, source, package."""
    size: int
    """Bytes."""
    sha256: str
    """In hexadecimal."""
    path: Optional[str] = None
    """Its path in the crashed system."""
    build_id: Optional[str] = None
    masked: bool = False
    """Whether secrets in it were searched for and masked: true of texts, false of what is binary."""


class BundleManifest(msgspec.Struct, frozen=True, kw_only=True):
    """bundle.json."""

    schema: str
    crashkit: Optional[str] = None
    """The version that made the bundle."""
    id: Optional[str] = None
    """The crash."""
    warning: str = ""
    """What secrets it may hold, in words."""
    files: tuple[BundledFile, ...] = ()
    """In the order of the archive."""
    missing: tuple[str, ...] = ()
    """Modules of the process that the bundling machine did not have."""
    versions: dict[str, str] = {}
    """Packages that the process had loaded, by distribution name."""


class Member(NamedTuple):
    """A file to bundle: where its bytes are, and what the manifest says of it."""

    name: str
    kind: str
    content: Union[bytes, Path]
    time: float
    """When it was last changed, in seconds since the epoch: line numbers of newer sources are not trusted."""
    path: Optional[str] = None
    build_id: Optional[str] = None
    masked: bool = False


def write_bundle(target: Path, members: Sequence[Member], facts: BundleManifest, replace: bool = False) -> BundleManifest:
    """Write the bundle atomically, mode 0600; returns its manifest: `facts` with the files.

    Raises CollectError: if the target exists and is not to be replaced, if a file changes meanwhile, if it cannot be written.
    """
    if not replace and target.is_symlink() | target.exists():
        raise _exists(target)
    unfinished = target.with_name(f".{target.name[:128]}.{os.getpid()}")
    try:
        manifest = msgspec.structs.replace(facts, files=tuple(_described(member) for member in members))
        with create(unfinished) as file:
            try:
                _write(file, members, manifest)
                file.flush()
                _publish(unfinished, target, replace)
            finally:
                unfinished.unlink(missing_ok=True)
    except FileExistsError as error:
        raise _exists(target) from error
    except OSError as error:
        message = f"cannot write the bundle {target}: {error.strerror or error}"
        raise CollectError(message, "Choose another place with -o FILE.") from error
    return manifest


def read_bundle_manifest(folder: Path) -> Optional[BundleManifest]:
    """The manifest of an unpacked bundle; None if it is missing or damaged. Raises CollectError if a newer crashkit made it."""
    try:
        with open_real(folder / MANIFEST) as file:
            manifest = msgspec.json.decode(file.read(MOST_MANIFEST), type=prepared(BundleManifest))
    except (OSError, ValueError, RecursionError):
        return None
    if manifest.schema == SCHEMA:
        return manifest
    if manifest.schema.startswith(SCHEMA.rpartition("/")[0]):
        raise CollectError(f"the bundle has a format that this version does not know: {manifest.schema[:80]}", "Update crashkit.")
    return None


def _exists(target: Path) -> CollectError:
    return CollectError(f"{target} exists already", "Choose another name with -o FILE, or replace it with --force.")


def _opened(member: Member) -> BinaryIO:
    return io.BytesIO(member.content) if isinstance(member.content, bytes) else open_real(member.content)


def _described(member: Member) -> BundledFile:
    digest = hashlib.sha256()
    size = 0
    with _opened(member) as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
            size += len(chunk)
    return BundledFile(
        name=member.name,
        kind=member.kind,
        size=size,
        sha256=digest.hexdigest(),
        path=member.path,
        build_id=member.build_id,
        masked=member.masked,
    )


def _write(file: BinaryIO, members: Sequence[Member], manifest: BundleManifest) -> None:
    import zstandard

    # With a thread, even if it is only one: the bytes do not depend on how many there are.
    compressor = zstandard.ZstdCompressor(level=_LEVEL, write_checksum=True, threads=max(1, os.cpu_count() or 1))
    with (
        compressor.stream_writer(file, closefd=False) as packed,
        tarfile.open(fileobj=packed, mode="w|", format=tarfile.PAX_FORMAT) as archive,
    ):
        document = msgspec.json.format(msgspec.json.encode(manifest), indent=1)
        archive.addfile(_header(MANIFEST, len(document), 0), io.BytesIO(document))
        for member, described in zip(members, manifest.files, strict=True):
            with _opened(member) as source:
                seen = _Seen(source)
                try:
                    archive.addfile(_header(member.name, described.size, member.time), seen)
                except OSError as error:
                    # tarfile's own, for a file that ends too early, has no number.
                    if error.errno is not None:
                        raise
                if seen.digest.hexdigest() != described.sha256:
                    message = f"{member.content if isinstance(member.content, Path) else member.name} changed while it was bundled"
                    raise CollectError(message, "Wait until whatever writes it has ended, and try again.")


def _header(name: str, size: int, time: float) -> tarfile.TarInfo:
    header = tarfile.TarInfo(name)
    header.size, header.mtime, header.mode = size, time, 0o600
    return header


class _Seen:
    """A file, and the checksum of what was read of it."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.digest = hashlib.sha256()

    def read(self, size: int = -1) -> bytes:
        data = self._file.read(size)
        self.digest.update(data)
        return data


def _publish(unfinished: Path, target: Path, replace: bool) -> None:
    if not replace:
        try:
            # Unlike a rename, it never replaces what another process has put there meanwhile.
            os.link(unfinished, target)
            return
        except OSError as error:
            if error.errno not in (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK):
                raise
        with contextlib.suppress(FileNotFoundError):
            os.lstat(target)
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(target))
    unfinished.replace(target)
