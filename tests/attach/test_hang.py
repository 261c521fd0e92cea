"""`crashkit run --hang-after`: what makes no progress is reported as it stands, and ended or started again if that is wanted."""

from __future__ import annotations

import http.server
import json
import re
import signal
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from crashkit.collect.supervise.hang import HangWatch, Limits
from tests.attach import programs
from tests.collect.conftest import Crashkit


@pytest.fixture
def crashkit(tmp_path: Path) -> Crashkit:
    return Crashkit(tmp_path)


def manifests(crashkit: Crashkit) -> list[dict[str, Any]]:
    return [json.loads(path.read_text()) for path in sorted(crashkit.home.glob("*/manifest.json"))]


@pytest.mark.slow
def test_deadlock_is_reported_and_ended(crashkit: Crashkit) -> None:
    program = crashkit.cwd / "program.py"
    program.write_text(programs.TWO_LOCKS)
    done = crashkit("run", "--hang-after", "1", "--on-hang", "abort", "--", sys.executable, "-I", program)
    assert done.returncode == 128 + signal.SIGTERM
    assert "the command hangs: no output and no progress for 1 s" in done.stderr
    assert re.search(r"was examined: no output and no progress for 1 s: .* waits in \w+ \(program\.py:\d+\) for the lock", done.stderr)
    (manifest,) = manifests(crashkit)
    assert manifest["alive"] == "no output and no progress for 1 s" and "signal" not in manifest
    listed = crashkit("list").stdout
    assert " alive " in listed and (place := re.search(r"\w+ \(program\.py:\d+\)", listed)) is not None
    report = json.loads(next(crashkit.home.glob("*/report.json")).read_text())
    assert [finding["id"] for finding in report["findings"]] == ["deadlock-locks"]
    assert sum(wait.get("cycle", False) for wait in report["waits"]) == 2
    assert {thread["activity"] for thread in report["threads"]} == {"blocked"}
    # The thread whose wait is told is the one whose line is shown.
    batch = crashkit("ci", "--out", "index", crashkit.home).stdout
    assert re.search(rf"^1 x -  {re.escape(place[0].partition(' ')[0])} \(\S*{re.escape(place[0].partition('(')[2])}$", batch, re.MULTILINE)


@pytest.mark.slow
def test_reported_only_once_and_left_alone(crashkit: Crashkit) -> None:
    """It goes on by itself, and ends as it would have."""
    code = "import sys; print('asleep', flush=True); sys.stdin.readline(); sys.exit(7)"
    process = crashkit.start("run", "--no-analyze", "--hang-after", "0.5", "--", sys.executable, "-c", code, stdin=-1)
    said = [process.stderr.readline()]
    while "was examined" not in said[-1]:
        said.append(process.stderr.readline())
        assert said[-1], said
    process.stdin.write("\n")
    process.stdin.close()
    assert process.wait(60) == 7
    assert sum("the command hangs" in line for line in said) == 1
    assert len(manifests(crashkit)) == 1


@pytest.mark.slow
def test_restarted(crashkit: Crashkit) -> None:
    """The second time it does not hang."""
    code = "import os, sys, signal\nif os.path.exists('once'): sys.exit(5)\nopen('once', 'w').close()\nsignal.pause()"
    options = ("--no-analyze", "--hang-after", "0.5", "--on-hang", "restart", "--restart-delay", "0")
    done = crashkit("run", *options, "--", sys.executable, "-c", code)
    assert done.returncode == 5, done.stderr
    assert "ending and restarting the command" in done.stderr and len(manifests(crashkit)) == 1


@pytest.mark.long
def test_one_that_ignores_sigterm_is_killed(crashkit: Crashkit, monkeypatch: pytest.MonkeyPatch) -> None:
    code = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); signal.pause(); signal.pause()"
    done = crashkit("run", "--no-analyze", "--hang-after", "0.5", "--on-hang", "abort", "--", sys.executable, "-c", code)
    assert done.returncode == 128 + signal.SIGKILL
    assert len(manifests(crashkit)) == 1, "that we ended it is no crash"


@pytest.mark.parametrize(
    "options", [("--on-hang", "abort"), ("--heartbeat", "x"), ("--hang-after", "1", "--heartbeat", "x", "--health", "http://x")]
)
def test_usage(crashkit: Crashkit, options: tuple[str, ...]) -> None:
    assert crashkit("run", *options, "--", "true").returncode == 2


class Clock:
    """Time as the watch sees it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr("crashkit.collect.supervise.hang.time.monotonic", lambda: self.now)
        monkeypatch.setattr("crashkit.collect.supervise.hang.time.time", lambda: self.now)

    def look(self, watch: HangWatch, pids: list[int]) -> str | None:
        self.now += watch.interval
        return watch.look(pids)


def test_heartbeat_alone_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    clock = Clock(monkeypatch)
    beat = tmp_path / "beat"
    watch = HangWatch(Limits(10, heartbeat=str(beat)))
    told = []
    for turn in range(40):
        if turn < 20:
            beat.touch()
            os.utime(beat, (clock.now, clock.now))
        told.append(clock.look(watch, []))
    (when,) = [turn for turn, why in enumerate(told) if why]
    assert 28 <= when <= 39 and "was not touched for 10 s" in (told[when] or "")


def test_health_alone_counts() -> None:
    status = [200]

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status[0])
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    from crashkit.collect.supervise.hang import answers

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}/health"
        assert answers(address)
        status[0] = 503
        assert not answers(address)
        server.shutdown()
    assert not answers(address)


PARENT = """
import subprocess, sys, threading
waiting = "import queue; print('ready', flush=True); queue.Queue().get()"
other = subprocess.Popen([sys.executable, "-c", waiting], stdout=subprocess.PIPE)
other.stdout.readline()
failed = subprocess.run([sys.executable, "-c", sys.argv[1]])
sys.stdin.readline()
other.terminate()
sys.exit(3)
"""


@pytest.mark.slow
@pytest.mark.parametrize("options", [(), ("--no-siblings",)])
@pytest.mark.parametrize(("failure", "how"), [("import ctypes; ctypes.string_at(0)", "died of SIGSEGV"), ("raise SystemExit(9)", "")])
def test_siblings_of_a_process_that_fails(crashkit: Crashkit, failure: str, how: str, options: tuple[str, ...]) -> None:
    """They are in the folder of its crash. What follows from an exit status, only the parent knows."""
    process = crashkit.start("run", "--no-analyze", *options, "--", sys.executable, "-c", PARENT, failure, stdin=-1)
    said: list[str] = []
    while how and not any("evidence in" in line for line in said):
        said.append(process.stderr.readline())
        assert said[-1], said
    process.stdin.close()
    assert process.wait(60) == 3
    found = manifests(crashkit)
    assert [manifest.get("signal_name") for manifest in found] == (["SIGSEGV"] if how else [])
    looked_at = [json.loads(path.read_text()) for path in sorted(crashkit.home.glob("*/others/*/manifest.json"))]
    assert len(looked_at) == (2 if how and not options else 0)
    assert all(manifest["alive"].startswith(f"it was alive when process {found[0]['pid']} died") for manifest in looked_at)
    assert all(file["kind"] in ("core", "log") for manifest in looked_at for file in manifest["files"]) and not any(
        "problem" in manifest.get("live", {}) for manifest in looked_at
    )
