"""`crashkit gdb`: real gdb on a real core, as a person would use it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.crashes import a_debuggable_interpreter, an_interpreter, needs_gdb, python_crash
from tests.pseudo_terminal import start

pytestmark = needs_gdb


def crashkit(*arguments: str, **more: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "crashkit", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL, check=False, **more)  # type: ignore[call-overload,no-any-return]


@pytest.mark.slow
def test_native_and_python_commands_work() -> None:
    core = python_crash("values.py", "small", python=a_debuggable_interpreter()).core
    done = crashkit("gdb", str(core), "--command", "py-bt", "-c", "bt 40", "-c", "info sharedlibrary")
    assert done.returncode == 0, done.stderr
    assert ", in decode" in done.stdout and "return ctypes.string_at(buffer)" in done.stdout
    assert "strlen" in done.stdout and "_PyEval_EvalFrameDefault" in done.stdout and "_start" in done.stdout


@pytest.mark.slow
def test_without_debug_info_it_says_so(tmp_path: Path) -> None:
    made = python_crash("values.py", "small", python=an_interpreter())
    done = crashkit("gdb", str(made.core), "--libpython", str(tmp_path / "none.py"), "--exe", "/bin/true", "-c", "print 6 * 7")
    assert "$1 = 42" in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("name", ["", "-folder"])
def test_nothing_beside_the_core_is_run(name: str, tmp_path: Path) -> None:
    made = python_crash("values.py", "small", python=an_interpreter())
    place = tmp_path / f"crash{name}"
    place.mkdir()
    for planted in (".gdbinit", "core-gdb.gdb", "core-gdb.py"):
        (place / planted).write_text(f"shell touch {place}/ran\n")
    (place / "core").symlink_to(made.core)
    done = crashkit("gdb", str(place / "core"), "-c", "print 6 * 7", cwd=place)
    assert "$1 = 42" in done.stdout and not (place / "ran").exists()


def test_without_a_terminal_it_says_what_to_do() -> None:
    done = crashkit("gdb", str(python_crash("values.py", "small", python=an_interpreter()).core))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.splitlines() == ["crashkit: gdb needs a terminal", "Pass its commands: crashkit gdb ID --command bt."]


def test_evidence_without_a_core(tmp_path: Path) -> None:
    log = tmp_path / "err.log"
    log.write_text("Segmentation fault (core dumped)\n")
    done = crashkit("gdb", str(log), "-c", "bt")
    assert done.returncode == 1 and done.stderr.startswith(f"crashkit: there is no core in {log}")


@pytest.mark.slow
def test_on_a_terminal_it_talks() -> None:
    core = python_crash("values.py", "small", python=an_interpreter()).core
    command = [sys.executable, "-m", "crashkit", "gdb", str(core)]
    process, terminal = start(command, environment={**os.environ, "TERM": "dumb"})
    said = b""
    try:
        while b"(gdb)" not in said:
            said += os.read(terminal, 4096)
        os.write(terminal, b"print 6 * 7\n")
        while b"$1 = 42" not in said:
            said += os.read(terminal, 4096)
        os.write(terminal, b"quit\n")
    finally:
        status = process.wait(60)
        os.close(terminal)
    assert status == 0
