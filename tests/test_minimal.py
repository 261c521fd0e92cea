"""Minimal cores of real crashes: the same report and the same backtraces, from a few percent of the core, without its secrets."""

from __future__ import annotations

import gzip
import io
import json
import os
import shutil
import subprocess
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from crashkit.crashfolder.bundle import EVIDENCE, WARNING_MINIMAL
from crashkit.elf.core_file import Part, note, write_core
from crashkit.elf.headers import PN_XNUM, Word
from crashkit.evidence.core.core import Core, open_core
from crashkit.evidence.core.note import NAME, NOTE, Left, Space, decode, encode
from crashkit.memory.pages import SIZE, Pages
from crashkit.model import Crash
from crashkit.pipeline import Options, analyze
from crashkit.report.json import encode as document
from crashkit.secrets.text import MASK
from tests.crashes import (
    CRASHERS,
    Folder,
    Interpreter,
    a_debuggable_interpreter,
    an_interpreter,
    build_library,
    c_crash,
    every_interpreter,
    needs_gdb,
    needs_x86_64,
    plain_gdb,
    python_crash,
    some_interpreters,
)

EXPLAINED = {"seconds", "next_steps", "source.path", "source.size", "source.minimal"}
"""What tells the two files apart: how long it took, what they are called, and how large they are."""


def minimal(made: Folder, target: Path, options: Options | None = None) -> tuple[Crash, Path]:
    """The report of the whole core, and the minimal core beside it."""
    small = target / "minimal"
    crash = analyze(made.core, options=replace(options or Options(), minimal=small))
    assert [error.message for error in crash.soft_errors if error.stage == "minimal"] == []
    times = made.core.stat()
    os.utime(small, ns=(times.st_atime_ns, times.st_mtime_ns))
    return crash, small


def differences(one: Any, other: Any, at: str = "") -> Iterator[str]:
    if at in EXPLAINED:
        return
    if isinstance(one, dict) and isinstance(other, dict):
        for name in sorted({*one, *other}):
            yield from differences(one.get(name), other.get(name), f"{at}.{name}".lstrip("."))
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for index, (left, right) in enumerate(zip(one, other, strict=True)):
            yield from differences(left, right, f"{at}[{index}]")
    elif one != other:
        yield f"{at}: {one!r} != {other!r}"


def compared(one: Crash, other: Crash) -> str:
    return "\n".join(differences(json.loads(document(one)), json.loads(document(other))))


def is_small(made: Folder, small: Path) -> bool:
    return small.stat().st_size <= 0.05 * made.core.stat().st_size


def opened(path: Path) -> Core:
    core = open_core(path.open("rb"), path, path.stat().st_size)
    assert core is not None
    return core


@pytest.mark.slow
@needs_gdb
@pytest.mark.parametrize("python", every_interpreter())
def test_the_report_and_the_backtraces_are_the_same(python: Interpreter, tmp_path: Path) -> None:
    made = python_crash("threads.py", python=python)
    crash, small = minimal(made, tmp_path)
    again = analyze(small)
    assert compared(crash, again) == ""
    assert again.source is not None and again.source.minimal and is_small(made, small)
    assert plain_gdb(made.program, small) == made.backtrace()


@pytest.mark.long
@needs_gdb
@pytest.mark.parametrize("python", some_interpreters("3.8", "3.13"))
@pytest.mark.parametrize("script", ["faults.py", "handling.py", "asyncio_tasks.py"])
def test_other_crashes(script: str, python: Interpreter, tmp_path: Path) -> None:
    arguments = {"faults.py": ("null",)}.get(script, ())
    made = python_crash(script, *arguments, python=python)
    crash, small = minimal(made, tmp_path)
    assert compared(crash, analyze(small)) == ""
    assert is_small(made, small)
    assert plain_gdb(made.program, small) == made.backtrace()


@needs_gdb
@needs_x86_64()
@pytest.mark.slow
@pytest.mark.parametrize("handler", [False, pytest.param(True, marks=pytest.mark.long)], ids=["plain", "faulthandler"])
@pytest.mark.parametrize("kind", ["c_overflow", "c_overflow_thread", "large_frame", "coroutine"])
def test_a_stack_that_overflowed(kind: str, handler: bool, tmp_path: Path) -> None:
    """Its pointer is in the guard, or anywhere below it."""
    program, arguments = CRASHERS / "faults.py", (kind,)
    if kind == "coroutine":
        library = build_library("misused.c", tmp_path, an_interpreter())
        program, arguments = tmp_path / "program.py", ()
        program.write_text(f"import ctypes\nctypes.CDLL({str(library)!r}).coroutine()\n")
    made = python_crash(program, *arguments, python=an_interpreter(), faulthandler=handler)
    # Of the coroutine's guard the kernel writes zeros, which gdb shows as values of variables.
    for options in (Options(gdb=None), *([Options()] if kind != "coroutine" else [])):
        (tmp_path / "minimal").unlink(missing_ok=True)
        crash, small = minimal(made, tmp_path, options)
        assert compared(crash, analyze(small, options=options)) == ""


@pytest.mark.long
@needs_gdb
@pytest.mark.torch
def test_torch(tmp_path: Path) -> None:
    made = python_crash("torch_lstm.py")
    crash, small = minimal(made, tmp_path)
    assert compared(crash, analyze(small)) == ""
    assert small.stat().st_size < min(10_000_000, 0.05 * made.core.stat().st_size)
    assert plain_gdb(made.program, small) == made.backtrace()


@pytest.mark.slow
def test_a_program_without_python(tmp_path: Path) -> None:
    made = c_crash("no_python.c")
    crash, small = minimal(made, tmp_path)
    assert compared(crash, analyze(small)) == ""
    assert plain_gdb(made.program, small) == made.backtrace()


@pytest.mark.slow
@pytest.mark.parametrize("python", every_interpreter())
def test_the_report_without_gdb_is_the_same(python: Interpreter, tmp_path: Path) -> None:
    """PyStack reads the native frames then."""
    made = python_crash("threads.py", python=python)
    options = Options(gdb=None)
    crash, small = minimal(made, tmp_path, options)
    assert all(len(list(thread.natives())) > 3 for thread in crash.threads)
    assert compared(crash, analyze(small, options=options)) == ""


@pytest.mark.slow
@needs_gdb
def test_a_minimal_core_of_a_minimal_core_has_the_same_memory(tmp_path: Path) -> None:
    made = python_crash("threads.py", python=a_debuggable_interpreter())
    crash, small = minimal(made, tmp_path)
    (tmp_path / "again").mkdir()
    again = tmp_path / "again" / "minimal"
    analyze(small, options=Options(minimal=again))
    os.utime(again, ns=(small.stat().st_atime_ns, small.stat().st_mtime_ns))
    assert compared(crash, analyze(again)) == ""
    with opened(small) as one, opened(again) as other:
        assert one.mappings() == other.mappings() and one.left is not None and other.left is not None
        assert one.left.size == other.left.size == made.core.stat().st_size


@pytest.mark.slow
@needs_gdb
def test_missing_memory_is_said_to_be_missing(tmp_path: Path) -> None:
    """Not shown as zeros: whoever reads a variable there must know."""
    made = python_crash("threads.py", python=an_interpreter())
    _, small = minimal(made, tmp_path)
    with opened(made.core) as whole, opened(small) as core:
        gone = next(
            one.start
            for one in whole.segments
            if one.flags & 2 and one.stored and whole.file_at(one.start) is None and not core.read(one.start, 1)
        )
        assert core.mappings() == whole.mappings()
    gdb = shutil.which("gdb")
    assert gdb is not None
    command = [gdb, "-nx", "-batch", "-ex", f"x/1xb {gone}", str(made.program), str(small)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert f"Cannot access memory at address {gone:#x}" in done.stdout + done.stderr


class TestSecrets:
    SCRIPT = """
import ctypes, os, threading

def read(address, password, note):
    wide = "\\u4e2d" + password
    return ctypes.string_at(address), wide

word = "".join(["correct", "horse", "77", "battery"])
phrase = "".join(["open ", "sesame"])
token = "ghp_" + "".join(reversed("a1B2c3D4")) * 4 + "abcd"
lines = "".join("%064x\\n" % (number * 0x9E3779B97F4A7C15) for number in range(1, 20))
key = "-----BEGIN RSA PRIVATE KEY-----\\n" + lines + "-----END RSA PRIVATE KEY-----"

def main():
    secret_key = phrase
    private_key = key
    unnamed = token
    copied = os.environ["APP_PASSWORD"]
    read(16, word, unnamed)

main()
"""
    WORD, PHRASE, ENVIRONMENT = "correcthorse77battery", "open sesame", "k9Xw2mQ7vR4t"
    TOKEN = "ghp_" + "4D3c2B1a" * 4 + "abcd"

    @pytest.mark.long
    @needs_gdb
    @pytest.mark.parametrize("python", some_interpreters("3.8", "3.11", "3.13"))
    def test_none_is_in_the_file(self, python: Interpreter, tmp_path: Path) -> None:
        script = tmp_path / "app.py"
        script.write_text(self.SCRIPT)
        environment = {"APP_PASSWORD": self.ENVIRONMENT}
        made = python_crash(script, python=python, environment=environment)
        crash, small = minimal(made, tmp_path)
        whole, left = made.core.read_bytes(), small.read_bytes()
        lines = ["%064x" % (number * 0x9E3779B97F4A7C15) for number in range(1, 20)]
        for text in (self.WORD, self.PHRASE, self.ENVIRONMENT, self.TOKEN, *lines):
            for code in ("utf-8", "utf-16-le"):
                assert text.encode(code) not in left, text
            assert text.encode() in whole, "it was there"
        again = analyze(small)
        shown = {one.function: one.locals for one in again.thread.pythons()} if again.thread else {}
        assert MASK in shown["main"]["secret_key"] or "\\x00" in shown["main"]["secret_key"]
        # What differs are values that were masked.
        here = json.loads(document(crash))
        for line in differences(here, json.loads(document(again))):
            assert ".locals." in line or "masked" in line or "environment" in line, line


class TestAarch64:
    CORES = Path(__file__).parent.parent / "fixtures" / "aarch64"

    @pytest.mark.slow
    @pytest.mark.parametrize("gdb", ["gdb", None])
    @pytest.mark.parametrize("name", ["plain", "handler"])
    def test_the_report_is_the_same(self, name: str, gdb: str | None, tmp_path: Path) -> None:
        if gdb is not None and shutil.which("gdb-multiarch") is None:
            pytest.skip("no gdb for all processors here (gdb-multiarch)")
        options = Options(exe=self.CORES / "crash", gdb=gdb)
        core = tmp_path / "core"
        core.write_bytes(gzip.decompress((self.CORES / f"{name}.core.gz").read_bytes()))
        crash, small = minimal(Folder(tmp_path, self.CORES / "crash", -11, 1), tmp_path, options)
        assert crash.process is not None and crash.process.architecture == "aarch64"
        assert crash.thread is not None and (gdb is None or len(list(crash.thread.natives())) >= 2)
        # PyStack reads cores of its own processor only, and says what it saw of this one.
        one, other = (
            replace(made, soft_errors=tuple(error for error in made.soft_errors if error.stage != "pystack"))
            for made in (crash, analyze(small, options=options))
        )
        assert compared(one, other) == ""


class TestBundle:
    @pytest.mark.slow
    @needs_gdb
    def test_the_report_of_the_bundle_is_that_of_the_core(self, tmp_path: Path) -> None:
        from crashkit.bundling import bundle

        made = python_crash("threads.py", python=an_interpreter())
        here = analyze(made.core)
        written = bundle([made.core], tmp_path / "x.tar.zst", minimal=True)
        core = next(file for file in written.manifest.files if file.kind == "core")
        assert core.name == f"{EVIDENCE}/core" and core.size <= 0.05 * made.core.stat().st_size
        assert written.manifest.warning == WARNING_MINIMAL
        there = analyze(written.path)
        found = [line for line in differences(json.loads(document(here)), json.loads(document(there))) if "source.archive" not in line]
        assert found == []

    @pytest.mark.slow
    def test_by_the_command(self, tmp_path: Path) -> None:
        from crashkit import isolation

        made = python_crash("threads.py", python=an_interpreter())
        target = tmp_path / "x.tar.zst"
        done = subprocess.run(
            isolation.crashkit("bundle", "--minimal", "-o", str(target), str(made.core)), capture_output=True, text=True, timeout=120
        )
        assert done.returncode == 0 and target.exists() and WARNING_MINIMAL in done.stderr


class TestFormat:
    def test_pages(self) -> None:
        pages = Pages()
        for address, size in ((10, 1), (SIZE - 1, 2), (5 * SIZE, SIZE), (7 * SIZE, 0), (0, 1 << 60), (-5, 3)):
            pages.add(address, size)
        assert list(pages.ranges()) == [(0, 2 * SIZE), (5 * SIZE, 6 * SIZE)]

    def test_the_note_is_read_as_it_was_written(self) -> None:
        left = Left(size=5, missing=1, masked=2, space=(Space(4096, 8192, 6),), loaded=("/a.py",))
        assert decode(encode(left)) == decode(msgspec.json.encode(left)) == left

    @pytest.mark.parametrize(
        "payload",
        [
            encode(Left(loaded=("/a.py",) * 30_000)),
            b"",
            b"{",
            *map(
                zlib.compress,
                (
                    b"{",
                    b"[]",
                    b'{"space":[[1]]}',
                    b'{"space":[[-1,5,1]]}',
                    b'{"space":[[18446744073709551615,2,1]]}',
                    b"\xff",
                    b"[" * 10_000,
                    b" " * (17 << 20) + b"{}",
                ),
            ),
        ],
    )
    def test_a_note_of_somebody_else_says_nothing(self, payload: bytes) -> None:
        assert decode(payload) is None

    @pytest.mark.slow
    @pytest.mark.parametrize("count", [3, PN_XNUM - 2, PN_XNUM + 5])
    def test_as_many_segments_as_there_are(self, count: int, tmp_path: Path) -> None:
        parts = [Part(SIZE * 2 * number, SIZE, 4, b"%d" % number if number in (1, count - 1) else b"") for number in range(count)]
        file = io.BytesIO()
        write_core(file, 62, Word(8, "<"), note("<", NAME, NOTE, encode(Left(size=7))), parts)
        path = tmp_path / "core"
        path.write_bytes(file.getvalue())
        with opened(path) as core:
            assert len(core.segments) == count and core.left is not None and core.left.size == 7
            assert core.read(parts[-1].start, 100) == b"%d" % (count - 1) and core.read(parts[1].start, 1) == b"1"
