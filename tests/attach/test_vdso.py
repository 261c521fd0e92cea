"""The way out of the vDSO, in which a thread stands that asks for the time over and over: no file has it, so it comes from memory."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from crashkit.collect.attach import attach
from crashkit.collect.live_core import take_core
from crashkit.evidence.core.core import Core
from crashkit.isolation import find_program
from crashkit.memory.live import LiveProcess
from crashkit.pipeline import Options
from tests.crashes import DEADLINE, NO_COMPILER, needs_gdb, needs_x86_64

pytestmark = needs_x86_64()

PROGRAM = """
#include <stdio.h>
#include <time.h>
static volatile int never;
static __attribute__((noinline)) long ask(void) {
    struct timespec now;
    long asked = 0;
    for (; !never; asked++) clock_gettime(CLOCK_MONOTONIC, &now);
    return asked;
}
static __attribute__((noinline)) long outer(void) { return ask() + 1; }
int main(void) { puts("ready"); fflush(stdout); return outer() == 0; }
"""
CALLED = ["ask", "outer", "main"]
LOOKS = 6


@pytest.fixture
def asking(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The pid of a program that asks for the time. Whoever reads its vDSO touches its pages, so each test has one of its own."""
    if shutil.which("gcc") is None:
        pytest.skip(NO_COMPILER)
    folder = tmp_path_factory.mktemp("asking")
    (folder / "ask.c").write_text(PROGRAM)
    subprocess.run(["gcc", "-O1", "-g", "-o", folder / "ask", folder / "ask.c"], check=True, timeout=DEADLINE)
    with subprocess.Popen([folder / "ask"], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None and child.stdout.readline() == "ready\n"
        try:
            yield child.pid
        finally:
            child.kill()


def vdso(pid: int) -> tuple[int, int]:
    line = next(line for line in Path(f"/proc/{pid}/maps").read_text().splitlines() if line.endswith("[vdso]"))
    start, end = line.split()[0].split("-")
    return int(start, 16), int(end, 16)


def test_all_of_it_is_in_the_core(asking: int, tmp_path: Path) -> None:
    """Also the pages that the process never touched, and in one segment: gdb takes it from no other."""
    start, end = vdso(asking)
    path = tmp_path / "core"
    take_core(asking, path)
    with Core(path.open("rb"), path, path.stat().st_size) as core, LiveProcess(asking) as live:
        segment = core.segment(start)
        assert segment is not None and (segment.start, segment.end) == (start, end)
        assert core.read(start, end - start) == live.read(start, end - start)


@pytest.mark.slow
@needs_gdb
def test_the_stack_reaches_main(asking: int) -> None:
    """As gdb, attached to the living process, says."""
    start, end = vdso(asking)
    inside = 0
    for _ in range(LOOKS):
        (thread,) = attach(asking, Options()).threads
        frames = list(thread.natives())
        names = [frame.function for frame in frames if frame.trust != "inline"]
        assert names[names.index("ask") :][: len(CALLED)] == CALLED
        assert {frame.trust for frame in frames[1:]} <= {"cfi", "inline"}
        inside += frames[0].pc is not None and start <= frames[0].pc < end
    assert inside
    gdb = find_program("gdb")
    assert gdb is not None
    told = subprocess.run([gdb, "-nx", "-batch", "-p", str(asking), "-ex", "bt"], capture_output=True, text=True, timeout=DEADLINE).stdout
    truth = re.findall(r"^#\d+ +(?:0x\w+ in )?(\w+) \(", told, re.MULTILINE)
    assert [name for name in truth if name in CALLED] == CALLED
