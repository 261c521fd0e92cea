"""A log that holds more than one crash is split: the report says how many there are, and tells the right one."""

from __future__ import annotations

import datetime
from pathlib import Path

import pytest
from msgspec.structs import replace

from crashkit.diagnose import diagnose, load_catalog
from crashkit.evidence.text.log import crash_of_log, read_log
from crashkit.evidence.text.several import of_process
from crashkit.model import Address, Crash, LogLine, Process, Signal, Source, Thread
from crashkit.pipeline import Options, analyze

from ..crashes import an_interpreter, python_crash

DUMP = """\
Fatal Python error: {what}

Current thread 0x{ident:016x} (most recent call first):
  File "/srv/{name}.py", line 3 in {name}
"""
ABORT = "double free or corruption (out)\n" + DUMP.format(what="Aborted", ident=0x7F1100000740, name="first")
# Workers forked from one process have the same identifiers.
SIBLING = DUMP.format(what="Segmentation fault", ident=0x7F1100000740, name="second")
SEGV = DUMP.format(what="Segmentation fault", ident=0x7F2200000740, name="second")


def told(text: str, folder: Path) -> Crash:
    (folder / "service.log").write_text(text)
    return diagnose(crash_of_log(folder / "service.log", read_log(folder / "service.log")), load_catalog())


def functions(crash: Crash) -> list[str | None]:
    return [frame.function for thread in crash.threads for frame in thread.pythons()]


@pytest.mark.parametrize(
    ("text", "count", "function", "signal"),
    [
        (ABORT, 1, "first", "SIGABRT"),
        (ABORT + "restarting\n" + SEGV, 2, "second", "SIGSEGV"),
        (SEGV + "restarting\n" + ABORT, 2, "first", "SIGABRT"),
        (ABORT + "worker 811 died, restarting\n" + SIBLING, 2, "second", "SIGSEGV"),
        (SIBLING + ABORT, 2, "first", "SIGABRT"),
        (ABORT + "Aborted (core dumped)\n" + SEGV + "Segmentation fault (core dumped)\n", 2, "second", "SIGSEGV"),
        (
            ABORT + "run.sh: line 3:    812 Aborted                 (core dumped) python3 a.py\nAborted (core dumped)\n",
            1,
            "first",
            "SIGABRT",
        ),
        # One process tells its end twice: faulthandler's handler of SIGABRT after a fatal error.
        (DUMP.format(what="it is said", ident=0x7F1100000740, name="first") + ABORT, 1, "first", "SIGABRT"),
        (ABORT + "Aborted (core dumped)\n" + SEGV + ABORT.replace("7f11", "7f33"), 3, "first", "SIGABRT"),
    ],
)
def test_split(text: str, count: int, function: str, signal: str, tmp_path: Path) -> None:
    crash = told(text, tmp_path)
    assert functions(crash)[:1] == [function]
    assert crash.signal is not None and crash.signal.name == signal
    said = [error.message for error in crash.soft_errors if "crashes" in error.message]
    assert [message.split(":")[0] for message in said] == ([f"this log contains {count} crashes"] if count > 1 else [])
    assert ("heap-corruption-double-free" in {finding.id for finding in crash.findings}) is (function == "first")


@pytest.mark.slow
def test_the_crash_of_the_core_is_taken(tmp_path: Path) -> None:
    """The dump of another process follows in the same log: the threads of the core tell which is its own."""
    folder = python_crash("threads.py", python=an_interpreter())
    log = tmp_path / "service.log"
    for text, number in ((folder.stderr + ABORT, 1), (ABORT + folder.stderr, 2)):
        log.write_text(text)
        crash = analyze([folder.core, log], options=Options(gdb=None))
        assert f"this log contains 2 crashes: number {number} is shown" in " ".join(error.message for error in crash.soft_errors)
        assert not [line for line in crash.log if line.kind == "double-free"]
        assert [finding.id for finding in crash.findings][:1] == ["null-deref"]


def segfault(pid: int, address: int) -> LogLine:
    text = f"python3[{pid}]: segfault at {address:x} ip 00007f00 sp 00007ffe error 4"
    return LogLine(text=text, kind="kernel-segfault", fields={"pid": str(pid), "address": f"{address:x}"})


CORE = Crash(
    source=Source(path="core", kind="core"),
    process=Process(pid=812),
    signal=Signal(number=11, name="SIGSEGV", address=Address(0x10)),
    threads=(Thread(tid=812), Thread(tid=815, crashed=True)),
)
OTHER = LogLine(text="a traceback", kind="exception")


@pytest.mark.parametrize(
    ("lines", "kept"),
    [
        ([segfault(815, 0x10), segfault(900, 0x99), OTHER], [0, 2]),
        ([segfault(900, 0x10)], [0]),  # the kernel's number of a thread in a container
        ([segfault(900, 0x99)], []),
        ([segfault(812, 0x10), segfault(900, 0x10)], [0]),
    ],
)
def test_faults_of_other_processes(lines: list[LogLine], kept: list[int]) -> None:
    assert of_process(lines, CORE) == tuple(lines[index] for index in kept)
    assert of_process(lines, replace(CORE, source=Source(path="log", kind="log"))) == tuple(lines)


def prefixed(text: str, prefix: str) -> str:
    return "".join(f"{prefix}{line}\n" for line in text.splitlines())


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("web-1  | ", "worker-1  | "),
        ("web_1  | ", "worker_1  | "),
        ("12:00:01 web.1   | ", "12:00:02 worker.1   | "),
        ("[pod/web-0/main] ", "[pod/worker-0/main] "),
        ("Nov 20 23:12:00 gpu17 web[811]: ", "Nov 20 23:12:09 gpu17 worker[812]: "),
        ("2026-11-20T23:12:00+0100 gpu17 web[811]: ", "2026-11-20T23:12:09+0100 gpu17 worker[812]: "),
        ("[gw0] ", "[gw1] "),
        ("(EngineCore pid=811) ", "(EngineCore pid=812) "),
    ],
)
def test_by_the_process_that_wrote_it(first: str, second: str, tmp_path: Path) -> None:
    """Interleaved line by line, as a collector of logs writes them."""
    pairs = zip(prefixed(ABORT + "\n", first).splitlines(), prefixed("\n" + SEGV, second).splitlines(), strict=False)
    crash = told("".join(f"{one}\n{other}\n" for one, other in pairs), tmp_path)
    assert functions(crash) == ["second"] and crash.signal is not None and crash.signal.name == "SIGSEGV"
    assert "heap-corruption-double-free" not in {finding.id for finding in crash.findings}
    assert [error.message.split(":")[0] for error in crash.soft_errors if "crashes" in error.message] == [
        "this log contains crashes of 2 processes"
    ]


def test_a_service_that_died_twice(tmp_path: Path) -> None:
    crash = told(prefixed(ABORT + SEGV, "2026-11-20T23:12:00Z web-1  | ") + prefixed("ready", "db-1  | "), tmp_path)
    assert functions(crash) == ["second"]
    assert "this log contains 2 crashes" in " ".join(error.message for error in crash.soft_errors)


def test_the_ranks_of_a_job_are_one_crash(tmp_path: Path) -> None:
    crash = told(prefixed(ABORT, "[rank0]: ") + prefixed(SEGV, "[rank1]: "), tmp_path)
    assert not [error for error in crash.soft_errors if "this log contains" in error.message] and len(crash.log) > 2


def test_by_the_pid_of_the_core(tmp_path: Path) -> None:
    """The other process died later; what a third one with a pid says is about itself, what the kernel says may be about ours."""
    folder = python_crash("threads.py", python=an_interpreter())
    journal = "Nov 20 23:12:00 gpu17 python[{}]: ".format
    dump = prefixed(ABORT, journal(folder.pid))
    other = prefixed("double free or corruption (out)", journal(4_000_001)) + prefixed(SEGV, journal(4_000_002))
    log = tmp_path / "journal.log"
    log.write_text(dump + other + "Nov 20 23:12:00 gpu17 kernel: Out of memory: Killed process 77 (java) total-vm:1kB, anon-rss:1kB\n")
    crash = analyze([folder.core, log], options=Options(gdb=None))
    written = [line.process for line in crash.log if not line.from_core]
    assert set(written) == {f"python[{folder.pid}]", None}


@pytest.mark.slow
def test_lines_of_another_time_do_not_count(tmp_path: Path) -> None:
    folder = python_crash("threads.py", python=an_interpreter())
    when = datetime.datetime.fromtimestamp(folder.core.stat().st_mtime, datetime.timezone.utc)
    log = tmp_path / "service.log"

    def written(hours: int) -> list[str | None]:
        old = f"{when - datetime.timedelta(hours=hours):%Y-%m-%dT%H:%M:%SZ} "
        log.write_text(prefixed("double free or corruption (out)", old) + prefixed(folder.stderr, f"{when:%Y-%m-%dT%H:%M:%SZ} "))
        return [line.kind for line in analyze([folder.core, log], options=Options(gdb=None)).log]

    assert "double-free" not in written(5) and "fatal-python-error" in written(5)
    assert "double-free" in written(0)


@pytest.mark.slow
def test_workers_forked_from_one_process(tmp_path: Path) -> None:
    """Their main threads have one identifier, as those of gunicorn's workers: where they stood tells them apart."""
    folder = python_crash("forked_workers.py", python=an_interpreter())
    assert folder.stderr.count("Fatal Python error") == 2
    crash = told(folder.stderr, tmp_path)
    assert crash.signal is not None and (crash.signal.name, functions(crash)[:1]) == ("SIGABRT", ["gives_up"])
    assert "this log contains 2 crashes" in " ".join(error.message for error in crash.soft_errors)


REACHED = "APP:ERROR:../src/view.cc:41:void app::View::paint(): code should not be reached\n"
FAULT = "[  658.1] app[14712]: segfault at 9f0 ip 00006724096293a8 sp 000073bb8b72c9c0 error 4 in libview.so[67240960e000+48000]\n"
TRAP = "[  700.7] traps: app[18766] general protection fault ip:6cd4e4aebcbf sp:70de90039390 error:0 in libview.so[6cd4e4acf000+48000]\n"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (REACHED + "Aborted (core dumped)\n\n" + FAULT, 4),
        (REACHED + "run.sh: line 3:   812 Aborted                 (core dumped) app\n" + TRAP + FAULT, 3),
        ("free(): invalid pointer\nzsh: abort (core dumped)  app\n" + FAULT, 3),
    ],
)
def test_the_kernel_tells_of_another_start_than_the_shell(text: str, line: int, tmp_path: Path) -> None:
    crash = told(text, tmp_path)
    assert crash.signal is not None and crash.signal.name == "SIGABRT"
    assert [one.kind for one in crash.log if one.kind and one.kind.startswith("kernel")] == []
    message = f"this log contains another crash: the fault that the kernel tells in line {line} is not the abort before it"
    assert [error.message for error in crash.soft_errors] == [message]


@pytest.mark.parametrize(
    "text",
    [
        FAULT + "Segmentation fault (core dumped)\n",
        # A message alone ends nothing by itself; what comes first leads; a shell's word alone may be of the same crash.
        REACHED + FAULT,
        FAULT + REACHED + "Aborted (core dumped)\n",
        "Aborted (core dumped)\n" + FAULT,
    ],
)
def test_the_kernel_tells_of_the_crash(text: str, tmp_path: Path) -> None:
    crash = told(text, tmp_path)
    assert (crash.signal and crash.signal.name, crash.soft_errors) == ("SIGSEGV", ())
