"""The HTML report comes from another process, or from this one where that fails: the same document either way."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from crashkit.model import Crash, LogLine
from crashkit.report.beside import Beside
from crashkit.report.renderer import renderer
from tests.crashes import python_crash
from tests.report import samples

CRASH = samples.flask_lstm()


def as_json(crash: Crash) -> bytes:
    return renderer("json").render(crash)


def ended(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


@pytest.mark.parametrize("rehearsed", [False, True])
def test_it_renders_what_would_be_rendered_here(rehearsed: bool) -> None:
    with Beside("html") as page:
        if rehearsed:
            page.rehearse(as_json(replace(CRASH, findings=())))
        page.begin(as_json(CRASH))
        assert page.result() == renderer("html").render(CRASH)


def test_documents_larger_than_a_pipe() -> None:
    large = replace(CRASH, log=tuple(LogLine(text=f"{number} {'x' * 2000}") for number in range(2000)))
    with Beside("html") as page:
        page.rehearse(as_json(large))
        page.begin(as_json(large))
        assert page.result() == renderer("html").render(large)


@pytest.mark.parametrize("document", [b"", b"{}", b"\xff" * 100_000])
def test_what_it_cannot_render_is_told_by_no_result(document: bytes) -> None:
    with Beside("html") as page:
        page.begin(document)
        assert page.result() is None


def test_without_it_there_is_no_result() -> None:
    with Beside("html") as page:
        os.kill(page.pid, signal.SIGKILL)
        os.waitid(os.P_PID, page.pid, os.WEXITED | os.WNOWAIT)
        page.rehearse(as_json(CRASH))
        page.begin(as_json(CRASH))
        assert page.result() is None


def test_nothing_of_it_is_left() -> None:
    with Beside("html") as page:
        page.begin(as_json(CRASH))
    assert ended(page.pid)


def test_it_ends_with_its_parent() -> None:
    """Also where that is killed: it waits at a pipe of which it keeps no other end."""
    program = "import os, signal\nfrom crashkit.report.beside import Beside\npage = Beside('html')\nos.kill(os.getpid(), signal.SIGKILL)\n"
    # The pipe of stdout is closed by whoever is the last to end.
    done = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, timeout=60)
    assert done.returncode == -signal.SIGKILL


@pytest.mark.slow
@pytest.mark.parametrize("hinder", ["", "os.fork = None", "Beside.result = lambda self: None", "os.sched_getaffinity = lambda pid: {0}"])
def test_the_command_writes_the_same_report(hinder: str, tmp_path: Path) -> None:
    core = python_crash("threads.py").core
    program = (
        f"import os, sys\nfrom crashkit.report.beside import Beside\nrender = Beside.result\n{hinder}\n"
        "Beside.begin_really = Beside.begin\n"
        "Beside.begin = lambda self, document: (print('beside', file=sys.stderr), self.begin_really(document))\n"
        "from crashkit.cli import main\nmain()\n"
    ).replace("os.fork = None", "def no(): raise BlockingIOError\nos.fork = no")
    folder = tmp_path / "report"
    done = subprocess.run(
        [sys.executable, "-c", program, "analyze", core, "--out", folder, "--quiet"], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0 and ("beside" in done.stderr) == (hinder in ("", "Beside.result = lambda self: None"))
    from crashkit.report import json

    crash = json.decode((folder / "report.json").read_bytes())
    assert (folder / "report.html").read_bytes() == renderer("html").render(crash)
