"""The command runs as it would without us: status, streams, environment, signals, terminal."""

from __future__ import annotations

import json
import os
import re
import resource
import select
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.collect.conftest import DEADLINE, Crashkit

SELF = """
import json, os, resource, signal, sys
json.dump({
    "cwd": os.getcwd(), "environment": dict(os.environ), "stdin": sys.stdin.read(), "argv": sys.argv,
    "group": os.getpgrp() == os.getpgid(os.getppid()), "session": os.getsid(0), "descriptors": sorted(os.listdir("/proc/self/fd")),
    "ignored": [n for n in (1, 2, 3, 10, 13, 15, 25) if signal.getsignal(n) == signal.SIG_IGN],
    "status": {line.split(":")[0]: line.split()[1] for line in open("/proc/self/status") if line[:6] in ("SigBlk", "SigIgn")},
    "limits": [resource.getrlimit(n) for n in range(10) if n != resource.RLIMIT_CORE], "umask": os.umask(0), "nice": os.nice(0),
}, sys.stdout)
"""


def test_everything_but_the_evidence_variables_is_as_without_us(crashkit: Crashkit) -> None:
    script = crashkit.script("self.py", SELF)
    bare = subprocess.run(
        [sys.executable, script, "a b"],
        cwd=crashkit.cwd,
        env=crashkit.environment,
        input="in\n",
        capture_output=True,
        text=True,
        check=True,
    )
    process = crashkit.start("run", "--", sys.executable, script, "a b", stdin=subprocess.PIPE, start_new_session=False)
    out, err = process.communicate("in\n", timeout=DEADLINE)
    expected, got = json.loads(bare.stdout), json.loads(out)
    added = {"PYTHONFAULTHANDLER": "1", "UWSGI_USE_ABORT": "1"}
    assert got["environment"] == {**expected.pop("environment"), **added}
    got.pop("environment")
    assert got == expected
    assert (err, process.returncode) == ("", 0)


@pytest.mark.parametrize("command", ["exit 0", "exit 7", "exit 255"])
def test_exit_status_is_the_commands(crashkit: Crashkit, command: str) -> None:
    assert crashkit.run("sh", "-c", command).returncode == int(command.split()[1])


def test_a_command_that_does_not_exist_and_one_that_cannot_run(crashkit: Crashkit) -> None:
    missing = crashkit.run("no-such-command")
    assert missing.returncode == 127
    assert missing.stderr == "crashkit: cannot run 'no-such-command': No such file or directory\ncrashkit: Check its name, and PATH.\n"
    quoted = crashkit.run("python3 train.py " + "--option " * 40)
    assert quoted.returncode == 126 and "Pass the words without quotes: crashkit run -- python3 train.py" in quoted.stderr
    plain = crashkit.script("plain.txt", "text")
    refused = crashkit.run(plain)
    assert refused.returncode == 126
    assert "Permission denied" in refused.stderr
    assert crashkit.crashes() == [] and crashkit.leftovers() == []


@pytest.mark.parametrize(
    ("command", "text", "mode", "status", "hint"),
    [
        ("./app.py", "print(1)", 0o644, 126, "Pass its interpreter, too: crashkit run -- python3 ./app.py"),
        ("app.py", "print(1)", 0o644, 127, "Pass its interpreter, too: crashkit run -- python3 app.py"),
        ("./start.sh", "#!/bin/sh\n", 0o644, 126, "It is not executable: chmod +x ./start.sh"),
        ("start.sh", "#!/bin/sh\n", 0o755, 127, "The file is there, but it is not in PATH: crashkit run -- ./start.sh"),
        ("./start.sh", "#!/no/such/shell\n", 0o755, 127, "The file is there, but the interpreter in its first line is not."),
        (
            "./start",
            "text",
            0o755,
            126,
            "It is no program of this machine, and its first line names no interpreter (#!).",
        ),
        ("python3 app.py", "", 0o644, 127, "Pass the words without quotes: crashkit run -- python3 app.py"),
        (".", "", 0o644, 126, "It is a folder: pass a program."),
    ],
)
def test_what_cannot_run_is_told_what_to_type_instead(
    crashkit: Crashkit, command: str, text: str, mode: int, status: int, hint: str
) -> None:
    file = crashkit.cwd / Path(command).name
    if text:
        file.write_text(text)
        file.chmod(mode)
    refused = crashkit("run", "--no-analyze", "--", command)
    assert (refused.returncode, refused.stderr.splitlines()[1:]) == (status, [f"crashkit: {hint}"])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT", "SIGHUP", "SIGUSR1", "SIGALRM", "SIGRTMIN"])
def test_a_signal_to_us_goes_to_the_command_which_is_no_crash(crashkit: Crashkit, name: str) -> None:
    number = getattr(signal, name)
    process = crashkit.start("run", "--", "sh", "-c", "echo ready; exec sleep 1000")
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(number)
    assert process.wait(DEADLINE) == 128 + number
    assert crashkit.crashes() == []


COUNTER = """
import os, signal, sys
seen = []
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, lambda n, f: seen.append(n))
signal.signal(signal.SIGUSR1, lambda n, f: (print(*map(int, seen), flush=True), os._exit(0)))
print("ready", os.getpid(), flush=True)
while True:
    signal.pause()
"""


def test_a_signal_to_the_whole_group_reaches_the_command_once(crashkit: Crashkit) -> None:
    process = crashkit.start("run", "--", sys.executable, "-c", COUNTER)
    assert process.stdout is not None
    pid = int(process.stdout.readline().split()[1])
    os.killpg(process.pid, signal.SIGINT)
    _wait_for_caught(process.pid)
    os.killpg(process.pid, signal.SIGHUP)
    _wait_for_caught(process.pid)
    process.send_signal(signal.SIGTERM)
    _wait_for_caught(process.pid)
    # From the command's side: what we passed on by now is all that we ever pass on, since signals are taken in order.
    process.send_signal(signal.SIGUSR1)
    assert process.stdout.readline().split() == ["2", "1", "15"], pid
    assert process.wait(DEADLINE) == 0


def _wait_for_caught(supervisor: int) -> None:
    """Until the supervisor has taken what was sent to it: nothing is pending there."""
    deadline = time.monotonic() + DEADLINE
    while time.monotonic() < deadline:
        status = Path(f"/proc/{supervisor}/status").read_text()
        stat = Path(f"/proc/{supervisor}/stat").read_text().rpartition(")")[2].split()[0]
        pending = re.search(r"ShdPnd:\s*(\w+)", status)
        if pending is not None and int(pending.group(1), 16) == 0 and stat == "S" and "poll" in _syscall(supervisor):
            return
        time.sleep(0.005)
    raise AssertionError("the supervisor did not take its signals")


def _syscall(pid: int) -> str:
    number = Path(f"/proc/{pid}/syscall").read_text().split()[0]
    return "poll" if number in ("7", "271", "73") else number


def test_sigkill_takes_the_command_along(crashkit: Crashkit) -> None:
    process = crashkit.start("run", "--", "sh", "-c", "echo $$; exec sleep 1000")
    assert process.stdout is not None
    pid = int(process.stdout.readline())
    pidfd = os.pidfd_open(pid)
    process.kill()
    assert select.select([pidfd], [], [], DEADLINE)[0], "the command outlived us"
    os.close(pidfd)


def test_stop_and_continue(crashkit: Crashkit) -> None:
    process = crashkit.start("run", "--", "sh", "-c", "echo $$; exec sleep 1000")
    assert process.stdout is not None
    pid = int(process.stdout.readline())
    process.send_signal(signal.SIGTSTP)
    # Not stopped by itself, but after the command: that is what a shell waits for. (An orphaned group ignores SIGTSTP: SIGSTOP shows it.)
    os.kill(pid, signal.SIGSTOP)
    stopped = os.waitid(os.P_PID, process.pid, os.WSTOPPED)
    assert stopped is not None and stopped.si_status in (signal.SIGSTOP, signal.SIGTSTP)
    assert _state(pid) == "T"
    process.send_signal(signal.SIGCONT)
    os.waitid(os.P_PID, process.pid, os.WCONTINUED)
    _wait_for(lambda: _state(pid) == "S")
    process.terminate()
    assert process.wait(DEADLINE) == 128 + signal.SIGTERM


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def _wait_for(condition, what: str = "") -> None:  # type: ignore[no-untyped-def]
    deadline = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.01)


def test_streams_end_when_the_command_closes_them(crashkit: Crashkit) -> None:
    """Nobody of ours holds the command's output open, or its input."""
    code = "import os, time; os.write(1, b'out'); os.close(1); os.write(2, b'err'); os.close(2); os.read(0, 1); os._exit(0)"
    process = crashkit.start("run", "--", sys.executable, "-c", code, stdin=subprocess.PIPE, text=False)
    assert process.stdin is not None and process.stdout is not None
    assert process.stdout.read() == b"out"  # returns only at the end of the stream
    process.stdin.write(b".")
    process.stdin.close()
    assert process.wait(DEADLINE) == 0


def test_a_daemon_that_outlives_the_command_keeps_its_stderr(crashkit: Crashkit) -> None:
    code = """
import os, sys
if os.fork() == 0:
    os.setsid()
    os.close(1)
    sys.stdin.read()          # until the test closes it, long after the command has ended
    os.write(2, b"still here")
    os._exit(0)
os._exit(3)
"""
    process = crashkit.start("run", "--", sys.executable, "-c", code, stdin=subprocess.PIPE, text=False)
    assert process.stdin is not None and process.stderr is not None
    assert process.wait(DEADLINE) == 3
    process.stdin.close()
    told, said = process.stderr.read().splitlines()
    assert b"still runs" in told and said == b"still here"


@pytest.mark.slow
def test_a_reader_that_goes_away_is_noticed_as_without_us(crashkit: Crashkit) -> None:
    command = [sys.executable, "-c", "import os\nwhile True: os.write(2, b'x' * 4096)"]
    statuses = []
    for process in (subprocess.Popen(command, stderr=subprocess.PIPE), crashkit.start("run", "--", *command, text=False)):
        assert process.stderr is not None
        process.stderr.read(100)
        process.stderr.close()
        statuses.append(process.wait(DEADLINE))
    # 1, or from 3.13 on 120: Python could not flush its stderr.
    assert statuses[0] > 0 and statuses[1] == statuses[0]
    assert crashkit.crashes() == []


def test_order_of_stdout_and_stderr_on_one_pipe(crashkit: Crashkit) -> None:
    code = "import os\nfor n in range(2000): os.write(1 + n % 2, b'%d\\n' % n)"
    result = crashkit.run(sys.executable, "-c", code, stderr=subprocess.STDOUT)
    assert result.stdout.split() == [str(number) for number in range(2000)]


def test_a_file_as_stderr_stays_that_file(crashkit: Crashkit, tmp_path: Path) -> None:
    log = tmp_path / "log"
    with log.open("w") as file:
        result = crashkit.run("sh", "-c", "stat -L -c %i /proc/self/fd/2; echo one >&2; kill -SEGV $$", stderr=file)
    assert int(result.stdout) == log.stat().st_ino
    (crash,) = crashkit.crashes()
    assert (crash["folder"] / "stderr.log").read_text() == "one\n"


def test_large_output_on_stderr_passes_whole_and_its_end_is_kept(crashkit: Crashkit) -> None:
    code = "import os, sys\nfor n in range(200000): sys.stderr.write(f'{n}\\n')\nsys.stderr.flush()\nos.kill(os.getpid(), 11)"
    result = crashkit.python(code)
    lines = result.stderr.splitlines()
    assert lines[:200000] == [str(number) for number in range(200000)]
    (crash,) = crashkit.crashes()
    kept = (crash["folder"] / "stderr.log").read_text()
    assert len(kept) <= 256 * 1024
    assert "199999\n" in kept


@pytest.mark.slow
def test_a_slow_reader_of_stderr_does_not_hold_up_signals(crashkit: Crashkit) -> None:
    code = """
import os, signal, sys, threading
signal.signal(signal.SIGTERM, lambda n, f: os._exit(42))
print("ready", flush=True)
threading.Thread(target=lambda: [os.write(2, b"x" * 65536) for _ in range(100)], daemon=True).start()
while True: signal.pause()
"""
    process = crashkit.start("run", "--", sys.executable, "-c", code)
    assert process.stdout is not None and process.stderr is not None
    assert process.stdout.readline() == "ready\n"
    _wait_for(lambda: len(select.select([process.stderr], [], [], 0)[0]) == 1)
    process.terminate()
    # Nothing was read of stderr: the command ends all the same.
    assert process.wait(DEADLINE) == 42


@pytest.mark.slow
@pytest.mark.parametrize("closed", [(0,), (1,), (2,), (0, 1, 2)])
def test_closed_streams_stay_closed(crashkit: Crashkit, tmp_path: Path, closed: tuple[int, ...]) -> None:
    answer = tmp_path / "answer"
    code = f"import os; open({str(answer)!r}, 'w').write(' '.join(str(n) for n in range(3) if not os.path.exists(f'/proc/self/fd/{{n}}')))"
    redirections = " ".join(f"{number}<&-" for number in closed)
    argv = [*crashkit.argv("run", "--"), sys.executable, "-c", code]
    quoted = " ".join(shlex.quote(word) for word in argv)
    result = subprocess.run(["sh", "-c", f"{quoted} {redirections}"], cwd=crashkit.cwd, env=crashkit.environment, timeout=DEADLINE)
    assert result.returncode == 0
    # Python itself may put a file on a free number: what matters is that it saw the same as without us.
    ours = answer.read_text()
    bare = " ".join(shlex.quote(word) for word in argv[-3:])
    subprocess.run(["sh", "-c", f"{bare} {redirections}"], cwd=crashkit.cwd, env=crashkit.environment, check=True)
    assert ours == answer.read_text()


def test_the_core_limit_of_the_command_alone_is_raised(crashkit: Crashkit) -> None:
    before = resource.getrlimit(resource.RLIMIT_CORE)
    result = crashkit.python("import resource; print(*resource.getrlimit(resource.RLIMIT_CORE))")
    assert result.stdout.split() == [str(before[1])] * 2
