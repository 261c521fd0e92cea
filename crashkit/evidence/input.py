"""Opens a file of any kind so that readers get plain, seekable bytes.

A plain file is used in place. A compressed file or a pipe is unpacked into memory, or into an unnamed
temporary file if it is too large: neither outlives the process, however it ends.
Input that cannot be unpacked completely (truncated, damaged, disk full) is used as far as possible.
"""

from __future__ import annotations

import bz2
import codecs
import errno
import lzma
import os
import select
import shutil
import stat
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from glob import has_magic
from pathlib import Path
from shlex import quote
from types import TracebackType
from typing import BinaryIO, Optional, Protocol, cast

import msgspec

from crashkit.errors import EvidenceError
from crashkit.model import SoftError

MEMORY_LIMIT = 256 << 20
"""Bytes of unpacked data, not counting holes, that are kept in memory."""
SIZE_LIMIT = 1 << 40
"""Bytes of unpacked data, counting holes: enough for a core of a large host, but stops a decompression bomb."""
LIKELY_RATIO = 64
UNLIKELY_SECONDS = 5.0
"""Cores unpack to less than 64 times their compressed size. What unpacks to more may take 5 s of processor time: enough for 10 GB of
zeros in zstd, which a process with large untouched arrays can leave."""
DISK_RESERVE = 512 << 20
"""Bytes of disk space that unpacking leaves free."""

_READ = 1 << 20
_FEED = 4 << 10
"""Compressed bytes handed over at once: the worst ratio (zstd, 4 bytes for a block of 128 KiB) makes 128 MiB of them."""
_FEED_BZIP2 = 64
"""There 40 bytes are a block of 45 MB of zeros."""
_BLOCK = 16 << 10
_ZEROS = bytes(_BLOCK)
_FIRST_BYTES_WAIT = 30
"""Seconds that a FIFO may take to show its first bytes."""


class _Decompressor(Protocol):
    eof: bool
    unused_data: bytes

    def decompress(self, data: bytes, /) -> bytes: ...


def _gzip() -> _Decompressor:
    return cast(_Decompressor, zlib.decompressobj(wbits=31))


def _xz() -> _Decompressor:
    return cast(_Decompressor, lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=1 << 30))


def _zstd() -> _Decompressor:
    import zstandard

    return cast(_Decompressor, zstandard.ZstdDecompressor(max_window_size=1 << 31).decompressobj())


def _lz4() -> _Decompressor:
    import lz4.frame

    return cast(_Decompressor, lz4.frame.LZ4FrameDecompressor())


def _bzip2() -> _Decompressor:
    return cast(_Decompressor, bz2.BZ2Decompressor())


class _Transcoder:
    """UTF-16 into UTF-8; its end is nowhere told."""

    eof = False
    unused_data = b""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-16")("replace")

    def decompress(self, data: bytes, /) -> bytes:
        return self._decoder.decode(data).encode("utf-8", "replace")


_FORMATS: dict[str, tuple[tuple[bytes, ...], Callable[[], _Decompressor]]] = {
    "gzip": ((b"\x1f\x8b",), _gzip),
    "xz": ((b"\xfd7zXZ\0",), _xz),
    # pzstd begins its files with a skippable frame.
    "zstd": ((b"\x28\xb5\x2f\xfd", b"\x50\x2a\x4d\x18"), _zstd),
    "lz4": ((b"\x04\x22\x4d\x18",), _lz4),
    # With the magic of its first block: a text may begin with BZh.
    "bzip2": (tuple(b"BZh%d1AY&" % level for level in range(1, 10)), _bzip2),
}
_UTF16 = "utf-16"
"""What PowerShell's `>` writes: read as a compressed text is, but nothing to tell of."""


def compression_of(head: bytes) -> Optional[str]:
    """Name of the compression, from a file's first bytes; None if it is not compressed."""
    return next((name for name, (magics, _) in _FORMATS.items() if head.startswith(magics)), None)


def _is_utf16(head: bytes) -> bool:
    """Whether a text begins with a byte order mark and a character of ASCII."""
    mark, high, low = (head[:2], head[3:4], head[2:3]) if head[:1] == b"\xff" else (head[:2], head[2:3], head[3:4])
    return mark in (b"\xff\xfe", b"\xfe\xff") and high == b"\0" and low.isascii() and low not in (b"", b"\0")


def _packing(head: bytes) -> Optional[str]:
    return compression_of(head) or (_UTF16 if _is_utf16(head) else None)


class Limits(msgspec.Struct, frozen=True):
    """How much space unpacking may use, in bytes."""

    memory: int = MEMORY_LIMIT
    size: int = SIZE_LIMIT
    seconds: float = UNLIKELY_SECONDS
    """Processor time for what unpacks to more than LIKELY_RATIO times its size."""
    disk_reserve: int = DISK_RESERVE
    folder: Optional[Path] = None
    """Folder of the temporary file; None: TMPDIR, or the one of /var/tmp and /tmp with more free space."""


class Input(msgspec.Struct, frozen=True):
    """An opened piece of evidence; a context manager."""

    file: BinaryIO
    """The plain bytes: seekable, read-only by intent."""
    path: Path
    """A path at which another process of this user, such as gdb, can read the plain bytes while this input is open."""
    size: int
    """Plain bytes."""
    original: Path
    """Path as passed by the caller."""
    original_size: int
    """Bytes of the file on disk, or bytes read from the pipe."""
    compression: Optional[str] = None
    """gzip, xz, zstd, lz4, bzip2."""
    soft_errors: tuple[SoftError, ...] = ()
    """Set if the plain bytes are incomplete."""

    def close(self) -> None:
        """Close the file; a temporary copy is deleted."""
        self.file.close()

    def __enter__(self) -> Input:
        return self

    def __exit__(self, kind: Optional[type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]) -> None:
        self.close()


_LIMITS = Limits()


def open_input(path: Path, limits: Limits = _LIMITS) -> Input:
    """Open `path`, which may be compressed (detected by its first bytes, not its name), sparse, read-only, a FIFO or /dev/stdin.

    Raises EvidenceError if it cannot be opened, is empty, or is not a file.
    """
    file = _open(path)
    try:
        mode = os.fstat(file.fileno()).st_mode
        if stat.S_ISREG(mode):
            return _open_regular(file, path, limits)
        with file:
            return _unpack(_pipe_pieces(file, path, wait=_FIRST_BYTES_WAIT if _is_named(path) else None), path, limits)
    except BaseException:
        file.close()
        raise


def _open(path: Path) -> BinaryIO:
    try:
        # A FIFO that nobody writes to, or a device, must not hold the open itself.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    except OSError as error:
        # A socket, or another user's file, that we were handed but may not open anew.
        if str(path) != "/dev/stdin" or error.errno not in (errno.ENXIO, errno.EACCES):
            raise _cannot_open(path, error) from error
        descriptor = os.dup(0)
    except ValueError as error:
        raise EvidenceError(f"cannot open {str(path)!r}: {error}", "Pass the path of a core file.") from error
    mode = os.fstat(descriptor).st_mode
    problem = _unfit(path, mode, descriptor)
    if problem:
        os.close(descriptor)
        raise problem
    return os.fdopen(descriptor, "rb")


def _unfit(path: Path, mode: int, descriptor: int) -> Optional[EvidenceError]:
    if stat.S_ISREG(mode) or stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode):
        return None
    if stat.S_ISDIR(mode):
        return EvidenceError(f"{path} is a folder", "Pass a file in it, such as its core.")
    if os.isatty(descriptor):
        return EvidenceError(f"{path} is a terminal", "Redirect a core into it: crashkit analyze /dev/stdin < core")
    return EvidenceError(f"{path} is a device, not a file", "Pass the path of a core file.")


def _is_log(path: Path) -> bool:
    """Whether a file that cannot be read was meant to hold what a process printed, by its name."""
    return path.suffix in (".log", ".txt", ".out", ".err", ".stderr", ".stdout")


def _cannot_open(path: Path, error: OSError) -> EvidenceError:
    if "\n" in str(path).strip():
        return EvidenceError("what was given is a text of several lines, not a path", "Pass the text on standard input: crashkit analyze -")
    if isinstance(error, FileNotFoundError) and has_magic(str(path)):
        hint = f"Omit the quotes, so that the shell expands it; for the crashes of all such files: crashkit ci {quote(str(path))} --out DIR"
        return EvidenceError(f"{path} does not exist", hint)
    if isinstance(error, FileNotFoundError):
        hint = "" if _is_log(path) else "; crashkit doctor and /proc/sys/kernel/core_pattern show where cores are written"
        return EvidenceError(f"{path} does not exist", f"Check the path{hint}.")
    if isinstance(error, PermissionError):
        return EvidenceError(
            f"no permission to read {path}", "Cores belong to the user of the crashed process: run as that user or as root."
        )
    return EvidenceError(f"{path} cannot be opened: {error.strerror}", "Pass the path of a core file.")


def _is_named(path: Path) -> bool:
    """Whether the path is a named file; False for standard input and process substitution, whose other end the caller started."""
    return not str(path).startswith(("/dev/stdin", "/dev/fd/", "/proc/"))


def _open_regular(file: BinaryIO, path: Path, limits: Limits) -> Input:
    try:
        head = file.read(8)
        file.seek(0)
    except OSError as error:
        raise EvidenceError(f"{path} cannot be read: {error.strerror}", "Check the disk, or pass another copy of the file.") from error
    if not head:
        hint = (
            "Its process printed nothing there."
            if _is_log(path)
            else "The disk may have been full or the core size limit 0: run crashkit doctor."
        )
        raise EvidenceError(f"{path} is empty", hint)
    size = os.fstat(file.fileno()).st_size
    if _packing(head):
        with file:
            return _unpack(_file_pieces(file), path, limits)
    # /dev/stdin means another file to gdb.
    plain = path if _is_named(path) else _descriptor_path(file)
    return Input(file=file, path=plain, size=size, original=path, original_size=size)


def plain_pieces(file: BinaryIO) -> Iterator[bytes]:
    """The plain bytes of a regular file that was just opened, as they are unpacked. The iterator raises Damaged, and OSError."""
    source = _Counted(_file_pieces(file))
    compression = _packing(source.peek(8))
    return _decompress(source, compression) if compression else iter(source)


def _file_pieces(file: BinaryIO) -> Iterator[bytes]:
    while piece := file.read(_READ):
        yield piece


def _pipe_pieces(file: BinaryIO, path: Path, wait: Optional[float]) -> Iterator[bytes]:
    """What comes through a pipe. A FIFO that shows nothing within `wait` seconds counts as empty."""
    readable = select.poll()
    readable.register(file, select.POLLIN)
    while True:
        if not readable.poll(None if wait is None else wait * 1000):
            raise EvidenceError(f"{path} is a FIFO without a writer", "Pass the path of a core file.")
        wait = None
        with suppress(BlockingIOError):
            piece = os.read(file.fileno(), _READ)
            if not piece:
                return
            yield piece


class _Sink:
    """Receives plain bytes; keeps them in memory, then in a nameless file; leaves holes for zeros."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.file = _memory_file()
        self.size = 0
        self.room = limits.memory
        self.folder = limits.folder or roomy_folder()
        self.on_disk = False
        self.pending = b""

    def write(self, data: bytes) -> None:
        """Write more data. Raises _Full if there is no space; data written before is kept."""
        data = self.pending + data
        whole = len(data) - len(data) % _BLOCK
        self.pending = data[whole:]
        for start in range(0, whole, _BLOCK):
            self._write_block(data[start : start + _BLOCK])

    def finish(self) -> BinaryIO:
        with suppress(_Full):
            self._write_block(self.pending)
        self.file.truncate(self.size)
        self.file.seek(0)
        return self.file

    def _write_block(self, block: bytes) -> None:
        if self.size + len(block) > self.limits.size:
            raise _Full(f"it unpacks to more than {_amount(self.limits.size)}", "Unpack it yourself and pass the unpacked file.")
        if block == _ZEROS:
            self.size += _BLOCK
            return
        if self.room < len(block):
            self._make_room()
        try:
            self.file.seek(self.size)
            self.file.write(block)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EFBIG, errno.EDQUOT, errno.ENOMEM):
                raise
            raise self._disk_full() from error
        self.size += len(block)
        self.room -= len(block)

    def _make_room(self) -> None:
        if self.on_disk:
            raise self._disk_full()
        self.room = shutil.disk_usage(self.folder).free - self.limits.disk_reserve
        if self.room < self.limits.memory * 2:
            raise self._disk_full()
        memory, self.file = self.file, _nameless_file(self.folder)
        self.on_disk = True
        with memory:
            self._copy(memory)

    def _copy(self, memory: BinaryIO) -> None:
        position = 0
        memory.seek(0)
        while block := memory.read(_BLOCK):
            if block != _ZEROS:
                self.file.seek(position)
                self.file.write(block)
                self.room -= len(block)
            position += len(block)

    def _disk_full(self) -> _Full:
        return _Full(f"no space left in {self.folder}", "Set TMPDIR to a folder with more space, or unpack it yourself.")


class _Full(Exception):
    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.hint = hint


def _unpack(pieces: Iterator[bytes], path: Path, limits: Limits) -> Input:
    source = _Counted(pieces)
    head = source.peek(8)
    if not head:
        raise EvidenceError(f"{path} is empty", "Check the command that writes to it.")
    compression = _packing(head)
    sink = _Sink(limits)
    try:
        problem = _pump(_in_time(_decompress(source, compression), source, sink) if compression else iter(source), sink)
        file = sink.finish()
    except BaseException:
        sink.file.close()
        raise
    if compression and not sink.size:
        file.close()
        raise EvidenceError(f"{path} is {compression} data that unpacks to nothing", "Pass the core itself, or copy the file again.")
    return Input(
        file=file,
        path=_descriptor_path(file),
        size=sink.size,
        original=path,
        original_size=source.count,
        compression=compression if compression != _UTF16 else None,
        soft_errors=(problem,) if problem else (),
    )


def _in_time(data: Iterator[bytes], source: _Counted, sink: _Sink) -> Iterator[bytes]:
    """Raises _Full where the data is likely a decompression bomb and has taken its time."""
    end = time.process_time() + sink.limits.seconds
    for piece in data:
        yield piece
        if sink.size > LIKELY_RATIO * source.count and time.process_time() > end:
            raise _Full(
                f"it unpacks to more than {LIKELY_RATIO} times its size, and takes too long",
                "Unpack it yourself and pass the unpacked file.",
            )


def _pump(data: Iterator[bytes], sink: _Sink) -> Optional[SoftError]:
    try:
        for piece in data:
            sink.write(piece)
    except Damaged as error:
        message = f"{error} after {_amount(sink.size + len(sink.pending))} of unpacked data: the rest is missing"
        return SoftError(stage="input", message=message, hint="Copy or compress the core again if you still have it.")
    except _Full as error:
        return SoftError(stage="input", message=f"only the first {_amount(sink.size)} of the core is used: {error}", hint=error.hint)
    return None


class Damaged(Exception):
    """Compressed data ends too early, or is not what it should be."""


class _Counted:
    """Iterates over pieces, counts their bytes, and can look at the first ones ahead."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self.pieces = pieces
        self.ahead = b""
        self.count = 0

    def peek(self, length: int) -> bytes:
        while len(self.ahead) < length and (piece := next(self.pieces, b"")):
            self.ahead += piece
            self.count += len(piece)
        return self.ahead[:length]

    def __iter__(self) -> Iterator[bytes]:
        if self.ahead:
            yield self.ahead
            self.ahead = b""
        for piece in self.pieces:
            self.count += len(piece)
            yield piece


def _decompress(source: _Counted, compression: str) -> Iterator[bytes]:
    """Plain data of one or more concatenated streams (`cat a.gz b.gz`, pzstd, pixz).

    Raises Damaged if the data is truncated or damaged.
    """
    start = _Transcoder if compression == _UTF16 else _FORMATS[compression][1]
    feed = _FEED_BZIP2 if compression == "bzip2" else _FEED
    stream, produced, whole_streams = start(), False, 0
    for piece in source:
        for position in range(0, len(piece), feed):
            data = piece[position : position + feed]
            while data:
                if stream.eof:
                    data = data.lstrip(b"\0")
                    if not data:
                        break
                    stream, produced, whole_streams = start(), False, whole_streams + 1
                try:
                    plain = stream.decompress(data)
                # lz4 raises RuntimeError, the others their own, which derive from Exception.
                except Exception as error:
                    if whole_streams and not produced:
                        return  # what follows the last stream is no stream
                    raise Damaged(f"the {compression} data is damaged ({str(error) or type(error).__name__})") from error
                produced = produced or bool(plain)
                yield plain
                data = stream.unused_data if stream.eof else b""
    if not stream.eof and compression != _UTF16:
        raise Damaged(f"the {compression} data is truncated")


def _memory_file() -> BinaryIO:
    return cast(BinaryIO, os.fdopen(os.memfd_create("crashkit-input", os.MFD_CLOEXEC), "r+b", buffering=0))


def _nameless_file(folder: Path) -> BinaryIO:
    return cast(BinaryIO, tempfile.TemporaryFile(dir=folder, buffering=0))


def roomy_folder() -> Path:
    """TMPDIR where it is set, or the one of /var/tmp and /tmp with more free space: /tmp may be memory."""
    if "TMPDIR" in os.environ:
        return Path(tempfile.gettempdir())
    folders = [folder for folder in (Path("/var/tmp"), Path("/tmp"), Path(tempfile.gettempdir())) if os.access(folder, os.W_OK)]
    return max(folders, key=lambda folder: shutil.disk_usage(folder).free, default=Path(tempfile.gettempdir()))


def _descriptor_path(file: BinaryIO) -> Path:
    return Path(f"/proc/{os.getpid()}/fd/{file.fileno()}")


def _amount(size: int) -> str:
    return f"{size / (1 << 30):.1f} GiB" if size >= 1 << 30 else f"{size / (1 << 20):.1f} MiB"
