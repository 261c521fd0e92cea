"""Any input of 10 MB: less than 10 s of processor time, 500 MB of memory and 20 MB of report, and no traceback."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from tests.hostile_inputs import HOSTILE
from tests.test_patterns import pace

ROOT = Path(__file__).parent.parent
SECONDS, MEMORY, REPORT = 10, 500 << 20, 20 << 20
CUT = ("left out", "cut at", "omitted", "not looked for", "missing", "truncated")
# Nothing of these is worth a word: they are small, or what is there is all in the report.
WHOLE = {"gpu_threads", "wide_sections", "modules_in_memory", "auxiliary_vectors", "manifest_name", "manifest_nesting"}
# Seven seconds or more, and others are like them.
LONG = {
    "gdb_threads",
    "lines_of_beginnings",
    "mapping_paths_in_sysroot",
    "faulthandler_threads",
    "gpu_multiprocessors",
    "overlapping_notes",
    "mapping_paths",
    "docker_nesting",
    "short_threads",
    "filled_headers_of_python",
    "gdb_names",
    "traceback_of_capitals",
    "macos_report_in_pieces",
    "segments",
}


def limited() -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (120, 120))
    resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))


@pytest.fixture(scope="module")
def seconds() -> float:
    return SECONDS * pace()


# A forked process counts the memory of the one that it was forked from as its own, also after exec (ru_maxrss, kernel/fork.c): so a small
# process starts the analysis, not that of the tests.
MEASURED = """
import os, resource, subprocess, sys
done = subprocess.run(sys.argv[2:], stdout=open(sys.argv[1], "wb"), stderr=subprocess.STDOUT)
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(done.returncode, used.ru_utime + used.ru_stime, used.ru_maxrss << 10)
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.long if name in LONG else ()) for name in HOSTILE])
def test_bounds_hold(name, tmp_path, seconds):
    arguments = HOSTILE[name](tmp_path)
    command = [sys.executable, "-m", "crashkit", "analyze", *arguments, "--out", str(tmp_path / "report"), "--no-gdb"]
    measured = [sys.executable, "-c", MEASURED, str(tmp_path / "said"), *map(str, command)]
    done = subprocess.run(measured, stdout=subprocess.PIPE, text=True, cwd=ROOT, preexec_fn=limited, check=True)
    status, processor, memory = done.stdout.split()
    shown = (tmp_path / "said").read_text()
    assert status in ("0", "1"), shown[-2000:]
    assert "Traceback" not in shown and "bug in crashkit" not in shown
    assert float(processor) < seconds
    assert int(memory) < MEMORY
    assert len(shown) < 20_000
    if status == "1":
        assert shown.splitlines()[-2].startswith("crashkit: ")
        return
    documents = list((tmp_path / "report").iterdir())
    assert {file.name for file in documents} == {"report.json", "report.html"}
    assert sum(file.stat().st_size for file in documents) < REPORT
    problems = [error["message"] for error in json.loads((tmp_path / "report" / "report.json").read_bytes()).get("soft_errors", ())]
    assert not [problem for problem in problems if " failed: " in problem]
    assert name in WHOLE or [problem for problem in problems if any(words in problem for words in CUT)]
