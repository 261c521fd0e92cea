"""A tree of processes that is no job, such as a server with its workers: where the others stood is in the report of the one that died."""

from __future__ import annotations

import ctypes
import json
import select
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import zstandard

from crashkit.bundling import bundle
from crashkit.collect.supervise.process_tree import ProcessTree
from crashkit.collect.supervise.supervisor import Supervisor
from crashkit.crashfolder.manifest import SCHEMA
from crashkit.evidence.siblings import of_folder
from crashkit.model import Crash, Process, PythonFrame, Sibling, Thread
from crashkit.pipeline import analyze
from crashkit.report.html import render
from crashkit.report.text import RENDERER
from tests.collect.conftest import Crashkit, private
from tests.crashes import an_interpreter, python_crash

CLONE_NEWUSER, CLONE_NEWNET = 0x10000000, 0x40000000
SECRET = "s3cr3t-Of-The-Others-91"

SERVER = """
import ctypes, multiprocessing, os, signal, threading

def wait_for_request(there):
    os.write(there, b".")
    signal.pause()

def render_page(there):
    # Its request is on a thread, as gunicorn's gthread has it.
    threading.Thread(target=wait_for_request, args=(there,), daemon=True).start()
    wait_for_request(there)

def crash(go):
    os.read(go, 1)
    ctypes.string_at(0)

def main(password="hunter2-of-the-database"):
    multiprocessing.set_start_method("fork")
    done, there = os.pipe()
    go, goes = os.pipe()
    works = [(wait_for_request, there), (render_page, there), (crash, go)]
    workers = [multiprocessing.Process(target=work, args=(end,), daemon=True) for work, end in works]
    for worker in workers:
        worker.start()
    for _ in range(3):
        os.read(done, 1)
    os.write(goes, b".")
    workers[-1].join()
    # It lives on until it was looked at.
    input()

main()
"""


def functions(sibling: Sibling) -> list[str]:
    """The user's innermost function on each thread."""
    return [
        next((frame.function or "" for frame in thread.python_frames if (frame.file or "").endswith("server.py")), "")
        for thread in sibling.threads
    ]


@pytest.fixture
def folder(crashkit: Crashkit) -> Path:
    """The crash folder of a worker that read a null pointer."""
    return crash_of(crashkit, SERVER)


def crash_of(crashkit: Crashkit, program: str, **options: Any) -> Path:
    """The crash folder of the only process that dies of a program, which ends when it reads a line."""
    script = crashkit.script("server.py", program)
    process = crashkit.start("run", "--no-analyze", "--", sys.executable, script, stdin=-1, **options)
    assert process.stderr is not None
    said: list[str] = []
    while not any("evidence in" in line for line in said):
        said.append(process.stderr.readline())
        assert said[-1], said
    process.communicate("\n", timeout=60)
    (crash,) = crashkit.crashes()
    assert isinstance(crash["folder"], Path) and private(crash["folder"])
    return crash["folder"]


def stood(crash: Crash) -> list[list[str]]:
    return sorted(functions(sibling) for sibling in crash.siblings)


@pytest.mark.slow
def test_where_the_others_stood(folder: Path, tmp_path: Path) -> None:
    crash = analyze(folder)
    assert stood(crash) == [["main"], ["wait_for_request"], ["wait_for_request", "wait_for_request"]]
    pids = {sibling.pid for sibling in crash.siblings}
    assert {sibling.folder for sibling in crash.siblings} == {f"others/{pid}" for pid in pids} and crash.process
    died = f"it was alive when process {crash.process.pid} died"
    assert {sibling.why for sibling in crash.siblings} <= {died, f"{died} of SIGSEGV"}
    assert all(sibling.argv[-1].endswith("server.py") for sibling in crash.siblings)
    frames = [frame for sibling in crash.siblings for thread in sibling.threads for frame in thread.python_frames]
    assert frames and not any(frame.locals for frame in frames), "values of other processes explain nothing, and may be anybody's"

    text, html = RENDERER.render(crash).decode(), render(crash)
    told = text[text.index("Other processes") :]
    assert all(f"  {pid} {Path(sys.executable).name} server.py: " in told for pid in pids) and told.count("wait_for_request") == 3
    assert 'id="siblings"' in html and all(f'<th scope="row">{pid} ' in html for pid in pids)

    packed = tmp_path / "bundle.tar.zst"
    bundle([folder], packed)
    unpacked = analyze(packed)
    assert unpacked.siblings == crash.siblings
    bundle([folder], packed, minimal=True, replace=True)
    without = analyze(packed)
    assert [(one.pid, one.why) for one in without.siblings] == [(one.pid, one.why) for one in crash.siblings]
    assert not any(one.threads for one in without.siblings)
    assert "could not be read" in RENDERER.render(without).decode() and "could not be read" in render(without)


UNSEEN = """
import ctypes, os, signal

def wait_for_request(there):
    os.write(there, b".")
    signal.pause()

def crash():
    ctypes.string_at(0)

done, there = os.pipe()
# Who watches sees neither the beginning nor the end of the one that dies.
os.kill(os.getppid(), signal.SIGSTOP)
if (waits := os.fork()) == 0:
    wait_for_request(there)
os.read(done, 1)
if (died := os.fork()) == 0:
    crash()
os.waitpid(died, 0)
os.kill(os.getppid(), signal.SIGCONT)
input()
os.kill(waits, signal.SIGTERM)
"""


def without_events() -> None:
    """In a network namespace of its own, as in a container, the kernel tells nobody of the ends of processes."""
    libc = ctypes.CDLL(None)
    assert libc.unshare(CLONE_NEWNET) == 0 or libc.unshare(CLONE_NEWUSER | CLONE_NEWNET) == 0


@pytest.mark.slow
def test_where_the_others_stood_when_one_died_that_was_never_seen(crashkit: Crashkit) -> None:
    folder = crash_of(crashkit, UNSEEN, preexec_fn=without_events)
    assert ["wait_for_request"] in stood(analyze(folder))


@pytest.mark.slow
def test_what_is_bundled_of_the_others_is_masked(folder: Path, tmp_path: Path) -> None:
    other = next(path for path in (folder / "others").iterdir() if path.is_dir())
    manifest = json.loads((other / "manifest.json").read_text())
    (other / "stderr.log").write_text(f"sent with password={SECRET}\nand gave up\n")
    manifest["argv"] = [*manifest["argv"], f"--password={SECRET}"]
    manifest["files"].append({"name": "stderr.log", "kind": "log", "size": 1})
    (other / "manifest.json").write_text(json.dumps(manifest))
    packed = tmp_path / "bundle.tar.zst"
    bundle([folder], packed, minimal=True)
    with (
        packed.open("rb") as file,
        zstandard.ZstdDecompressor().stream_reader(file) as plain,
        tarfile.open(fileobj=plain, mode="r|") as archive,
    ):
        texts = {member.name: data.read() for member in archive if (data := archive.extractfile(member)) is not None}
    inside = {name.rpartition("/")[2]: text for name, text in texts.items() if f"/others/{other.name}/" in name}
    assert b"and gave up" in inside["stderr.log"] and b"--password" in inside["manifest.json"]
    assert not [name for name, text in texts.items() if SECRET.encode() in text]


def test_of_whom_the_stacks_are_shown(tmp_path: Path) -> None:
    """Of the living, the main thread first, and no values; who died has a report of its own; who left nothing is named all the same."""
    core = python_crash("threads.py", python=an_interpreter()).core
    for name, more in (("lived", {"alive": "it lived"}), ("died", {"signal": 11}), ("left", {"alive": "it ended"})):
        (tmp_path / "others" / name).mkdir(parents=True)
        (tmp_path / "others" / name / "manifest.json").write_text(json.dumps({"schema": SCHEMA, "pid": 7, **more}))
    shutil.copy(core, tmp_path / "others" / "lived" / "core")
    frames = (PythonFrame(function="f", locals={"password": "1"}, args=("password",)),)
    threads = tuple(Thread(tid=tid, python_frames=frames) for tid in (9, 7, 8))
    found = of_folder(
        tmp_path,
        {"others": ["lived", "died", "left"]},
        lambda _core, _source: Crash(process=Process(pid=7), threads=(*threads, Thread(tid=3))),
    )
    assert not found.soft_errors and [one.folder for one in found.siblings] == ["others/lived", "others/left"]
    lived, left = found.siblings
    assert [thread.tid for thread in lived.threads] == [7, 9, 8] and left.threads == ()
    assert not any(frame.locals or frame.args for thread in lived.threads for frame in thread.python_frames)


def test_a_process_that_was_a_shell_when_it_was_last_looked_at() -> None:
    """As pyenv's `python3` is, and what a container starts."""
    then = "import threading; print('there', flush=True); threading.Event().wait()"
    script = f'read line; exec {sys.executable} -c "{then}"'
    child = subprocess.Popen(["/bin/sh", "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        tree = ProcessTree(select.poll())
        tree.walk()
        before = tree.find(child.pid)
        assert before is not None and "python" not in (before.executable or "")
        assert child.stdin is not None and child.stdout is not None
        child.stdin.write("\n")
        child.stdin.flush()
        assert child.stdout.readline() == "there\n"
        found = Supervisor._python_process(cast(Supervisor, SimpleNamespace(_tree=tree)), child.pid)
        assert found is not None and "python" in (found.executable or "")
    finally:
        child.kill()
        child.communicate()
