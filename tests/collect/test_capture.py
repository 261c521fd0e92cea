"""--capture ptrace: gdb takes the core or the stacks."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from crashkit.pipeline import analyze
from crashkit.report import text
from tests.collect.conftest import SEGFAULT, Crashkit
from tests.crashes import DEADLINE, needs_gdb

pytestmark = needs_gdb

WORKER = f"""
import os, subprocess
subprocess.run(["true"])
pid = os.fork()
if pid == 0:
    {SEGFAULT}
print(os.waitpid(pid, 0)[1] & 127, flush=True)
subprocess.run(["echo", "after"])
os._exit(5)
"""


def _no_cores() -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


@pytest.mark.slow
def test_it_is_chosen_where_nothing_else_can_work_and_takes_the_core_of_a_worker(crashkit: Crashkit) -> None:
    result = crashkit.python(WORKER, preexec_fn=_no_cores)
    assert (result.stdout, result.returncode) == ("11\nafter\n", 5), result.stderr
    assert "hard limit for core files is 0" in result.stderr.splitlines()[0] and "gdb traces" in result.stderr.splitlines()[0]
    (crash,) = crashkit.crashes()
    assert crash["capture"] == "ptrace" and not crash["is_command"]
    core = next(file for file in crash["files"] if file["kind"] == "core")
    # gdb stopped it at the fault itself, so that this core, unlike the kernel's, does not end in faulthandler's handler.
    assert core["size"] >= core["expected"] > 0
    assert crashkit.leftovers() == [] and list(crashkit.cwd.iterdir()) == []


THREADS = f"""
import threading
started = threading.Event()
def waits():
    started.set()
    threading.Event().wait()
threading.Thread(target=waits, daemon=True).start()
started.wait()
{SEGFAULT}
"""


@pytest.mark.slow
def test_the_signal_is_that_of_the_thread_that_died(crashkit: Crashkit) -> None:
    """gdb stops the others with a signal of its own, which its core tells of, too."""
    result = crashkit.python(THREADS, options=("--capture", "ptrace"))
    (crash,) = crashkit.crashes()
    report = json.loads((crash["folder"] / "report.json").read_bytes())
    assert len(report["threads"]) == 2 and (report["signal"]["name"], report["signal"]["reason"]) == ("SIGSEGV", "null-pointer"), (
        result.stderr
    )
    assert "null-deref" in [finding["id"] for finding in report["findings"]]


@pytest.mark.slow
def test_stacks_instead_of_a_core(crashkit: Crashkit) -> None:
    result = crashkit.python(SEGFAULT, options=("--no-analyze", "--capture", "ptrace", "--no-core"))
    assert result.returncode == 139
    (crash,) = crashkit.crashes()
    assert [file["kind"] for file in crash["files"]].count("core") == 0
    text = (crash["folder"] / "gdb.txt").read_text()
    assert "received signal SIGSEGV, Segmentation fault." in text.splitlines()[0]
    assert "\nThread 1 (" in text and "ffi_call" in text and "#1 " in text


@pytest.mark.slow
def test_exit_status_and_a_missing_command(crashkit: Crashkit) -> None:
    assert crashkit.run("sh", "-c", "exit 9", options=("--capture", "ptrace")).returncode == 9
    assert crashkit.run("no-such-command", options=("--capture", "ptrace")).returncode == 127


def test_without_gdb_it_says_so_and_the_command_runs(crashkit: Crashkit) -> None:
    folder = crashkit.cwd / "bin"
    folder.mkdir()
    (folder / "sh").symlink_to("/bin/sh")
    crashkit.environment["PATH"] = str(folder)
    result = crashkit.run("sh", "-c", "echo hi", options=("--capture", "ptrace"))
    assert (result.stdout, result.returncode) == ("hi\n", 0)
    assert "gdb is not installed" in result.stderr


@pytest.mark.slow
def test_a_process_that_gcore_copied_has_not_failed(tmp_path: Path) -> None:
    code = "import threading\nprint(flush=True)\nthreading.Event().wait()"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline() == b"\n"
        subprocess.run(["gcore", "-o", tmp_path / "copy", str(process.pid)], check=True, capture_output=True, timeout=DEADLINE)
        process.kill()
    crash = analyze(tmp_path / f"copy.{process.pid}")
    assert crash.signal is not None and crash.signal.name == "SIGSTOP"
    shown = "\n".join(text.summary(crash, None, False, 200))
    assert "Stopped by a debugger or gcore, not crashed" in shown and "failed in" not in shown
