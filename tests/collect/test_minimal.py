"""`crashkit run` keeps the part of a core that its report needs: where it is asked to, and where there is no space for the whole."""

from __future__ import annotations

import json
import resource
import subprocess
import time
from pathlib import Path

import pytest

from crashkit.cli.run import parse_keep
from crashkit.evidence.core.core import Core
from crashkit.evidence.input import open_input
from tests.collect.conftest import SEGFAULT, Crashkit
from tests.crashes import needs_gdb

THREADS = f"import threading, time\nfor n in range(8): threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()\n{SEGFAULT}"


@needs_gdb
@pytest.mark.slow
@pytest.mark.parametrize("capture", ["core", "auto"])
def test_keep_minimal(crashkit: Crashkit, capture: str) -> None:
    """core: the kernel writes a whole one first. auto: it is taken of the process, and the report is of it."""
    began = time.time()
    done = crashkit.python(THREADS, options=("--capture", capture, "--keep", "minimal", "--keep", "7"))
    assert done.returncode == 139 and "report.html" in done.stderr
    (crash,) = crashkit.crashes()
    folder: Path = crash["folder"]
    core = next(file for file in crash["files"] if file["kind"] == "core")
    report = json.loads((folder / "report.json").read_text())
    assert core["minimal"] and core["size"] == core["expected"] == (folder / "core").stat().st_size
    with open_input(folder / "core") as source, Core(source.file, source.path, source.size) as small:
        assert small.left is not None and core["size"] <= 0.05 * small.left.size
        assert capture == "auto" or report["source"]["size"] == small.left.size
    assert abs((folder / "core").stat().st_mtime - began) < 60, "it is as old as the crash"
    assert (
        crashkit.leftovers() == []
        and sorted(path.name for path in folder.iterdir() if "minimal" in path.name or "reads" in path.name) == []
    )
    again = crashkit("analyze", folder, "--json")
    fresh = json.loads(again.stdout)
    assert fresh["source"]["minimal"] and fresh["threads"] == report["threads"] and fresh["fingerprint"] == report["fingerprint"]


@pytest.mark.slow
def test_a_small_disk_gets_the_minimal_core(crashkit: Crashkit, tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    # 256 MiB stay free whatever happens: on this disk the core, sparse or not, does not fit beside them.
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=262m", "tmpfs", str(small)], capture_output=True).returncode:
        pytest.skip("a small tmpfs cannot be mounted: that needs root")
    try:
        crashkit.home = small / "store"
        crashkit.environment["CRASHKIT_HOME"] = str(crashkit.home)
        fill = "data = bytearray(os.urandom(1 << 20)) * 30\n"
        done = crashkit.python(
            f"import os\n{fill}{SEGFAULT}", options=(), preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CORE, (-1, -1))
        )
        (crash,) = crashkit.crashes()
        core = next(file for file in crash["files"] if file["kind"] == "core")
        assert core["size"] < 2 << 20, done.stderr
        note = next(note for note in crash["notes"] if "was not kept" in note)
        assert "a minimal one was" in note and "it stays at" in note
        report = json.loads((crash["folder"] / "report.json").read_text())
        assert report["source"]["minimal"] and report["signal"]["name"] == "SIGSEGV"
    finally:
        subprocess.run(["umount", str(small)], check=True)


@needs_gdb
@pytest.mark.slow
def test_gdb_takes_the_core_where_a_limit_would_cut_the_kernels(crashkit: Crashkit) -> None:
    done = crashkit.python(SEGFAULT, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CORE, (1 << 20, 1 << 20)))
    assert "truncated at 1048576 bytes" in done.stderr.splitlines()[0] and "gdb traces" in done.stderr.splitlines()[0]
    (crash,) = crashkit.crashes()
    core = next(file for file in crash["files"] if file["kind"] == "core")
    assert core["size"] >= core["expected"] > 1 << 20


@pytest.mark.slow
def test_what_keep_takes(crashkit: Crashkit) -> None:
    assert parse_keep(()) == (50, False) and parse_keep(("minimal",)) == (50, True)
    assert parse_keep(("20", "minimal", "full")) == (20, False)
    for wrong in ("half", "0", "-3", ""):
        done = crashkit("run", "--keep", wrong, "--", "true")
        assert done.returncode == 2 and "is not full, minimal or a number" in done.stderr
    done = crashkit("run", "--keep", "minimal", "--no-analyze", "--", "true")
    assert done.returncode == 2 and "omit --no-analyze" in done.stderr
