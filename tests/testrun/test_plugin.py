"""`pytest --crashkit`, run for real: whatever a test does to its process, the other tests' results are there, and it is named."""

from __future__ import annotations

import os
import signal
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec

import pytest

from tests.testrun.conftest import Pytest

DEADLY = """
import ctypes, multiprocessing, os, signal, subprocess, sys, pytest

def test_first(): pass
def test_segfault(): ctypes.string_at(0)
def test_fails(): assert 1 == 2
@pytest.fixture
def deadly(): os.abort()
def test_fixture(deadly): pass
def test_killed(): os.kill(os.getpid(), signal.SIGKILL)
def test_leaves(): os._exit(0)
def test_program(): subprocess.run([sys.executable, "-c", "import ctypes; ctypes.string_at(0)"], stderr=subprocess.DEVNULL)
def test_ends_its_server():
    server = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    server.kill(); server.wait()
def die(): os.abort()
def test_child():
    child = multiprocessing.get_context("fork").Process(target=die)
    child.start(); child.join()
@pytest.mark.parametrize("value", ["a[b", "c::d"])
def test_parameters(value): pass
@pytest.mark.skip
def test_skipped(): pass
def test_last(): assert "CRASHKIT_PYTEST" not in os.environ
"""
NAMES = "first segfault fails fixture killed leaves program ends_its_server child parameters[a[b] parameters[c::d] last".split()
CRASHES = {
    "test_it.py::test_segfault crashed SIGSEGV: a null pointer was read, at 0x0000000000000000 ",
    "/test_it.py:8 in deadly: ",
    "started by test_it.py::test_program, crashed SIGSEGV",
    "started by test_it.py::test_child, crashed SIGABRT",
}


def told(summary: list[str], expected: set[str]) -> list[str]:
    """Those of the expected paragraphs that are not there."""
    return [words for words in expected if not any(words in paragraph and "report: /" in paragraph for paragraph in summary)]


@pytest.mark.slow
def test_each_test_that_kills_pytest_is_a_failed_one_and_the_rest_run(run: Pytest) -> None:
    done = run("--crashkit-rerun", tests=DEADLY)
    assert done.status == 1, done.out + done.err
    assert done.ran == [f"test_{name}" for name in NAMES], "each once, in their order"
    assert done.outcomes == {
        **{f"test_{name}": "passed" for name in NAMES},
        **{f"test_{name}": "failure" for name in ("segfault", "fails", "killed", "leaves")},
        "test_fixture": "error",
        "test_skipped": "skipped",
    }
    assert done.said_in_junit("test_segfault").startswith("SIGSEGV: a null pointer was read, at 0x0000000000000000\n")
    assert "Null (or near-null) pointer dereference" in done.said_in_junit("test_segfault")
    assert "test_it.py:5 in test_segfault: ptr = 0 in string_at, used as a pointer by " in done.said_in_junit("test_segfault")
    assert "fix: Check what " in done.said_in_junit("test_segfault")
    assert "exited with status 0 in the middle of the test" in done.said_in_junit("test_leaves")
    assert "4 failed, 7 passed, 1 skipped, 1 error" in done.out
    assert (
        done.summary[0] == "5 crashes"
        and told(done.summary, {*CRASHES, "test_it.py::test_killed crashed SIGKILL: killed possible: Killed with SIGKILL"}) == []
    )
    assert f"{run.folder}/test_it.py:5 in test_segfault" in done.summary[1]
    assert run.runner.leftovers() == [] and list(run.folder.glob("core*")) == []


@pytest.mark.slow
def test_without_rerun_the_rest_does_not_run(run: Pytest) -> None:
    done = run("--crashkit", tests=DEADLY)
    assert done.status == 1
    assert done.ran == ["test_first", "test_segfault"]
    assert done.outcomes == {"test_first": "passed", "test_segfault": "failure"}
    assert "11 tests were not run; --crashkit-rerun runs them in a fresh process" in done.out
    assert "1 failed, 1 passed" in done.out and len(done.summary) == 2


@pytest.mark.slow
def test_with_xdist(run: Pytest) -> None:
    done = run("-n2", "-o", "crashkit=true", tests=DEADLY)
    assert done.status == 1, done.out + done.err
    assert sorted(done.ran) == sorted(f"test_{name}" for name in NAMES)
    assert "5 failed, 7 passed, 1 skipped" in done.out
    assert done.summary[0] == "4 crashes" and told(done.summary, CRASHES) == []
    # pytest-xdist's own report has it, too, and with it the JUnit file.
    junit = (run.folder / "junit.xml").read_text()
    assert "while running 'test_it.py::test_segfault'\nSIGSEGV: a null pointer was read" in junit
    assert "while running 'test_it.py::test_leaves'\nthe process exited with status 0" in junit
    assert "while running 'test_it.py::test_killed'\nkilled by SIGKILL; there is no report" in junit


@pytest.mark.long
def test_with_forked(run: Pytest) -> None:
    if find_spec("pytest_forked") is None:
        pytest.skip("pytest-forked is not installed: pip install '.[dev]'")
    done = run("--crashkit", "--forked", tests=DEADLY)
    assert done.status == 1
    assert "SIGSEGV: " in done.out and told(done.summary, CRASHES) == []


HANGS = """
import time
def test_first(): pass
def wait(): time.sleep(60)
def test_hangs(): wait()
def test_last(): pass
"""
TIMEOUT = ("--timeout=1",)
THREAD = (*TIMEOUT, "--timeout-method=thread")
FAULTHANDLER = ("-o", "faulthandler_timeout=1", "--timeout=2")
EXIT = ("-o", "faulthandler_timeout=1", "-o", "faulthandler_exit_on_timeout=true")


@pytest.mark.long
@pytest.mark.parametrize("workers", [(), ("-n1",)], ids=["alone", "xdist"])
@pytest.mark.parametrize("options", [TIMEOUT, THREAD, FAULTHANDLER, EXIT], ids=["signal", "thread", "faulthandler", "exit"])
def test_a_hang_is_reported_with_the_stacks_that_were_dumped(options: tuple[str, ...], workers: tuple[str, ...], run: Pytest) -> None:
    done = run("--crashkit-rerun", *options, *workers, tests=HANGS)
    if "faulthandler_exit_on_timeout=true" in options and "unknown config option" in done.out + done.err:
        pytest.skip("this pytest has no faulthandler_exit_on_timeout")
    assert done.status == 1, done.out + done.err
    assert done.ran == ["test_first", "test_hangs", "test_last"]
    assert "1 failed, 2 passed" in done.out
    head, hang = done.summary
    assert head == "1 hang" and hang.startswith("test_it.py::test_hangs hung timed out after ")
    assert f"{run.folder}/test_it.py:4 in wait report: " in hang
    (kept,) = run.runner.crashes()
    stacks = (kept["folder"] / "stderr.log").read_text()
    first = stacks.partition("in wait")[0]
    assert "pytest_timeout" not in first and "session.py" not in first, "the stack of the test, not of what looks at it"
    assert kept["analysis"] == "done" and kept["notes"][0].startswith("test_it.py::test_hangs took more than ")


@pytest.mark.long
def test_a_file_that_kills_pytest_when_it_is_imported(run: Pytest) -> None:
    run.write("test_deadly.py", "import os\nos.abort()\n")
    done = run("--crashkit", tests="def test_first(): pass\n")
    assert done.status == pytest.ExitCode.INTERRUPTED
    assert "ERROR test_deadly.py - SIGABRT" in done.out and "1 error during collection" in done.out
    assert told(done.summary, {"test_deadly.py crashed while it was collected SIGABRT"}) == []
    done = run("--crashkit-rerun", "--continue-on-collection-errors")
    assert done.outcomes["test_first"] == "passed" and done.status == 1


@pytest.mark.slow
@pytest.mark.parametrize(("workers", "who", "status"), [((), "pytest", 139), (("-n1",), "worker gw0 of pytest-xdist", 0)])
def test_a_crash_at_exit_is_no_test_s(workers: tuple[str, ...], who: str, status: int, run: Pytest) -> None:
    done = run("--crashkit", *workers, tests="import atexit, ctypes\ndef test_first(): atexit.register(ctypes.string_at, 0)\n")
    assert done.status == status and done.outcomes == {"test_first": "passed"}
    assert told(done.summary, {f"{who} crashed at exit SIGSEGV"}) == []


@pytest.mark.slow
def test_who_terminates_pytest_is_obeyed(run: Pytest) -> None:
    done = run("--crashkit-rerun", tests="import os, signal\ndef test_it(): os.kill(os.getpid(), signal.SIGTERM)\ndef test_last(): pass\n")
    assert done.status == 143 and done.ran == ["test_it"]
    assert "crashkit: pytest was terminated by SIGTERM while running test_it.py::test_it\n" in done.err


@pytest.mark.slow
def test_ctrl_c_ends_pytest_once(run: Pytest) -> None:
    """The signal reaches the supervisor, which is the process that was started; pytest ends as it always does."""
    tests = "import os, time\ndef test_it():\n    os.close(os.open('started', os.O_WRONLY))\n    time.sleep(60)\ndef test_last(): pass\n"
    os.mkfifo(run.folder / "started")
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(run, "--crashkit-rerun", tests=tests)
        (run.folder / "started").read_bytes()
        (process,) = run.runner._started
        process.send_signal(signal.SIGINT)
        done = waiting.result()
    assert done.status == pytest.ExitCode.INTERRUPTED and done.ran == ["test_it"]
    assert "KeyboardInterrupt" in done.out and done.out.count("test session starts") == 1


@pytest.mark.long
@pytest.mark.parametrize(("most", "ran"), [(1, ["test_first", "test_segfault"]), (2, ["test_first", "test_segfault", "test_fails"])])
def test_maxfail_counts_the_tests_of_all_processes(most: int, ran: list[str], run: Pytest) -> None:
    done = run("--crashkit-rerun", f"--maxfail={most}", tests=DEADLY)
    assert done.ran == ran and f"stopping after {most} failures" in done.out and done.status == 1


MODULES = """
import os, sys
def test_it():
    loaded = sorted(name for name in sys.modules if name.partition(".")[0] == "crashkit")
    print("loaded", *loaded, os.getppid(), "PYTHONFAULTHANDLER" in os.environ)
"""


@pytest.mark.slow
def test_off_it_loads_nothing_and_starts_nothing(run: Pytest) -> None:
    run.runner.environment.pop("PYTHONFAULTHANDLER", None)
    done = run("-s", tests=MODULES)
    assert f"loaded crashkit crashkit.pytest_plugin {os.getpid()} False" in done.out, "a child of ours, not of a supervisor"
    assert done.status == 0 and not run.runner.home.exists()


@pytest.mark.slow
def test_on_the_tests_load_nothing_that_reads_crashes(run: Pytest) -> None:
    done = run(
        "-s", "--crashkit", tests=MODULES + "\ndef test_light(): assert not {'msgspec', 'crashkit.model', 'rich'} & set(sys.modules)\n"
    )
    assert done.status == 0, done.out
    assert "crashkit.testrun.session" in done.out and f" {os.getpid()} " not in done.out


def test_a_program_that_calls_pytest_is_told_what_to_do(run: Pytest) -> None:
    run.write("test_it.py", "def test_it(): pass\n")
    code = "import sys, pytest; sys.exit(pytest.main(['--crashkit']))"
    done = run(command=("-c", code))
    assert done.status == pytest.ExitCode.USAGE_ERROR
    assert "--crashkit needs pytest to be started from the command line" in done.err


@pytest.mark.slow
def test_the_exit_status_is_pytest_s_own(run: Pytest) -> None:
    assert run("--crashkit", tests="def test_it(): pass\n").status == 0
    assert run("--crashkit", "-k", "nothing").status == pytest.ExitCode.NO_TESTS_COLLECTED
    assert run("--crashkit", "--no-such-option").status == pytest.ExitCode.USAGE_ERROR
