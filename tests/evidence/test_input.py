"""Inputs of every kind are read as the plain bytes they hold, and leave nothing behind."""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import socket
import stat
import subprocess
import sys
import threading
from contextlib import suppress
from functools import cache
from pathlib import Path

import lz4.frame
import pytest
import zstandard

from crashkit.errors import EvidenceError
from crashkit.evidence.input import Limits, compression_of, open_input, plain_pieces

MIB = 1 << 20
PLAIN = b"\x7fELF" + os.urandom(3 * MIB + 12345) + bytes(20 * MIB) + b"end" + bytes(5000)

COMPRESS = {
    "gzip": lambda data: gzip.compress(data, 1),
    "xz": lambda data: lzma.compress(data, preset=0),
    "zstd": lambda data: zstandard.ZstdCompressor(level=1).compress(data),
    "lz4": lz4.frame.compress,
    # What is left of a block that is cut or damaged is nothing: with small ones, something is left of PLAIN.
    "bzip2": lambda data: bz2.compress(data, 1),
}


@cache
def plain_as(compression: str) -> bytes:
    """PLAIN, compressed."""
    return COMPRESS[compression](PLAIN)


@pytest.fixture(params=COMPRESS)
def compression(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def allocated(descriptor_path: Path) -> int:
    return descriptor_path.stat().st_blocks * 512


def test_plain_file_is_used_where_it_lies(tmp_path: Path) -> None:
    core = tmp_path / "core"
    core.write_bytes(PLAIN)
    core.chmod(0o400)

    with open_input(core) as opened:
        assert (opened.path, opened.size, opened.original_size, opened.compression) == (core, len(PLAIN), len(PLAIN), None)
        opened.file.seek(-5003, os.SEEK_END)
        assert opened.file.read(3) == b"end"
    assert stat.S_IMODE(core.stat().st_mode) == 0o400
    assert names(tmp_path) == ["core"]


@pytest.mark.slow
def test_compressed_file_is_told_by_its_content(tmp_path: Path, compression: str) -> None:
    core = tmp_path / "core.misleading"
    core.write_bytes(plain_as(compression))

    with open_input(core) as opened:
        assert (opened.compression, opened.size, opened.soft_errors) == (compression, len(PLAIN), ())
        assert opened.original_size == core.stat().st_size
        assert opened.file.read() == PLAIN
        # Another process finds it too, and the zeros take no room.
        assert subprocess.run(["tail", "-c", "5003", opened.path], capture_output=True, check=True).stdout == PLAIN[-5003:]
        assert allocated(opened.path) < 4 * MIB
        descriptor_path = opened.path
    assert not descriptor_path.exists()
    assert names(tmp_path) == ["core.misleading"]


@pytest.mark.slow
def test_beyond_the_memory_bound_a_nameless_sparse_file_is_used(tmp_path: Path, compression: str) -> None:
    core, folder = tmp_path / "core", tmp_path / "tmp"
    folder.mkdir()
    core.write_bytes(plain_as(compression))

    with open_input(core, Limits(memory=MIB, folder=folder)) as opened:
        assert opened.file.read() == PLAIN
        assert opened.path.stat().st_dev == folder.stat().st_dev
        assert allocated(opened.path) < 4 * MIB
        assert names(folder) == []


@pytest.mark.slow
def test_streams_behind_each_other(tmp_path: Path, compression: str) -> None:
    core = tmp_path / "core"
    core.write_bytes(COMPRESS[compression](b"one") + plain_as(compression) + COMPRESS[compression](b"three"))

    with open_input(core) as opened:
        assert opened.file.read() == b"one" + PLAIN + b"three"
        assert opened.soft_errors == ()


def test_what_follows_the_last_stream_is_ignored(tmp_path: Path, compression: str) -> None:
    core = tmp_path / "core"
    core.write_bytes(plain_as(compression) + bytes(512) + b"trailing garbage")

    with open_input(core) as opened:
        assert opened.file.read() == PLAIN
        assert opened.soft_errors == ()


@pytest.mark.parametrize("kept", [0.2, 0.9])
def test_cut_compressed_file_is_used_as_far_as_it_goes(tmp_path: Path, compression: str, kept: float) -> None:
    whole = plain_as(compression)
    core = tmp_path / "core"
    core.write_bytes(whole[: int(len(whole) * kept)])

    with open_input(core) as opened:
        plain = opened.file.read()
        assert PLAIN.startswith(plain)
        assert MIB // 4 < len(plain) == opened.size < len(PLAIN)
        (problem,) = opened.soft_errors
        assert "truncated" in problem.message and problem.hint


def test_damaged_compressed_file_is_used_as_far_as_it_goes(tmp_path: Path, compression: str) -> None:
    damaged = bytearray(plain_as(compression))
    middle = len(damaged) // 2
    # Long enough to hit a block header of each format: random data is stored, and lz4 checks only the end.
    damaged[middle : middle + 300_000] = b"\xff" * 300_000
    core = tmp_path / "core"
    core.write_bytes(damaged)

    with open_input(core) as opened:
        assert opened.file.read(MIB) == PLAIN[:MIB]
        (problem,) = opened.soft_errors
        assert "damaged" in problem.message or "truncated" in problem.message


@pytest.mark.slow
def test_bomb_is_stopped_at_the_size_limit(tmp_path: Path, compression: str) -> None:
    core = tmp_path / "core"
    core.write_bytes(COMPRESS[compression](bytes(64 * MIB)))

    with open_input(core, Limits(size=10 * MIB)) as opened:
        assert opened.size == 10 * MIB
        assert "only the first 10.0 MiB" in opened.soft_errors[0].message
        assert allocated(opened.path) == 0


@pytest.mark.slow
@pytest.mark.parametrize("compression", COMPRESS)
def test_bomb_is_stopped_in_time(tmp_path: Path, compression: str) -> None:
    """What has another ratio than cores, and its processor time is up."""
    bomb, core = tmp_path / "bomb", tmp_path / "core"
    bomb.write_bytes(COMPRESS[compression](bytes(256 * MIB)))
    core.write_bytes(COMPRESS[compression](PLAIN))

    with open_input(bomb, Limits(seconds=0)) as opened:
        assert 0 < opened.size < 256 * MIB
        assert "more than 64 times its size" in opened.soft_errors[0].message and "Unpack it yourself" in str(opened.soft_errors[0].hint)
    with open_input(core, Limits(seconds=0)) as opened:
        assert opened.file.read() == PLAIN and not opened.soft_errors


@pytest.mark.long
def test_a_bomb_of_bzip2_takes_little_memory(tmp_path: Path) -> None:
    """A few bytes of it are gigabytes."""
    bomb = tmp_path / "bomb"
    bomb.write_bytes(bz2.compress(bytes(1024 * MIB)))
    assert bomb.stat().st_size < 4096
    with bomb.open("rb") as file:
        assert max(map(len, plain_pieces(file))) < 128 * MIB


def test_full_disk_leaves_what_fitted(tmp_path: Path) -> None:
    core = tmp_path / "core.gz"
    core.write_bytes(plain_as("gzip"))

    with open_input(core, Limits(memory=MIB, folder=tmp_path, disk_reserve=1 << 60)) as opened:
        assert opened.file.read() == PLAIN[: opened.size]
        assert 0.9 * MIB < opened.size <= MIB
        assert "no space left" in opened.soft_errors[0].message and "TMPDIR" in str(opened.soft_errors[0].hint)


@pytest.mark.parametrize("packed", [False, True])
def test_pipe(tmp_path: Path, packed: bool) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    data = plain_as("zstd") if packed else PLAIN
    writer = threading.Thread(target=fifo.write_bytes, args=(data,))
    writer.start()

    with open_input(fifo) as opened:
        assert opened.file.read() == PLAIN
        assert opened.original_size == len(data)
    writer.join()


def test_fifo_without_writer_does_not_hang(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("crashkit.evidence.input._FIRST_BYTES_WAIT", 0.01)
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(EvidenceError, match="without a writer"):
        open_input(tmp_path / "fifo")


STDIN = """
import sys
from pathlib import Path
from crashkit.evidence.input import open_input
with open_input(Path("/dev/stdin")) as opened:
    data = open(opened.path, "rb").read()
    assert data == opened.file.read()
    sys.stdout.buffer.write(data)
"""


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["file", "deleted file", "pipe", "socket"])
def test_standard_input(tmp_path: Path, kind: str) -> None:
    core = tmp_path / "core"
    core.write_bytes(PLAIN)
    command = [sys.executable, "-c", STDIN]
    if kind == "pipe":
        done = subprocess.run(command, input=PLAIN, stdout=subprocess.PIPE, check=True)
    elif kind == "socket":
        ours, theirs = socket.socketpair()
        with ours, subprocess.Popen(command, stdin=theirs, stdout=subprocess.PIPE) as child:
            theirs.close()
            sender = threading.Thread(target=lambda: (ours.sendall(PLAIN), ours.shutdown(socket.SHUT_WR)))
            sender.start()
            assert child.communicate()[0] == PLAIN
            sender.join()
        return
    else:
        with core.open("rb") as file:
            if kind == "deleted file":
                core.unlink()
            done = subprocess.run(command, stdin=file, stdout=subprocess.PIPE, check=True)
    assert done.stdout == PLAIN


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda path: None, "does not exist"),
        (lambda path: path.touch(), "is empty"),
        (lambda path: path.mkdir(), "is a folder"),
        (lambda path: path.symlink_to("/dev/zero"), "is a device"),
        (lambda path: path.symlink_to(path.name), "cannot be opened"),
        (lambda path: path.write_bytes(b"\x1f\x8b"), "unpacks to nothing"),
        (lambda path: path.write_bytes(gzip.compress(b"")), "unpacks to nothing"),
    ],
)
def test_unfit_inputs(tmp_path: Path, make, message: str) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path / "core"
    make(path)
    with pytest.raises(EvidenceError, match=message) as raised:
        open_input(path)
    assert raised.value.hint and "\n" not in str(raised.value)


def test_a_text_in_place_of_a_path_is_not_repeated() -> None:
    with pytest.raises(EvidenceError, match="several lines, not a path") as raised:
        open_input(Path("Fatal Python error: Segmentation fault\n\n  [more?]" + 300 * "\nx"))
    assert raised.value.hint is not None and "crashkit analyze -" in raised.value.hint and len(str(raised.value)) < 200


def test_a_terminal_does_not_become_ours(tmp_path: Path) -> None:
    """As it would of whoever opens one and has none, as services: its hang-up would end them."""
    code = """
import os, sys
from pathlib import Path
from crashkit.errors import EvidenceError
from crashkit.evidence.input import open_input
try:
    open_input(Path(sys.argv[1]))
except EvidenceError as error:
    print(error)
try:
    os.open("/dev/tty", os.O_RDONLY)
except OSError as error:
    print(error.strerror)
"""
    ours, theirs = os.openpty()
    try:
        name = os.ttyname(theirs)
        command = [sys.executable, "-c", code, name]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, start_new_session=True)
    finally:
        os.close(ours)
        os.close(theirs)
    assert done.stdout.splitlines() == [f"{name} is a terminal", "No such device or address"], done.stderr


def test_path_with_a_null_byte() -> None:
    with pytest.raises(EvidenceError, match="cannot open"):
        open_input(Path("core\0"))


def test_no_descriptor_is_left(tmp_path: Path) -> None:
    core = tmp_path / "core"
    before = names(Path("/proc/self/fd"))
    for content in (b"", b"\x1f\x8b", gzip.compress(PLAIN), PLAIN):
        core.write_bytes(content)
        with suppress(EvidenceError):
            open_input(core).close()
    assert names(Path("/proc/self/fd")) == before


@pytest.mark.parametrize("head", [b"", b"\x7fELF", b"PK\x03\x04", b"\x1f"])
def test_other_first_bytes_are_no_compression(head: bytes) -> None:
    assert compression_of(head) is None
