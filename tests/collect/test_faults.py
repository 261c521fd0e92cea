"""A fault at each system call of the way from a crash to the store: SIGKILL to all of
crashkit or to the process that makes the call, one error, a full disk.

Whatever happens, the store then has the crash with its core, or somebody said where the core is, or it is where the kernel put it.
A library that is loaded first (fixtures/faults/faults.c) counts the calls that concern the store and the working directory,
and lets the n-th one fail.
"""

from __future__ import annotations

import itertools
import os
import re
import shutil
import signal
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from crashkit.collect.recover import recover
from crashkit.crashfolder.store import Store
from tests.collect.conftest import ROOT, Crashkit
from tests.crashes import NO_COMPILER, compile_c

FAULTS = ["kill", "kill-one", "eio", "full"]
SAMPLE = 3
"""Faults of each kind in the quick test: the calls at which they come are spread evenly."""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("built")
    compiler = shutil.which("gcc")
    if compiler is None:
        pytest.skip(NO_COMPILER)
    source = ROOT / "fixtures" / "faults" / "faults.c"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", folder / "faults.so", source, "-ldl"], check=True)
    compile_c(ROOT / "fixtures" / "crashers" / "crash_small.c", folder / "crash_small")
    return folder


class Faulty:
    """Runs the small crash with a fault, each time in fresh folders."""

    def __init__(self, crashkit: Crashkit, built: Path, folder: Path, cwd: Path) -> None:
        self.crashkit, self.built, self.folder, self.cwds = crashkit, built, folder, cwd
        self.numbers = itertools.count()

    def run(self, mode: str, at: int) -> tuple[int, str, bool]:
        """How many calls there were, what crashkit said, and whether the program came to its crash."""
        number = self.renew()
        marker = self.folder / f"marker-{number}"
        calls, said = self.call_with_fault(mode, at, "run", "--no-analyze", "--", self.built / "crash_small", marker)
        return calls, said, marker.exists()

    def renew(self) -> int:
        """A new store and a new working directory; their number."""
        number = next(self.numbers)
        self.crashkit.home, self.crashkit.cwd = self.folder / f"store-{number}", self.cwds / str(number)
        self.crashkit.cwd.mkdir()
        self.crashkit.environment.update(CRASHKIT_HOME=str(self.crashkit.home), TMPDIR=str(self.folder))
        return number

    def call_with_fault(self, mode: str, at: int, *arguments: object) -> tuple[int, str]:
        """How many calls there were, and what crashkit said."""
        count, plain = self.folder / "count", self.crashkit.environment
        count.write_bytes(bytes(4096))
        self.crashkit.environment = {
            **plain,
            "LD_PRELOAD": str(self.built / "faults.so"),
            "CRASHKIT_FAULT": mode,
            "CRASHKIT_FAULT_AT": str(at),
            "CRASHKIT_FAULT_COUNT": str(count),
            "CRASHKIT_FAULT_UNDER": f"{self.crashkit.home}:{self.crashkit.cwd}",
        }
        try:
            result = self.crashkit(*arguments)
        finally:
            self.crashkit.environment = plain
        self.call = count.read_bytes()[16:].split(b"\0")[0].decode()
        return struct.unpack_from("l", count.read_bytes())[0], result.stderr

    def recover(self, mode: str, at: int) -> tuple[int, str]:
        """A killed run left a core and the manifest of its crash: `crashkit list` with a fault; as `run`, of a crash that came to be."""
        self.renew()
        self.crashkit.run(self.built / "crash_small")
        (crash,) = self.crashkit.crashes()
        received, run = self.crashkit.home / ".crash-1-1", self.crashkit.home / ".run-1-1"
        run.mkdir()
        if self.crashkit.cwd.stat().st_dev == self.crashkit.home.stat().st_dev:
            (crash["folder"] / "core").rename(run / "1.core")
        else:
            shutil.move(crash["folder"] / "core", self.crashkit.cwd / ".crashkit-1-1.core")
            (run / "1.elsewhere").symlink_to(self.crashkit.cwd / ".crashkit-1-1.core")
        crash["folder"].rename(received)
        for folder in (received, run):
            (folder / ".lock").touch()
        return self.call_with_fault(mode, at, "list")

    def check_run(self, mode: str, at: int) -> None:
        _, said, crashed = self.run(mode, at)
        self.check(mode, at, said, "now" if crashed else "")

    def check_recovery(self, mode: str, at: int) -> None:
        self.check(mode, at, self.recover(mode, at)[1], "before")

    def check(self, mode: str, at: int, said: str, crashed: str) -> None:
        """`crashed`: now, before, or empty."""
        store = Store(self.crashkit.home)
        said += "\n".join(recover(store))
        situation = f"{mode} at call {at}, {self.call}\n{said}" + "".join(
            f"\n{path} {path.lstat().st_size}" for root in (self.crashkit.home, self.crashkit.cwd) for path in sorted(root.rglob("*"))
        )
        assert "Traceback" not in said and "Error" not in said, situation
        assert recover(store) == [] and not store.abandoned("run", "crash"), f"the store has not come to rest\n{situation}"
        if not crashed:
            return
        kept = [crash for crash in store.crashes() if crash.core_state != "missing"]
        told = [
            path for path in re.findall(r"(/\S+?)(?:[;,]|$)", said, re.MULTILINE) if _is_core(Path(path)) or _is_core(Path(path, "core"))
        ]
        left = [path for path in self.crashkit.cwd.glob("core*") if _is_core(path)]
        assert kept or told or left, situation
        if kept:
            assert len(kept) == 1 and kept[0].manifest["signal"] == signal.SIGSEGV, situation
            # Recovery may fail to see that two folders belong together.
            assert len(store.crashes()) == 1 or crashed == "before", situation
            if not mode.startswith("kill"):  # which ends the dump, too
                assert kept[0].core_state == "present", situation


def _is_core(path: Path) -> bool:
    try:
        return path.is_file() and path.read_bytes()[:4] == b"\x7fELF"
    except OSError:
        return False


@pytest.fixture(params=[pytest.param("same disk", marks=pytest.mark.long), "another disk"])
def faulty(request: pytest.FixtureRequest, crashkit: Crashkit, built: Path, tmp_path: Path) -> Iterator[Faulty]:
    """With the working directory on the store's disk, where cores are linked, or on another one, where they are copied."""
    if request.param == "same disk":
        yield Faulty(crashkit, built, tmp_path, tmp_path / "cwd")
        return
    shared = Path("/dev/shm")
    if not os.access(shared, os.W_OK) or shared.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("/dev/shm is no other file system that we may write to")
    folder = Path(subprocess.run(["mktemp", "-d", "-p", shared], capture_output=True, text=True, check=True).stdout.strip())
    try:
        yield Faulty(crashkit, built, tmp_path, folder)
    finally:
        shutil.rmtree(folder)


def _points(calls: int) -> list[tuple[str, int]]:
    """Kinds of fault and the calls at which they come, spread evenly."""
    count = SAMPLE * len(FAULTS)
    return [(FAULTS[number % len(FAULTS)], 1 + number * calls // count) for number in range(count)]


@pytest.mark.slow
def test_evidence_survives_some_faults(faulty: Faulty) -> None:
    calls, _, crashed = faulty.run("none", 0)
    assert crashed and calls > SAMPLE
    for mode, at in _points(calls):
        faulty.check_run(mode, at)


@pytest.mark.slow
def test_what_was_left_survives_some_faults(faulty: Faulty) -> None:
    calls, _ = faulty.recover("none", 0)
    assert calls > SAMPLE
    for mode, at in _points(calls):
        faulty.check_recovery(mode, at)


@pytest.mark.slow
@pytest.mark.skipif("CRASHKIT_ALL_FAULTS" not in os.environ, reason="takes minutes: set CRASHKIT_ALL_FAULTS=1")
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("mode", FAULTS)
@pytest.mark.parametrize("what", ["run", "recovery"])
def test_evidence_survives_every_fault(faulty: Faulty, mode: str, what: str) -> None:
    calls = faulty.run("none", 0)[0] if what == "run" else faulty.recover("none", 0)[0]
    failures = []
    for at in range(1, calls + 1):
        try:
            (faulty.check_run if what == "run" else faulty.check_recovery)(mode, at)
        except AssertionError as error:
            failures.append(str(error))
    assert not failures, f"{len(failures)} of {calls}\n\n" + "\n\n".join(failures)
