"""Tracebacks that do not say what ended the process: those that are cut, and those of a process that only lost the other end of a pipe."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from crashkit.diagnose import diagnose, load_catalog
from crashkit.evidence.text.log import crash_of_log, read_log
from crashkit.model import Crash

STORE = """Traceback (most recent call last):
  File "/srv/app/train.py", line 264, in <module>
    main()
  File "/srv/app/train.py", line 100, in main
    torch.distributed.init_process_group("nccl")
  File "/opt/venv/lib/python3.12/site-packages/torch/distributed/rendezvous.py", line 174, in _create_c10d_store
    return TCPStore(
           ^^^^^^^^^
"""
LAST = "torch.distributed.DistStoreError: Timed out after 1801 seconds waiting for clients. 1/2 clients joined.\n"

WORKERS = """
import multiprocessing, os, sys

def work(pipe):
    pipe.recv()
    if sys.argv[1] == "raises":
        raise ValueError("no such column")
    os._exit(3)

def ask():
    multiprocessing.set_start_method("fork")
    ours, its = multiprocessing.Pipe()
    worker = multiprocessing.Process(target=work, args=(its,))
    worker.start()
    its.close()
    ours.send(1)
    if sys.argv[2] == "send":
        worker.join()
        ours.send(2)
    ours.recv()

ask()
"""


def read(text: str, folder: Path) -> Crash:
    log = folder / "posted.log"
    log.write_text(text)
    return diagnose(crash_of_log(log, read_log(log)), load_catalog())


def functions(crash: Crash) -> list[str | None]:
    return [frame.function for thread in crash.threads for frame in thread.pythons()]


@pytest.mark.parametrize("first", [0, 1, 3], ids=["whole", "without its head", "without its head and its first frame"])
def test_a_traceback_that_is_cut_shows_where_it_was(first: int, tmp_path: Path) -> None:
    crash = read("".join(STORE.splitlines(keepends=True)[first:]), tmp_path)
    assert functions(crash) == ["_create_c10d_store", "main", "<module>"][: 3 if first < 3 else 2]
    assert any("does not say what was raised" in error.message for error in crash.soft_errors)
    assert [(finding.id, finding.confidence) for finding in crash.findings] == [("rendezvous-failed", "possible")]


def test_a_whole_one_is_answered_by_what_was_raised(tmp_path: Path) -> None:
    crash = read(STORE + LAST, tmp_path)
    assert [(finding.id, finding.confidence) for finding in crash.findings][:1] == [("rendezvous-failed", "certain")]
    assert not any("does not say what was raised" in error.message for error in crash.soft_errors)
    crash = read(STORE + "KeyboardInterrupt\n", tmp_path)
    assert not crash.findings


def printed(what: str, how: str, folder: Path) -> str:
    program = folder / "ask.py"
    program.write_text(WORKERS)
    return subprocess.run([sys.executable, str(program), what, how], capture_output=True, text=True, check=False, timeout=60).stderr


@pytest.mark.parametrize("how", ["receive", "send"])
def test_who_loses_the_other_end_of_a_pipe_only_tells_of_its_end(how: str, tmp_path: Path) -> None:
    crash = read(printed("dies", how, tmp_path), tmp_path)
    (finding,) = crash.findings
    assert (finding.id, finding.confidence) == ("supervisor-worker-crashed", "possible")
    assert ("BrokenPipeError" if how == "send" else "EOFError") in finding.summary
    assert functions(crash)[-2:] == ["ask", "<module>"]


def test_where_a_syntax_error_is_in_text_is_no_frame(tmp_path: Path) -> None:
    """It has no function, as every frame has, and would hide the line of the program that compiled the text."""
    program = tmp_path / "rules.py"
    program.write_text("def load(rule):\n    return compile(rule, '<rule>', 'eval')\nload('1 +')\n")
    crash = read(subprocess.run([sys.executable, str(program)], capture_output=True, text=True, timeout=60).stderr, tmp_path)
    assert functions(crash) == ["load", "<module>"]


def test_the_exception_of_the_other_process_is_shown_where_it_is_known(tmp_path: Path) -> None:
    crash = read(printed("raises", "send", tmp_path), tmp_path)
    assert functions(crash)[0] == "work"
    assert not crash.findings


def test_an_end_of_a_file_is_no_end_of_a_process(tmp_path: Path) -> None:
    frame = '  File "/srv/app.py", line 3, in load\n    return pickle.load(file)\n'
    assert not read(f"Traceback (most recent call last):\n{frame}EOFError: Ran out of input\n", tmp_path).findings


def test_a_bus_error_beside_an_exception_about_the_same_memory_is_of_that(tmp_path: Path) -> None:
    bus = "ERROR: Unexpected bus error encountered in worker. This might be caused by insufficient shared memory (shm).\n"
    full = "RuntimeError: unable to write to file </torch_901_2100000002>\n"
    crash = read(bus + full, tmp_path)
    assert (crash.findings[0].id, crash.findings[0].confidence) == ("dataloader-worker-sigbus", "likely")
    crash = read(bus, tmp_path)
    assert (crash.findings[0].id, crash.findings[0].confidence) == ("dataloader-worker-sigbus", "possible")


RAISED = """Traceback (most recent call last):
  File "/srv/player.py", line 143, in play
    mixer.init(48000)
{error}: no such device
"""


@pytest.mark.parametrize("error", ["pygame.error", "cv2.error", "socket.gaierror", "RuntimeError"])
def test_exceptions_of_any_name_end_a_traceback(error: str, tmp_path: Path) -> None:
    crash = read(RAISED.format(error=error), tmp_path)
    assert crash.log[0].kind == "exception" and crash.log[0].fields["exception"] == error
    assert not crash.soft_errors


def test_a_log_line_ends_none(tmp_path: Path) -> None:
    crash = read(RAISED.format(error="app.timeouts"), tmp_path)
    assert not [line for line in crash.log if line.kind == "exception"]


def test_a_line_that_raised_did_not_abort(tmp_path: Path) -> None:
    crash = read(RAISED.format(error="RuntimeError") + "Aborted (core dumped)\n", tmp_path)
    (finding,) = crash.findings
    assert finding.id == "self-abort" and "player.py" not in " ".join((finding.summary, *finding.fix))


def test_what_systemd_says_of_a_status_is_a_signal_s_where_it_is_one(tmp_path: Path) -> None:
    said = "systemd[1]: app.service: Main process exited, code=exited, status={}/n/a\n"
    crash = read(said.format(139), tmp_path)
    assert crash.signal is not None and crash.signal.name == "SIGSEGV"
    assert read(said.format(3) + "the service crashes\n", tmp_path).signal is None
