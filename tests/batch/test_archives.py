"""Hostile archives: nothing is written outside, nothing but evidence is written, and bombs end."""

from __future__ import annotations

import bz2
import gzip
import io
import stat
import subprocess
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from crashkit.batch import kinds
from crashkit.batch.archives import Budget, first_members, members
from crashkit.batch.find import find
from crashkit.batch.kinds import kind_of
from crashkit.evidence.archive_kind import archive_kind
from crashkit.model import SoftError

TEXT = b"Fatal Python error: Segmentation fault\n"


def everything(name: str, head: bytes) -> bool:
    return True


def tar(*entries: tuple[tarfile.TarInfo | str, bytes]) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        for entry, content in entries:
            info = tarfile.TarInfo(entry) if isinstance(entry, str) else entry
            info.size = len(content) if info.isreg() else 0
            archive.addfile(info, io.BytesIO(content))
    return file.getvalue()


def zipped(*entries: tuple[zipfile.ZipInfo | str, bytes]) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for entry, content in entries:
            archive.writestr(entry, content)
    return file.getvalue()


def taken(content: bytes, folder: Path, wanted: Callable[[str, bytes], bool] = everything, **limits: int):
    """Names and contents of what came out, and what was said."""
    (folder / "in").mkdir(exist_ok=True)
    (folder / "in" / "a.zip").write_bytes(content)
    (folder / "out").mkdir(exist_ok=True)
    problems: list[SoftError] = []
    found = list(members(folder / "in" / "a.zip", "a.zip", Budget(folder / "out", **limits), wanted, problems))
    assert all(member.path.is_relative_to(folder / "out") and not member.path.is_symlink() for member in found)
    outside = [path for path in folder.rglob("*") if path.is_file() and not path.is_relative_to(folder / "out")]
    assert outside == [folder / "in" / "a.zip"]
    return {member.name: member.path.read_bytes() for member in found}, [problem.message for problem in problems]


NAMES = [
    "../../evil.log",
    "/etc/evil.log",
    "a/../../b.log",
    "..",
    "C:\\x\\..\\..\\evil.log",
    "-rf",
    ".hidden",
    "x" * 300,
    "a\nb.log",
    "core",
]


@pytest.mark.parametrize("pack", [tar, zipped])
def test_hostile_names(pack: Callable[..., bytes], tmp_path: Path) -> None:
    found, problems = taken(pack(*((name, TEXT) for name in NAMES)), tmp_path)
    assert len(found) == len(NAMES) and set(found.values()) == {TEXT} and not problems


@pytest.mark.parametrize("pack", [tar, zipped])
@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_one_name_twice(pack: Callable[..., bytes], tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "a").write_bytes(pack(("core", b"one"), ("core", b"two")))
    found = list(members(tmp_path / "a", "a", Budget(tmp_path / "out"), everything, []))
    assert len({member.path for member in found}) == 2


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.DIRTYPE])
def test_no_links_and_no_devices(kind: bytes, tmp_path: Path) -> None:
    info = tarfile.TarInfo("core")
    info.type, info.linkname = kind, "/etc/passwd"
    assert taken(tar((info, b""), ("after.log", TEXT)), tmp_path) == ({"after.log": TEXT}, [])


def test_no_links_of_a_zip(tmp_path: Path) -> None:
    info = zipfile.ZipInfo("core")
    info.external_attr = (stat.S_IFLNK | 0o777) << 16
    assert taken(zipped((info, b"/etc/passwd"), ("after.log", TEXT)), tmp_path) == ({"after.log": TEXT}, [])


def test_a_bomb_ends(tmp_path: Path) -> None:
    found, problems = taken(zipped(("small.log", TEXT), ("bomb.log", b"A" * 10_000_000)), tmp_path, size=1_000_000)
    assert [*found] == ["small.log"] and problems == ["the rest of a.zip was left out: bomb.log is too large"]
    assert sum(path.stat().st_size for path in (tmp_path / "out").rglob("*") if path.is_file()) == len(TEXT)


def test_a_bomb_of_members_ends(tmp_path: Path) -> None:
    found, problems = taken(tar(*((f"{number}.log", TEXT) for number in range(20))), tmp_path, members=5)
    assert len(found) == 5 and "more than" in problems[0]


def test_a_header_that_takes_all_memory_is_refused(tmp_path: Path) -> None:
    """An extended header of a gigabyte: tarfile reads it whole."""
    info = tarfile.TarInfo("header")
    info.type, info.size = tarfile.XHDTYPE, 1 << 30
    path = tmp_path / "in"
    with path.open("wb") as file:
        file.write(info.tobuf(tarfile.USTAR_FORMAT))
        file.truncate(1 << 31)
    (tmp_path / "out").mkdir()
    problems: list[SoftError] = []
    assert list(members(path, "in", Budget(tmp_path / "out"), everything, problems)) == []
    assert "a header claims 1073741824 bytes" in problems[0].message


@pytest.mark.parametrize("damage", [lambda data: data[: len(data) // 2], lambda data: data[:100] + bytes(200) + data[300:]])
@pytest.mark.parametrize("pack", [tar, zipped])
def test_damaged(pack: Callable[..., bytes], damage: Callable[[bytes], bytes], tmp_path: Path) -> None:
    """It ends, and says so unless the damage hits only what nobody needs."""
    content = pack(*((f"{number}.log", bytes(range(256)) * 20) for number in range(10)))
    found, problems = taken(damage(content), tmp_path)
    assert problems or len(found) >= 1


def test_encrypted_members_are_told(tmp_path: Path) -> None:
    content = bytearray(zipped(("secret.log", TEXT)))
    for magic, at in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        content[content.index(magic) + at] |= 1
    found, problems = taken(bytes(content), tmp_path)
    assert not found and "encrypted" in problems[0]


def test_only_evidence_is_written(tmp_path: Path) -> None:
    entries = (("weights.npy", b"\x93NUMPY" + bytes(100)), ("a.log", TEXT), ("app.py", b"raise SystemExit"), ("empty", b""))
    (tmp_path / "a.tar").write_bytes(tar(*entries))
    (tmp_path / "scratch").mkdir()
    found = find([(tmp_path / "a.tar", "a.tar")], tmp_path / "scratch")
    assert [artefact.shown for artefact in found.artefacts] == ["a.tar!a.log"]
    assert [path.name for path in (tmp_path / "scratch").rglob("*") if path.is_file()] == ["a.log"]


def test_too_deep(tmp_path: Path) -> None:
    content = TEXT
    for _ in range(8):
        content = tar(("in", content))
    (tmp_path / "a").write_bytes(content)
    (tmp_path / "scratch").mkdir()
    found = find([(tmp_path / "a", "a")], tmp_path / "scratch")
    assert not found.artefacts and "it is nested in 4 other archives" in found.soft_errors[0].message


def test_a_sparse_member_is_told(tmp_path: Path) -> None:
    """Its table may claim anything."""
    with (tmp_path / "core").open("wb") as file:
        file.write(b"x" * 5000)
        file.truncate(10 << 20)
        file.seek(20 << 20)
        file.write(b"y")
    subprocess.run(["tar", "--sparse", "-cf", tmp_path / "a.tar", "core"], cwd=tmp_path, check=True)
    content = (tmp_path / "a.tar").read_bytes()
    for path in tmp_path.iterdir():
        path.unlink()
    assert taken(content, tmp_path) == ({}, ["a.zip!core was left out: it is a sparse member"])


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress])
def test_compressed_tars(pack: Callable[[bytes], bytes], tmp_path: Path) -> None:
    found, problems = taken(pack(tar(("a.log", TEXT))), tmp_path)
    assert found == {"a.log": TEXT} and not problems
    assert archive_kind(tmp_path / "in" / "a.zip") == "tar"
    assert first_members(tmp_path / "in" / "a.zip", 10) == [("a.log", TEXT[:10])]


def test_when_a_member_was_written(tmp_path: Path) -> None:
    """A core's time is when the process died."""
    info = tarfile.TarInfo("a.log")
    info.mtime = 1_700_000_000
    (tmp_path / "a").write_bytes(tar((info, TEXT)))
    (tmp_path / "out").mkdir()
    (member,) = members(tmp_path / "a", "a", Budget(tmp_path / "out"), everything, [])
    assert member.path.stat().st_mtime == 1_700_000_000


def test_holes_stay_holes(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(zipped(("core", b"x" * 70_000 + bytes(5_000_000))))
    (tmp_path / "out").mkdir()
    (member,) = members(tmp_path / "a", "a", Budget(tmp_path / "out"), everything, [])
    assert member.path.stat().st_size == 5_070_000 and member.path.stat().st_blocks * 512 < 1_000_000


def test_bundles_are_handed_over_whole(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(tar(("bundle.json", b'{"schema": "crashkit.bundle/1"}'), ("core", b"\x7fELF")))
    (tmp_path / "y").write_bytes(tar(("manifest.json", b'{"schema": "crashkit.manifest/1", "pid": 7}'), ("stderr.log", TEXT)))
    (tmp_path / "scratch").mkdir()
    found = find([(tmp_path / "x", "x"), (tmp_path / "y", "y")], tmp_path / "scratch")
    assert [(one.kind, one.shown) for one in found.artefacts] == [("bundle", "x"), ("folder", "y")]


def test_kinds() -> None:
    assert kind_of(b"") is None and kind_of(bytes(100)) is None and kind_of(b"all is well\n") == "text"
    assert kind_of(b'<?xml version="1.0"?>\n<testsuites>') == "junit" and kind_of(b"<!DOCTYPE html><p>Segmentation fault") is None
    assert kind_of(b'{\n "schema": "crashkit.report/1"') is None and kinds.HEAD == 4096
