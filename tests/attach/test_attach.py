"""`crashkit attach` on the command line, and that it leaves the process running and unharmed."""

from __future__ import annotations

import ctypes
import http.client
import json
import os
import re
import signal
import stat
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest

from crashkit.collect import live_core
from crashkit.collect.live_core import take_core
from crashkit.errors import EvidenceError
from crashkit.evidence.core.core import open_core
from crashkit.memory.stop import Stopped
from tests.attach import programs
from tests.attach.programs import ended, running, until_asleep
from tests.crashes import an_interpreter, needs_gdb, needs_x86_64
from tests.interpreter.process import opened, state_of

pytestmark = needs_x86_64()
ROOT = Path(__file__).parents[2]


def crashkit(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "crashkit", *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)


def state(pid: int) -> tuple[str, str]:
    """The letter of its state, and who traces it."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    fields = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
    return fields["State"][0], fields["TracerPid"]


@pytest.mark.slow
@needs_gdb
def test_the_answer_names_both_lines(tmp_path: Path) -> None:
    with running(an_interpreter(), programs.TWO_LOCKS, tmp_path) as (process, _):
        until_asleep(process.pid, 3)
        done = crashkit("attach", process.pid, "--out", tmp_path / "report", "--core", tmp_path / "kept")
        assert state(process.pid) == ("S", "0")
    assert done.returncode == 0 and done.stderr == ""
    rows = " ".join(done.stdout.split())
    assert rows.startswith("Running Deadlock: threads wait for each other's locks")
    assert "waits in one (program.py:8) for the lock b, held by two" in rows
    assert "waits in two (program.py:12) for the lock a, held by one" in rows
    assert {path.name for path in (tmp_path / "report").iterdir()} == {"report.html", "report.json"}
    assert stat.S_IMODE((tmp_path / "kept").stat().st_mode) == 0o600
    report = json.loads((tmp_path / "report" / "report.json").read_text())
    waits = {"pthread_cond_wait", "sem_wait", "sem_clockwait", "__new_sem_wait_slow64", "__futex_abstimed_wait_common", "PyEvent_WaitTimed"}
    assert waits & {frame.get("function") for thread in report["threads"] for frame in thread["frames"] if frame["kind"] == "native"}
    again = json.loads(crashkit("analyze", tmp_path / "kept", "--json", "--no-gdb").stdout)
    assert sorted(wait["name"] for wait in again["waits"] if wait.get("cycle")) == ["a", "b"]


@pytest.mark.slow
def test_the_headline_is_the_line_and_the_steps_are_for_the_living(tmp_path: Path) -> None:
    """Asleep, of which nothing is known to be wrong; and stuck, of which something is."""
    code = {"asleep": programs.HEAD + programs.READY + "import time\ndef rest(): time.sleep(1000)\nrest()\n", "stuck": programs.QUEUE}
    shown = {}
    for name, source in code.items():
        with running(an_interpreter(), source, tmp_path) as (process, _):
            until_asleep(process.pid, 1)
            shown[name] = crashkit("attach", "--no-gdb", process.pid, "--out", tmp_path / "report").stdout
            document = (tmp_path / "report" / "report.html").read_text()
            brief = json.loads((tmp_path / "report" / "report.json").read_text())
        assert re.search(r"waits in \S+ \(program.py:\d+\) for a (?:point in time|queue)", document)
        assert brief["source"]["kind"] == "live"
    assert shown["asleep"].startswith("Running  waits in rest (program.py:4) for a point in time\n")
    assert "next      crashkit attach --tree" in shown["asleep"] and "crashkit run -- " not in shown["asleep"]
    first, second = shown["stuck"].splitlines()[:2]
    assert first == "Running  Every thread waits, and none is left to wake another"
    assert re.fullmatch(r"  waits in \S+ \(program.py:\d+\) for a queue", second)


@pytest.mark.slow
def test_a_tree(tmp_path: Path) -> None:
    with running(an_interpreter(), programs.SOCKET, tmp_path) as (process, words):
        child = int(words[0])
        with ended(child):
            until_asleep(process.pid, 1)
            done = crashkit("attach", "--tree", process.pid, "--json", "--no-gdb", "--core", tmp_path / "cores")
    reports = [json.loads(line) for line in done.stdout.splitlines()]
    assert [report["process"]["pid"] for report in reports] == [process.pid, child]
    assert reports[0]["waits"][0]["process"] == child
    assert sorted(path.name for path in (tmp_path / "cores").iterdir()) == sorted([f"core.{process.pid}", f"core.{child}"])


@pytest.mark.slow
def test_of_several_processes_each_says_its_rank() -> None:
    waiting = [sys.executable, "-c", "import signal; signal.pause()"]
    with (
        subprocess.Popen(waiting, env={**os.environ, "RANK": "1"}) as rank,
        subprocess.Popen(waiting) as other,
        ended(rank.pid),
        ended(other.pid),
    ):
        until_asleep(rank.pid, 1)
        until_asleep(other.pid, 1)
        done = crashkit("attach", rank.pid, other.pid, "--no-gdb")
    titles = [line for line in done.stdout.splitlines() if line.startswith("Process ")]
    assert titles == [f"Process {rank.pid}, rank 1: {' '.join(waiting)}", f"Process {other.pid}: {' '.join(waiting)}"]


def test_no_such_process() -> None:
    with subprocess.Popen(["true"]) as process:
        pass
    done = crashkit("attach", process.pid)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.splitlines() == [
        f"crashkit: no process {process.pid}",
        "Pass the pid of a running process, as shown by `ps`.",
    ]


def test_a_process_that_is_traced_already(tmp_path: Path) -> None:
    with running(an_interpreter(), programs.QUEUE, tmp_path) as (process, _), Stopped(process.pid):
        done = crashkit("attach", process.pid)
    assert done.returncode == 1
    assert f"Process {os.getpid()} already traces it" in done.stderr.splitlines()[1]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody who may not")
def test_the_missing_right_is_said(tmp_path: Path) -> None:
    with running(an_interpreter(), programs.QUEUE, tmp_path) as (process, _):
        script = f"import os\nfrom crashkit.memory.stop import Stopped\nos.setuid(65534)\nwith Stopped({process.pid}): pass"
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=ROOT, timeout=60)
        assert f"cannot stop process {process.pid}: Operation not permitted" in done.stderr
        script = f"import os\nfrom crashkit.memory.stop import missing_right\nos.setuid(65534)\nprint(missing_right({process.pid}))"
        said = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=ROOT, timeout=60).stdout
        assert "belongs to another user" in said


def test_a_signal_is_delivered_afterwards(tmp_path: Path) -> None:
    program = (
        "import signal, sys\nsignal.signal(signal.SIGUSR1, lambda *_: print('got it', flush=True))\n"
        "print('ready', flush=True)\nwhile True: signal.pause()\n"
    )
    with running(an_interpreter(), program, tmp_path) as (process, _):
        until_asleep(process.pid, 1)
        with Stopped(process.pid) as stopped:
            assert stopped.threads == [process.pid] and state(process.pid)[1] == str(os.getpid())
            os.kill(process.pid, signal.SIGUSR1)
        assert process.stdout is not None and process.stdout.readline() == "got it\n"
        take_core(process.pid, tmp_path / "kept")
        os.kill(process.pid, signal.SIGUSR1)
        assert process.stdout.readline() == "got it\n"


@pytest.mark.slow
def test_no_signal_is_lost(library: Path, tmp_path: Path) -> None:
    """Also none of those that arrive as we stop the process. Real-time signals are queued: each of them counts."""
    program = (
        "import ctypes, signal, sys\nlibrary = ctypes.CDLL(sys.argv[1])\nlibrary.count_signals(signal.SIGRTMIN)\n"
        "print('ready', flush=True)\nsys.stdin.readline()\nprint(library.counted(), flush=True)\n"
    )
    sent, over = [0], threading.Event()
    # Unlike kill(), it says when the queue is full (RLIMIT_SIGPENDING) and the signal lost before it was sent.
    sigqueue = ctypes.CDLL(None).sigqueue
    sigqueue.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_void_p]

    def send(pid: int) -> None:
        while not over.is_set():
            sent[0] += sigqueue(pid, signal.SIGRTMIN, None) == 0

    with running(an_interpreter(), program, tmp_path, str(library)) as (process, _):
        sender = threading.Thread(target=send, args=(process.pid,))
        sender.start()
        for _ in range(200):
            with Stopped(process.pid):
                pass
        over.set()
        sender.join()
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write("\n")
        process.stdin.flush()
        assert int(process.stdout.readline()) == sent[0] > 200


def test_a_stopped_process_stays_stopped(tmp_path: Path) -> None:
    with running(an_interpreter(), programs.QUEUE, tmp_path) as (process, _):
        os.kill(process.pid, signal.SIGSTOP)
        os.waitpid(process.pid, os.WUNTRACED)
        take_core(process.pid, tmp_path / "kept")
        # It runs for a moment, within the kernel, back to where it was.
        deadline = time.monotonic() + 60
        while state(process.pid) != ("T", "0"):
            assert time.monotonic() < deadline, state(process.pid)
        os.kill(process.pid, signal.SIGCONT)


@pytest.mark.slow
def test_a_thread_that_ends_while_we_look(tmp_path: Path) -> None:
    """Threads come and go all the time: none is waited for in vain, and none is left stopped."""
    program = (
        "import threading\nprint('ready', flush=True)\n"
        "while True:\n    threads = [threading.Thread(target=int) for _ in range(8)]\n"
        "    [t.start() for t in threads]; [t.join() for t in threads]\n"
    )
    with running(an_interpreter(), program, tmp_path) as (process, _):
        for number in range(10):
            taken = take_core(process.pid, tmp_path / f"kept.{number}")
            assert taken.unstopped == ()
        for task in Path(f"/proc/{process.pid}/task").iterdir():
            with suppress(FileNotFoundError, ProcessLookupError):
                assert "TracerPid:\t0" in (task / "status").read_text()
        assert process.poll() is None


def test_the_core_holds_what_the_process_holds(tmp_path: Path) -> None:
    program = "text = b'here it is ' * 100_000\nimport sys\nprint('ready', id(text), flush=True)\nsys.stdin.read()\n"
    with running(an_interpreter(), program, tmp_path) as (process, words):
        until_asleep(process.pid, 1)
        taken = take_core(process.pid, tmp_path / "kept")
    assert taken.left_out == 0
    with (tmp_path / "kept").open("rb") as file:
        core = open_core(file, tmp_path / "kept", (tmp_path / "kept").stat().st_size)
        assert core is not None and not core.truncated and core.soft_errors == []
        assert core.read(int(words[0]), 1_100_000).count(b"here it is") >= 99_990


LARGE = """
import sys
def small(number):
    text = "small " + str(number)
    return [wait(text)] if number == 2_000_000 else text
def wait(text):
    print("ready", flush=True)
    sys.stdin.read()
kept = [small(number) for number in range(2_000_001)]
"""


@pytest.mark.slow
@pytest.mark.parametrize("prepare", [True, False])
def test_the_python_side_of_a_large_process_is_in_the_core(prepare: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However little the time suffices for, and also where somebody is about to end it."""
    monkeypatch.setattr("crashkit.collect.live_core.LEAST", 4 << 20)
    monkeypatch.setattr("crashkit.collect.live_core.LARGE", 32 << 20)
    with running(an_interpreter(), LARGE, tmp_path) as (process, _):
        until_asleep(process.pid, 1)
        taken = take_core(process.pid, tmp_path / "kept", seconds=0, prepare=prepare)
    assert taken.left_out > 32 << 20
    with opened(tmp_path / "kept") as core:
        state = state_of(core)
        assert state is not None
        (thread,) = state.threads
        frame = next(frame for frame in thread.stack.inner if frame.code is not None and frame.code.name == "wait")
        assert [(value.name, value.text) for value in state.variables(frame)] == [("text", "'small 2000000'")]
        assert thread.stack.inner[-1].code is not None and not thread.stack.cut


@pytest.mark.slow
def test_a_process_that_ends_as_soon_as_it_continues(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a rank does that its launcher has sent SIGTERM meanwhile: what it was, and its interpreter, are in the core."""
    pieces = live_core._Copier.pieces
    with running(an_interpreter(), programs.QUEUE, tmp_path) as (process, _):

        def ended_before(copier: live_core._Copier) -> list[live_core._Piece]:
            process.kill()
            process.wait()
            return pieces(copier)

        monkeypatch.setattr(live_core._Copier, "pieces", ended_before)
        take_core(process.pid, tmp_path / "kept")
    with opened(tmp_path / "kept") as core:
        assert core.executable and core.process is not None and core.process.name
        assert state_of(core) is not None


@pytest.mark.slow
def test_a_core_is_not_written_over_a_file(tmp_path: Path) -> None:
    (tmp_path / "kept").write_text("mine")
    with running(an_interpreter(), programs.QUEUE, tmp_path) as (process, _):
        done = crashkit("attach", process.pid, "--no-gdb", "--core", tmp_path / "kept")
        assert state(process.pid)[1] == "0"
    assert done.returncode == 1 and "cannot write a core" in done.stderr
    assert (tmp_path / "kept").read_text() == "mine"


def test_not_itself() -> None:
    from crashkit.collect.attach import attach
    from crashkit.pipeline import Options

    with pytest.raises(EvidenceError, match="cannot attach to itself"):
        attach(os.getpid(), Options())


SERVER = """
import http.server, threading
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        body = b"x" * 5000
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *_): pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print("ready", server.server_port, flush=True)
server.serve_forever()
"""


@pytest.mark.slow
def test_no_request_of_a_loaded_server_fails(tmp_path: Path) -> None:
    failures: list[BaseException] = []
    answered = [0, 0]
    over = threading.Event()

    def ask(client: int, port: int) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        while not over.is_set():
            try:
                connection.request("GET", "/")
                reply = connection.getresponse()
                assert reply.status == 200 and len(reply.read()) == 5000
                answered[client] += 1
            except BaseException as error:
                failures.append(error)
                return

    with running(an_interpreter(), SERVER, tmp_path) as (process, words):
        clients = [threading.Thread(target=ask, args=(client, int(words[0]))) for client in range(2)]
        for client in clients:
            client.start()
        try:
            for number in range(100):
                before = sum(answered)
                take_core(process.pid, tmp_path / str(number))
                (tmp_path / str(number)).unlink()
                ends = time.monotonic() + 60
                while sum(answered) == before and not failures and time.monotonic() < ends:
                    time.sleep(0.001)  # it goes on after each time
        finally:
            over.set()
            for client in clients:
                client.join()
        assert failures == [] and min(answered) > 0
        assert state(process.pid)[1] == "0"
