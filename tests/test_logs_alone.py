"""A text alone, end to end: what it tells is what the report says first."""

from __future__ import annotations

from pathlib import Path

import pytest

from crashkit.pipeline import analyze

KERNEL = "Out of memory: Killed process 4242 (python3) total-vm:9000000kB, anon-rss:8000000kB, file-rss:0kB"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"Nov 20 02:00:00 host kernel: {KERNEL}\nKilled\n", "host-oom-cgroup"),
        ("Killed\n", "killed-by-signal-9-unknown"),
        ("[2026-11-21 01:03:00 +0000] [1] [ERROR] Worker (pid:7) was sent SIGKILL! Perhaps out of memory?\n", "killed-by-signal-9-unknown"),
        ("[2026-11-21 01:03:30 +0000] [1] [CRITICAL] WORKER TIMEOUT (pid:8)\n", "timeout-server-worker"),
    ],
)
def test_the_first_finding(text: str, expected: str, tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    path.write_text(text)
    crash = analyze(path)
    assert [finding.id for finding in crash.findings][:1] == [expected]
