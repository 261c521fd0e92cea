"""Ends that a toolkit brings about: bindings of C++, widgets, pools. Small libraries have functions of the toolkits' names."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from crashkit.model import Crash, Finding
from crashkit.pipeline import analyze

from ..crashes import Interpreter, c_crash, needs_gdb, needs_x86_64, python_crash, some_interpreters
from .causes import library

BINDINGS = r"""
#include <cstdio>
#include <cstdlib>
#include <exception>
namespace pybind11 { struct handle { void dec_ref() noexcept { std::terminate(); } }; }
namespace nanobind { namespace detail {
void fail(const char *text) noexcept { std::fprintf(stderr, "Critical nanobind error: %s\n", text); std::abort(); }
void inst_dealloc() noexcept { fail("nanobind::detail::inst_dealloc(): attempted to remove an unknown instance (0x10)!"); }
}}
extern "C" void release() { pybind11::handle().dec_ref(); }
extern "C" void remove_instance() { nanobind::detail::inst_dealloc(); }
"""
CALL = """
import ctypes
library = ctypes.LOADER(LIBRARY)
def collect():
    library.FUNCTION()
collect()
"""
WIDGETS = r"""
#include <unistd.h>
struct QWidget { void resize(int ready); };
struct QLabel { void paintEvent(int *device); };
void QWidget::resize(int ready) { if (write(ready, "", 1) == 1) for (;;) pause(); }
void QLabel::paintEvent(int *device) { *device = 1; }
extern "C" void resize(int ready) { QWidget().resize(ready); }
extern "C" void paint() { QLabel().paintEvent(nullptr); }
"""
WINDOW = """
import ctypes, os, threading
widgets = ctypes.CDLL(LIBRARY)
ready, told = os.pipe()
def fetch():
    CALL
def main():
    threading.Thread(target=fetch, name="fetch", daemon=True).start()
    os.read(ready, 1)
    widgets.paint()
main()
"""


def crash_of(program: str, folder: Path, python: Interpreter) -> Crash:
    script = folder / "program.py"
    script.write_text(program)
    return analyze(python_crash(script, python=python, faulthandler=False).core)


def found_in(text: str, folder: Path) -> list[Finding]:
    (folder / "app.log").write_text(text)
    return list(analyze(folder / "app.log").findings)


@needs_x86_64()
@needs_gdb
@pytest.mark.slow
@pytest.mark.parametrize("loader", ["CDLL", "PyDLL"])
@pytest.mark.parametrize("python", some_interpreters("3.11"))
def test_what_pybind11_checks_without_the_gil(loader: str, python: Interpreter, tmp_path: Path) -> None:
    """CDLL gives up the GIL for the call, PyDLL does not: with the GIL, std::terminate() has another reason."""
    program = CALL.replace("LIBRARY", repr(str(library("bindings", source=BINDINGS)))).replace("FUNCTION", "release")
    finding = crash_of(program.replace("LOADER", loader), tmp_path, python).findings[0]
    assert (finding.id, finding.confidence) == ("gil-not-held" if loader == "CDLL" else "cxx-terminate-called", "likely")
    assert "called std::terminate in" not in (finding.summary or "")


@needs_x86_64()
@needs_gdb
@pytest.mark.slow
@pytest.mark.parametrize("python", some_interpreters("3.11"))
def test_a_check_of_nanobinds(python: Interpreter, tmp_path: Path) -> None:
    program = CALL.replace("LIBRARY", repr(str(library("bindings", source=BINDINGS)))).replace("FUNCTION", "remove_instance")
    finding = crash_of(program.replace("LOADER", "CDLL"), tmp_path, python).findings[0]
    assert (finding.id, finding.confidence) == ("nanobind-critical", "certain")
    assert "program.py:5 in collect" in finding.summary and "keep_alive" in finding.fix[0]


def test_the_words_of_bindings(tmp_path: Path) -> None:
    """pybind11 3.0's and nanobind 2's, as their own checks print them."""
    gil = found_in(
        "pybind11::handle::dec_ref() is being called while the GIL is either not held or invalid. Please see https://pybind11.readthedocs.io/"
        "en/stable/advanced/misc.html#common-sources-of-global-interpreter-lock-errors for debugging advice.\n"
        "If you are convinced there is no bug in your code, you can #define PYBIND11_NO_ASSERT_GIL_HELD_INCREF_DECREF\n"
        "terminate called without an active exception\n",
        tmp_path,
    )[0]
    assert (gil.id, gil.confidence) == ("gil-not-held", "certain")
    text = 'nanobind::detail::inst_dealloc(): attempted to remove an unknown instance (0x7f5e0e7c6c78) of type "__main__.Square"!'
    check = found_in(f"Critical nanobind error: {text}\nAborted (core dumped)\n", tmp_path)[0]
    assert (check.id, check.confidence) == ("nanobind-critical", "certain")
    assert text in check.summary and "keep_alive" in check.fix[0]


@needs_x86_64()
@needs_gdb
@pytest.mark.slow
@pytest.mark.parametrize("call", ["widgets.resize(told)", "os.write(told, b'1'); threading.Event().wait()"])
@pytest.mark.parametrize("python", some_interpreters("3.11"))
def test_a_widget_that_another_thread_uses(call: str, python: Interpreter, tmp_path: Path) -> None:
    """A thread that does something else is none."""
    program = WINDOW.replace("LIBRARY", repr(str(library("Qt6Widgets", source=WIDGETS)))).replace("CALL", call)
    crash = crash_of(program, tmp_path, python)
    found = {finding.id: finding for finding in crash.findings}
    assert ("gui-wrong-thread" in found) == ("resize" in call)
    if "resize" in call:
        finding = found["gui-wrong-thread"]
        assert finding.confidence == "likely"
        assert "fetch called QWidget::resize from" in finding.summary and "program.py:6 in fetch" in finding.summary
        assert not any("matplotlib" in fix for fix in finding.fix)


def test_the_words_of_qt(tmp_path: Path) -> None:
    widget = found_in("QWidget: Cannot create a QWidget without QApplication\nAborted (core dumped)\n", tmp_path)[0]
    assert (widget.id, widget.confidence) == ("qt-no-application", "certain")
    assert "a QWidget was made without a QApplication" in widget.summary
    # Nothing of a QThread was said.
    device = found_in("QPaintDevice: Cannot destroy paint device that is being painted\nSegmentation fault (core dumped)\n", tmp_path)[0]
    assert device.id == "qt-object-lifetime" and not any("QThread" in fix for fix in device.fix) and "painter.end()" in device.fix[0]


POOL = """
import concurrent.futures, os, sys
def connect(url):
    raise ConnectionError("cannot reach " + url)
def leave():
    os._exit(3)
if __name__ == "__main__":
    with concurrent.futures.EXECUTOR as pool:
        pool.submit(leave).result()
"""


@pytest.mark.slow
@pytest.mark.parametrize("executor", ["ProcessPoolExecutor(1", "ThreadPoolExecutor(1"])
def test_a_pool_whose_initializer_fails(executor: str, tmp_path: Path) -> None:
    """No worker crashed, although its executor says that one "was terminated abruptly"."""
    (tmp_path / "work.py").write_text(POOL.replace("EXECUTOR", executor + ", initializer=connect, initargs=('db://x',))"))
    ended = subprocess.run([sys.executable, "work.py"], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 1 and "Broken" in ended.stderr
    findings = found_in(ended.stderr, tmp_path)
    assert [(finding.id, finding.confidence) for finding in findings] == [("pool-initializer-failed", "certain")]
    assert "work.py:4: ConnectionError: cannot reach db://x." in findings[0].summary


@pytest.mark.slow
def test_a_worker_that_ends_itself(tmp_path: Path) -> None:
    (tmp_path / "work.py").write_text(POOL.replace("EXECUTOR", "ProcessPoolExecutor(1)"))
    ended = subprocess.run([sys.executable, "work.py"], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    finding = found_in(ended.stderr, tmp_path)[0]
    assert finding.id == "supervisor-worker-crashed" and "crashed" not in finding.title
    assert "ended by a signal or an exit of its own" in finding.summary


def test_an_end_by_an_exception_alone(tmp_path: Path) -> None:
    """It leaves no core, and nothing overwrote memory: what finds that is no next step."""
    raised = "Traceback (most recent call last):\n  File \"/srv/app.py\", line 2, in <module>\n    main()\nKeyError: 'ACME_DB'\n"
    (tmp_path / "app.log").write_text(raised)
    crash = analyze(tmp_path / "app.log")
    assert not crash.findings and not any("PYTHONMALLOC" in step for step in crash.next_steps)
    assert crash.next_steps[0].startswith("echo $?") and "if it is a signal" in crash.next_steps[1]


@needs_gdb
@pytest.mark.slow
@pytest.mark.parametrize("when", ["over", "exiting"])
@pytest.mark.parametrize("python", some_interpreters("3.11", "3.13"))
def test_a_program_that_uses_python_after_its_end(when: str, python: Interpreter) -> None:
    """In an exit handler, it is the end of the process that comes too late."""
    found = {finding.id: finding for finding in analyze(c_crash("after_finalize.c", when, python=python).core).findings}
    assert ("python-used-after-finalize" in found) == (when == "over")
    if when == "over":
        finding = found["python-used-after-finalize"]
        assert "ran after the interpreter had ended" in finding.summary and "draw in after_finalize" in finding.summary


@needs_gdb
@pytest.mark.slow
@pytest.mark.parametrize("python", some_interpreters("3.11", "3.13"))
def test_a_program_that_releases_an_object_after_the_end(python: Interpreter) -> None:
    """In 3.11 Python ends the process and says that nobody has the GIL: there is none any more."""
    finding = analyze(c_crash("after_finalize.c", "released", python=python).core).findings[0]
    assert finding.id == "python-used-after-finalize"
    assert "drop in after_finalize" in finding.summary


@needs_gdb
@needs_x86_64()
@pytest.mark.slow
@pytest.mark.parametrize("python", some_interpreters("3.11", "3.12", "3.13"))
def test_a_callback_that_c_runs_at_exit_finds_no_interpreter(python: Interpreter) -> None:
    """Nothing is damaged or missing then, and the fix is one of Python."""
    crash = analyze(python_crash("after_the_end.py", python=python).core)
    assert crash.thread is not None and not crash.thread.python_unread
    assert crash.python is not None and crash.python.finalizing
    assert not [error.message for error in crash.soft_errors if "thread states" in error.message]
    assert crash.findings[0].id == "finalization-static-dtor"
    assert [fix.split("(")[0] for fix in crash.findings[0].fix] == ["atexit.register", "atexit.register"]


@needs_gdb
@pytest.mark.slow
@pytest.mark.parametrize("python", some_interpreters("3.11", "3.13"))
def test_a_program_that_uses_python_before_its_beginning(python: Interpreter) -> None:
    crash = analyze(c_crash("after_finalize.c", "early", python=python).core)
    assert crash.python is not None and crash.python.started is False
    assert crash.thread is not None and not crash.thread.python_unread
    assert [finding.id for finding in crash.findings if finding.confidence == "likely"] == ["python-not-initialized"]
    assert "main in after_finalize" in crash.findings[0].summary


LOADER = """ERROR: Unexpected segmentation fault encountered in worker.
Traceback (most recent call last):
  File "/srv/train.py", line 10, in <module>
    for batch in loader:
  File "/venv/lib/python3.11/site-packages/torch/utils/data/dataloader.py", line 1304, in _try_get_data
    raise RuntimeError(
RuntimeError: DataLoader worker (pid(s) 17353) exited unexpectedly
"""


def test_the_line_of_a_loader_is_not_that_of_its_worker(tmp_path: Path) -> None:
    finding = found_in(LOADER, tmp_path)[0]
    assert finding.id == "dataloader-worker-killed-segv"
    assert "train.py" not in finding.summary and "The worker's own stack is not in this text." in finding.summary
    dump = "Fatal Python error: Segmentation fault\n\nCurrent thread 0x00007f (most recent call first):\n"
    dump += '  File "/srv/data.py", line 8 in decode\n\n'
    assert "The worker's crash is in /srv/data.py:8 in decode." in found_in(dump + LOADER, tmp_path)[0].summary
