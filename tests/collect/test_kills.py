"""A SIGKILL whose sender nobody knows: of a process below the command, it may be the command's own way to clean up, as Ray does."""

from __future__ import annotations

import os
from typing import Optional

import pytest

from crashkit.collect.host.snapshot import Stat
from crashkit.collect.supervise.supervisor import _has_ended_or_could_not
from tests.collect.conftest import Crashkit
from tests.collect.watched import WATCHED

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
LOOK = "import os, time\nwhile watched() < {children}: time.sleep(0.02)"


def program(end: str, children: int) -> str:
    return KILLS.format(look=LOOK.format(children=children), end=end, children=children)


@pytest.mark.slow
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
    code = WATCHED + program(end=end, children=1)
    script = crashkit.script("kills.py", code)
    process = crashkit.start("run", "--no-analyze", "--", "python3", script, stdin=-1)
    if "stdin" in end:
        assert process.stderr is not None and "died of SIGKILL, sender unknown" in process.stderr.readline()
    process.communicate("\n", timeout=60)
    assert [crash["signal_name"] for crash in crashkit.crashes()] == ["SIGKILL"] * reported


@pytest.mark.slow
def test_of_several_the_first_may_be_why_it_failed(crashkit: Crashkit) -> None:
    crashkit.run("python3", crashkit.script("kills.py", WATCHED + program(end="sys.exit(1)", children=3)))
    assert [crash["signal_name"] for crash in crashkit.crashes()] == ["SIGKILL"]


@pytest.mark.slow
def test_what_follows_from_another_crash_is_not_reported(crashkit: Crashkit) -> None:
    """The command kills the rest once one of its processes has crashed."""
    end = "subprocess.run([sys.executable, '-c', 'import os; os.abort()'])\nsys.exit(1)"
    crashkit.run("python3", crashkit.script("kills.py", WATCHED + program(end=end, children=1)))
    assert [crash["signal_name"] for crash in crashkit.crashes()] == ["SIGABRT"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("end", "blamed"),
    [
        ("raise ValueError('bad sample')", None),
        ("raise RuntimeError('a worker died unexpectedly')", 0),
        ("raise RuntimeError(f'worker died (pid {others[-1].pid})')", 2),
        # Another process than these is meant, which crashkit did not see.
        ("raise RuntimeError('The actor died unexpectedly.\\n\\tpid: 1')", None),
        ("sys.stderr.write('gave up\\n'); sys.exit(1)", 0),
    ],
    ids=["an exception", "a death", "whose death", "another's death", "no exception"],
)
def test_helpers_that_are_killed_because_of_an_exception(end: str, blamed: Optional[int], crashkit: Crashkit) -> None:
    """As Ray kills its agents when an actor's exception ends the driver."""
    code = program(end=f"print(*(one.pid for one in (child, *others)), flush=True)\n{end}", children=3)
    done = crashkit.run("python3", crashkit.script("kills.py", WATCHED + code), options=("--no-analyze", "--on-exit", "never"))
    pids = [int(word) for word in done.stdout.split()]
    assert done.returncode == 1 and len(pids) == 3
    assert [crash["pid"] for crash in crashkit.crashes()] == ([] if blamed is None else [pids[blamed]])


FRAMEWORK = """
import subprocess, sys
helper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"], stdout=subprocess.DEVNULL)
print(flush=True)
sys.stdin.readline()
helper.kill()
helper.wait()
"""
SLOW_END = """
import os, subprocess, sys, time
framework = subprocess.Popen([sys.executable, "framework.py"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
framework.stdout.readline()
own = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"])
while watched() < 3: time.sleep(0.02)
framework.communicate(b"\\n")
own.kill()
print(own.pid, flush=True)
sys.stdin.readline()
"""


@pytest.mark.slow
def test_helpers_of_a_framework_that_ends_before_the_command(crashkit: Crashkit) -> None:
    """The command takes its time to end: who was killed by somebody that lives on is reported by then, and who was cleaned up is not."""
    crashkit.script("framework.py", FRAMEWORK)
    script = crashkit.script("slow.py", WATCHED + SLOW_END)
    process = crashkit.start("run", "--no-analyze", "--", "python3", script, stdin=-1)
    assert process.stdout is not None and process.stderr is not None
    pid = process.stdout.readline().strip()
    assert f"[{pid}] died of SIGKILL" in process.stderr.readline()
    process.communicate("\n", timeout=60)
    assert [str(crash["pid"]) for crash in crashkit.crashes()] == [pid]


STOPS = """
import os, signal, subprocess, sys
helper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"], stdout=subprocess.DEVNULL)
print(flush=True)
sys.stdin.readline()
helper.kill()
helper.wait()
print(flush=True)
os.kill(os.getpid(), signal.SIGSTOP)
"""
WHILE_STOPPED = """
import os, signal, subprocess, sys, time
framework = subprocess.Popen([sys.executable, "framework.py"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
framework.stdout.readline()
own = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"])
while watched() < 3: time.sleep(0.02)
framework.stdin.write(b"\\n"); framework.stdin.flush()
framework.stdout.readline()
os.waitid(os.P_PID, framework.pid, os.WSTOPPED | os.WNOWAIT)
own.kill()
print(own.pid, flush=True)
sys.stdin.readline()
framework.send_signal(signal.SIGCONT)
framework.wait()
"""


@pytest.mark.slow
def test_a_framework_that_had_no_time_to_end(crashkit: Crashkit) -> None:
    """As on a machine that is busy with something else: it was stopped before it could end."""
    crashkit.script("framework.py", STOPS)
    process = crashkit.start("run", "--no-analyze", "--", "python3", crashkit.script("slow.py", WATCHED + WHILE_STOPPED), stdin=-1)
    assert process.stdout is not None and process.stderr is not None
    pid = process.stdout.readline().strip()
    assert f"[{pid}] died of SIGKILL" in process.stderr.readline()
    process.communicate("\n", timeout=60)
    assert [str(crash["pid"]) for crash in crashkit.crashes()] == [pid]


@pytest.mark.parametrize(
    ("state", "ran", "may"),
    [("S", 0.0, False), ("R", 0.1, True), ("R", 1.9, True), ("R", 2.1, False), ("D", 0.1, True), ("T", 9.0, True), ("Z", 9.0, True)],
)
def test_who_may_still_end(state: str, ran: float, may: bool) -> None:
    """Who waits lives on; so does who had the processor for as long as it takes to clean up."""
    before = Stat("python3", "R", 1, 1, 1, 1, 0, ticks=500)
    now = before._replace(state=state, ticks=500 + round(ran * os.sysconf("SC_CLK_TCK")))
    assert _has_ended_or_could_not(before, now) == may
    assert _has_ended_or_could_not(before, None) and _has_ended_or_could_not(None, now._replace(state="R"))


AFTER_A_CRASH = """
import os, subprocess, sys, time
sleeps = [sys.executable, "-c", "import time; time.sleep(1000)"]
first, helper = [subprocess.Popen(sleeps) for _ in range(2)]
while watched() < 2: time.sleep(0.02)
first.kill()
print(first.pid, flush=True)
sys.stdin.readline()
helper.kill()
sys.exit(subprocess.call([sys.executable, "-c", "import time; time.sleep(4)"]) or 1)
"""


@pytest.mark.slow
def test_what_is_killed_after_a_crash_follows_from_it(crashkit: Crashkit) -> None:
    """As Ray's driver kills its raylet because an actor was killed, and takes longer to end than to clean up."""
    process = crashkit.start("run", "--no-analyze", "--", "python3", crashkit.script("after.py", WATCHED + AFTER_A_CRASH), stdin=-1)
    assert process.stdout is not None and process.stderr is not None
    pid = process.stdout.readline().strip()
    assert f"[{pid}] died of SIGKILL" in process.stderr.readline()
    process.communicate("\n", timeout=60)
    assert [str(crash["pid"]) for crash in crashkit.crashes()] == [pid]


SERVER = """
import subprocess, sys
worker = subprocess.Popen([sys.executable, "-c", "print('there', flush=True); import time; time.sleep(1000)"], stdout=subprocess.PIPE)
worker.stdout.readline()
{look}
print(f"Fri Nov 27 19:02:36 2026 - *** HARAKIRI ON WORKER 1 (pid: {{worker.pid}}, try: 1, graceful: yes) ***", file=sys.stderr, flush=True)
worker.kill()
worker.wait()
print(f"DAMN ! worker 1 (pid: {{worker.pid}}) died, killed by signal 9 :( trying respawn ...", file=sys.stderr, flush=True)
sys.exit(1)
"""


@pytest.mark.slow
def test_a_server_that_says_whom_it_kills_is_no_unknown_sender(crashkit: Crashkit) -> None:
    """uWSGI's own lines: the one on the terminal says what the report does."""
    done = crashkit("run", "--", "python3", crashkit.script("server.py", WATCHED + SERVER.format(look=LOOK.format(children=1))))
    (told,) = [line for line in done.stderr.splitlines() if "died of SIGKILL" in line]
    assert "sender unknown" not in told and "(The server gave up on a worker that did not answer (worker timeout))" in told
