"""What the process said as it died, from the core alone, without gdb and debug info: compared with what it wrote."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Optional

import pytest

from crashkit.debugger.direct import DirectReader
from crashkit.model import Crash, LogLine
from crashkit.pipeline import Options, analyze
from crashkit.report import text, wording

from ..crashes import (
    CRASHERS,
    DEADLINE,
    NO_COMPILER,
    Folder,
    an_interpreter,
    every_interpreter,
    interpreters,
    lock,
    needs_gdb,
    needs_x86_64,
    python_crash,
)
from ..crashes import crash as made_crash
from ..packages import folder_with, install

NO_RUST = "no rustc here: https://rustup.rs"
NO_GLOG = "no headers of glog here: apt-get install libgoogle-glog-dev"
NO_ABSL = "no headers of absl here: apt-get install libabsl-dev"

pytestmark = needs_x86_64()


def library(source: str, *options: str, needs: Optional[str] = None, reason: str = "") -> Path:
    """The shared library made of a file of fixtures/crashers, built once in a session."""
    path = CRASHERS / source
    compiler = shutil.which("rustc" if path.suffix == ".rs" else "g++")
    if compiler is None:
        pytest.skip(NO_RUST if path.suffix == ".rs" else NO_COMPILER)
    if needs is not None and not Path("/usr/include", needs).exists():
        pytest.skip(reason)
    root = Path(os.environ["CRASHKIT_TEST_CRASHES"])
    made = root / f"{path.stem}-{hashlib.sha256(repr((path.read_bytes(), options)).encode()).hexdigest()[:12]}.so"
    first = ["--crate-type", "cdylib"] if path.suffix == ".rs" else ["-shared", "-fPIC", "-O1"]
    with lock(made.with_suffix(".lock")):
        if not made.exists():
            command = [compiler, *first, path, "-o", made, *options]
            done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE)
            assert done.returncode == 0, done.stderr
    return made


def ended(made: Path, function: str, *, faulthandler: bool = False) -> tuple[Folder, Crash]:
    folder = python_crash("call.py", str(made), function, python=an_interpreter(), faulthandler=faulthandler)
    return folder, analyze(folder.core, options=Options(gdb=None))


def said(crash: Crash) -> list[LogLine]:
    return [line for line in crash.log if line.from_core]


THROWN = (
    *("runtime", "derived", "both", "own", "torch", "memory", "range", "system_error", "plain"),
    *("in_noexcept", "rethrown", "bare", "after_caught", "no_value", "other_any", "array_length"),
)


@pytest.mark.slow
@pytest.mark.parametrize("function", THROWN)
def test_of_terminate(function: str) -> None:
    """As the program wrote them, word for word."""
    folder, crash = ended(library("exceptions.cpp"), function)
    wrote = re.findall(r"^(?:terminate called|  what\(\):).*", folder.stderr, re.MULTILINE)
    assert wrote and [line.text for line in said(crash)] == wrote
    assert {line.kind for line in said(crash)} <= {"terminate", "terminate-c10", "terminate-bare", "what"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("function", "type_", "what"),
    [("number", "int", "42"), ("characters", "char const*", "just characters"), ("text", "std::__cxx11::basic_string", "a string")],
)
def test_of_what_is_no_exception(function: str, type_: str, what: str) -> None:
    """The program does not write the value; the core has it."""
    folder, crash = ended(library("exceptions.cpp"), function)
    first, second = said(crash)
    assert first.text in folder.stderr and first.fields["type"].startswith(type_)
    assert second.fields == {"what": what}


@pytest.mark.slow
def test_words_are_kept_where_the_interpreters_memory_cannot_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: DirectReader, _thrown: int) -> None:
        raise RecursionError

    monkeypatch.setattr(DirectReader, "carried", fail)
    _, crash = ended(library("exceptions.cpp"), "own")
    assert [line.kind for line in said(crash)] == ["terminate", "what"]
    assert [error.message for error in crash.soft_errors if "carried failed: RecursionError" in error.message]


KEPT = ("kept_and_second", "caught_kept_and_second", "caught_here_and_second")
FIRST = "a C++ exception was unwinding the stack: 'std::runtime_error': the first one"


@pytest.mark.slow
@pytest.mark.parametrize("function", ["second", "second_in_noexcept", *KEPT])
def test_of_an_exception_thrown_while_another_one_unwound_the_stack(function: str) -> None:
    """The second one is why; the first one is known. One that is kept somewhere has nothing to do with it."""
    _, crash = ended(library("exceptions.cpp", "-g"), function)
    assert FIRST in [line.text for line in said(crash)] and not any("nobody's" in line.text for line in said(crash))
    told = crash.findings[0]
    assert (told.id, told.confidence) == ("cxx-throw-in-destructor", "certain")
    assert "type std::logic_error" in told.summary and "Its message: from the destructor." in told.summary
    assert "It came while another one unwound the stack: 'std::runtime_error': the first one." in told.summary


@needs_gdb
@pytest.mark.slow
@pytest.mark.parametrize(
    ("function", "finding", "says", "fix"),
    [
        ("bare", "cxx-terminate-called", "bare called std::terminate().", "what leads to the call in bare"),
        ("terminate_in_handler", "cxx-terminate-called", "handling an exception of type std::runtime_error: being handled.", "the call in"),
        ("nothing_to_rethrow", "cxx-terminate-no-exception", "std::terminate was called without an exception.", "Do not run `throw;`"),
        ("joinable", "cxx-terminate-no-exception", "std::terminate was called without an exception.", "thread.join()"),
        ("in_noexcept", "cxx-throw-in-destructor", "type std::runtime_error", "~T() noexcept"),
        ("runtime", "cxx-uncaught-exception", "type std::runtime_error was not caught", "catch"),
    ],
)
def test_who_called_terminate(function: str, finding: str, says: str, fix: str) -> None:
    folder, crash = ended(library("exceptions.cpp", "-g"), function)
    assert_each_caller_once(crash)
    crash = analyze(folder.core)
    told = crash.findings[0]
    assert told.id == finding and says in told.summary and fix in told.fix[0]
    assert ("std::thread" in " ".join(told.fix)) == (function == "joinable")
    # Neither the runtime's functions nor `std::__terminate`, an inline one of a header, are what failed.
    native = wording.native_at(crash.thread, crash.signal)
    assert native is not None and "terminate" not in (native.function or "").replace("terminate_in_handler", "")
    assert not any("was unwinding" in line.text for line in said(crash))
    assert_each_caller_once(crash)


def assert_each_caller_once(crash: Crash) -> None:
    """In the answer, and in the lines below it; without symbols of libstdc++, too."""
    for part in "\n".join(text.summary(crash, None, color=False, width=400, brief=True)).split("\n\n"):
        named = re.findall(r"called by +(\S+)", part)
        assert len(named) == len(set(named)), part


@pytest.mark.slow
def test_of_an_abort_in_a_handler() -> None:
    _, crash = ended(library("exceptions.cpp"), "abort_in_handler")
    assert [line.text for line in said(crash)] == [
        "aborted while handling a C++ exception of type 'std::runtime_error'",
        "  what():  being handled",
    ]
    assert not [line for line in crash.log if line.kind == "terminate"]


@pytest.mark.slow
@pytest.mark.parametrize("function", ["abort_after_caught", "fault_in_handler"])
def test_nothing_was_said(function: str) -> None:
    """An exception that was caught is over; one that is being handled did not cause a fault."""
    _, crash = ended(library("exceptions.cpp"), function)
    assert said(crash) == []


@pytest.mark.slow
@pytest.mark.parametrize("faulthandler", [False, True])
def test_of_a_failed_assertion(faulthandler: bool) -> None:
    folder, crash = ended(library("exceptions.cpp"), "asserted", faulthandler=faulthandler)
    (line,) = said(crash)
    assert line.kind == "c-assert" and line.text in folder.stderr


@pytest.mark.slow
@pytest.mark.parametrize("function", ["fatal", "check"])
def test_of_glog(function: str) -> None:
    folder, crash = ended(library("glog_fatal.cpp", "-lglog", needs="glog", reason=NO_GLOG), function)
    (line,) = said(crash)
    assert line.text in folder.stderr.splitlines()
    assert line.kind == "glog-check"


@pytest.mark.slow
@pytest.mark.parametrize("function", ["fatal", "check"])
def test_of_absl(function: str) -> None:
    options = ("-std=c++17", "-labsl_raw_logging_internal")
    folder, crash = ended(library("absl_fatal.cpp", *options, needs="absl", reason=NO_ABSL), function)
    assert [line.text for line in said(crash)] == [folder.stderr.splitlines()[0]]


@pytest.mark.slow
@pytest.mark.network
def test_of_absl_in_a_wheel(tmp_path: Path) -> None:
    """CHECK of the newer absl, in OR-Tools, which has libraries of its own with symbols. Nobody has called absl::InitializeLog."""
    python = an_interpreter()
    target = tmp_path / "packages"
    install(python, target, "ortools", "absl-py", options=["--no-deps"])
    (tmp_path / "plan.py").write_text("from ortools.constraint_solver import pywrapcp\npywrapcp.RoutingIndexManager(2, 1, 5)\n")
    (tmp_path / "run").mkdir()
    folder = made_crash([python.path, tmp_path / "plan.py"], tmp_path / "run", {"PYTHONPATH": str(target)})
    crash = analyze(folder.core)
    (line,) = said(crash)
    assert line.kind == "glog-check" and line.text.rstrip() in folder.stderr
    assert (crash.findings[0].id, crash.findings[0].confidence) == ("glog-check-failed", "certain")
    assert "start <= num_nodes_ (5 vs. 2)." in (crash.findings[0].summary or "")
    native = wording.native_at(crash.thread, crash.signal)
    assert native is not None and "RoutingIndexManager" in (native.function or ""), "absl's own functions only end the process"
    log = tmp_path / "stderr.log"
    log.write_text(folder.stderr)
    assert analyze(log).findings[0].id == "glog-check-failed"


@pytest.mark.slow
@pytest.mark.parametrize("options", [(), ("-s",), ("-D_GLIBCXX_USE_CXX11_ABI=0",)], ids=["symbols", "stripped", "older ABI"])
@pytest.mark.parametrize("function", ["fatal", "check", "brief", "lines"])
def test_of_a_stream(function: str, options: tuple[str, ...]) -> None:
    """As TensorFlow's: with the time that is lost, the first line as it was written."""
    folder, crash = ended(library("stream_fatal.cpp", *options), function)
    (line,) = said(crash)
    written = next(text for text in folder.stderr.splitlines() if "] " in text)
    assert line.text == written.partition("123456: ")[2]
    assert line.fields == {"place": line.text[2:].partition("]")[0], "expression": written.partition("] ")[2]}
    assert (crash.findings[0].id, crash.findings[0].confidence) == ("glog-check-failed", "certain")


@pytest.mark.slow
@pytest.mark.parametrize("function", ["error", "silent"])
def test_a_stream_that_did_not_end_the_process_or_says_nothing(function: str) -> None:
    _, crash = ended(library("stream_fatal.cpp"), function)
    assert said(crash) == []


@pytest.mark.slow
@pytest.mark.network
@pytest.mark.timeout(600)
def test_of_xla_in_a_wheel(tmp_path: Path) -> None:
    """A CHECK and a LOG(FATAL) of XLA, which has TensorFlow's; without gdb, which takes long for 170 MB."""
    python = next((one for one in interpreters() if one.version[:2] == (3, 11)), None)
    if python is None:
        pytest.skip("needs CPython 3.11, which the wheel is for")
    packages = folder_with(python, "jaxlib==0.4.13", "numpy<2", "ml_dtypes<0.3")
    program = tmp_path / "shape.py"
    program.write_text("from jaxlib import xla_extension as xla\nxla.Shape.tuple_shape([xla.Shape.token_shape()]).layout()\n")
    (tmp_path / "run").mkdir()
    folder = made_crash([python.path, program], tmp_path / "run", {"PYTHONPATH": str(packages)})
    crash = analyze(folder.core, options=Options(gdb=None))
    (line,) = said(crash)
    assert line.text.startswith("F external/xla/xla/shape.h:") and "Check failed: has_layout()" in line.text
    assert line.text.rstrip() in folder.stderr
    assert (crash.findings[0].id, crash.findings[0].confidence) == ("glog-check-failed", "certain")


QT = {
    "widget": (
        "from PySide6 import QtWidgets\nQtWidgets.QWidget()\n",
        "QWidget: Must construct a QApplication before a QWidget",
        "qt-no-application",
    ),
    "pixmap": (
        "from PySide6.QtGui import QPixmap\nQPixmap(8, 8)\n",
        "QPixmap: Must construct a QGuiApplication before a QPixmap",
        "qt-no-application",
    ),
    "thread": (
        "from PySide6.QtCore import QCoreApplication, QThread\nclass W(QThread):\n    def run(self):\n        while True: self.msleep(5)\n"
        "app = QCoreApplication([])\nW().start()\nQThread.msleep(20)\n",
        "QThread: Destroyed while thread '…' is still running",
        "qt-object-lifetime",
    ),
}


@pytest.mark.long
@pytest.mark.parametrize("name", QT)
def test_of_qt(name: str, tmp_path: Path) -> None:
    """Its libraries of PySide6, which have the names of exported functions only."""
    script, words, signature = QT[name]
    python = an_interpreter()
    packages = folder_with(python, "PySide6_Essentials")
    (tmp_path / "show.py").write_text(script)
    (tmp_path / "run").mkdir()
    variables = {"PYTHONPATH": str(packages), "QT_QPA_PLATFORM": "offscreen"}
    imports = script.partition("\n")[0]
    if subprocess.run([python.path, "-c", imports], env=os.environ | variables, capture_output=True, check=False).returncode:
        pytest.skip("libraries that Qt needs are not here: apt-get install libegl1 libxkbcommon0 libdbus-1-3")
    folder = made_crash([python.path, tmp_path / "show.py"], tmp_path / "run", variables)
    crash = analyze(folder.core, options=Options(gdb=None))
    assert [line.text for line in said(crash)] == [words]
    assert words.replace("…", "") in folder.stderr
    assert (crash.findings[0].id, crash.findings[0].confidence) == (signature, "certain")


@pytest.mark.slow
@pytest.mark.parametrize("panic", ["unwind", "abort"])
@pytest.mark.parametrize("function", ["literal", "formatted", "unwrapped"])
def test_of_a_panic(function: str, panic: str) -> None:
    folder, crash = ended(library("panics.rs", "-C", f"panic={panic}", "-C", "strip=symbols"), function)
    (line,) = said(crash)
    place, message = re.findall(r"panicked at (.*?):?\n(.*)", folder.stderr)[0]
    assert line.kind == "rust-panic" and line.fields["message"] == message
    assert line.fields.get("place", place) == place and ("place" in line.fields) is (panic == "abort")
    assert crash.findings[0].id == "rust-panic"


@pytest.mark.slow
def test_of_a_panic_that_was_caught() -> None:
    _, crash = ended(library("panics.rs", "-C", "panic=unwind"), "caught")
    assert said(crash) == []


@pytest.mark.slow
@pytest.mark.parametrize("faulthandler", [False, True])
@pytest.mark.parametrize("words", ["constant", "given"])
@pytest.mark.parametrize("python", every_interpreter())
def test_of_a_fatal_error(python, words: str, faulthandler: bool) -> None:
    """Stripped or not: what gdb would say is not needed."""
    folder = python_crash("fatal.py", words, python=python, faulthandler=faulthandler)
    crash = analyze(folder.core, options=Options(gdb=None))
    wrote = re.search(r"^Fatal Python error: .*", folder.stderr, re.MULTILINE)
    assert wrote is not None
    lines = [line for line in said(crash) if line.kind == "fatal-python-error"]
    if words == "given" and python.version < (3, 10):
        # fatal_error() itself keeps nothing of it.
        assert not lines
        return
    (line,) = lines
    # 3.9 passes the function's name in a way that is lost.
    assert line.text == wrote[0] or (python.version < (3, 10) and wrote[0].endswith(line.fields["message"]))


def test_a_log_that_has_the_words_is_enough(tmp_path: Path) -> None:
    folder = python_crash("fatal.py", "constant", python=an_interpreter(), faulthandler=False)
    log = tmp_path / "stderr.log"
    log.write_text(folder.stderr)
    crash = analyze([folder.core, log], options=Options(gdb=None))
    assert [line.kind for line in crash.log].count("fatal-python-error") == 1 and not said(crash)
