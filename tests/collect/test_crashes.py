"""A process below us dies of a signal: one crash in the store, with what is needed to explain it."""

from __future__ import annotations

import json
import os
import re
import resource
import shutil
import signal
import socket
import subprocess
import sys
import textwrap
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from crashkit.elf.core_head import read_head
from tests.collect.conftest import DEADLINE, SEGFAULT, Crashkit, private
from tests.collect.test_transparent import _wait_for
from tests.crashes import NO_GDB, NO_NAMESPACES, NO_TORCH


def test_a_crash_leaves_core_log_and_manifest_readable_by_us_alone(crashkit: Crashkit) -> None:
    crashkit.environment.update(OMP_NUM_THREADS="3", AWS_SECRET_ACCESS_KEY="hush", CUDA_TOKEN="hush", PYTHONSECRET="hush")
    result = crashkit.run(sys.executable, "-c", f"import sys; sys.stderr.write('password=hush\\n'); {SEGFAULT}", "--token", "hush")
    assert result.returncode == 128 + signal.SIGSEGV
    (crash,) = crashkit.crashes()
    folder = crash["folder"]
    assert result.stderr.splitlines()[-1].endswith(f"died of SIGSEGV: evidence in {folder}")
    assert crash["id"] == folder.name and folder.name.endswith(f"-{crash['pid']}-{Path(os.path.realpath(sys.executable)).name}")
    assert (crash["signal"], crash["signal_name"], crash["exit_status"]) == (11, "SIGSEGV", 139)
    assert crash["is_command"] and crash["core_dumped"]
    assert crash["executable"] == os.path.realpath(sys.executable)
    assert crash["argv"][0] == sys.executable and crash["argv"][-2:] == ["--token", "<masked>"]
    assert crash["cwd"] == str(crashkit.cwd)
    assert crash["environment"]["OMP_NUM_THREADS"] == "3" and crash["environment"]["PYTHONFAULTHANDLER"] == "1"
    assert crash["limits"]["RLIMIT_CORE"] == list(resource.getrlimit(resource.RLIMIT_CORE))
    assert crash["versions"]["python"] == sys.version.split()[0]
    core = next(file for file in crash["files"] if file["kind"] == "core")
    assert core["size"] == core["expected"] == (folder / "core").stat().st_size
    assert "Fatal Python error: Segmentation fault" in (folder / "stderr.log").read_text()
    assert "hush" not in "".join(path.read_text() for path in folder.iterdir() if path.name != "core")
    assert private(crashkit.home)
    assert list(crashkit.cwd.iterdir()) == [], "without us there had been no core in the working directory"
    assert crashkit.leftovers() == []


@pytest.mark.slow
def test_the_report_lies_in_the_store(crashkit: Crashkit) -> None:
    script = crashkit.script("app.py", f"def handle():\n    {SEGFAULT}\nhandle()\n")
    result = crashkit.run(sys.executable, script, options=())
    (crash,) = crashkit.crashes()
    assert crash["analysis"] == "done", (crash["folder"] / "analysis.log").read_text()
    report = json.loads((crash["folder"] / "report.json").read_text())
    said = result.stderr.splitlines()[-1]
    assert said.endswith(f" ({report['findings'][0]['title']}): {crash['folder'] / 'report.html'}") and "in handle (app.py:2)" in said
    assert report["signal"]["name"] == "SIGSEGV"
    crashed = next(thread for thread in report["threads"] if thread.get("crashed"))
    functions = [frame["function"] for frame in crashed["frames"] if frame["kind"] == "python"]
    assert functions[:2] == ["string_at", "handle"]


def test_a_core_that_the_user_asked_for_stays_where_it_is(crashkit: Crashkit) -> None:
    crashkit.python(SEGFAULT, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CORE, (-1, -1)))
    (crash,) = crashkit.crashes()
    assert (crashkit.cwd / "core").read_bytes()[:4] == b"\x7fELF"
    assert (crash["folder"] / "core").stat().st_ino == (crashkit.cwd / "core").stat().st_ino


SERVER = """
import ctypes, http.server, os, sys, threading
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path == "/crash":
            ctypes.string_at(0)
        self.send_response(200); self.send_header("Content-Length", "2"); self.end_headers(); self.wfile.write(b"ok")
    def log_message(self, *rest): pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print(server.server_address[1], flush=True)
server.serve_forever()
"""


@pytest.mark.slow
def test_a_threaded_server_under_load(crashkit: Crashkit) -> None:
    process = crashkit.start("run", "--no-analyze", "--", sys.executable, crashkit.script("server.py", SERVER))
    assert process.stdout is not None
    port = int(process.stdout.readline())

    def get(number: int) -> str:
        try:
            path = "crash" if number == 60 else "page"
            return str(urllib.request.urlopen(f"http://127.0.0.1:{port}/{path}", timeout=DEADLINE).status)
        except (OSError, urllib.error.URLError):
            return "gone"

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(get, range(120)))
    # While faulthandler dumps, other threads may still answer.
    assert answers[0] == "200" and answers[60] == "gone"
    assert process.wait(DEADLINE) == 139
    (crash,) = crashkit.crashes()
    assert crash["argv"][-1].endswith("server.py") and crash["core_dumped"]
    dump = (crash["folder"] / "stderr.log").read_text()
    # faulthandler of 3.14 stops at a thread that ended a moment ago.
    assert "in do_GET" in dump or "<freed thread state>" in dump


@pytest.mark.slow
def test_a_source_with_a_relative_name_counts_from_the_process_s_folder(crashkit: Crashkit) -> None:
    """PWD is the shell's, and that of another folder here."""
    crashkit.script("page.py", f"def render(width):\n    {SEGFAULT}\nrender(3)\n")
    crashkit.environment["PWD"] = "/"
    crashkit.run(sys.executable, "-c", "exec(compile(open('page.py').read(), 'page.py', 'exec'))", options=())
    (crash,) = crashkit.crashes()
    frames = [frame for thread in json.loads((crash["folder"] / "report.json").read_text())["threads"] for frame in thread["frames"]]
    (frame,) = (frame for frame in frames if frame.get("function") == "render")
    assert (frame["file"], frame["source"]) == ("page.py", SEGFAULT.strip())


@pytest.mark.slow
def test_gunicorn_with_two_workers_of_which_one_crashes(crashkit: Crashkit) -> None:
    gunicorn = Path(sys.executable).with_name("gunicorn")
    if not gunicorn.exists():
        pytest.skip("gunicorn is not installed beside the interpreter")
    crashkit.script(
        "app.py",
        """
        import ctypes, os
        def app(environ, start_response):
            if environ["PATH_INFO"] == "/crash":
                ctypes.string_at(0)
            start_response("200 OK", [("Content-Type", "text/plain")])
            return [str(os.getpid()).encode()]
        """,
    )
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        port = server.getsockname()[1]
    process = crashkit.start("run", "--no-analyze", "--", gunicorn, "-w", "2", "-b", f"127.0.0.1:{port}", "app:app", stderr=None)

    def get(path: str) -> str:
        return urllib.request.urlopen(f"http://127.0.0.1:{port}/{path}", timeout=DEADLINE).read().decode()

    def serves() -> bool:
        try:
            return bool(get(""))
        except OSError:
            return False

    _wait_for(serves, "gunicorn never served")
    with pytest.raises(OSError):
        get("crash")
    _wait_for(lambda: len(crashkit.crashes()) == 1, "no report while the master runs")
    assert get("").isdigit()
    (crash,) = crashkit.crashes()
    assert not crash["is_command"] and crash["ppid"] not in (0, process.pid) and crash["core_dumped"]
    process.terminate()
    assert process.wait(DEADLINE) == 0
    assert len(crashkit.crashes()) == 1


@pytest.mark.slow
def test_uvicorn_with_two_workers_of_which_one_crashes(crashkit: Crashkit) -> None:
    pytest.importorskip("uvicorn")
    crashkit.script(
        "app.py",
        """
        import ctypes, os
        async def app(scope, receive, send):
            if scope["type"] == "http":
                if scope["path"] == "/crash":
                    ctypes.string_at(0)
                await send({"type": "http.response.start", "status": 200, "headers": []})
                await send({"type": "http.response.body", "body": str(os.getpid()).encode()})
        """,
    )
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        port = server.getsockname()[1]
    command = ("run", "--no-analyze", "--", sys.executable, "-m", "uvicorn", "--workers", 2, "--port", port, "--lifespan", "off", "app:app")
    process = crashkit.start(*command, stderr=subprocess.DEVNULL)

    def get(path: str) -> str:
        return urllib.request.urlopen(f"http://127.0.0.1:{port}/{path}", timeout=DEADLINE).read().decode()

    def serves() -> bool:
        try:
            return bool(get(""))
        except OSError:
            return False

    _wait_for(serves, "uvicorn never served")
    with pytest.raises(OSError):
        get("crash")
    _wait_for(lambda: len(crashkit.crashes()) == 1, "no report while the supervisor runs")
    _wait_for(serves, "uvicorn does not serve any more")
    process.send_signal(signal.SIGINT)
    process.wait(DEADLINE)
    assert len(crashkit.crashes()) == 1


@pytest.mark.torch
def test_torchrun_with_three_ranks_of_which_two_crash(crashkit: Crashkit) -> None:
    pytest.importorskip("torch", reason=NO_TORCH)
    script = crashkit.script(
        "rank.py",
        """
        import ctypes, os, time, socket
        rank = int(os.environ["RANK"])
        if rank < 2:
            with open(f"begun-{rank}", "w") as file: file.write(str(os.getpid()))
            os.rename(f"begun-{rank}", f"ready-{rank}")
            while not os.path.exists("go"): time.sleep(0.001)
            ctypes.string_at(0)
        time.sleep(1000)
        """,
    )
    process = crashkit.start(
        "run", "--no-analyze", "--", sys.executable, "-m", "torch.distributed.run", "--standalone",
        "--local-addr", "127.0.0.1", "--nproc-per-node", 3, script,
    )  # fmt: skip
    # The address: a container's host name need not be known in it, and torchrun asks for it for minutes.
    ready = [crashkit.cwd / f"ready-{rank}" for rank in range(2)]
    _wait_for(lambda: all(file.exists() for file in ready), "the ranks do not run")
    # Of a process that dies before it was ever seen, nobody knows what job it was of.
    watched = [f"Pid:\t{file.read_text()}\n" for file in ready]
    _wait_for(lambda: all(pid in _descriptors(process.pid) for pid in watched), "the ranks are not watched")
    (crashkit.cwd / "go").touch()
    _, err = process.communicate(timeout=DEADLINE)
    assert process.returncode == 1, err
    (first,) = crashkit.crashes()
    # Both ranks die at once and write one `core`. Each is kept in one incident, and where a core was lost, that is said.
    others = [json.loads((first["folder"] / "others" / name / "manifest.json").read_text()) for name in first["others"]]
    crashes = [first, *(one for one in others if "alive" not in one)]
    assert len(crashes) == 2, err
    for crash in crashes:
        assert crash["signal"] == 11 and not crash["is_command"]
        assert any(file["kind"] == "core" for file in crash["files"]) or any("overwrote" in note for note in crash["notes"]), crash
    assert any(file["kind"] == "core" for crash in crashes for file in crash["files"])
    assert len({crash["pid"] for crash in crashes}) == 2


@pytest.mark.torch
def test_a_dataloader_worker_that_dies(crashkit: Crashkit) -> None:
    pytest.importorskip("torch", reason=NO_TORCH)
    script = crashkit.script(
        "load.py",
        """
        import ctypes, torch
        class Data(torch.utils.data.Dataset):
            def __len__(self): return 8
            def __getitem__(self, index):
                if index == 0: ctypes.string_at(0)
                return index
        if __name__ == "__main__":
            try:
                list(torch.utils.data.DataLoader(Data(), num_workers=1))
            except RuntimeError as error:
                print("caught", error)
        """,
    )
    result = crashkit.run(sys.executable, script)
    assert result.returncode == 0 and "caught DataLoader worker" in result.stdout
    (crash,) = crashkit.crashes()
    assert crash["signal"] == 11 and crash["core_dumped"] and "torch" in crash["versions"]


@pytest.mark.slow
def test_a_process_that_forks_and_executes(crashkit: Crashkit) -> None:
    code = f"import subprocess, sys; print(subprocess.run([sys.executable, '-c', 'input(); ' + {SEGFAULT!r}, 'inner']).returncode)"
    process = crashkit.start("run", "--no-analyze", "--", sys.executable, "-c", code, stdin=subprocess.PIPE)
    _wait_for(lambda: _watches_by_pidfd(process.pid))
    assert process.communicate("\n", timeout=DEADLINE)[0] == "-11\n" and process.returncode == 0
    (crash,) = crashkit.crashes()
    assert crash["argv"][-1] == "inner" and not crash["is_command"]


@pytest.mark.slow
def test_a_child_that_forks_twice(crashkit: Crashkit) -> None:
    code = """
    import ctypes, os
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.chdir("/")
            os.read(0, 1)
            ctypes.string_at(0)
        os._exit(0)
    os.wait()
    os.read(0, 1)
    """
    process = crashkit.start("run", "--no-analyze", "--", sys.executable, "-c", textwrap.dedent(code), stdin=subprocess.PIPE)
    assert process.stdin is not None
    root = f"ino:{Path('/').stat().st_ino:x} "
    _wait_for(lambda: root in _descriptors(process.pid), "/ is not watched")
    process.communicate("xx", timeout=DEADLINE)
    (crash,) = crashkit.crashes()
    assert process.returncode == 0 and crash["cwd"] == "/" and crash["signal"] == 11
    # Where this user may not write to / there can be no core.
    assert any(file["kind"] == "core" for file in crash["files"]) == os.access("/", os.W_OK), crash["notes"]
    # Another process may have left one there meanwhile.
    assert not _is_core_of(crash["pid"], Path("/core"))


def test_multiprocessing_that_terminates_its_workers_is_no_crash(crashkit: Crashkit) -> None:
    code = "import multiprocessing as m; p = m.get_context('fork').Pool(3); print(p.map(abs, range(3))); p.terminate(); p.join()"
    assert crashkit.python(code).stdout == "[0, 1, 2]\n"
    assert crashkit.crashes() == []


@pytest.mark.slow
def test_a_worker_without_a_core_is_seen_by_its_status(crashkit: Crashkit) -> None:
    code = """
    import os, resource, signal
    pid = os.fork()
    if pid == 0:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        os.read(0, 1)
        os.kill(os.getpid(), signal.SIGBUS)
    print(pid, flush=True)
    os.waitpid(pid, 0)
    """
    process = crashkit.start("run", "--no-analyze", "--", sys.executable, "-c", textwrap.dedent(code), stdin=subprocess.PIPE)
    assert process.stdout is not None
    pid = int(process.stdout.readline())
    _wait_for(lambda: _watches_by_pidfd(process.pid))
    process.communicate("x", timeout=DEADLINE)
    (crash,) = crashkit.crashes()
    assert (crash["pid"], crash["signal_name"], crash["core_dumped"]) == (pid, "SIGBUS", False)
    assert any("no core" in note for note in crash["notes"])


@pytest.mark.slow
def test_a_core_that_is_there_was_dumped(crashkit: Crashkit) -> None:
    """Of a process below the command the kernel tells the status of its main thread, which did not fault: the status shows no core."""
    inner = "import ctypes, threading; input(); t = threading.Thread(target=ctypes.string_at, args=(0,)); t.start(); t.join()"
    code = f"import subprocess, sys; print(subprocess.run([sys.executable, '-c', {inner!r}]).returncode)"
    process = crashkit.start("run", "--no-analyze", "--", sys.executable, "-c", code, stdin=subprocess.PIPE)
    _wait_for(lambda: _watches_by_pidfd(process.pid))
    assert process.communicate("\n", timeout=DEADLINE)[0] == "-11\n"
    (crash,) = crashkit.crashes()
    assert any(file["kind"] == "core" for file in crash["files"]) and crash["core_dumped"]


def _watches_by_pidfd(supervisor: int) -> bool:
    """A process below the command is known."""
    return "NSpid:" in _descriptors(supervisor)


def _is_core_of(pid: int, path: Path) -> bool:
    try:
        with path.open("rb") as file:
            head = read_head(file.fileno())
            return head is not None and head.pid == pid
    except FileNotFoundError:
        return False


def _descriptors(pid: int) -> str:
    """What /proc tells of all the descriptors of a process."""
    found = ""
    for info in Path(f"/proc/{pid}/fdinfo").iterdir():
        with suppress(FileNotFoundError):
            found += info.read_text()
    return found


def test_sigkill_from_nobody_known_is_told_as_such(crashkit: Crashkit) -> None:
    result = crashkit.run("sh", "-c", "kill -KILL $$")
    assert result.returncode == 137
    (crash,) = crashkit.crashes()
    assert crash["killed"] == {"by": "unknown", "evidence": []}
    assert "sender unknown" in result.stderr
    assert "killed:   sender unknown" in crashkit("show").stdout


def test_hard_limit_0_is_said_before_and_the_log_still_makes_a_crash(crashkit: Crashkit) -> None:
    result = crashkit.python(
        f"import sys; sys.stderr.write('begin\\n'); {SEGFAULT}",
        options=("--no-analyze", "--capture", "core"),
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CORE, (0, 0)),
    )
    warning, begin = result.stderr.splitlines()[:2]
    assert "hard limit for core files is 0" in warning and "LimitCORE" in warning and begin == "begin"
    (crash,) = crashkit.crashes()
    assert not crash["core_dumped"] and crash["signal"] == 11
    assert "Fatal Python error" in (crash["folder"] / "stderr.log").read_text()


FIFTY = """
import os, signal
for n in range(50):
    if os.fork() == 0:
        os.read(0, 1); os.kill(os.getpid(), signal.SIGSEGV)
print("forked", flush=True)
for n in range(50): os.wait()
"""


@pytest.mark.slow
def test_fifty_crashes_at_once_are_bounded_and_counted(crashkit: Crashkit) -> None:
    options = ("run", "--no-analyze", "--max-crashes", "5", "--")
    process = crashkit.start(*options, sys.executable, "-c", FIFTY, stdin=subprocess.PIPE)
    assert process.stdout is not None and process.stdout.readline() == "forked\n"
    _wait_for(lambda: _descriptors(process.pid).count("NSpid:") >= 50, "not every process is known")
    _, errors = process.communicate(timeout=DEADLINE)
    assert process.returncode == 0 and len(crashkit.crashes()) == 5
    assert len([line for line in errors.splitlines() if "not kept (" in line]) == 1, errors
    # An ordinary user's supervisor may miss how a process ended on a busy machine; then its words on stderr count.
    assert 5 + sum(map(int, _counts(errors))) == 50, errors
    assert crashkit.leftovers() == [] and [path.name for path in crashkit.cwd.iterdir()] == []


def _counts(errors: str) -> list[str]:
    return re.findall(r"^crashkit: (\d+) (?:crash\S* w|more fatal errors? on)", errors, re.MULTILINE)


@pytest.mark.slow
def test_of_crashes_before_anybody_was_known_none_goes_untold(crashkit: Crashkit) -> None:
    """Those whose end nobody could tell, with a core that another overwrote, are counted by their words on stderr."""
    result = crashkit.python(FIFTY, options=("--no-analyze", "--max-crashes", "5"))
    kept = len(crashkit.crashes())
    assert 0 < kept <= 5 and kept + sum(map(int, _counts(result.stderr))) == 50, result.stderr
    assert crashkit.leftovers() == [] and list(crashkit.cwd.iterdir()) == []


def test_a_full_disk(crashkit: Crashkit, tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(small)], capture_output=True).returncode:
        pytest.skip("a small tmpfs cannot be mounted: that needs root")
    try:
        result = crashkit.python(SEGFAULT, options=("--no-analyze", "--capture", "core"), cwd=small)
        assert "MiB free in" in result.stderr.splitlines()[0]
        (crash,) = crashkit.crashes()
        assert crash["signal"] == 11
        core = [file for file in crash["files"] if file["kind"] == "core"]
        assert not core or core[0]["size"] < core[0]["expected"]
        listed = crashkit("list").stdout.splitlines()[1]
        assert ("truncated" if core else "missing") in listed
    finally:
        subprocess.run(["umount", str(small)], check=True)


def test_a_store_on_another_disk_gets_a_copy(crashkit: Crashkit) -> None:
    shared = Path("/dev/shm")
    if not os.access(shared, os.W_OK) or shared.stat().st_dev == crashkit.cwd.stat().st_dev:
        pytest.skip("/dev/shm is no other file system that we may write to")
    folder = Path(subprocess.run(["mktemp", "-d", "-p", shared], capture_output=True, text=True, check=True).stdout.strip())
    try:
        crashkit.home = folder / "store"
        crashkit.environment["CRASHKIT_HOME"] = str(crashkit.home)
        crashkit.python(SEGFAULT)
        (crash,) = crashkit.crashes()
        core = crash["folder"] / "core"
        assert core.stat().st_size == next(file for file in crash["files"] if file["kind"] == "core")["expected"]
        assert "LOAD" in subprocess.run(["readelf", "-lW", core], capture_output=True, text=True, check=True).stdout
        assert list(crashkit.cwd.iterdir()) == []
    finally:
        shutil.rmtree(folder)


@pytest.mark.slow
def test_restart_on_crash_with_a_limit_and_a_command_for_each(crashkit: Crashkit) -> None:
    script = crashkit.script("tell.sh", f'#!/bin/sh\necho "$CRASHKIT_FOLDER $1" >> {crashkit.home}/told\n')
    script.chmod(0o755)
    options = ("--no-analyze", "--restart", "on-crash", "--restart-limit", 2, "--restart-delay", 0.01, "--on-crash", script)
    result = crashkit.run("sh", "-c", "echo run; kill -SEGV $$", options=options)
    assert result.stdout == "run\n" * 3 and result.returncode == 139
    assert "crashed 3 times and is not restarted" in result.stderr
    crashes = crashkit.crashes()
    assert len(crashes) == 3
    assert (crashkit.home / "told").read_text() == "".join(f"{crash['folder']} {crash['folder']}\n" for crash in crashes)


def test_no_restart_after_a_clean_end(crashkit: Crashkit) -> None:
    result = crashkit.run("sh", "-c", "echo run; exit 1", options=("--restart", "on-crash"))
    assert (result.stdout, result.returncode) == ("run\n", 1)


def test_compressed_cores(crashkit: Crashkit) -> None:
    import zstandard

    crashkit.python(SEGFAULT, options=("--no-analyze", "--zstd"))
    (crash,) = crashkit.crashes()
    core = next(file for file in crash["files"] if file["kind"] == "core")
    assert (core["name"], core["compression"]) == ("core.zst", "zstd") and not (crash["folder"] / "core").exists()
    with (crash["folder"] / "core.zst").open("rb") as file:
        assert zstandard.ZstdDecompressor().stream_reader(file).read(4) == b"\x7fELF"


@pytest.mark.slow
def test_a_core_with_the_inode_number_of_one_that_is_gone(crashkit: Crashkit) -> None:
    """Compressing frees the core's inode, and most file systems give its number to the next core."""
    code = """
    import glob, os, signal
    home = os.environ["CRASHKIT_HOME"]
    for n in range(3):
        if os.fork() == 0: os.kill(os.getpid(), signal.SIGSEGV)
        os.wait()
        while len(glob.glob(f"{home}/2*")) <= n or glob.glob(f"{home}/2*/core"): pass
    """
    result = crashkit.python(code, options=("--no-analyze", "--zstd"))
    crashes = crashkit.crashes()
    assert [crash["notes"] for crash in crashes] == [[], [], []], result.stderr
    assert all((crash["folder"] / "core.zst").exists() for crash in crashes)


def test_a_store_that_cannot_be_written_to_does_not_keep_the_command_from_running(crashkit: Crashkit, tmp_path: Path) -> None:
    crashkit.environment["CRASHKIT_HOME"] = str(tmp_path / "file")
    (tmp_path / "file").write_text("")
    result = crashkit.run("echo", "hi")
    assert (result.stdout, result.returncode) == ("hi\n", 0)
    assert "crash store" in result.stderr and "CRASHKIT_HOME" in result.stderr
    assert not Path(result.stderr.strip().rsplit(" ", 1)[-1]).exists()


def test_enable_from_inside(crashkit: Crashkit) -> None:
    code = """
    import os, sys
    from crashkit.collect.enable import enable
    enabled = enable(cuda=False)
    again = enable(cuda=False)
    assert again == enabled and again.folder is not None, again
    (again.folder / f"gpu.host.{os.getpid()}.1.nvcudmp").write_text("dump")
    assert "torch" not in sys.modules
    print(enabled.folder, enabled.could_not)
    import ctypes; ctypes.string_at(0)
    """
    result = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], cwd=crashkit.cwd, env=crashkit.environment, capture_output=True, text=True
    )
    assert result.returncode == -11, result.stderr
    listed = crashkit("list", "SIGSEGV")
    assert listed.returncode == 0 and "present" in listed.stdout, listed.stderr
    (crash,) = crashkit.crashes()
    assert "Segmentation fault" in (crash["folder"] / "faulthandler.log").read_text()
    assert [file["kind"] for file in crash["files"]] == ["faulthandler", "core", "gpu-core"] and crashkit.leftovers() == []
    assert list(crashkit.cwd.iterdir()) == []


def test_enable_never_raises(crashkit: Crashkit) -> None:
    """The working directory is gone, the store cannot be made, and stderr is closed."""
    crashkit.environment["CRASHKIT_HOME"] = "/dev/null/store"
    code = """
    import os, sys
    os.mkdir("gone"); os.chdir("gone"); os.rmdir("../gone")
    sys.stderr = None
    from crashkit.collect.enable import enable
    print(*enable().could_not, sep="\\n")
    """
    argv = [sys.executable, "-c", textwrap.dedent(code)]
    result = subprocess.run(argv, cwd=crashkit.cwd, env=crashkit.environment, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    for part in ("gone (deleted)", "faulthandler cannot write to the crash store", "faulthandler is off"):
        assert part in result.stdout


@pytest.mark.slow
@pytest.mark.parametrize("capture", ["core", "ptrace"])
def test_a_working_directory_that_was_removed(crashkit: Crashkit, capture: str) -> None:
    if capture == "ptrace" and shutil.which("gdb") is None:
        pytest.skip(NO_GDB)
    folder = crashkit.cwd / "gone"
    folder.mkdir()

    def enter() -> None:
        os.chdir(folder)
        folder.rmdir()

    result = crashkit.run("/bin/sh", "-c", "kill -SEGV $$", options=("--no-analyze", "--capture", capture), preexec_fn=enter)
    assert result.returncode == 139, result.stderr
    (crash,) = crashkit.crashes()
    assert crash["signal"] == 11
    assert any(file["kind"] == "core" for file in crash["files"]) == (capture == "ptrace"), result.stderr


def test_enable_leaves_nothing_after_a_clean_exit(crashkit: Crashkit) -> None:
    code = "from crashkit.collect.enable import enable; print(enable().folder)"
    subprocess.run([sys.executable, "-c", code], cwd=crashkit.cwd, env=crashkit.environment, check=True, capture_output=True)
    assert list(crashkit.home.iterdir()) == []


def test_as_pid_1_it_reaps_orphans_and_reports(crashkit: Crashkit) -> None:
    unshare = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]
    if subprocess.run([*unshare, "true"], capture_output=True).returncode:
        pytest.skip(NO_NAMESPACES)
    code = """
    import ctypes, os
    for n in range(3):
        if os.fork() == 0:
            if os.fork() == 0:
                os._exit(0)
            os._exit(0)
        os.wait()
    def state(pid):
        try:
            return open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):  # it may also end between open and read
            return ""
    while "Z" in [state(pid) for pid in os.listdir("/proc") if pid.isdigit()]: pass
    print(os.getppid(), flush=True)
    ctypes.string_at(0)
    """
    command = [*unshare, *crashkit.argv("run", "--no-analyze", "--", sys.executable, "-c", textwrap.dedent(code))]
    result = subprocess.run(command, cwd=crashkit.cwd, env=crashkit.environment, capture_output=True, text=True, timeout=DEADLINE)
    assert (result.stdout, result.returncode) == ("1\n", 139), result.stderr
    (crash,) = crashkit.crashes()
    assert crash["is_command"] and any(file["kind"] == "core" for file in crash["files"])


def test_a_kill_for_want_of_memory_is_told_with_its_evidence(crashkit: Crashkit) -> None:
    group = Path(f"/sys/fs/cgroup/memory/crashkit-test-{os.getpid()}")
    try:
        group.mkdir()
        (group / "memory.limit_in_bytes").write_text(str(64 << 20))
    except OSError as error:
        pytest.skip(f"no memory cgroup (version 1) can be made: {error}")
    try:
        result = crashkit.run(
            sys.executable, "-c", "b = [bytes([1]) * (1 << 20) for _ in range(200)]",
            preexec_fn=lambda: (group / "cgroup.procs").write_text(str(os.getpid())),
        )  # fmt: skip
        assert result.returncode == 137 and "died of SIGKILL, out of memory" in result.stderr
        (crash,) = crashkit.crashes()
        assert crash["killed"]["by"] == "oom" and any(
            "oom_kill" in line or "Killed process" in line for line in crash["killed"]["evidence"]
        )
    finally:
        group.rmdir()


@pytest.mark.slow
def test_sigterm_waits_for_a_gpu_dump(crashkit: Crashkit) -> None:
    """A stand-in for the CUDA driver: a dump that grows until SIGTERM was held, and a moment longer."""
    code = """
    import os, signal, sys, time
    signal.signal(signal.SIGTERM, lambda *rest: (os.write(1, b"terminated"), os._exit(0)))
    dump = os.environ["CUDA_COREDUMP_FILE"].replace("%h", "host").replace("%p", str(os.getpid())).replace("%t", "1")
    open(dump, "w").close()
    print("ready", flush=True)
    while True: signal.pause()
    """
    process = crashkit.start("run", "--cuda", "--no-analyze", "--", sys.executable, "-c", textwrap.dedent(code))
    assert process.stdout is not None and process.stderr is not None
    assert process.stdout.readline() == "ready\n"
    process.terminate()
    assert process.stderr.readline() == "crashkit: SIGTERM is delayed until the GPU core dump is written, at most 60 s\n"
    assert process.communicate(timeout=DEADLINE)[0] == "terminated" and process.returncode == 0


def test_who_asks_us_to_end_need_not_wait_for_a_report(crashkit: Crashkit) -> None:
    process = crashkit.start("run", "--no-analyze", "--on-crash", "sh -c 'sleep 1000'", "--", "sh", "-c", "kill -SEGV $$")
    assert process.stderr is not None
    assert "died of SIGSEGV" in process.stderr.readline()
    process.terminate()
    assert process.wait(DEADLINE) == 139
    assert "some reports are not finished" in process.stderr.read()
    assert len(crashkit.crashes()) == 1


@pytest.mark.slow
def test_a_killed_process_has_no_part_in_the_crash_of_another_one(crashkit: Crashkit) -> None:
    """Its child's dump is in the same stderr, and the kernel's log tells of the child's fault."""
    code = f"import os, subprocess, sys; subprocess.run([sys.executable, '-c', {SEGFAULT!r}]); os.kill(os.getpid(), 9)"
    crashkit.python(code, options=())
    (killed,) = (crash for crash in crashkit.crashes() if crash["signal_name"] == "SIGKILL")
    assert "Fatal Python error" in (killed["folder"] / "stderr.log").read_text()
    report = json.loads((killed["folder"] / "report.json").read_text())
    assert (report["signal"]["name"], report["process"]["pid"]) == ("SIGKILL", killed["pid"])
    assert report.get("threads", []) == [] and "null-deref" not in [finding["id"] for finding in report["findings"]]
    assert any("SIGSEGV: that was another process" in error["message"] for error in report["soft_errors"])
