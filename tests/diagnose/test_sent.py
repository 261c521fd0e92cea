"""A signal that a process sent is no fault: no signature explains it by an instruction, and its sender is told as far as it is known."""

from __future__ import annotations

from pathlib import Path

import pytest

from crashkit.diagnose import diagnose, load_catalog
from crashkit.evidence.text.log import crash_of_log, read_log
from crashkit.model import Crash
from crashkit.pipeline import analyze
from crashkit.report import wording

from ..crashes import an_interpreter, python_crash

RAISES = """\
import os, signal, sys
number, how, handled = int(sys.argv[1]), sys.argv[2], sys.argv[3]
if handled == "dfl":
    import faulthandler
    faulthandler.disable()
if how == "kill":
    os.kill(os.getpid(), number)
elif how == "raise":
    signal.raise_signal(number)
elif how == "outside":
    if os.fork():
        while True:
            signal.pause()
    os.kill(os.getppid(), number)
    os._exit(0)
signal.pause()
"""


@pytest.mark.long
@pytest.mark.parametrize("handled", ["dfl", "faulthandler"])
@pytest.mark.parametrize("how", ["kill", "raise", "outside"])
@pytest.mark.parametrize("number", [4, 7, 8, 11], ids=["SIGILL", "SIGBUS", "SIGFPE", "SIGSEGV"])
def test_nothing_is_made_of_a_signal_that_was_sent(number: int, how: str, handled: str, tmp_path: Path) -> None:
    script = tmp_path / "raises.py"
    script.write_text(RAISES)
    told = analyze(python_crash(script, str(number), how, handled, python=an_interpreter()).core)
    assert told.signal is not None
    # faulthandler raises it again and hides who sent it.
    wanted = "raised" if how != "outside" else "sent-from-outside" if handled == "dfl" else "sent"
    assert told.signal.reason == wanted, told.signal
    known = {finding.id: finding for finding in told.findings}
    assert not known.keys() - {"killed-by-sigterm", "self-signal"}, known
    assert how != "outside" or "self-signal" not in known
    if how == "outside" and handled == "dfl":
        assert known["killed-by-sigterm"].confidence == "likely"
    else:
        assert "killed-by-sigterm" not in known, known["killed-by-sigterm"].summary


STOPPED = """\
[rank1]: Traceback (most recent call last):
[rank1]:   File "/srv/ddp.py", line 11, in train_step
[rank1]:     loss = model(batch, wrong=1)
[rank1]: TypeError: forward() got an unexpected keyword argument 'wrong'
W1121 10:00:01.000000 812 torch/distributed/elastic/api.py:897] Sending process 840 closing signal SIGTERM
E1121 10:00:01.100000 812 torch/distributed/elastic/api.py:869] failed (exitcode: 1) local_rank: 1 (pid: 841) of binary: /usr/bin/python3
Root Cause (first observed failure):
[0]:
  exitcode  : 1 (pid: 841)
"""
BY_SIGNAL = """\
W1121 10:00:01.000000 812 torch/distributed/elastic/api.py:897] Sending process 840 closing signal SIGTERM
  exitcode  : -15 (pid: 840)
  exitcode  : -11 (pid: 841)
  traceback : Signal 15 (SIGTERM) received by PID 840
  traceback : Signal 11 (SIGSEGV) received by PID 841
"""


def of_log(text: str, folder: Path) -> Crash:
    (folder / "torchrun.log").write_text(text)
    return diagnose(crash_of_log(folder / "torchrun.log", read_log(folder / "torchrun.log")), load_catalog())


def test_a_launcher_s_log_is_about_the_rank_that_failed(tmp_path: Path) -> None:
    told = of_log(STOPPED, tmp_path)
    assert "killed-by-sigterm" not in {finding.id for finding in told.findings}
    assert told.process is not None and (told.process.pid, told.process.exit_status) == (841, 1)
    assert told.signal is None
    told = of_log(BY_SIGNAL, tmp_path)
    assert told.signal is not None and told.signal.name == "SIGSEGV"
    assert told.process is not None and (told.process.pid, told.process.exit_status) == (841, 139)
    assert "killed-by-sigterm" not in {finding.id for finding in told.findings}


def test_a_process_that_only_was_stopped_is_still_told(tmp_path: Path) -> None:
    told = of_log("*** SIGTERM received by PID 811 (TID 811) on cpu 3 from PID 1; stack trace: ***\n", tmp_path)
    assert [finding.id for finding in told.findings] == ["killed-by-sigterm"]
    assert told.process is not None and told.process.pid == 811


FINALIZING = "Fatal Python error: {}\nPython runtime state: finalizing (tstate=0x0000000000000000)\n\n"


@pytest.mark.parametrize(
    ("message", "found"),
    [
        ("PyThreadState_Get: the function must be called with the GIL held, but the GIL is released", True),
        ("PyGILState_Release: thread state 0x5f must be current when releasing", True),
        ("Segmentation fault", False),
        ("Aborted", False),
        ("_enter_buffered_busy: could not acquire lock for <_io.BufferedWriter name='<stdout>'> at interpreter shutdown", False),
        ("gc_decref: negative refcount", False),
    ],
)
def test_finalizing_alone_names_no_cause(message: str, found: bool, tmp_path: Path) -> None:
    told = of_log(FINALIZING.format(message), tmp_path)
    assert ("finalization-static-dtor" in {finding.id for finding in told.findings}) is found
    assert wording.sentence(told)
