"""What an entry says of a crash, and what it never says."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from crashkit.history.commits import commit_time
from crashkit.history.entry import Entry, of_crash, of_manifest
from crashkit.history.release import commit_of, named
from crashkit.model import (
    Crash,
    Finding,
    Fingerprint,
    Gpu,
    GpuException,
    LogLine,
    NativeFrame,
    Process,
    PythonFrame,
    PythonRuntime,
    Signal,
    Source,
    Thread,
    Wait,
)
from crashkit.report import one_line
from crashkit.report.json import decode, encode, outline
from tests.history.conftest import needs_git
from tests.report import samples

SECRET = "ghp_Ab12Cd34Ef56Gh78Ij90Kl12Mn34Op56Qr78"
OWN = PythonFrame(function="decode", file="/srv/app/app.py", line=17, locals={"password": "'hunter2xyz'"})
CRASH = Crash(
    id="20261120T231200-5752-python3.11",
    time="2026-11-20T23:12:00Z",
    crashkit="0.1.0",
    process=Process(pid=5752, executable="/usr/bin/python3.11", versions={"torch": "2.9"}, environment={"API_KEY": "hunter2xyz"}),
    python=PythonRuntime(version="3.11.7"),
    signal=Signal(number=11, name="SIGSEGV", reason="null-pointer", access="read"),
    crashed_thread=1,
    threads=(Thread(tid=1, crashed=True, frames=(NativeFrame(function="strlen"), OWN)), Thread(tid=2)),
    findings=(Finding(id="null-deref", title="Null pointer dereference", confidence="likely"),),
    fingerprint=Fingerprint(version=2, hash="77ff5d09dd6c3a10", frames=("strlen", "decode")),
)


def test_an_entry_is_what_a_row_shows() -> None:
    entry = of_crash(CRASH, "/crashes/x", host="h", release="v1", now=5.0)
    assert (entry.group, entry.seen, entry.recorded, entry.program) == ("2-77ff5d09dd6c3a10", 1795216320.0, 5.0, "python3.11")
    assert (entry.where, entry.cause, entry.frames) == ("decode (app.py:17)", "Null pointer dereference", ("strlen", "decode"))
    assert (entry.signal, entry.python, entry.versions, entry.release) == ("SIGSEGV", "3.11.7", {"torch": "2.9"}, "v1")


def test_what_tells_crashes_apart() -> None:
    keys = {
        of_crash(crash, place, host=host).key
        for crash in (CRASH, msgspec.structs.replace(CRASH, id="other"))
        for place in ("a", "b")
        for host in ("x", "y")
    }
    assert len(keys) == 8 and of_crash(CRASH, "a", host="x", now=1.0).key == of_crash(CRASH, "a", host="x", now=2.0).key
    assert of_manifest({"id": CRASH.id or ""}, "a", host="x").key in keys, "a failed analysis, and a later one, are of one crash"


def test_crashes_without_a_fingerprint_are_grouped_by_signal_and_program() -> None:
    bare = msgspec.structs.replace(CRASH, fingerprint=None)
    other = msgspec.structs.replace(bare, signal=Signal(number=6, name="SIGABRT"))
    first, second = of_crash(bare, "a", host="x"), of_crash(other, "b", host="x")
    assert first.group.startswith("0-") and first.group != second.group
    manifest = of_manifest({"signal_name": "SIGSEGV", "executable": "/usr/bin/python3.11"}, "c", host="x")
    assert manifest.group == first.group


def test_nothing_secret_is_in_an_entry() -> None:
    """Wherever it stands, and also if the report was written with --show-secrets; a secret that a variable names is one everywhere."""
    crash = msgspec.structs.replace(
        CRASH,
        findings=(Finding(id="x", title=f"{SECRET} and hunter2xyz", confidence="likely"),),
        fingerprint=Fingerprint(version=2, hash="7", frames=(SECRET, "hunter2xyz")),
        python=PythonRuntime(version=SECRET),
        process=Process(executable=f"/bin/{SECRET}", environment={"API_KEY": "hunter2xyz"}, versions={SECRET: SECRET}),
        threads=(Thread(tid=1, crashed=True, frames=(PythonFrame(function=SECRET, file="/srv/hunter2xyz.py", line=1),)),),
    )
    told = msgspec.json.encode(of_crash(crash, f"/{SECRET}", host="h", release=SECRET)).decode()
    manifest = of_manifest({"name": SECRET, "versions": {"x": SECRET}}, SECRET, host="h", release=SECRET)
    assert SECRET not in told + msgspec.json.encode(manifest).decode() and "hunter2xyz" not in told


@pytest.mark.slow
def test_no_text_of_an_entry_is_long() -> None:
    long = "x" * 100_000
    finding = Finding(id="x", title=long, confidence="likely")
    crash = Crash(id=long, findings=(finding,), process=Process(executable=long, versions={f"{n}{long}": long for n in range(500)}))
    assert len(msgspec.json.encode(of_crash(crash, long, host=long, release=long))) < 200_000


@pytest.mark.parametrize(
    ("crash", "where", "cause"),
    [
        (CRASH, "decode (app.py:17)", "Null pointer dereference"),
        (
            msgspec.structs.replace(CRASH, findings=(Finding(id="x", title="t", confidence="possible"),)),
            "decode (app.py:17)",
            "t?",
        ),
        (msgspec.structs.replace(CRASH, findings=()), "decode (app.py:17)", "a null pointer was read"),
        (Crash(threads=(Thread(crashed=True, frames=(NativeFrame(function="memcpy"),)),)), "memcpy", ""),
        (Crash(gpu=(Gpu(exceptions=(GpuException(name="TRAP", kernel="scatter", file="/a/b.py", line=7),)),)), "scatter (b.py:7)", ""),
        (Crash(log=(LogLine(text="ValueError: x", kind="exception"),)), "", "ValueError: x"),
        (Crash(), "", ""),
    ],
)
def test_one_line(crash: Crash, where: str, cause: str) -> None:
    assert (one_line.where(crash), one_line.cause(crash)) == (where, cause)
    read = outline(encode(crash))
    assert (one_line.where(read), one_line.cause(read), read.fingerprint) == (where, cause, crash.fingerprint)


def test_the_outline_is_all_of_a_report_but_for_its_long_tables() -> None:
    report = msgspec.structs.replace(
        samples.full(), source=Source(path="core", kind="live"), waits=(Wait(thread=1, kind="lock", cycle=True),)
    )
    told = msgspec.structs.replace(report, modules=(), mappings=(), instructions=(), looked_for=(), seconds={})
    assert outline(encode(report)) == decode(encode(told))


def test_the_release_that_the_environment_names() -> None:
    assert named({"GITHUB_SHA": "abc", "CRASHKIT_RELEASE": "v1"}) == "v1"
    assert named({"GITHUB_SHA": "abc", "CRASHKIT_RELEASE": ""}) == "abc" and named({}) == ""


@pytest.fixture
def git(tmp_path: Path) -> Callable[..., str]:
    folder = tmp_path / "repository"
    folder.mkdir()

    def run(*words: str) -> str:
        command = ["git", "-C", str(folder), "-c", "user.name=a", "-c", "user.email=b@c", *words]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    run("init", "-q")
    run("commit", "-q", "--allow-empty", "-m", "x")
    (folder / "src" / "deep").mkdir(parents=True)
    return run


@needs_git
def test_the_commit_that_is_checked_out(git: Callable[..., str], tmp_path: Path) -> None:
    """On a branch, with packed references, detached, in another working tree; as git says."""
    folder = tmp_path / "repository" / "src" / "deep"
    head = git("rev-parse", "HEAD")
    assert commit_of(folder) == head
    git("pack-refs", "--all")
    git("worktree", "add", "-q", "-b", "other", str(tmp_path / "tree"))
    assert commit_of(folder) == commit_of(tmp_path / "tree") == head
    git("checkout", "-q", "--detach")
    assert commit_of(folder) == head and commit_of(tmp_path) == ""


@pytest.mark.parametrize("head", ["", "ref: refs/heads/../../../secret", "ref: /etc/passwd", "x" * 40, "ref: refs/heads/none"])
def test_what_is_no_commit(head: str, tmp_path: Path) -> None:
    (tmp_path / ".git" / "refs" / "heads").mkdir(parents=True)
    (tmp_path / "secret").write_text("a" * 40)
    (tmp_path / ".git" / "HEAD").write_text(head)
    assert commit_of(tmp_path) == ""


@needs_git
def test_when_a_commit_was_made(git: Callable[..., str], tmp_path: Path) -> None:
    folder = tmp_path / "repository"
    made = float(git("show", "-s", "--format=%ct", "HEAD"))
    assert commit_time("HEAD", folder) == commit_time(git("rev-parse", "HEAD")[:9], folder) == made
    assert commit_time("v9", folder) is None and commit_time("--help", folder) is None and commit_time("HEAD", tmp_path) is None


def test_an_entry_survives_its_file() -> None:
    entry = of_crash(CRASH, "/crashes/x", host="h")
    assert msgspec.json.decode(msgspec.json.encode(entry), type=Entry) == entry
