"""The crash store: atomic, private, safe against what others put there; and the commands that show it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from crashkit.crashfolder.files import create, open_regular
from crashkit.crashfolder.ids import identity
from crashkit.crashfolder.manifest import MOST_MANIFEST, SCHEMA, Manifest, read_manifest, write_manifest
from crashkit.crashfolder.store import Retention, Store, home, overdue, prune
from crashkit.errors import CollectError
from tests.collect.conftest import Crashkit


def _crash(store: Store, name: str, **facts: object) -> Path:
    work = store.begin("crash")
    manifest: Manifest = {"schema": SCHEMA, "time": f"{name[:4]}-{name[4:6]}-{name[6:8]}T{name[9:11]}:00:00Z", **facts}  # type: ignore[typeddict-item]
    write_manifest(work.descriptor, manifest)
    store.publish(work, name)
    work.done()
    return work.path


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


def test_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CRASHKIT_HOME", "/srv/crashes")
    assert home() == Path("/srv/crashes")
    monkeypatch.delenv("CRASHKIT_HOME")
    monkeypatch.setenv("XDG_STATE_HOME", "/state")
    assert home() == Path("/state/crashkit")
    monkeypatch.setenv("XDG_STATE_HOME", "relative")  # which the XDG specification says to ignore
    assert home() == Path("~/.local/state/crashkit").expanduser()


@pytest.mark.parametrize("mode", [0o777, 0o720, 0o702])
def test_a_store_that_others_can_write_to_is_refused(tmp_path: Path, mode: int) -> None:
    (tmp_path / "open").mkdir(mode=0o700)  # whatever the umask is
    opened = Store(tmp_path / "open")
    assert opened.is_there
    (tmp_path / "open").chmod(mode)
    with pytest.raises(CollectError, match="other users"):
        Store(tmp_path / "open")
    assert not opened.is_there
    (tmp_path / "file").touch()
    with pytest.raises(CollectError, match="cannot create the crash store"):
        Store(tmp_path / "file")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_store_of_somebody_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "theirs").mkdir(mode=0o700)
    os.chown(tmp_path / "theirs", 65534, 65534)
    with pytest.raises(CollectError, match="belongs to another user"):
        Store(tmp_path / "theirs")


def test_names() -> None:
    assert identity(0, 7, "/usr/bin/python3.11") == "19700101T000000-7-python3.11"
    assert identity(0, 7, "../../.hidden") == "19700101T000000-7-hidden"
    assert identity(0, 7, "/x/..") == "19700101T000000-7-unknown"
    assert identity(0, 7, "a b\n\x1b;$(x)") == "19700101T000000-7-a_b_____x_"


def test_equal_names_get_numbers(store: Store) -> None:
    paths = [_crash(store, "20260101T000000-7-x") for _ in range(3)]
    assert [path.name for path in paths] == ["20260101T000000-7-x", "20260101T000000-7-x-2", "20260101T000000-7-x-3"]


def test_links_and_fifos_are_not_followed(store: Store, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_text(json.dumps({"schema": SCHEMA}))
    folder = store.path / "20260101T000000-7-x"
    folder.mkdir()
    (folder / "manifest.json").symlink_to(outside)
    assert read_manifest(folder) is None
    (folder / "manifest.json").unlink()
    os.mkfifo(folder / "manifest.json")
    assert read_manifest(folder) is None  # and does not wait for a writer
    other = _crash(Store(tmp_path / "other"), "20260102T000000-7-y")
    (store.path / other.name).symlink_to(other)
    assert store.crashes() == []
    with pytest.raises(OSError):
        open_regular(folder / "manifest.json")
    (folder / "core").symlink_to(outside)
    with pytest.raises(FileExistsError):
        create(folder / "core")


def test_what_was_left_is_not_taken_through_links(store: Store, tmp_path: Path) -> None:
    left = Store(tmp_path / "other").begin("run")
    left.close()
    (store.path / ".run-1-1").symlink_to(left.path)
    folder = store.path / ".run-2-2"
    folder.mkdir()
    (folder / ".lock").symlink_to(left.path / ".lock")
    (folder / "core").touch()
    assert store.claim(".run-1-1") is None and store.claim(".run-2-2") is None and store.abandoned("run") == []
    (folder / ".lock").unlink()
    (folder / ".lock").touch()
    taken = store.claim(".run-2-2")
    assert taken is not None
    taken.close()


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"schema": "other/1"}', '{"schema": "crashkit.manifest/1", "argv": [1]}', "[" * 100000, "\x00"]
)
def test_what_is_no_manifest(store: Store, text: str) -> None:
    folder = store.path / "20260101T000000-7-x"
    folder.mkdir()
    (folder / "manifest.json").write_text(text)
    assert read_manifest(folder) is None and store.crashes() == []


def test_a_manifest_too_large_is_not_read(store: Store) -> None:
    """It is read into memory as a whole, at each `crashkit list`."""
    folder = _crash(store, "20260101T000000-7-x", notes=["x" * (MOST_MANIFEST - 1000)])
    assert read_manifest(folder) is not None
    (folder / "manifest.json").write_text(json.dumps({"schema": SCHEMA, "notes": ["x" * MOST_MANIFEST]}))
    assert read_manifest(folder) is None


@pytest.mark.parametrize("name", ["../x", "/etc/shadow", "others/x", "..", ".", "", "a\0b", "x" * 300])
def test_file_names_cannot_leave_the_folder(store: Store, name: str) -> None:
    files = [{"name": name, "kind": "core"}, {"name": "core", "kind": "core"}, {"kind": "log"}]
    folder = _crash(store, "20260101T000000-7-x", files=files, others=[name, "rank1-7"])
    manifest = read_manifest(folder)
    assert manifest is not None and [file["name"] for file in manifest["files"]] == ["core"]
    assert manifest["others"] == ["rank1-7"]


def test_states_of_a_core(store: Store) -> None:
    whole = _crash(store, "20260101T000000-1-x", files=[{"name": "core", "kind": "core", "size": 4, "expected": 4}])
    (whole / "core").write_bytes(b"1234")
    cut = _crash(store, "20260102T000000-2-x", files=[{"name": "core", "kind": "core", "size": 4, "expected": 9}])
    (cut / "core").write_bytes(b"1234")
    _crash(store, "20260103T000000-3-x", files=[{"name": "core", "kind": "core", "size": 4, "expected": 4}])
    _crash(store, "20260104T000000-4-x")
    assert [crash.core_state for crash in store.crashes()] == ["missing", "missing", "truncated", "present"]


def test_what_is_overdue() -> None:
    crashes = [("a", 1.0, 10), ("b", 2.0, 10), ("c", 3.0, 10), ("d", 4.0, 10)]
    assert overdue(crashes, Retention(crashes=2)) == ["c", "d"]
    assert overdue(crashes, Retention(age=2.5)) == ["c", "d"]
    assert overdue(crashes, Retention(size=25)) == ["c", "d"]
    assert overdue([("a", 1e9, 1 << 40)], Retention()) == [], "the newest stays"


def test_prune_spares_what_is_in_work(store: Store) -> None:
    for day in (1, 2, 3):
        _crash(store, f"2026010{day}T000000-{day}-x")
    assert prune(store, Retention(crashes=1, age=1e12), keep=frozenset(["20260102T000000-2-x"])) == ["20260101T000000-1-x"]
    assert [crash.id for crash in store.crashes()] == ["20260103T000000-3-x", "20260102T000000-2-x"]


def test_only_what_nobody_holds_is_abandoned(store: Store) -> None:
    alive, dead, half = store.begin("run"), store.begin("run"), store.path / ".run-1-1"
    dead.close()
    half.mkdir()
    (found,) = store.abandoned("run")
    assert found.path == dead.path and not half.exists(), "an empty folder is nobody's"
    assert store.abandoned("run") == [], "it is ours now, and the other one still its owner's"
    store.discard(found)
    assert not dead.path.exists() and alive.path.exists()


def test_a_folder_of_a_crashkit_without_locks_is_taken_when_it_is_old(store: Store) -> None:
    for name in (".run-1-1", ".run-2-2"):
        (store.path / name).mkdir()
        (store.path / name / "1.core").write_text("precious")
    os.utime(store.path / ".run-1-1", (0, 0))
    assert [work.path.name for work in store.abandoned("run")] == [".run-1-1"]
    assert len(list(store.path.glob("*/1.core"))) == 2


def test_what_is_being_removed_goes(store: Store) -> None:
    doomed = store.path / ".removed-20260101T000000-1-x"
    (doomed / "gpu").mkdir(parents=True)
    (doomed / "gpu" / "link").symlink_to("/")
    (doomed / "core").touch()
    assert store.abandoned("run", "crash") == [] and not doomed.exists()


@pytest.fixture
def filled(crashkit: Crashkit) -> Crashkit:
    store = Store(crashkit.home)
    _crash(
        store, "20260101T000000-11-python3.11", pid=11, signal=11, signal_name="SIGSEGV", executable="/usr/bin/python3.11", argv=["python3"]
    )
    _crash(store, "20260102T000000-22-gunicorn", pid=22, signal=6, signal_name="SIGABRT", argv=["a\x1b[31m\nb"])
    return crashkit


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "ids"),
    [
        ((), ["22", "11"]),
        (("SIGSEGV",), ["11"]),
        (("abrt",), ["22"]),
        (("11",), ["11"]),
        (("6",), ["22"]),
        (("python3.11",), ["11"]),
        (("--since", "2026-01-02"), ["22"]),
    ],
)
def test_list(filled: Crashkit, arguments: tuple[str, ...], ids: list[str]) -> None:
    result = filled("list", *arguments)
    assert [line.split()[0].split("-")[1] for line in result.stdout.splitlines()[1:]] == ids
    documents = json.loads(filled("list", "--json", *arguments).stdout)
    assert [str(document["pid"]) for document in documents] == ids and all(document["core_state"] == "missing" for document in documents)
    assert "\x1b" not in result.stdout


def test_list_without_a_match_and_without_a_store(filled: Crashkit, tmp_path: Path) -> None:
    nothing = filled("list", "no-such-thing")
    assert nothing.returncode == 1 and "no crash matches" in nothing.stderr
    assert filled("list", "--since", "yesterdayish").returncode == 2
    filled.environment["CRASHKIT_HOME"] = str(tmp_path / "none")
    empty = filled("list")
    assert empty.returncode == 0 and "No crashes" in empty.stderr and not (tmp_path / "none").exists()


@pytest.mark.slow
def test_show_and_rm(filled: Crashkit) -> None:
    shown = filled("show", "11")
    assert shown.returncode == 0 and "SIGSEGV" in shown.stdout and "crashkit analyze" in shown.stdout
    assert json.loads(filled("show", "last", "--json").stdout)["pid"] == 22
    assert filled("show", "--path", "gunicorn").stdout == f"{filled.home}/20260102T000000-22-gunicorn\n"
    assert "2 crashes match" in filled("show", "2026").stderr
    assert filled("rm").returncode == 2 and filled("rm", "nothing").returncode == 1
    assert filled("rm", "22").returncode == 0
    assert [crash["pid"] for crash in filled.crashes()] == [11]
    assert filled("rm", "--older-than", "1d").returncode == 0 and filled.crashes() == [] and filled.leftovers() == []
