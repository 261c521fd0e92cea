"""One real core, cut where a full disk would have cut it."""

from __future__ import annotations

import re
import struct
from functools import cache
from pathlib import Path

import pytest

from crashkit.elf import notes
from crashkit.model import Crash, Thread
from crashkit.pipeline import analyze
from crashkit.report import answer, json, text
from tests.crashes import Folder, an_interpreter, every_interpreter, needs_x86_64, python_crash
from tests.test_stacks_truth import python_lines, true_lines
from tests.truth import backtrace, faulthandler

pytestmark = [needs_x86_64(), pytest.mark.slow]

KEPT = [95, 60, 30, 5]
STACKS_OF_THE_INTERPRETER = ("_PyEval_", "PyEval_EvalCode", "_PyFunction_", "function_code_fastcall")


@pytest.fixture(scope="module")
def crashed() -> Folder:
    return python_crash("threads.py", python=an_interpreter())


@pytest.fixture(scope="module")
def cut(crashed: Folder, tmp_path_factory: pytest.TempPathFactory):
    """The report of the core cut to so many percent."""
    data, folder = crashed.core.read_bytes(), tmp_path_factory.mktemp("cut")

    @cache
    def analyzed(percent: int) -> Crash:
        path: Path = folder / f"core-{percent}"
        path.write_bytes(data[: len(data) * percent // 100])
        return analyze(path)

    return analyzed


@pytest.mark.parametrize("percent", KEPT)
def test_how_much_is_missing_is_said(crashed, cut, percent):
    crash = cut(percent)
    size = crashed.core.stat().st_size
    assert crash.source.truncated
    assert crash.source.size == size * percent // 100
    assert crash.source.missing == size - crash.source.size
    assert any(f"{crash.source.missing:,} bytes of memory are missing" in error.message and error.hint for error in crash.soft_errors)
    assert json.decode(json.encode(crash)) == crash


@pytest.mark.parametrize("at", ["rows", "paths"])
def test_notes_that_end_among_the_mapped_files_name_only_files_that_there_are(crashed, tmp_path, at):
    """Neither the beginning of a row nor that of a path is a path."""
    data = crashed.core.read_bytes()
    note = data.index(struct.pack("<I", notes.NT_FILE) + b"CORE\0") + 12
    (count,) = struct.unpack_from("<Q", data, note)
    assert count > 8
    paths = note + 8 * (2 + 3 * count)
    end = {"rows": note + 8 * (2 + 3 * 5) + 20, "paths": data.index(b"\0", paths) - 3}[at]
    (tmp_path / "core").write_bytes(data[:end])
    crash, whole = analyze(tmp_path / "core"), analyze(crashed.core)
    assert {module.path for module in crash.modules if module.path.strip()} <= {module.path for module in whole.modules}
    assert not re.search(r"\\x|not on this machine", "\n".join(text.summary(crash, None, False, 120)))


@pytest.mark.parametrize("percent", KEPT)
def test_what_the_notes_tell_is_all_there(crashed, cut, percent):
    """They lie at the beginning of the file."""
    crash, whole = cut(percent), analyze(crashed.core)
    assert (crash.signal.number, crash.signal.name) == (11, "SIGSEGV")
    assert [thread.tid for thread in crash.threads] == [thread.tid for thread in whole.threads]
    assert crash.crashed_thread == whole.crashed_thread
    assert [module.path for module in crash.modules if module.symbols != "missing"]
    assert crash.process.pid == whole.process.pid
    for ours, all_of_it in zip(crash.threads[1:], whole.threads[1:], strict=True):
        assert ours.registers == all_of_it.registers


@pytest.mark.parametrize("percent", KEPT)
def test_reason_is_right_or_not_given(crashed, cut, percent):
    """It lies on the crashed thread's stack, behind faulthandler's raise."""
    signal = cut(percent).signal
    if signal.recovered:
        assert (signal.reason, signal.address) == ("null-pointer", 16)
    else:
        assert signal.reason is None and signal.address is None
    assert signal.recovered == (percent >= 30)


def without_the_interpreter(names: list[str]) -> list[str]:
    return [name for name in names if not name.startswith(STACKS_OF_THE_INTERPRETER)]


@pytest.mark.parametrize("percent", KEPT)
def test_native_frames_that_are_there_are_gdbs_of_the_whole_core(crashed, cut, percent):
    truth = backtrace(crashed.backtrace())
    crash = cut(percent)
    for thread in crash.threads:
        ours = without_the_interpreter([frame.function or "??" for frame in thread.natives()])
        # gdb has frames more: those that run Python, which a stripped interpreter does not name.
        # It lacks names that crashkit finds in separate debug files.
        rest = iter(without_the_interpreter(truth[thread.tid]))
        for name in ours:
            assert any(theirs in (name, "??") for theirs in rest), (thread.tid, name, ours, truth[thread.tid])
        assert ours, "a frame needs no memory: its registers are in the notes"
    deep = [thread for thread in crash.threads if _is_whole(thread, truth[thread.tid or 0])]
    assert len(deep) >= {95: 5, 60: 2, 30: 1, 5: 0}[percent]


def _is_whole(thread: Thread, truth: list[str]) -> bool:
    last = [frame.function or "??" for frame in thread.natives()][-1:]
    return last == truth[-1:] or (truth[-1:] == ["??"] and last[0] in ("clone3", "__clone3", "__GI___clone3", "_start"))


def check_not_made_up(ours: list, true: list) -> None:
    """Every frame is one of the true ones, in order; what is lost of one is missing."""
    rest = iter(true)
    for line in ours:
        assert any(all(mine in (None, "", theirs) for mine, theirs in zip(line, one, strict=True)) for one in rest), (ours, true)


@pytest.mark.parametrize("percent", KEPT)
def test_python_frames(crashed, cut, percent):
    """Which memory a cut takes differs from process to process: of little missing, most threads are exact."""
    truth = faulthandler(crashed.stderr)
    exact = 0
    for thread in cut(percent).threads:
        ours, true = python_lines(thread), true_lines(truth[thread.pthread])
        check_not_made_up(ours, true)
        exact += ours == true
    # Without debug info there is only PyStack, which gives up where it cannot read what it begins with.
    if percent == 95 and cut(percent).python.debug_info:
        assert exact >= 3


@pytest.mark.parametrize("percent", KEPT)
def test_nobody_else_is_asked_for_what_the_file_does_not_hold(cut, percent):
    assert "pystack" not in cut(percent).seconds


@pytest.mark.parametrize("python", every_interpreter())
def test_nobody_is_asked_where_no_thread_is_left(python, tmp_path):
    """Of 5 % no thread state is there; without debug info PyStack would be asked, and tell its own troubles."""
    data, path = python_crash("threads.py", python=python).core.read_bytes(), tmp_path / "core"
    path.write_bytes(data[: len(data) // 20])
    crash = analyze(path)
    assert "pystack" not in crash.seconds and not [error for error in crash.soft_errors if "PyStack" in error.message]


@pytest.mark.parametrize("percent", [97, 90, 60, 5])
@pytest.mark.parametrize("python", every_interpreter())
def test_a_thread_whose_frames_could_not_be_read_is_not_said_to_have_none(python, percent, tmp_path):
    """All threads of this program run Python code."""
    data, path = python_crash("threads.py", python=python).core.read_bytes(), tmp_path / "core"
    path.write_bytes(data[: len(data) * percent // 100])
    crash = analyze(path)
    for thread in crash.threads:
        assert bool(thread.python_unread) == (next(thread.pythons(), None) is None)
    shown = "\n".join(text.summary(crash, None, False, 120))
    assert "no Python frame" not in shown and "ran no Python" not in shown
    assert (": the core is truncated\n" in shown) == (answer.answer(crash) is None or bool(crash.thread.python_unread))
