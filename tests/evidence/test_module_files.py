"""Module files are found where they lie, and only the right build counts."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from crashkit.elf.file import has_debug_symbols, holds_code, read_build_id
from crashkit.evidence.file_tree import FileTree, PathMap
from crashkit.evidence.module_files import Finder
from tests.crashes import CRASHERS, compile_c

BINARY = Path(sys.executable).resolve()
OTHER = Path("/bin/ls").resolve()


def readelf_build_id(path: Path) -> str:
    text = subprocess.run(["readelf", "-nW", path], capture_output=True, text=True, check=True).stdout
    return text.split("Build ID: ")[1].split()[0]


BUILD_ID = read_build_id(BINARY)
if BUILD_ID is None:
    pytest.skip(f"{BINARY} has no build-id", allow_module_level=True)


def put(source: Path, target: Path) -> Path:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(source, target)
    return target


@pytest.mark.parametrize("path", [BINARY, OTHER])
def test_build_id_is_that_of_readelf(path: Path) -> None:
    assert read_build_id(path) == readelf_build_id(path)


def test_build_id_of_a_separate_debug_file(tmp_path: Path) -> None:
    debug, stripped = tmp_path / "python.debug", tmp_path / "python"
    subprocess.run(["objcopy", "--only-keep-debug", BINARY, debug], check=True)
    subprocess.run(["strip", "-o", stripped, BINARY], check=True)
    assert read_build_id(debug) == read_build_id(stripped) == BUILD_ID
    assert (holds_code(debug), holds_code(stripped)) == (False, True)
    assert not has_debug_symbols(stripped)


@pytest.mark.parametrize("length", [0, 3, 16, 63, 64, 100, 500, 800])
def test_build_id_of_a_cut_or_foreign_file_is_unknown(tmp_path: Path, length: int) -> None:
    cut, text = tmp_path / "cut", tmp_path / "text"
    cut.write_bytes(BINARY.read_bytes()[:length])
    text.write_bytes(b"x" * length)
    assert read_build_id(cut) in (None, BUILD_ID)
    assert read_build_id(text) is None
    assert read_build_id(tmp_path) is None


def test_every_damaged_byte_of_the_headers_is_survived(tmp_path: Path) -> None:
    head = bytearray(BINARY.read_bytes()[:4096])
    damaged = tmp_path / "damaged"
    for position in range(0, 1024, 3):
        for value in (0x00, 0xFF):
            copy = bytearray(head)
            copy[position] = value
            damaged.write_bytes(copy)
            read_build_id(damaged), has_debug_symbols(damaged)


def test_path_itself(tmp_path: Path) -> None:
    found = Finder().find(str(BINARY), BUILD_ID)
    assert (found.state, found.path) == ("found", BINARY)


def test_unknown_build_id_is_said(tmp_path: Path) -> None:
    assert Finder().find(str(BINARY), None).state == "unverified"


def test_another_build_is_named(tmp_path: Path) -> None:
    verdict = Finder().find(str(OTHER), BUILD_ID)
    assert (verdict.state, verdict.path, verdict.other) == ("mismatch", None, OTHER)
    assert BUILD_ID in str(verdict.detail) and readelf_build_id(OTHER) in str(verdict.detail)
    assert "--sysroot" in str(verdict.hint)


def test_deleted_file_counts_only_with_its_build_id(tmp_path: Path) -> None:
    same = put(BINARY, tmp_path / "same")
    replaced = put(OTHER, tmp_path / "replaced")
    assert Finder().find(f"{same} (deleted)", BUILD_ID).path == same
    assert Finder().find(f"{replaced} (deleted)", BUILD_ID).state == "mismatch"
    assert Finder().find(f"{tmp_path}/gone (deleted)", BUILD_ID).state == "missing"


@pytest.mark.parametrize("path", ["[vdso]", "relative/python", "/memfd:x (deleted)", "/dev/zero (deleted)", "/proc/self/exe", "/a\0b", ""])
def test_what_is_no_file_is_missing(path: str) -> None:
    assert Finder().find(path, None).state == "missing"


def test_sysroot_replaces_the_host(tmp_path: Path) -> None:
    inside = put(BINARY, tmp_path / "usr/bin/python3")
    finder = Finder(sysroot=tmp_path)
    assert finder.find("/usr/bin/python3", BUILD_ID).path == inside
    assert finder.find(str(BINARY), BUILD_ID).state == "missing"


def test_links_stay_inside_the_sysroot(tmp_path: Path) -> None:
    sysroot, outside = tmp_path / "root", put(BINARY, tmp_path / "outside")
    real = put(BINARY, sysroot / "usr/lib/python")
    (sysroot / "lib").symlink_to("/usr/lib")
    (sysroot / "usr/bin").symlink_to("../../../../../../usr/lib")
    (sysroot / "usr/relative").symlink_to("lib/python")
    (sysroot / "escape").symlink_to(outside)
    (sysroot / "climb").symlink_to("../outside")
    (sysroot / "loop").symlink_to("loop")
    finder = Finder(sysroot=sysroot)

    for path in ("/lib/python", "/usr/bin/python", "/usr/relative", "/usr/bin/../../usr/./lib/python"):
        assert finder.find(path, BUILD_ID).path == real, path
    for path in ("/escape", "/climb", "/loop", "/../outside"):
        assert finder.find(path, BUILD_ID).state == "missing", path


def test_longest_path_map_wins_and_falls_back(tmp_path: Path) -> None:
    short, long = put(BINARY, tmp_path / "short/venv/bin/x"), put(BINARY, tmp_path / "long/bin/x")
    in_sysroot = put(BINARY, tmp_path / "root/app/venv/bin/y")
    maps = [("/app", tmp_path / "short"), ("/app/venv/", tmp_path / "long")]
    finder = Finder(sysroot=tmp_path / "root", path_maps=maps)

    assert finder.find("/app/venv/bin/x", BUILD_ID).path == long
    assert finder.find("/app/venv/bin/y", BUILD_ID).path == in_sysroot
    assert Finder(path_maps=maps[:1]).find("/app/venv/bin/x", BUILD_ID).path == short
    assert Finder(path_maps=maps).find("/application/x", BUILD_ID).state == "missing"


def test_wrong_build_under_a_map_does_not_hide_the_right_one(tmp_path: Path) -> None:
    put(OTHER, tmp_path / "mapped/python")
    right = put(BINARY, tmp_path / "root/app/python")
    finder = Finder(sysroot=tmp_path / "root", path_maps=[("/app", tmp_path / "mapped")])
    assert finder.find("/app/python", BUILD_ID).path == right


def test_links_lead_through_path_maps(tmp_path: Path) -> None:
    real = put(BINARY, tmp_path / "store/abc/python")
    (tmp_path / "app").mkdir()
    (tmp_path / "app/python").symlink_to("/nix/abc/python")
    tree = FileTree(None, (PathMap("/opt/app", tmp_path / "app"), PathMap("/nix", tmp_path / "store")))
    assert tree.locate("/opt/app/python") == real


@pytest.mark.parametrize("place", ["python3", "deep/er/python3", "renamed", "usr/bin/python3"])
def test_extra_folders(tmp_path: Path, place: str) -> None:
    file = put(BINARY, tmp_path / place)
    put(OTHER, tmp_path / "a/python3")
    assert Finder(extra_dirs=[tmp_path]).find("/usr/bin/python3", BUILD_ID).path == file


def test_extra_folders_come_before_the_machines_own_file(tmp_path: Path) -> None:
    """Who names a folder means its files; where they are of another build, the machine's own count."""
    file = put(BINARY, tmp_path / "right/deep/python3")
    put(OTHER, tmp_path / "wrong" / BINARY.name)
    assert Finder(extra_dirs=[tmp_path / "right"]).find(str(BINARY), BUILD_ID).path == file
    assert Finder(extra_dirs=[tmp_path / "wrong"]).find(str(BINARY), BUILD_ID).path == BINARY
    assert Finder(extra_dirs=[tmp_path / "right"]).find(str(BINARY), None).path == BINARY


@pytest.mark.slow
@pytest.mark.parametrize(
    "place",
    [
        "root/usr/lib/debug/.build-id/{0}/{1}.debug",
        "root/usr/lib/debug/usr/bin/python3.debug",
        "root/usr/bin/python3.debug",
        "root/usr/bin/.debug/python3.debug",
        "extra/.build-id/{0}/{1}.debug",
        "extra/anything",
    ],
)
def test_separate_debug_file(tmp_path: Path, place: str) -> None:
    whole = tmp_path / "whole"
    compile_c(CRASHERS / "no_python.c", whole)
    build_id = readelf_build_id(whole)
    debug = tmp_path / place.format(build_id[:2], build_id[2:])
    debug.parent.mkdir(parents=True)
    subprocess.run(["objcopy", "--only-keep-debug", whole, debug], check=True)
    stripped = tmp_path / "root/usr/bin/python3"
    stripped.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(["strip", "-o", stripped, whole], check=True)

    found = Finder(sysroot=tmp_path / "root", extra_dirs=[tmp_path / "extra"]).find("/usr/bin/python3", build_id)
    assert (found.path, found.debug) == (stripped, debug)
    # Whatever it is called: gdb would show lines of another build.
    compile_c(CRASHERS / "handlers.c", whole)
    assert readelf_build_id(whole) != build_id
    subprocess.run(["objcopy", "--only-keep-debug", whole, debug], check=True)
    found = Finder(sysroot=tmp_path / "root", extra_dirs=[tmp_path / "extra"]).find("/usr/bin/python3", build_id)
    assert (found.path, found.debug) == (stripped, None)


def test_debug_file_that_others_share(tmp_path: Path) -> None:
    """As dwz makes it: its section's contents are a name, and the build-id of the file with what is common to several."""
    debug, shared, link = tmp_path / "debug", tmp_path / "shared", tmp_path / "link"
    compile_c(CRASHERS / "no_python.c", debug)
    compile_c(CRASHERS / "handlers.c", shared)
    build_id = readelf_build_id(shared)
    link.write_bytes(b"../.dwz/shared.debug\0" + bytes.fromhex(build_id))
    subprocess.run(["objcopy", "--add-section", f".gnu_debugaltlink={link}", debug], check=True)
    place = tmp_path / "extra" / ".build-id" / build_id[:2] / f"{build_id[2:]}.debug"
    assert Finder(extra_dirs=[tmp_path / "extra"]).shared_debug_file(put(debug, place)) is None, "another build has its name"
    assert Finder(extra_dirs=[tmp_path / "extra"]).shared_debug_file(debug) is None
    put(shared, place)
    assert Finder(extra_dirs=[tmp_path / "extra"]).shared_debug_file(debug) == place
    assert Finder(extra_dirs=[tmp_path / "extra"]).shared_debug_file(shared) is None, "it shares nothing"


def test_no_more_files_are_looked_at_than_allowed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(4):
        put(OTHER, tmp_path / f"file{number}")
    put(BINARY, tmp_path / "file4")
    assert Finder(extra_dirs=[tmp_path]).find("/gone", BUILD_ID).path == tmp_path / "file4"
    monkeypatch.setattr("crashkit.evidence.module_files._MAX_SEARCHED_FILES", 3)
    assert Finder(extra_dirs=[tmp_path]).find("/gone", BUILD_ID).path is None


def test_debug_file_of_a_missing_module_still_helps(tmp_path: Path) -> None:
    assert BUILD_ID
    debug = put(BINARY, tmp_path / f".build-id/{BUILD_ID[:2]}/{BUILD_ID[2:]}.debug")
    subprocess.run(["objcopy", "--only-keep-debug", BINARY, debug], check=True)
    verdict = Finder(sysroot=tmp_path / "empty", extra_dirs=[tmp_path]).find("/usr/bin/python3", BUILD_ID)
    assert (verdict.state, verdict.debug) == ("missing", debug if has_debug_symbols(debug) else None)


def test_source_is_looked_up_the_same_way(tmp_path: Path) -> None:
    source = put(Path(__file__), tmp_path / "app/main.py")
    finder = Finder(path_maps=[("/srv", tmp_path / "app")])
    assert finder.source("/srv/main.py") == source
    assert finder.source("/srv/other.py") is None
    assert finder.source("<frozen importlib._bootstrap>") is None


@pytest.mark.parametrize("sysroot", [None, "root"])
def test_a_relative_name_is_no_file_of_the_working_directory(sysroot: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody knows where the process was then."""
    for folder in (tmp_path, tmp_path / "root"):
        put(Path(__file__), folder / "main.py")
    monkeypatch.chdir(tmp_path)
    assert Finder(sysroot and tmp_path / sysroot).source("main.py") is None
    assert Finder(sysroot and tmp_path / sysroot).find("main.py", None).path is None


@pytest.fixture
def debuginfod(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A client that answers each question with a copy of the right executable, and keeps a log."""
    client, log = tmp_path / "bin/debuginfod-find", tmp_path / "asked"
    client.parent.mkdir()
    client.write_text(f'#!/bin/sh\necho "$@" >> {log}\n[ "$1" = executable ] && echo {put(BINARY, tmp_path / "fetched")}\n')
    client.chmod(0o755)
    monkeypatch.setenv("PATH", f"{client.parent}:{os.environ['PATH']}")
    return log


def test_debuginfod_is_asked_only_on_request(tmp_path: Path, debuginfod: Path) -> None:
    assert Finder().find("/gone", BUILD_ID).state == "missing"
    assert not debuginfod.exists()

    found = Finder(debuginfod=True).find("/gone", BUILD_ID)
    assert (found.state, found.path) == ("found", tmp_path / "fetched")
    assert debuginfod.read_text().splitlines()[0] == f"executable {BUILD_ID}"


def test_debuginfod_answer_must_be_the_right_build(tmp_path: Path, debuginfod: Path) -> None:
    assert Finder(debuginfod=True).find("/gone", "00" * 20).state == "missing"


@pytest.mark.parametrize("path", ["/", "//", "", ".", "/..", "/proc/../", "/x/" + "y" * 5000, "/\0"])
def test_a_path_that_names_no_file_is_missing(path, tmp_path):
    """A damaged core can name anything."""
    found = Finder(extra_dirs=[tmp_path]).find(path, "12" * 20)
    assert found.state == "missing" and found.path is None
    assert Finder(sysroot=tmp_path).source(path) is None
