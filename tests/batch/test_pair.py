"""Which log belongs to which core."""

from __future__ import annotations

from itertools import permutations
from pathlib import Path

import pytest

from crashkit.batch.artefact import Artefact, Facts
from crashkit.batch.pair import pair


def core(shown: str, pid: int, *idents: int, signal: str = "SIGSEGV", time: float = 1000.0) -> Artefact:
    tids = frozenset({pid, *(pid + number for number in range(1, len(idents)))})
    return Artefact("core", Path(shown), shown, Facts(frozenset({pid}), tids, frozenset(idents), signal, "/usr/bin/python3", time, True))


def log(shown: str, *idents: int, pids: tuple[int, ...] = (), signal: str | None = "SIGSEGV", time: float = 1000.0) -> Artefact:
    return Artefact(
        "log", Path(shown), shown, Facts(frozenset(pids), idents=frozenset(idents), signal=signal, time=time, has_stack=bool(idents))
    )


def gpu(shown: str, *tids: int, pid: int | None = None) -> Artefact:
    return Artefact("gpu-core", Path(shown), shown, Facts(frozenset() if pid is None else frozenset({pid}), frozenset(tids)))


A, B = core("a/core", 100, 0x1000, 0x1100), core("b/core", 200, 0x2000, 0x2100)


@pytest.mark.parametrize(
    ("artefacts", "expected"),
    [
        ((A, B, log("x/1", 0x1000), log("x/2", 0x2100)), ["a/core x/1", "b/core x/2"]),
        # Two crashes in one log.
        ((A, B, log("x/1", 0x1000)._replace(lines=(1, 9)), log("x/1", 0x2000)._replace(lines=(10, 99))), ["a/core x/1", "b/core x/1"]),
        # Threads of nobody's: a crash that left no core.
        ((A, log("a/log", 0x7000)), ["a/core", "a/log"]),
        # The same dump in two logs is one crash.
        ((log("x/1", 0x7000), log("y/2", 0x7000)), ["x/1 y/2"]),
        ((A, B, log("x/1", pids=(200,))), ["a/core", "b/core x/1"]),
        # Nothing but the folder.
        ((A, B, log("b/err")), ["a/core", "b/core b/err"]),
        ((A, log("a/err", signal="SIGABRT")), ["a/core", "a/err"]),
        # It may be of either: no crash of its own, and told.
        ((A, B, log("x/build.log")), ["a/core", "b/core"]),
        ((log("x/build.log"),), ["x/build.log"]),
        # A copy of a core is not a second crash.
        ((A, A._replace(shown="z/copy", path=Path("z/copy"))), ["a/core"]),
        ((A, B, gpu("g/1", 200), gpu("g/2", pid=100), gpu("g/3", 999)), ["a/core g/2", "b/core g/1", "g/3"]),
        # Forked processes share their threads' identifiers.
        ((core("a/core", 100, 0x1000), core("b/core", 101, 0x1000), log("x", 0x1000, pids=(101,))), ["a/core", "b/core x"]),
        ((core("a/core", 100, 0x1000), core("b/core", 101, 0x1000), log("b/x", 0x1000)), ["a/core", "b/core b/x"]),
    ],
)
def test_pairs(artefacts: tuple[Artefact, ...], expected: list[str]) -> None:
    """In whatever order they are found."""
    for order in list(permutations(artefacts))[:24]:
        cases = pair(order).cases
        assert sorted(" ".join(dict.fromkeys(one.shown for one in case.artefacts)) for case in cases) == sorted(expected)


def test_what_is_left_over_is_told() -> None:
    said = [error.message for error in pair((A, A._replace(shown="z/copy"), log("x/build.log"))).soft_errors]
    assert "z/copy is of the same process as a/core" in said[0] and "x/build.log reports a death without naming the process" in said[1]
