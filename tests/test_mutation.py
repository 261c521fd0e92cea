"""Cores damaged at random: never a traceback, never a hang, always valid JSON or one clear line.

CRASHKIT_TEST_SEED repeats a run; a failure names its seed and keeps nothing.
"""

from __future__ import annotations

import json
import os
import random
import signal
import struct
import subprocess
import sys
import traceback
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import msgspec
import pytest

from crashkit.debugger.contract import Answer
from crashkit.errors import CrashkitError
from crashkit.evidence.core.core import open_core
from crashkit.evidence.input import open_input
from crashkit.model import Crash, decode_extension
from crashkit.pipeline import Options, analyze
from crashkit.report import html, text
from crashkit.report import json as report_json
from tests.crashes import an_interpreter, c_crash, python_crash

pytestmark = pytest.mark.slow

SEED = int(os.environ.get("CRASHKIT_TEST_SEED", random.randrange(1 << 32)))
NOTES_ONLY = 360
WHOLE_PATH = 24
DEADLINE = 20
EDGES = (b"\x00", b"\x01", b"\x7f", b"\x80", b"\xff")


def damage(core: bytearray, headers: int, generator: random.Random) -> str:
    """Damage a core in place; says how. Half of the time where it hurts: in its headers and notes."""
    kind = generator.choice(["bytes", "words", "range", "cut", "insert", "remove", "swap", "sizes"])
    limit = min(len(core), generator.choice([headers, headers, len(core)]))
    at = generator.randrange(limit)
    if kind == "bytes":
        for _ in range(generator.randrange(1, 30)):
            core[generator.randrange(limit)] = generator.randrange(256)
    elif kind == "words":
        for _ in range(generator.randrange(1, 10)):
            place = generator.randrange(limit) & ~7
            core[place : place + 8] = (generator.choice(EDGES) * 8)[: len(core) - place]
    elif kind == "range":
        length = generator.randrange(1, 1 << generator.randrange(1, 16))
        core[at : at + length] = generator.choice([generator.choice(EDGES) * length, generator.randbytes(length)])[: len(core) - at]
    elif kind == "cut":
        del core[generator.choice([at, int(len(core) * generator.random())]) :]
    elif kind == "insert":
        core[at:at] = generator.randbytes(generator.randrange(1, 5000))
    elif kind == "remove":
        del core[at : at + generator.randrange(1, 5000)]
    elif kind == "swap":
        length = generator.randrange(1, 4000)
        other = generator.randrange(len(core))
        core[at : at + length], core[other : other + length] = core[other : other + length], core[at : at + length]
    elif kind == "sizes":
        # Program headers start at 64, 56 bytes each: lie about one field of some.
        for _ in range(generator.randrange(1, 5)):
            place = 64 + 56 * generator.randrange(max(1, min(40, headers // 112))) + 8 * generator.randrange(7)
            core[place : place + 8] = generator.choice(
                [generator.randbytes(8), generator.choice(EDGES) * 8, (1 << 40).to_bytes(8, "little")]
            )
    return kind


def header_size(path: Path) -> int:
    """Bytes until the first segment with memory: headers and notes."""
    with open_input(path) as source:
        core = open_core(source.file, path, source.size)
        assert core
        return min(segment.position for segment in core.segments if segment.stored)


@contextmanager
def at_most(seconds: int, what: str) -> Iterator[None]:
    def expire(_signal: int, _frame: FrameType | None) -> None:
        raise TimeoutError(f"{what}: not done after {seconds} s")

    before = signal.signal(signal.SIGALRM, expire)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def check(crash: Crash) -> None:
    """The report is what the schema says, in all its forms."""
    document = report_json.encode(crash)
    again = msgspec.json.decode(document, type=Crash, dec_hook=decode_extension)
    assert again.schema == crash.schema
    lines = list(text.summary(crash, None, color=False, width=100))
    assert lines and all(line.isprintable() for line in lines), lines


@pytest.mark.long
def test_notes_of_damaged_cores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("crashkit.debugger.pystack.debugger.ask_pystack", lambda *_, **__: Answer())
    made = c_crash("no_python.c")
    whole, headers = made.core.read_bytes(), header_size(made.core)
    damaged = tmp_path / "core"
    refused, problems = 0, []
    for number in range(NOTES_ONLY):
        generator = random.Random(SEED + number)
        core = bytearray(whole)
        kinds = [damage(core, headers, generator) for _ in range(generator.randrange(1, 4)) if core]
        damaged.write_bytes(core)
        what = f"CRASHKIT_TEST_SEED={SEED}, mutation {number} ({', '.join(kinds)})"
        try:
            with at_most(DEADLINE, what):
                crash = analyze(damaged, options=Options(gdb=None))
                check(crash)
                if number % 20 == 0:
                    html.render(crash)
        except CrashkitError as error:
            refused += 1
            if not str(error) or "\n" in str(error) or not error.hint:
                problems.append(f"{what}: {error!r}")
        except Exception as error:
            last = traceback.extract_tb(error.__traceback__)[-1]
            problems.append(f"{what}: {error!r} in {last.filename}, line {last.lineno}")
    assert not problems, "\n".join(problems)
    assert refused < NOTES_ONLY * 0.9, "hardly anything was read: the mutations are too coarse"


@pytest.mark.long
def test_whole_path_of_damaged_cores(tmp_path: Path) -> None:
    native, python = c_crash("no_python.c"), python_crash("threads.py", python=an_interpreter())
    originals = [(made.core.read_bytes(), header_size(made.core)) for made in (native, python)]

    def one(number: int) -> str | None:
        generator = random.Random(SEED + 1_000_000 + number)
        whole, headers = originals[number % 2]
        core = bytearray(whole)
        kinds = [damage(core, headers, generator) for _ in range(generator.randrange(1, 3)) if core]
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "core").write_bytes(core)
        what = f"CRASHKIT_TEST_SEED={SEED}, mutation {number} ({', '.join(kinds)})"
        problem = run(folder, what)
        (folder / "core").unlink()
        return problem

    with ThreadPoolExecutor(2) as pool:
        problems = [problem for problem in pool.map(one, range(WHOLE_PATH)) if problem]
    assert not problems, "\n".join(problems)


def run(folder: Path, what: str) -> str | None:
    """What is wrong with how `crashkit analyze --json` took the core in this folder."""
    environment = {**os.environ, "TMPDIR": str(folder)}
    command = [sys.executable, "-m", "crashkit", "analyze", str(folder / "core"), "--json", "--timeout", str(DEADLINE)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=3 * DEADLINE, env=environment)
    except subprocess.TimeoutExpired:
        return f"{what}: hangs"
    left = sorted(path.name for path in folder.iterdir() if path.name != "core")
    if "Traceback" in done.stderr or done.returncode not in (0, 1) or left:
        return f"{what}: status {done.returncode}, left {left}, said {done.stderr[-1500:]}"
    if done.returncode == 1:
        return None if 1 <= len(done.stderr.strip().splitlines()) <= 2 and not done.stdout else f"{what}: {done.stderr}"
    try:
        return None if json.loads(done.stdout)["schema"] == "crashkit.report/1" else f"{what}: another schema"
    except (ValueError, KeyError) as error:
        return f"{what}: {error!r}: {done.stdout[:500]}"


LIES = ["no notes", "file sizes", "memory sizes", "note size", "offsets", "too many headers", "no headers", "notes twice"]


def lie(core: bytes, kind: str) -> bytes:
    """A core whose program headers say what is not so (elf(5))."""
    lying = bytearray(core)
    (table,) = struct.unpack_from("<Q", core, 32)
    (count,) = struct.unpack_from("<H", core, 56)
    if kind in ("too many headers", "no headers"):
        struct.pack_into("<H", lying, 56, 65000 if kind == "too many headers" else 0)
    for at in range(table, table + 56 * count, 56):
        segment, _, offset, _, _, stored, size = struct.unpack_from("<IIQQQQQ", core, at)
        if segment == 4 and kind == "no notes":
            struct.pack_into("<I", lying, at, 0)
        elif segment == 4 and kind == "note size":
            struct.pack_into("<Q", lying, at + 32, 1 << 50)
        elif segment == 1 and kind == "offsets":
            struct.pack_into("<Q", lying, at + 8, offset + (1 << 45))
        elif segment == 1 and kind == "file sizes":
            struct.pack_into("<Q", lying, at + 32, stored + (1 << 40))
        elif segment == 1 and kind == "memory sizes":
            struct.pack_into("<Q", lying, at + 40, size + (1 << 40))
        elif segment == 4 and kind == "notes twice":
            lying[table + 56 * (count - 1) : table + 56 * count] = core[at : at + 56]
    return bytes(lying)


@pytest.mark.parametrize("kind", LIES)
def test_lying_headers(kind: str, tmp_path: Path) -> None:
    made = python_crash("threads.py", python=an_interpreter())
    (tmp_path / "core").write_bytes(lie(made.core.read_bytes(), kind))
    with at_most(3 * DEADLINE, kind):
        crash = analyze(tmp_path / "core", options=Options(exe=made.program, deadline=DEADLINE))
    check(crash)
    if kind in ("no notes", "no headers"):
        assert any("notes are missing" in error.message for error in crash.soft_errors)
        return
    assert crash.signal and crash.signal.name == "SIGSEGV" and crash.thread and crash.thread.registers
    assert len(crash.threads) == 7 and crash.modules
    if kind in ("memory sizes", "notes twice"):
        assert all(thread.frames for thread in crash.threads)
    else:
        assert crash.soft_errors
