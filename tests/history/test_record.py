"""What is written into the history: nothing is lost, nothing counts twice, whoever writes and whatever fails."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from sqlalchemy import select

from crashkit.history import index as index_module
from crashkit.history.index import HistoryError, connect
from crashkit.history.query import find_group, first_of_release, groups_since, occurrences
from crashkit.history.record import record
from crashkit.history.spool import Spool, waiting_anywhere
from crashkit.history.tables import groups
from crashkit.history.write import Retention, forget, insert, overdue
from tests.history.conftest import entry
from tests.postgres import Server

ROOT = Path(__file__).parent.parent.parent


def counts(address: str) -> dict[str, int]:
    with connect(address) as connection:
        return {group.key: group.count for group in groups_since(connection, 0, 0, time.time())}


def test_groups_are_counted_once_whatever_is_written_again(address: str, store: Path) -> None:
    entries = [entry(number, number % 3, seen=1000.0 + number) for number in range(10)]
    for again in range(2):
        assert record(address, entries[again:], store) == (10 - again, None)
    assert counts(address) == {f"2-{0:016x}": 4, f"2-{1:016x}": 3, f"2-{2:016x}": 3}
    with connect(address) as connection:
        first = groups_since(connection, 0, 0, 2000.0)[0]
        assert (first.first_seen, first.last_seen, first.hosts, first.frames) == (1000.0, 1009.0, 4, ("a", "b"))
        assert [crash.id for crash in occurrences(connection, first.key)] == ["id-9", "id-6", "id-3", "id-0"]
        assert [group.key[-1] for group in groups_since(connection, 1001.0, 0, 2000.0)] == ["2", "1"], "the others are older"
    assert not store.exists() or waiting_anywhere(store) == 0


def test_a_group_shows_its_newest_crash_and_its_first_release(address: str, store: Path) -> None:
    for number, seen, cause, release in ((1, 500.0, "b", "v2"), (2, 900.0, "c", "v3"), (3, 100.0, "a", "v1")):
        record(address, [entry(number, seen=seen, cause=cause, release=release)], store)
    with connect(address) as connection:
        (group,) = groups_since(connection, 0, 0, 1000.0)
        assert (group.cause, group.first_release, group.first_seen, group.last_seen) == ("c", "v1", 100.0, 900.0)
        assert [first_of_release(connection, name) for name in ("v2", "v9")] == [500.0, None]


def test_commits_may_be_cut_short(address: str, store: Path) -> None:
    record(address, [entry(1, seen=5.0, release="0123abcd" * 5)], store)
    with connect(address) as connection:
        assert first_of_release(connection, "0123abc") == 5.0 and first_of_release(connection, "0123ab") is None


def test_a_crash_that_is_analyzed_again_moves_to_its_new_group(address: str, store: Path) -> None:
    old, new = entry(1, 1, recorded=time.time() - 9), entry(1, 2, recorded=time.time())
    record(address, [old], store)
    record(address, [new], store)
    record(address, [old], store)  # delivered late
    assert counts(address) == {f"2-{2:016x}": 1}


def test_a_group_that_a_crash_has_left_forgets_it(address: str, store: Path) -> None:
    """Nothing of the group was seen then; and the release stays that of the crash, whoever analyzes it again."""
    record(address, [entry(1, 1, seen=10.0, release="v1"), entry(2, 1, seen=20.0, release="v2"), entry(3, 1, seen=15.0)], store)
    for release, later in (("", 2), ("v9", 3)):
        record(address, [entry(1, later, seen=10.0, release=release)], store)
    record(address, [entry(1, 1, seen=10.0, recorded=1e9)], store)  # delivered late
    with connect(address) as connection:
        left, new = groups_since(connection, 0, 0, 30.0)
        assert (left.key, left.first_seen, left.last_seen, left.count) == (f"2-{1:016x}", 15.0, 20.0, 2)
        assert (new.key, new.first_seen, new.first_release) == (f"2-{3:016x}", 10.0, "v1")
        assert [crash.release for crash in occurrences(connection, new.key)] == ["v1"]
        keys = connection.execute(select(groups.c.key).order_by(groups.c.key)).scalars()
        assert [key[-1] for key in keys] == ["1", "3"], "a group without crashes is none"


def test_what_a_database_cannot_store_is_replaced(address: str, store: Path) -> None:
    from crashkit.history.entry import of_crash
    from crashkit.model import Crash, Finding, Signal

    finding = Finding(id="a", title="t\0\ud800" * 1000, confidence="likely")
    crash = Crash(id="x\0y\udc80", signal=Signal(number=1, name="S\0"), findings=(finding,))
    assert record(address, [of_crash(crash, "/a\0\udcff", host="h\0", release="r\0")], store) == (1, None)


def test_trends_fall_into_equal_parts(address: str, store: Path) -> None:
    record(address, [entry(number, seen=100.0 + number) for number in range(0, 120, 5)], store)
    with connect(address) as connection:
        (group,) = groups_since(connection, 0, 100.0, 220.0)
    assert group.trend == (2,) * 12


def test_one_group_is_found_by_its_beginning(address: str, store: Path) -> None:
    record(address, [entry(1, 0x1A << 56), entry(2, 0x1B << 56)], store)
    with connect(address) as connection:
        assert find_group(connection, "2-1a") == find_group(connection, "1a") == f"2-{0x1A << 56:016x}"
        with pytest.raises(Exception, match="2 groups begin"):
            find_group(connection, "1")
        with pytest.raises(Exception, match="no group begins"):
            find_group(connection, "%")


def test_old_crashes_are_forgotten_but_counted(address: str, store: Path) -> None:
    record(address, [entry(number, number % 2, recorded=float(1000 + number)) for number in range(4)] + [entry(9, 0)], store)
    # Beyond the age, so forgotten as soon as they were written; of group 0 a newer one is left.
    assert counts(address) == {f"2-{0:016x}": 3}
    with connect(address, write=True) as connection:
        assert overdue(connection, Retention(), time.time()) == 0
        insert(connection, [entry(number, 5) for number in range(20, 30)])
        before = overdue(connection, Retention(crashes=3), time.time())
        assert forget(connection, before) == 8
    assert counts(address) == {f"2-{5:016x}": 10}


WRITER = """
import sys, time
from pathlib import Path
from crashkit.history.record import record
from tests.history.conftest import entry
writer, number, address, store = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], Path(sys.argv[4])
print("ready", flush=True)
sys.stdin.readline()
mine = [entry(at, at % 97, release=f"v{at % 5}") for at in range(writer, number, 8)]
sizes = (1, 7, 50, 250)
while mine:
    size = sizes[len(mine) % 4]
    outcome = record(address, mine[:size], store)
    assert outcome.problem is None, outcome
    mine = mine[size:]
"""


@pytest.mark.long
def test_eight_writers_lose_nothing(address: str, store: Path) -> None:
    """They also make the tables, all at once."""
    number = 10_000
    command = [sys.executable, "-c", WRITER]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    writers = [
        subprocess.Popen(
            [*command, str(writer), str(number), address, str(store)], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        for writer in range(8)
    ]
    for writer in writers:
        assert writer.stdout is not None and writer.stdout.readline() == b"ready\n"
    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.write(b"go\n")
        writer.stdin.flush()
    for writer in writers:
        writer.communicate(timeout=200)
    assert [writer.returncode for writer in writers] == [0] * 8
    expected = {f"2-{group:016x}": len(range(group, number, 97)) for group in range(97)}
    assert counts(address) == expected and waiting_anywhere(store) == 0
    with connect(address) as connection:
        found = {crash.id for group in expected for crash in occurrences(connection, group)}
    assert found == {f"id-{at}" for at in range(number)}


def test_a_server_that_is_away_gets_its_crashes_when_it_is_back(server: Server, store: Path) -> None:
    address = server.emptied()
    record(address, [entry(1)], store)
    server.stop()
    try:
        outcome = record(address, [entry(2), entry(3)], store)
        assert outcome.arrived == 0 and outcome.problem is not None and "cannot use" in str(outcome.problem)
        record(address, [entry(4)], store)
        assert waiting_anywhere(store) == 2
    finally:
        server.start()
    assert record(address, [entry(5)], store) == (4, None)
    assert counts(address) == {f"2-{0:016x}": 5} and not list(store.iterdir())


def test_a_spool_is_for_one_index(store: Path, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    away, here = str(tmp_path / "folder"), str(tmp_path / "here.sqlite")
    assert record(away, [entry(1)], store).problem is not None
    assert record(here, [entry(2)], store) == (1, None)
    assert waiting_anywhere(store) == 1 and counts(here) == {f"2-{0:016x}": 1}


KILLED = """
import os, signal, sys
from pathlib import Path
from crashkit.history import record as module
from tests.history.conftest import entry
address, store, when = sys.argv[1], Path(sys.argv[2]), sys.argv[3]
spool = module.Spool(store, address)
for number in range(5):
    spool.put([entry(number)])
def die(*_): os.kill(os.getpid(), signal.SIGKILL)
if when == "written":
    module.Spool.remove = die
else:
    import crashkit.history.write as write
    write._crash_rows = die
module.record(address, [entry(9)], store)
"""


@pytest.mark.slow
@pytest.mark.parametrize("when", ["in the transaction", "written"])
def test_a_delivery_that_is_killed_is_done_again(address: str, store: Path, when: str) -> None:
    """Before the commit, nothing is there and all of it waits; after it, all is there and waits as well: nothing counts twice."""
    command = [sys.executable, "-c", KILLED, address, str(store), when]
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": str(ROOT)}, check=False)
    assert done.returncode == -signal.SIGKILL and waiting_anywhere(store) == 6
    assert record(address, [], store) == (6, None)
    assert counts(address) == {f"2-{0:016x}": 6} and waiting_anywhere(store) == 0


def test_what_cannot_wait_is_said(tmp_path: Path) -> None:
    (tmp_path / "store").write_text("no folder")
    outcome = record(str(tmp_path), [entry(1)], tmp_path / "store")
    assert outcome.arrived == 0 and outcome.problem is not None and "nor can the crash be kept for later" in str(outcome.problem)


def test_files_of_others_in_the_spool_are_left_alone(store: Path, tmp_path: Path) -> None:
    address = str(tmp_path / "h.sqlite")
    path = Spool(store, address).put([entry(1)])
    newer = path.with_name(path.name.replace(".json", "x.json"))
    newer.write_text(json.dumps({"schema": "crashkit.history/9", "entries": []}))
    broken = path.with_name(path.name.replace(".json", "y.json"))
    broken.write_text("{")
    assert record(address, [], store) == (1, None)
    assert sorted(path.parent.iterdir()) == [newer, broken]


def test_the_spool_is_private(store: Path) -> None:
    path = Spool(store, "postgresql://me:secretpw@host/db").put([entry(1)])
    assert path.stat().st_mode & 0o777 == 0o600 and path.parent.stat().st_mode & 0o777 == 0o700
    assert "secretpw" not in path.name + path.read_text()


def test_passwords_of_addresses_are_not_told() -> None:
    with pytest.raises(HistoryError) as told, connect("postgresql://me:secretpw@127.0.0.1:1/db"):
        pass
    assert "secretpw" not in str(told.value) and "127.0.0.1" in str(told.value)


@pytest.mark.parametrize("address", ["mysql://h/d", "sqlite://", "http://x", "postgresql://h:port/x"])
def test_what_is_no_address_of_a_history(address: str) -> None:
    with pytest.raises(HistoryError), connect(address, write=True):
        pass


def test_without_sqlalchemy_crashes_wait(store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    address = str(tmp_path / "h.sqlite")
    monkeypatch.setattr(index_module, "installed", lambda: False)
    assert "SQLAlchemy" in str(record(address, [entry(1)], store).problem)
    monkeypatch.undo()
    assert record(address, [], store) == (1, None)


STARTS = """
import sys
from pathlib import Path
def hook(event, arguments):
    if event in ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.fork", "os.forkpty"):
        print(event, arguments)
sys.addaudithook(hook)
from crashkit.history.record import record
from tests.history.conftest import entry
assert record(sys.argv[1], [entry(1)], Path(sys.argv[2])) == (1, None)
"""


@pytest.mark.slow
def test_what_talks_to_the_database_starts_no_program(address: str, store: Path) -> None:
    """`isolation` does not see what libraries do: here they are watched."""
    command = [sys.executable, "-c", STARTS, address, str(store)]
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=True)
    assert done.stdout == ""
