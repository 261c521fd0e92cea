"""py-spy's dump of a process that hangs: its threads and their Python frames are read."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from crashkit.errors import EvidenceError
from crashkit.evidence.text.log import read_log
from crashkit.model import NativeFrame, PythonFrame
from crashkit.pipeline import analyze

DUMP = """\
Process 811: python3 serve.py --port 80
Python v3.11.7 (/usr/bin/python3.11)

Thread 811 (idle): "MainThread"
    wait (threading.py:320)
    result (concurrent/futures/_base.py:451)
    <module> (serve.py:13)
Thread 812 (active+gil): "ThreadPoolExecutor-0_0"
    pthread_cond_wait@@GLIBC_2.3.2 (libc.so.6)
    decode (/srv/app.py:12)
        Arguments:
            data: <bytes at 0x7f>
    run (threading.py:982)
Thread 0x7F768F77C740 (idle)
    select (selectors.py:415)
"""


def test_its_threads_are_read(tmp_path: Path) -> None:
    path = tmp_path / "dump.txt"
    path.write_text(f"I ran `py-spy dump`:\n{DUMP}\nany idea?\n")
    found = read_log(path)
    assert found.signal is None and found.crashed_thread is None
    assert [(thread.tid, thread.name, thread.holds_gil) for thread in found.threads] == [
        (811, "MainThread", False),
        (812, "ThreadPoolExecutor-0_0", True),
        (None, None, False),
    ]
    assert found.threads[2].pthread == 0x7F768F77C740
    (waits, decodes, _) = found.threads
    assert waits.frames[-1] == PythonFrame(function="<module>", file="serve.py", line=13, origin="py-spy")
    assert [type(frame) for frame in decodes.frames] == [NativeFrame, PythonFrame, PythonFrame]
    assert decodes.frames[0] == NativeFrame(function="pthread_cond_wait@@GLIBC_2.3.2", module="libc.so.6", trust="text")


@pytest.mark.parametrize(
    ("place", "python"),
    [
        ("serve.py:13", True),
        ("/srv/fast.pyx:4", True),
        ("<frozen importlib._bootstrap>:228", True),
        ("<string>:1", True),
        ("/usr/bin/torchrun:8", True),
        ("/opt/v2.1/bin/torchrun:8", True),
        ("Objects/call.c:120", False),
        ("src/lib.rs:12", False),
        ("../sysdeps/unix/sysv/linux/x86_64/clone3.S:81", False),
    ],
)
def test_native_frames_have_lines_too(place: str, python: bool, tmp_path: Path) -> None:
    path = tmp_path / "dump.txt"
    path.write_text(f'Thread 811 (idle): "MainThread"\n    do_work ({place})\n    <module> (serve.py:13)\n')
    ((first, _),) = (thread.frames for thread in read_log(path).threads)
    assert isinstance(first, (PythonFrame, NativeFrame)) and isinstance(first, PythonFrame) == python
    assert f"{first.file}:{first.line}" == place


def test_the_report_has_them_and_no_crash(tmp_path: Path) -> None:
    path = tmp_path / "dump.txt"
    path.write_text(DUMP)
    crash = analyze([path])
    assert len(crash.threads) == 3 and crash.signal is None
    assert not [finding for finding in crash.findings if finding.confidence == "certain"]


@pytest.mark.parametrize(
    "text",
    [
        "the Thread 12 (idle) of the pool\n    waits (a.py:3)\n",
        'Thread 12 (idle): "MainThread"\nnothing follows\n',
        "Thread 12 (running)\n    f (a.py:3)\n",
    ],
)
def test_what_only_resembles_one(text: str, tmp_path: Path) -> None:
    path = tmp_path / "dump.txt"
    path.write_text(text)
    with pytest.raises(EvidenceError):
        read_log(path)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("py-spy") is None, reason="py-spy is not installed: pipx install py-spy")
def test_a_real_dump(tmp_path: Path) -> None:
    script = tmp_path / "waits.py"
    script.write_text("import sys\n\ndef listen():\n    print('ready', flush=True)\n    sys.stdin.read()\n\nlisten()\n")
    with subprocess.Popen([sys.executable, script], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline()
        told = subprocess.run(["py-spy", "dump", "--pid", str(process.pid)], capture_output=True, text=True, check=True, timeout=60)
        process.communicate()
    path = tmp_path / "dump.txt"
    path.write_text(told.stdout)
    (thread,) = read_log(path).threads
    assert re.search(r"listen", str([frame.function for frame in thread.pythons()]))
