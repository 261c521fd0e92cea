"""crashkit doctor, here and in places made worse."""

from __future__ import annotations

import json
import re
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from crashkit.collect.doctor import asan_finding, can_trace, cuda_findings, filter_finding, interpreter_findings
from crashkit.collect.host.program import program_of
from crashkit.crashfolder.store import Store
from crashkit.errors import CollectError
from tests.collect.conftest import Crashkit
from tests.crashes import a_debuggable_interpreter


def _doctor(crashkit: Crashkit, *command: object, **options: object) -> tuple[int, dict[str, dict[str, str]]]:
    result = crashkit("doctor", "--json", *(("--", *command) if command else ()), **options)
    return result.returncode, {finding["check"]: finding for finding in json.loads(result.stdout)}


@pytest.mark.slow
def test_a_host_that_is_ready(crashkit: Crashkit) -> None:
    status, findings = _doctor(crashkit)
    assert {"core limit", "core pattern", "crash store", "gdb", "ptrace", "interpreter", "container"} <= set(findings)
    assert status == (1 if any(finding["state"] == "problem" for finding in findings.values()) else 0)
    assert findings["crash store"]["state"] == "ok"
    text = crashkit("doctor")
    assert re.match(r"ok +core limit: ", text.stdout)


def test_hard_limit_0_no_gdb_and_a_store_that_is_a_file(crashkit: Crashkit, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    crashkit.environment.update(CRASHKIT_HOME=str(tmp_path / "file"), PATH="/no-such-folder")
    status, findings = _doctor(crashkit, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CORE, (0, 0)))
    assert status == 1
    assert "the kernel writes 'core'" in findings["core pattern"]["message"]
    # Without gdb no core can be had; the other two only make a report poorer, or put it elsewhere.
    for check, state in (("core", "problem"), ("gdb", "warning"), ("crash store", "warning")):
        assert findings[check]["state"] == state and findings[check]["mend"], check


@pytest.mark.slow
def test_no_problem_where_run_copes(crashkit: Crashkit, tmp_path: Path) -> None:
    """What doctor says of a store that is a file, and of a limit of 0, is what `crashkit run` does then."""
    (tmp_path / "file").touch()
    crashkit.environment.update(CRASHKIT_HOME=str(tmp_path / "file"), TMPDIR=str(tmp_path))
    limited = {"preexec_fn": lambda: resource.setrlimit(resource.RLIMIT_CORE, (0, 0))}
    status, findings = _doctor(crashkit, **limited)
    ran = crashkit("run", "--no-analyze", "--", sys.executable, "-c", "import os; os.abort()", **limited)
    store, core = findings["crash store"], findings["core"]
    assert (store["state"], core["state"]) == ("warning", "warning" if can_trace() else "problem")
    assert f"crashes below {tmp_path}" in store["message"] and f"crashes go to {tmp_path}/" in ran.stderr
    if can_trace():
        assert status == 0 and "traces the command" in core["message"] and "gdb traces the command" in ran.stderr
        (manifest,) = tmp_path.glob("crashkit-*/*/manifest.json")
        kept = json.loads(manifest.read_text())
        assert {"name", "kind"} <= kept["files"][0].keys()


def test_advice_for_a_store_is_possible(tmp_path: Path) -> None:
    """chmod does not help on a read-only file system."""
    store = tmp_path / "store"
    store.mkdir()
    store.chmod(0o777)
    with pytest.raises(CollectError) as writable:
        Store(store)
    assert "chmod 700" in (writable.value.hint or "")
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "ro,mode=777", "tmpfs", store], capture_output=True).returncode:
        pytest.skip("a tmpfs cannot be mounted: that needs root")
    try:
        with pytest.raises(CollectError) as read_only:
            Store(store)
    finally:
        subprocess.run(["umount", store], check=True)
    assert read_only.value.hint == "Set CRASHKIT_HOME to another folder."


def test_the_interpreter_of_a_command(crashkit: Crashkit) -> None:
    script = crashkit.script("tool", f"#!{sys.executable} -E\n")
    script.chmod(0o755)
    assert program_of((str(script),)) == (Path(sys.executable).resolve(), None)
    script.write_text(f"#!/usr/bin/env -S {sys.executable}\n")
    assert program_of((str(script),)) == (Path(sys.executable).resolve(), None)
    script.write_text(f"#!{script}\n")
    assert program_of((str(script),))[0] is None
    status, findings = _doctor(crashkit, "no-such-command")
    assert status == 1 and "command not found" in findings["command"]["message"] and findings["command"]["mend"]


def test_filter_and_cuda() -> None:
    assert filter_finding(0x33).state == "ok" and filter_finding(0).state == "warning" and filter_finding(None).state == "warning"
    assert [finding.state for finding in cuda_findings({})] == ["warning"]
    on = {"CUDA_ENABLE_COREDUMP_ON_EXCEPTION": "1"}
    assert [finding.state for finding in cuda_findings(on)] == ["ok"]
    assert [finding.state for finding in cuda_findings({**on, "CUDA_COREDUMP_FILE": "core"})] == ["warning"]


def test_a_script_that_others_can_exchange(tmp_path: Path) -> None:
    """/tmp is open to everybody."""
    python = a_debuggable_interpreter().path.resolve()
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / python.name
    shutil.copy(python, program)
    library = next(iter(python.parent.parent.glob(f"lib/lib{python.name}*.so.*")), None)
    if library is not None:
        (tmp_path / "lib").mkdir()
        shutil.copy(library, tmp_path / "lib")
    script = program.with_name(f"{program.name}-gdb.py")
    script.touch()
    (finding,) = interpreter_findings((str(program),))
    assert finding.state == "warning" and finding.message.startswith(f"{script} will not be run")
    assert finding.mend and finding.mend.endswith(f"--libpython {script}")


def test_whether_memory_errors_can_be_found(tmp_path: Path) -> None:
    assert "is not possible" in asan_finding(tmp_path).message and "gcc" in (asan_finding(tmp_path).mend or "")
    library = tmp_path / "lib64/libasan.so.8"
    library.parent.mkdir()
    library.touch()
    assert str(library) in asan_finding(tmp_path).message
