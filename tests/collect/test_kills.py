"""A SIGKILL whose sender nobody knows: of a process below the command, it may be the command's own way to clean up, as Ray does."""

from __future__ import annotations

import pytest

from tests.collect.conftest import Crashkit

KILLS = """
import subprocess, sys
sleeps = [sys.executable, "-c", "print('there', flush=True); import time; time.sleep(1000)"]
child, *others = [subprocess.Popen(sleeps, stdout=subprocess.PIPE) for _ in range({children})]
for one in (child, *others):
    one.stdout.readline()
{look}
for one in (child, *others):
    one.kill()
    one.wait()
{end}
"""
# Until crashkit has found the child: what it does not know leaves no trace.
LOOK = "import os, time\nwhile sum('pidfd' in os.readlink(one) for one in descriptors()) < {children}: time.sleep(0.02)"
DESCRIPTORS = """
def descriptors():
    parent = f"/proc/{os.getppid()}/fd"
    for name in os.listdir(parent):
        if os.path.lexists(f"{parent}/{name}"): yield f"{parent}/{name}"
"""


def program(end: str, children: int) -> str:
    return KILLS.format(look=LOOK.format(children=children), end=end, children=children)


@pytest.mark.parametrize(
    ("end", "reported"),
    [
        ("", 0),
        ("sys.exit(1)", 1),
        # It lives on for longer than it takes to clean up.
        ("sys.stdin.readline()", 1),
    ],
    ids=["ends well", "fails", "lives on"],
)
def test_a_process_that_was_killed(end: str, reported: int, crashkit: Crashkit) -> None:
    code = DESCRIPTORS + program(end=end, children=1)
    script = crashkit.script("kills.py", code)
    process = crashkit.start("run", "--no-analyze", "--", "python3", script, stdin=-1)
    if "stdin" in end:
        assert process.stderr is not None and "died of SIGKILL, sender unknown" in process.stderr.readline()
    process.communicate("\n", timeout=60)
    assert [crash["signal_name"] for crash in crashkit.crashes()] == ["SIGKILL"] * reported


def test_of_several_the_first_may_be_why_it_failed(crashkit: Crashkit) -> None:
    crashkit.run("python3", crashkit.script("kills.py", DESCRIPTORS + program(end="sys.exit(1)", children=3)))
    assert [crash["signal_name"] for crash in crashkit.crashes()] == ["SIGKILL"]


def test_what_follows_from_another_crash_is_not_reported(crashkit: Crashkit) -> None:
    """The command kills the rest once one of its processes has crashed."""
    end = "subprocess.run([sys.executable, '-c', 'import os; os.abort()'])\nsys.exit(1)"
    crashkit.run("python3", crashkit.script("kills.py", DESCRIPTORS + program(end=end, children=1)))
    assert [crash["signal_name"] for crash in crashkit.crashes()] == ["SIGABRT"]
