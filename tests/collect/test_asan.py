"""`crashkit run --asan`: errors that corrupt memory silently, found at the line that makes them, in programs that nobody rebuilt."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest

from crashkit.collect.host import asan
from crashkit.collect.run import Request, evidence_variables
from crashkit.errors import CollectError
from tests.collect.conftest import SEGFAULT, Crashkit

PROGRAM = """
import ctypes, sys
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
libc.free.argtypes = [ctypes.c_void_p]

def overflow():
    block = libc.malloc(24)
    ctypes.memset(block, 65, 40)

def freed():
    block = libc.malloc(24)
    libc.free(block)
    return ctypes.string_at(block, 8)

def twice():
    block = libc.malloc(24)
    libc.free(block)
    libc.free(block)

globals()[sys.argv[1]]()
print("no error was noticed")
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("error", "line", "problem", "fix"),
    [
        ("overflow", 9, "heap-buffer-overflow (write of 40 bytes)", "{}: the address is right after a block of 24 bytes"),
        ("freed", 14, "heap-use-after-free (read of 8 bytes)", "{}: the address is at the start of a freed block of 24 bytes"),
        ("twice", 19, "double-free", "{} frees a block that was freed before"),
    ],
)  # fmt: skip
def test_the_line_that_damages_memory(crashkit: Crashkit, tmp_path: Path, error: str, line: int, problem: str, fix: str) -> None:
    program = tmp_path / "damage.py"
    program.write_text(PROGRAM)
    if error != "twice":  # which the C library notices itself
        assert "no error was noticed" in crashkit("run", "--", sys.executable, program, error).stdout
    result = crashkit("run", "--asan", "--", sys.executable, program, error)
    assert result.returncode == 134 and "no error was noticed" not in result.stdout, result.stderr
    *_, report = sorted(crashkit.home.glob("*/report.json"))  # the first run may fail as it ends, too
    finding = json.loads(report.read_bytes())["findings"][0]
    assert finding["id"] == "asan-report" and f"AddressSanitizer: {problem}" in finding["summary"], finding
    assert "allocated it" not in finding["summary"]  # Python did, of which the sanitizer has no line
    assert fix.format(f"{program}:{line} in {error}") in finding["fix"][0]
    assert "  Array cookie" not in report.read_text()  # the sanitizer's legend is not what the process said last


@pytest.mark.slow
def test_a_fault_and_an_exception_end_as_ever(crashkit: Crashkit, tmp_path: Path) -> None:
    """A fault is the kernel's to tell, and a C++ exception of a library that was loaded later is no error."""
    assert crashkit("run", "--asan", "--no-analyze", "--", sys.executable, "-c", SEGFAULT).returncode == 139
    (tmp_path / "thrown.cpp").write_text('extern "C" int thrown() { try { throw 1; } catch (int value) { return value; } }')
    subprocess.run(["g++", "-shared", "-fPIC", "-o", tmp_path / "thrown.so", tmp_path / "thrown.cpp"], check=True)
    code = f"import ctypes; print('caught', ctypes.CDLL({str(tmp_path / 'thrown.so')!r}).thrown())"
    result = crashkit("run", "--asan", "--no-analyze", "--", sys.executable, "-c", code)
    assert (result.returncode, result.stdout) == (0, "caught 1\n"), result.stderr


def test_the_newest_library_is_taken(tmp_path: Path) -> None:
    with pytest.raises(CollectError, match="is not installed"):
        asan.library(tmp_path)
    folder = tmp_path / "usr/lib/x86_64-linux-gnu"
    folder.mkdir(parents=True)
    for name in ("libasan.so.6", "libasan.so.10", "libasan.so.10.0.0", "libasan.so.8", "libtsan.so.12"):
        (folder / name).touch()
    assert asan.library(tmp_path) == folder / "libasan.so.10"


def test_what_the_user_set_stays() -> None:
    request, path = Request(("python",)), Path("/usr/lib/libasan.so.8")
    preload = asan.Preload(path, None)
    added = evidence_variables({"LD_PRELOAD": "mine.so", "ASAN_OPTIONS": "detect_leaks=1", "PYTHONMALLOC": "debug"}, request, None, preload)
    assert (
        added["LD_PRELOAD"] == f"{path} libstdc++.so.6 mine.so"
        and added["ASAN_OPTIONS"].endswith(":detect_leaks=1")
        and added["PYTHONMALLOC"] == "debug"
    )
    assert evidence_variables({}, request, None, preload)["PYTHONMALLOC"] == "malloc"
    assert "LD_PRELOAD" not in evidence_variables({}, request)


@pytest.mark.parametrize(
    ("program", "allocator"), [("python3.13t", "default"), ("python3.14td", "default"), ("python3.13", "malloc"), (None, "malloc")]
)
def test_a_free_threaded_interpreter_keeps_its_allocator(program: str | None, allocator: str) -> None:
    interpreter = Path("/opt", program) if program else None
    assert asan.Preload(Path("libasan.so.8"), interpreter).variables({})["PYTHONMALLOC"] == allocator


@pytest.mark.slow
def test_a_program_of_musl_is_refused(tmp_path: Path) -> None:
    (tmp_path / "main.c").write_text("int main(void) { return 0; }")
    for loader in ("/lib/ld-musl-x86_64.so.1", "/lib64/ld-linux-x86-64.so.2"):
        subprocess.run(["gcc", f"-Wl,--dynamic-linker={loader}", "-o", tmp_path / "main", tmp_path / "main.c"], check=True)
        with pytest.raises(CollectError, match="musl") if "musl" in loader else nullcontext():
            asan.preload(tmp_path / "main")
    asan.preload(tmp_path / "main.c")
    asan.preload(None)
