"""Archives of strangers: nothing gets out of the folder, nothing but files gets in, and there is an end to it."""

from __future__ import annotations

import hashlib
import io
import os
import random
import stat
import struct
import tarfile
import time
import zipfile
from pathlib import Path

import pytest
import zstandard

from crashkit.evidence.archive import Budget, Unpacked, unpack
from crashkit.evidence.archive_kind import archive_kind
from crashkit.limits import LONGEST_FILE_NAME, MOST_PATH_PARTS, unpacked_bytes

MEBI = 1 << 20


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """An outer folder, in which nothing may appear but what is unpacked below `inner`."""
    (tmp_path / "inner").mkdir()
    return tmp_path


def opened(place: Path, data: bytes, budget: Budget | None = None) -> Unpacked:
    archive = place / "archive"
    archive.write_bytes(data)
    before = everything(place)
    unpacked = unpack(archive, place / "inner", budget or Budget.of(archive))
    assert [path for path in everything(place) - before if not path.is_relative_to(place / "inner")] == []
    # A link or a device that was made would be one whether or not it is followed.
    kinds = {stat.S_IFMT(path.lstat().st_mode) for path in everything(place / "inner")}
    assert kinds <= {stat.S_IFREG, stat.S_IFDIR}
    assert set(unpacked.files) == {str(path.relative_to(place / "inner")) for path in everything(place / "inner") if path.is_file()}
    return unpacked


def everything(folder: Path) -> set[Path]:
    return set(folder.rglob("*"))


def header(name: str, kind: bytes = tarfile.REGTYPE, size: int = 0, link: str = "") -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.type, made.size, made.linkname = kind, size, link
    return made


def tar(*members: tuple[str, bytes] | tarfile.TarInfo) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for member in members:
            if isinstance(member, tarfile.TarInfo):
                archive.addfile(member)
            else:
                archive.addfile(header(member[0], size=len(member[1])), io.BytesIO(member[1]))
    return packed.getvalue()


def zipped(*members: tuple[str | zipfile.ZipInfo, bytes]) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members:
            archive.writestr(name, content)
    return packed.getvalue()


def only_error(unpacked: Unpacked) -> str:
    (error,) = unpacked.soft_errors
    assert error.stage == "archive" and error.hint and "\n" not in error.message
    return error.message


class TestNames:
    ELSEWHERE = ["/etc/passwd", "../outside", "a/../../outside", "..", "x/..", "//x", "a/" * (MOST_PATH_PARTS + 1) + "b"]
    ELSEWHERE += ["n" * (LONGEST_FILE_NAME + 1), "/".join(["n" * 200] * 40)]

    @pytest.mark.parametrize("name", ELSEWHERE)
    @pytest.mark.parametrize("pack", [tar, zipped])
    def test_that_lead_elsewhere(self, name, pack, place):
        unpacked = opened(place, pack((name, b"x"), ("good", b"y")))
        assert list(unpacked.files) == ["good"]
        assert "lead out of the archive" in only_error(unpacked) and name[:20] in only_error(unpacked)

    @pytest.mark.parametrize("name", ["./a", "a//b", "a/./b", "\\..\\x", "C:x", "-rf", "a\nb", "\x1b[31m", "~", "$(id)", "ü", "a\udcff"])
    def test_that_are_only_odd(self, name, place):
        unpacked = opened(place, tar((name, b"x")))
        assert list(unpacked.files) == [name.replace("//", "/").replace("./", "")] and not unpacked.soft_errors

    @pytest.mark.parametrize("pack", [tar, zipped])
    @pytest.mark.filterwarnings("ignore:Duplicate name")
    def test_that_stand_twice(self, pack, place):
        unpacked = opened(place, pack(("a", b"first"), ("./a", b"second"), ("a/b", b"x"), ("c/d", b"y"), ("c", b"z")))
        assert list(unpacked.files) == ["a", "c/d"] and (place / "inner/a").read_bytes() == b"first"
        assert unpacked.files["a"] == hashlib.sha256(b"first").hexdigest()
        assert "3 members were left out, because earlier members have the same names" in unpacked.soft_errors[0].message

    def test_of_what_is_left_out_are_few(self, place):
        unpacked = opened(place, tar(*((f"../{number}", b"") for number in range(1000))))
        assert "1,000 members were left out" in only_error(unpacked) and len(only_error(unpacked)) < 300 + len(str(place))


class TestWhatIsNoFile:
    KINDS = [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE, tarfile.GNUTYPE_SPARSE]

    @pytest.mark.parametrize("kind", KINDS)
    def test_of_a_tar(self, kind, place):
        unpacked = opened(place, tar(header("x", kind, link="/etc"), ("good", b"y")))
        assert list(unpacked.files) == ["good"] and "'x'" in only_error(unpacked)

    @pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE])
    def test_nothing_goes_through_a_link(self, kind, place):
        (place / "outside").mkdir()
        unpacked = opened(place, tar(header("x", kind, link="../outside"), ("x/planted", b"y"), header("y", kind, link="x/planted")))
        assert list(unpacked.files) == ["x/planted"] and not list((place / "outside").iterdir())

    @pytest.mark.parametrize("kind", [stat.S_IFLNK, stat.S_IFIFO, stat.S_IFCHR, stat.S_IFSOCK])
    def test_of_a_zip(self, kind, place):
        entry = zipfile.ZipInfo("x")
        entry.create_system, entry.external_attr = 3, (kind | 0o777) << 16
        unpacked = opened(place, zipped((entry, b"/etc"), ("good", b"y")))
        assert list(unpacked.files) == ["good"] and "links, devices" in only_error(unpacked)

    def test_modes_are_ours(self, place):
        for mode in (0o4777, 0o2777, 0o000):
            odd = header(f"x{mode}", size=0)
            odd.mode, odd.uid, odd.gid = mode, 12345, 12345
            folder = header(f"f{mode}", tarfile.DIRTYPE)
            folder.mode = mode
            opened(place, tar(odd, folder))
            status = (place / f"inner/x{mode}").stat()
            assert stat.S_IMODE(status.st_mode) == 0o600 and status.st_uid == os.geteuid()
            assert stat.S_IMODE((place / f"inner/f{mode}").stat().st_mode) == 0o700
            (place / f"inner/x{mode}").unlink()


class TestBombs:
    def test_bytes(self, place):
        unpacked = opened(place, zstandard.compress(tar(("zeros", bytes(64 * MEBI)), ("next", b"x"))), Budget(10 * MEBI))
        assert "it unpacks to too much" in only_error(unpacked)
        assert (place / "inner/zeros").stat().st_size == 10 * MEBI and "next" not in unpacked.files

    def test_bytes_of_a_zip_count_as_they_come_not_as_they_are_claimed(self, place):
        lying = bytearray(zipped(("zeros", bytes(16 * MEBI))))
        at = lying.index(b"PK\x01\x02")
        lying[at + 24 : at + 28] = struct.pack("<I", 20 * MEBI)
        assert "too much" in only_error(opened(place, bytes(lying), Budget(4 * MEBI)))

    @pytest.mark.parametrize("pack", [tar, zipped])
    def test_members(self, pack, place):
        unpacked = opened(place, pack(*((f"{number}", b"") for number in range(20))), Budget(MEBI, members=5))
        assert len(unpacked.files) == 5 and "too many files and folders" in only_error(unpacked)

    def test_members_that_are_left_out_count_too(self, place):
        unpacked = opened(place, tar(*((f"../{number}", b"") for number in range(20)), ("good", b"")), Budget(MEBI, members=5))
        assert not unpacked.files and any("too many" in error.message for error in unpacked.soft_errors)

    def test_folders_count_too(self, place):
        unpacked = opened(place, tar(*((f"{number}/{'d/' * 100}x", b"") for number in range(20))), Budget(MEBI, members=300))
        assert len(everything(place / "inner")) <= 300 and "too many" in only_error(unpacked)

    def test_what_an_archive_is_granted_grows_with_it(self, tmp_path):
        (tmp_path / "archive").write_bytes(bytes(MEBI))
        assert Budget.of(tmp_path / "archive").size == unpacked_bytes(MEBI) > unpacked_bytes(0) > 1 << 33
        assert unpacked_bytes(1 << 60) == 1 << 40

    def test_a_disk_that_is_nearly_full(self, place, monkeypatch):
        monkeypatch.setattr("crashkit.evidence.archive.DISK_RESERVE", 1 << 62)
        assert "no space left" in only_error(opened(place, tar(("x", b"data"))))

    def test_bytes_that_are_only_skipped(self, place, monkeypatch):
        """What is left out of a compressed tar is unpacked, too."""
        monkeypatch.setattr("crashkit.evidence.archive._MOST_AROUND", MEBI)
        skipped = tar(("a", b"1"), ("../b", bytes(8 * MEBI)), ("c", b"2"))
        unpacked = opened(place, zstandard.compress(skipped), Budget(size=MEBI))
        assert "only the first 1 files were unpacked: it unpacks to too much" in unpacked.soft_errors[-1].message

    def test_zeros_take_no_room(self, place):
        opened(place, zstandard.compress(tar(("zeros", bytes(64 * MEBI) + b"end"))))
        status = (place / "inner/zeros").stat()
        assert status.st_size == 64 * MEBI + 3 and status.st_blocks * 512 < MEBI

    @pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK])
    def test_a_header_that_claims_gigabytes(self, kind, place, monkeypatch):
        """tarfile reads it into memory at once."""
        big = header("x", kind, size=8 << 30).tobuf(tarfile.GNU_FORMAT)
        asked: list[int] = []
        real = tarfile._Stream.read  # type: ignore[attr-defined]
        monkeypatch.setattr("tarfile._Stream.read", lambda self, size: asked.append(size) or real(self, size))
        assert "claims 8589934592 bytes" in only_error(opened(place, big + bytes(MEBI)))
        assert max(asked) < MEBI

    def test_a_table_of_contents_that_claims_gigabytes(self, place):
        """zipfile reads it into memory at once, if the file is as large: a sparse one is."""
        data = struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, 1, 1, 1 << 30, 4, 0)
        archive = place / "archive"
        with archive.open("wb") as file:
            file.write(b"PK\x03\x04")
            file.seek(4 + (1 << 30))
            file.write(data)
        assert "claims 1073741824 bytes" in only_error(unpack(archive, place / "inner", Budget.of(archive)))


class TestDamage:
    WHOLE = tar(("a", b"1" * 700), ("b/c", b"2" * 3000), (("n" * 90 + "/") * 3 + "long", b"3" * 600))

    @pytest.mark.parametrize("compress", [lambda data: data, zstandard.compress], ids=["plain", "zstd"])
    def test_truncated_anywhere(self, compress, place):
        whole = compress(self.WHOLE)
        first = len(compress(self.WHOLE[:512]))
        for cut in range(first, len(whole.rstrip(b"\0")), max(1, len(whole) // 60)):
            inner = place / "inner"
            unpacked = opened(place, whole[:cut])
            assert "damaged or truncated" in unpacked.soft_errors[-1].message, cut
            for path in sorted(everything(inner), reverse=True):
                path.rmdir() if path.is_dir() else path.unlink()

    def test_truncated_between_two_members(self, place):
        """tarfile takes that for the end."""
        unpacked = opened(place, self.WHOLE[: 512 + 1024])
        assert list(unpacked.files) == ["a"] and "its end is missing" in only_error(unpacked)

    def test_a_damaged_header(self, place):
        """The same."""
        unpacked = opened(place, self.WHOLE[: 512 + 1024] + b"x" * 512 + self.WHOLE[512 + 1024 + 512 :])
        assert list(unpacked.files) == ["a"] and "damaged" in only_error(unpacked)

    def test_what_was_read_by_then_is_kept(self, place):
        unpacked = opened(place, self.WHOLE[: 512 + 300])
        assert list(unpacked.files) == ["a"] and (place / "inner/a").read_bytes() in (b"1" * 300, b"")

    @pytest.mark.slow
    @pytest.mark.parametrize("pack", [lambda: TestDamage.WHOLE, lambda: zipped(("a", b"1" * 700), ("b/c", os.urandom(3000)))])
    def test_any_damage_is_survived(self, pack, place):
        whole, chance = pack(), random.Random(12)
        for _ in range(300):
            data = bytearray(whole)
            for _ in range(chance.randint(1, 8)):
                data[chance.randrange(len(data))] = chance.randrange(256)
            opened(place, bytes(data), Budget(MEBI))
            for path in sorted(everything(place / "inner"), reverse=True):
                path.rmdir() if path.is_dir() else path.unlink()

    def test_a_damaged_member_of_a_zip_costs_itself(self, place):
        entry = zipfile.ZipInfo("a")
        data = zipped((entry, b"unlucky content"), ("b", b"y"))
        unpacked = opened(place, data.replace(b"unlucky", b"plucked"))
        assert "their contents are damaged: 'a'" in only_error(unpacked) and "b" in unpacked.files

    @pytest.mark.parametrize(("offset", "value"), [(8, 99), (6, 1)], ids=["unknown compression", "encrypted"])
    def test_a_zip_that_cannot_be_unpacked(self, offset, value, place):
        data = bytearray(zipped(("a", b"x" * 100)))
        for at, shift in ((0, 0), (data.index(b"PK\x01\x02"), 2)):
            data[at + offset + shift] = value
        assert "they cannot be unpacked: 'a'" in only_error(opened(place, bytes(data)))

    def test_a_negative_size(self, place):
        data = bytearray(tar(("a", b"x")))
        data[124:136] = b"\xff" * 12
        fields = data[:148] + b" " * 8 + data[156:512]
        data[148:156] = b"%06o\0 " % sum(fields)
        assert "damaged" in only_error(opened(place, bytes(data)))


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (tar(("a", b"x")), "tar"),
        (zstandard.compress(tar(("a", b"x"))), "tar"),
        (zipped(("a", b"x")), "zip"),
        (zipped(), "zip"),
        (b"", None),
        (b"Fatal Python error: Segmentation fault\n" * 20, None),
        (b"\x7fELF" + bytes(1000), None),
        (zstandard.compress(b"\x7fELF" + bytes(1000)), None),
        (b"\x28\xb5\x2f\xfd damaged", None),
    ],
)
def test_an_archive_is_known_by_its_contents(data, kind, tmp_path):
    (tmp_path / "file").write_bytes(data)
    assert archive_kind(tmp_path / "file") == kind


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo, lambda path: path.symlink_to("nowhere"), lambda path: path.symlink_to(path)])
def test_what_is_no_file_is_no_archive(make, tmp_path):
    make(tmp_path / "x")
    assert archive_kind(tmp_path / "x") is None
    # It may have become that since it was looked at.
    (tmp_path / "inner").mkdir()
    with pytest.raises(OSError):
        unpack(tmp_path / "x", tmp_path / "inner", Budget(1 << 20))


def test_times_are_kept(place):
    dated = header("a")
    dated.mtime = 1_000_000_000
    opened(place, tar(dated))
    assert (place / "inner/a").stat().st_mtime == 1_000_000_000
    (place / "inner/a").unlink()
    entry = zipfile.ZipInfo("z", time.localtime(1_000_000_000)[:6])
    opened(place, zipped((entry, b"")))
    assert (place / "inner/z").stat().st_mtime == 1_000_000_000
