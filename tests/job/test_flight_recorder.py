"""Flight recorder dumps: what torch's own torchfrtrace finds is found; hostile files do nothing; every version is read."""

from __future__ import annotations

import copy
import importlib
import json
import pickle
import pickletools
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from crashkit.errors import EvidenceError
from crashkit.evidence.flight_recorder import is_recording, read_recording
from crashkit.job.collectives import of_recordings
from crashkit.job.recording import Recording
from crashkit.job.sentences import what_happened
from crashkit.model import JobCollective

JOBS = Path(__file__).parents[2] / "fixtures" / "jobs"


def read(path: Path) -> Recording:
    with path.open("rb") as file:
        assert is_recording(file)
        return read_recording(file, str(path))


def load(name: str) -> dict[int, dict[str, Any]]:
    """Our own files, which are known to be harmless."""
    return {int(path.name[3:]): pickle.loads(path.read_bytes()) for path in sorted((JOBS / name).glob("fr_*"))}


def save(dumps: dict[int, dict[str, Any]], folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    for rank, dump in dumps.items():
        (folder / f"fr_{rank}").write_bytes(pickle.dumps(dump, protocol=2))
    return folder


def found(folder: Path) -> list[JobCollective]:
    return of_recordings([read(path) for path in sorted(folder.glob("fr_*"))])


# Real dumps, altered in one thing. Gloo's name their group otherwise in pg_config, which torch's tool does not survive.

Dumps = dict[int, dict[str, Any]]


def healthy(ranks: int = 4, name: str = "nccl") -> Dumps:
    """As many ranks as wanted, all of which completed the same collectives."""
    real = load("fr-missed")[0]
    real["entries"] = [entry for entry in real["entries"] if entry["retired"]]
    for entry in real["entries"]:
        entry["state"] = "completed"
        entry["profiling_name"] = entry["profiling_name"].replace("gloo", name)
    real["pg_config"] = {"0": {"name": "0", "desc": "default_pg", "ranks": str(list(range(ranks)))}}
    return {rank: copy.deepcopy(real) for rank in range(ranks)}


def missing(dumps: Dumps) -> None:
    dumps[2]["entries"] = dumps[2]["entries"][:-1]


def two_missing(dumps: Dumps) -> None:
    for rank in (1, 3):
        dumps[rank]["entries"] = dumps[rank]["entries"][:3]


def other_operation(dumps: Dumps) -> None:
    dumps[1]["entries"][-1]["profiling_name"] = "nccl:reduce_scatter"


def other_size(dumps: Dumps) -> None:
    dumps[3]["entries"][2]["input_sizes"] = dumps[3]["entries"][2]["output_sizes"] = [[999]]


def other_type(dumps: Dumps) -> None:
    dumps[3]["entries"][2]["input_dtypes"] = dumps[3]["entries"][2]["output_dtypes"] = ["BFloat16"]


def other_state(dumps: Dumps) -> None:
    dumps[2]["entries"][-1].update(state="started", retired=False)


def subgroups(dumps: Dumps) -> None:
    """A group of ranks 2 and 3 in addition, in which rank 3 misses the second collective."""
    for rank in (2, 3):
        dumps[rank]["pg_config"]["7"] = {"name": "7", "desc": "tensor", "ranks": "[2, 3]"}
        for sequence in (1, 2)[: 4 - rank]:
            entry = copy.deepcopy(dumps[rank]["entries"][0])
            entry.update(process_group=("7", "tensor"), collective_seq_id=sequence, record_id=100 + sequence)
            dumps[rank]["entries"].append(entry)


ALTERED: dict[str, tuple[Callable[[Dumps], None], str, int, set[int]]] = {
    "missing": (missing, "missing", 5, {2}),
    "two-missing": (two_missing, "missing", 4, {1, 3}),
    "other-operation": (other_operation, "mismatch", 5, {1}),
    "other-size": (other_size, "mismatch", 3, {3}),
    "other-type": (other_type, "mismatch", 3, {3}),
    "other-state": (other_state, "unfinished", 5, {2}),
    "subgroups": (subgroups, "missing", 2, {3}),
}


@pytest.mark.parametrize("name", ALTERED)
def test_the_altered_rank_is_found(name: str, tmp_path: Path) -> None:
    alter, problem, sequence, ranks = ALTERED[name]
    dumps = healthy()
    assert found(save(dumps, tmp_path / "healthy")) == []
    alter(dumps)
    one, *more = found(save(dumps, tmp_path / "altered"))
    assert (one.problem, one.sequence, {*one.missing, *one.differing}) == (problem, sequence, ranks) and not more


NCCL = ["nccl/fr-missed", "nccl/fr-spin", "nccl/fr-mismatch", "nccl/fr-size", "nccl/fr-groups", "nccl/fr-p2p"]


@pytest.mark.torch
@pytest.mark.parametrize("name", [*ALTERED, "fr-missed", "fr-mismatch", "fr-uneven", "fr-barrier", *NCCL])
def test_nothing_that_torchfrtrace_finds_is_missed(name: str, tmp_path: Path) -> None:
    dumps = healthy() if name in ALTERED else load(name)
    if name in ALTERED:
        ALTERED[name][0](dumps)
    for dump in dumps.values():
        for key in [key for key in dump["pg_config"] if not key]:
            dump["pg_config"]["0"] = {**dump["pg_config"].pop(key), "name": "0", "desc": "default_pg"}
    theirs = _torchfrtrace(save(dumps, tmp_path / "dumps"))
    assert theirs, "it finds something in each"
    ours = found(tmp_path / "dumps")
    for collective in theirs:
        absent, culprits = set(collective.missing_ranks or ()), set(collective.mismatch_collectives or ())
        if any(arrow in collective.collective_name for arrow in ("->", "<-")):
            # A send or receive has no sequence number: the tool gives that of the collective before it.
            assert absent in [set(one.missing) for one in ours if "->" in (one.operation or "")]
            continue
        same = [one for one in ours if one.sequence == collective.collective_seq_id]
        # What comes later in the same group follows from the first problem: only that one is told.
        assert same or any((one.sequence or 0) < collective.collective_seq_id for one in ours), f"#{collective.collective_seq_id}"
        assert not same or absent <= {rank for one in same for rank in one.missing}
        # It takes the first rank that it read as the right one: those that it blames may be all others.
        assert all(set(call.ranks) <= culprits or not culprits & set(call.ranks) for one in same for call in one.calls)
    first = min(one.collective_seq_id for one in theirs if "<-" not in one.collective_name)
    assert first in {one.sequence for one in ours}


def _torchfrtrace(folder: Path) -> list[Any]:
    """The collectives that torch's own tool complains of."""
    pytest.importorskip("torch", reason="torch is not installed: pip install torch")
    tool = "torch.distributed.flight_recorder.components"
    config = importlib.import_module(f"{tool}.config_manager").JobConfig()
    arguments = config.parse_args([str(folder), "--prefix", "fr_"])
    details, version = importlib.import_module(f"{tool}.loader").read_dir(arguments)
    database = importlib.import_module(f"{tool}.builder").build_db(details, arguments, version)
    return [one for one in database.collectives if not one.pass_check or one.missing_ranks]


def test_real_dumps_of_several_groups() -> None:
    one = found(JOBS / "fr-groups")[0]
    assert (one.group, one.problem, one.sequence, one.missing) == ("right", "missing", 2, (3,))


def test_clocks_are_not_believed_over_who_waits_for_whom(tmp_path: Path) -> None:
    """Ranks 0 and 1 wait for 2 and 3, of which 2 waits for 3; the clock of their host is an hour slow."""
    dumps = load("fr-groups")
    for rank in (0, 1):
        for entry in dumps[rank]["entries"]:
            entry["time_created_ns"] -= 3600 * 10**9
    assert [one.missing for one in found(save(dumps, tmp_path / "dumps"))] == [(3,), (2, 3)]


@pytest.mark.parametrize(("seconds", "late"), [(0.5, ()), (30, (2,))])
def test_a_rank_that_comes_late(seconds: float, late: tuple[int, ...], tmp_path: Path) -> None:
    """All came in the end, and the others had given up by then. Each clock only measures the time since the collective before."""
    dumps = healthy()
    for rank, dump in dumps.items():
        before, last = dump["entries"][-2:]
        last.update(state="scheduled", retired=False, time_created_ns=before["time_created_ns"] + 40_000_000)
        for entry in dump["entries"]:
            entry["time_created_ns"] += rank * 3600 * 10**9
    dumps[2]["entries"][-1]["time_created_ns"] += round(seconds * 10**9)
    (one,) = found(save(dumps, tmp_path / "dumps"))
    assert (one.problem, one.differing, one.differs) == ("unfinished", late, ("time",) if late else ())
    said = "rank 2 reached {} late" if late else "all ranks reached {}"
    assert what_happened(one) == said.format(f"{one.operation} #{one.sequence}") + ", but it did not finish"


def test_a_call_has_its_stack() -> None:
    one = found(JOBS / "fr-mismatch")[0]
    lines = (JOBS / "train.py").read_text().splitlines()
    said = {call.operation: lines[(call.where.line or 0) - 1].strip() for call in one.calls if call.where}
    assert said == {"all_reduce": "dist.all_reduce(batch)", "all_gather": "dist.all_gather(gathered, batch)"}
    assert [frame.function for frame in one.calls[0].frames][:3] == ["all_reduce", "wrapper", "train_step"]


# Point to point, as torch names them: "nccl:send 0->1", "nccl:recv 1<-0"


def talking(sends: int, receives: int, size: int = 5) -> Dumps:
    dumps = healthy(2)
    for rank, count, name in ((0, sends, "nccl:send 0->1"), (1, receives, "nccl:recv 1<-0")):
        for number in range(count):
            entry = copy.deepcopy(dumps[rank]["entries"][0])
            entry.update(profiling_name=name, is_p2p=True, p2p_seq_id=number + 1, record_id=50 + number)
            entry.update(input_sizes=[[5]], output_sizes=[[size]], state="scheduled", retired=False)
            dumps[rank]["entries"].append(entry)
    return dumps


@pytest.mark.parametrize(
    ("dumps", "expected"),
    [
        (talking(2, 2), None),
        (talking(2, 1), ("missing", 2, (1,), ())),
        (talking(0, 1), ("missing", 1, (0,), ())),
        (talking(1, 1, size=7), ("mismatch", 1, (), (0, 1))),
    ],
    ids=["equal", "not-received", "not-sent", "other-size"],
)
def test_point_to_point(dumps: Dumps, expected: object, tmp_path: Path) -> None:
    several = found(save(dumps, tmp_path / "dumps"))
    assert [(one.problem, one.sequence, one.missing, one.differing) for one in several] == ([expected] if expected else [])


# Formats


def test_json_says_the_same(tmp_path: Path) -> None:
    for rank, dump in load("fr-uneven").items():
        (tmp_path / f"fr_{rank}.json").write_text(json.dumps(dump))
    packed, plain = found(JOBS / "fr-uneven"), of_recordings([read(path) for path in sorted(tmp_path.iterdir())])
    assert packed == plain != []


@pytest.mark.parametrize("version", ["1.5", "2.0", "2.3", "2.10"])
def test_older_versions(version: str, tmp_path: Path) -> None:
    """Fields that they lack: torch 2.2 wrote seq_id, and neither types, times, threads nor whether it is point to point."""
    dumps = load("fr-missed")
    for dump in dumps.values():
        dump["version"] = version
        for name in ("pg_status", "comm_lib_version"):
            del dump[name]
        for entry in dump["entries"]:
            for name in ("thread_id", "thread_name", "timeout_ms"):
                del entry[name]
            if version == "1.5":
                entry["seq_id"] = entry.pop("collective_seq_id")
                for name in ("p2p_seq_id", "input_dtypes", "output_dtypes", "is_p2p", "process_group", "retired"):
                    del entry[name]
    one = found(save(dumps, tmp_path / "dumps"))[0]
    assert (one.problem, one.sequence, one.missing) == ("missing", 6, (2,))


def test_what_the_ring_buffer_lost_is_not_missing(tmp_path: Path) -> None:
    dumps = healthy()
    dumps[1]["entries"] = dumps[1]["entries"][3:]
    assert dumps[1]["entries"][0]["record_id"] > 0
    assert found(save(dumps, tmp_path / "dumps")) == []


# Hostile files


class _Evil:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.path,)


@pytest.mark.parametrize("protocol", range(2, 6))
def test_no_class_is_loaded(protocol: int, tmp_path: Path) -> None:
    path = tmp_path / "fr_0"
    path.write_bytes(pickle.dumps({"entries": [_Evil(tmp_path / "was-run")], "pg_config": {}}, protocol=protocol))
    with pytest.raises(EvidenceError, match="more than plain data"):
        read(path)
    assert not (tmp_path / "was-run").exists()


def test_every_opcode_that_makes_objects_is_refused(tmp_path: Path) -> None:
    harmless = set(
        "MARK STOP POP POP_MARK DUP NONE NEWTRUE NEWFALSE APPEND APPENDS LIST EMPTY_LIST DICT EMPTY_DICT SETITEM SETITEMS".split()
    )
    harmless |= set(
        "TUPLE TUPLE1 TUPLE2 TUPLE3 EMPTY_TUPLE MEMOIZE PROTO FRAME BININT BININT1 BININT2 LONG1 BINFLOAT BINGET BINPUT".split()
    )
    harmless |= set(
        "LONG_BINGET LONG_BINPUT SHORT_BINUNICODE BINUNICODE BINUNICODE8 SHORT_BINSTRING BINSTRING SHORT_BINBYTES BINBYTES".split()
    )
    for opcode in pickletools.opcodes:
        if opcode.name in harmless:
            continue
        path = tmp_path / "fr_0"
        path.write_bytes(b"\x80\x02" + opcode.code.encode("latin-1") + b"profiling_name\n" * 3 + b".")
        with pytest.raises(EvidenceError, match="more than plain data"):
            read(path)


def test_a_pickle_that_wants_memory(tmp_path: Path) -> None:
    """CPython's unpickler makes room for the memo up to the index that it is told."""
    path = tmp_path / "fr_0"
    path.write_bytes(b"\x80\x02}X\x07\0\0\0entriesr" + struct.pack("<I", 1 << 31) + b"]s.")
    with pytest.raises(EvidenceError, match="memory"):
        read(path)


@pytest.mark.parametrize("part", [10, 50, 90])
def test_a_dump_that_was_cut(part: int, tmp_path: Path) -> None:
    content = (JOBS / "fr-missed/fr_0").read_bytes()
    path = tmp_path / "fr_0"
    path.write_bytes(content[: len(content) * part // 100])
    with pytest.raises(EvidenceError, match="damaged"):
        read(path)


def test_one_damaged_dump_does_not_cost_the_others(tmp_path: Path) -> None:
    from crashkit.pipeline import analyze

    shutil.copytree(JOBS / "fr-missed", tmp_path / "job")
    (tmp_path / "job/fr_1").write_bytes((tmp_path / "job/fr_1").read_bytes()[:500])
    crash = analyze(tmp_path / "job")
    assert crash.job is not None and crash.job.root_cause is not None and crash.job.root_cause.rank == 2
    assert any("fr_1" in error.message and "damaged" in error.message for error in crash.soft_errors)
