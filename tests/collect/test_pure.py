"""The parts that compute: no process, no clock."""

from __future__ import annotations

import signal
import struct
from pathlib import Path

import click
import pytest

from crashkit.cli.list import age, parse_since, size
from crashkit.cli.run import command, parse_size
from crashkit.collect.host import cuda, handlers, limits, oom
from crashkit.collect.host.core_pattern import parse
from crashkit.collect.host.outlook import Facts, judge
from crashkit.collect.host.snapshot import namespace_pid, parse_stat, telling_paths
from crashkit.collect.run import Request, evidence_variables
from crashkit.collect.supervise import proc_events
from crashkit.collect.supervise.restart import Restart
from crashkit.collect.supervise.stderr_tail import Ring
from crashkit.collect.supervise.storm import Storm
from crashkit.naming.signals import signal_name


def test_a_hostile_name_in_proc_stat() -> None:
    fields = "S 1 2 3 " + " ".join(["0"] * 15) + " 4242 " + " ".join(["0"] * 29) + " 139"
    stat = parse_stat(f"12 (a) R 99 (\n) {fields}")
    assert stat is not None
    assert (stat.name, stat.state, stat.ppid, stat.group, stat.session, stat.start, stat.exit_code) == (
        "a) R 99 (\n",
        "S",
        1,
        2,
        3,
        4242,
        139,
    )
    assert parse_stat("") is None and parse_stat("12 (x) S 1") is None and parse_stat(")(") is None


def test_the_pid_in_the_innermost_namespace() -> None:
    assert namespace_pid("Name:\tx\nNSpid:\t4007\t31\t7\nTgid:\t1\n") == 7
    # Anybody may call a process so.
    assert namespace_pid("Name:\tNSpid:\t1\nNSpid:\t4007\t7\nTgid:\t1\n") == 7
    assert namespace_pid("Name:\tx\n") is None


def test_telling_paths_of_maps() -> None:
    maps = (
        "7f0-7f1 r-xp 0 08:01 5  /venv/lib/python3.11/site-packages/torch/lib/libtorch_cpu.so\n"
        "7f1-7f2 r-xp 0 08:01 6  /usr/lib/libcuda.so.580.1\n7f2-7f3 rw-p 0 00:00 0  [heap]\n7f3-7f4 r-xp 0 08:01 5 /lib/libc.so.6\n"
    )
    assert telling_paths(maps) == ("/venv/lib/python3.11/site-packages/torch", "/usr/lib/libcuda.so.580.1")


def test_the_filter_keeps_what_stacks_need_and_with_cuda_no_mapped_files() -> None:
    assert limits.chosen_filter(0x33, cuda=False) == 0x33
    assert limits.chosen_filter(0, cuda=False) == limits.NEEDED == 0x31
    assert limits.chosen_filter(0x7F, cuda=True) == 0x73


def test_variables_that_are_set_stay() -> None:
    request = Request(("x",), cuda=True, blocking=True, sanitizer=True)
    added = evidence_variables({"CUDA_COREDUMP_FILE": "mine", "PYTHONFAULTHANDLER": ""}, request, Path("/store/gpu"))
    assert added["CUDA_ENABLE_COREDUMP_ON_EXCEPTION"] == added["CUDA_LAUNCH_BLOCKING"] == added["TORCH_CUDA_SANITIZER"] == "1"
    assert added["CUDA_COREDUMP_PIPE"].startswith("/store/gpu/")
    assert not {"CUDA_COREDUMP_FILE", "PYTHONFAULTHANDLER"} & set(added)
    assert evidence_variables({}, Request(("x",)), None) == {"PYTHONFAULTHANDLER": "1", "UWSGI_USE_ABORT": "1"}


def test_gpu_dumps_of_one_process(tmp_path: Path) -> None:
    for name in ("gpu.host.7.1.nvcudmp", "gpu.host.7.2.nvcudmp.gz", "gpu.host.70.1.nvcudmp", "gpu-pipe.host.7"):
        (tmp_path / name).touch()
    assert [path.name for path in cuda.dumps(tmp_path, 7)] == ["gpu.host.7.1.nvcudmp", "gpu.host.7.2.nvcudmp.gz"]
    assert cuda.dumping(tmp_path) and not cuda.dumping(tmp_path, quiet=-1)


def test_an_oom_kill_needs_evidence() -> None:
    lines = ["[1.0] Memory cgroup out of memory: Killed process 7 (python) total-vm:1kB", "[2.0] Out of memory: Killed process 8 (x)"]
    assert oom.oom_lines(lines, 7) == lines[:1]
    assert oom.blame(None, None, []) == ("unknown", []) and oom.blame(2, 2, []) == ("unknown", [])
    assert oom.blame(2, 3, [])[0] == "oom" and oom.blame(None, None, lines[:1]) == ("oom", lines[:1])
    # The counter is that of all tasks of a step: the kernel's log tells which of them it was.
    assert oom.confirm("oom", ["rose"], lines, 7) == ("oom", [lines[0], "rose"]) and oom.confirm("unknown", [], lines, 8)[0] == "oom"
    assert oom.confirm("oom", ["rose"], [], 9) == ("oom", ["rose"])
    inside = Path("/proc/self/ns/pid").stat().st_ino != 0xEFFFFFFC
    assert oom.confirm("oom", ["rose"], lines, 9) == (("oom", ["rose"]) if inside else ("unknown", []))
    assert oom.parse_counters("low 0\noom_kill 3\nbad line x\n") == {"low": 0, "oom_kill": 3}
    assert oom.cgroup_paths("4:memory:/a\n0::/b\n2:cpu,cpuacct:/c\n") == {"memory": "/a", "": "/b", "cpu": "/c", "cpuacct": "/c"}


def test_process_events() -> None:
    def event(what: int, pid: int, group: int, status: int, exit_signal: int) -> bytes:
        return bytes(36) + struct.pack("=IIQ6I", what, 0, 0, pid, group, status, exit_signal, 1, 1)

    assert proc_events.parse(event(0x80000000, 7, 7, 139, 17)) == proc_events.Exit(7, 1, 139)
    assert proc_events.parse(event(0x80000000, 8, 7, 139, 0xFFFFFFFF)) is None  # a thread
    assert proc_events.parse(event(1, 7, 7, 0, 17)) is None and proc_events.parse(b"") is None
    assert proc_events.supported("6.6.0-rc1") and proc_events.supported("10.0") and not proc_events.supported("5.15.0-generic")


def test_a_storm() -> None:
    storm = Storm(burst=2, seconds=10)
    assert [storm.keeps("SIGSEGV", now) for now in (1, 1, 1, 2, 12, 12)] == [True, True, False, False, True, False]
    assert storm.summary() == "3 crashes were not kept (3 SIGSEGV)" and Storm().summary() == ""


def test_restarts_back_off_and_end() -> None:
    restart = Restart(limit=3, delay=1, longest=3)
    assert [restart.pause(0) for _ in range(4)] == [1, 2, 3, None]
    assert restart.pause(1000) == 1


def test_the_ring_keeps_the_end() -> None:
    ring = Ring(4)
    for part in (b"ab", b"cdefgh", b"i", b"jklmnopq"):
        ring.add(part)
    assert (ring.tail(), ring.total) == (b"nopq", 17)


def _facts(**changes: object) -> Facts:
    facts = Facts(parse("core"), -1, "/srv", True, 1 << 40, False, False, 0)
    return facts._replace(**changes)


@pytest.mark.parametrize(
    ("facts", "fatal", "word"),
    [
        (_facts(hard_limit=0), True, "hard limit"),
        (_facts(hard_limit=1 << 20), False, "truncated"),
        (_facts(writable=False, folder="/proc"), True, "not writable"),
        (_facts(writable=False, folder="/no-such-folder"), True, "does not exist"),
        (_facts(free=1000), True, "free"),
        (_facts(free=50 << 20), False, "free"),
        (_facts(file_limit=1 << 20), False, "ulimit -f"),
        (_facts(file_limit=0, folder=None), False, "ulimit -f"),
        (_facts(pattern=parse(""), folder=None), True, "core_pattern is empty"),
        (_facts(pattern=parse("|/x/systemd-coredump %P"), folder=None, container=True), True, "container"),
        (_facts(pattern=parse("|/x/systemd-coredump %P"), folder=None, coredumpctl=True, hard_limit=0), True, "hard limit"),
        (_facts(pattern=parse("|/x/apport"), folder=None, container=True), True, "apport on the host"),
        (_facts(pattern=parse("|/x/other"), folder=None), True, "does not support"),
    ],
)
def test_what_stands_between_a_crash_and_its_core(facts: Facts, fatal: bool, word: str) -> None:
    problem = judge(facts)[0]
    assert problem.fatal is fatal and word in problem.message and problem.mend


def test_nothing_stands_there() -> None:
    assert judge(_facts()) == []
    assert judge(_facts(pattern=parse("|/x/systemd-coredump %P"), folder=None, coredumpctl=True)) == []
    assert judge(_facts(pattern=parse("|/x/apport"), folder=None, hard_limit=0, file_limit=0)) == []


def test_words_of_the_command_line() -> None:
    assert [parse_size(text) for text in ("7", "1K", "1.5g", "2T")] == [7, 1024, 3 << 29, 2 << 40]
    assert [age(seconds) for seconds in (5, 70, 7200, 200000)] == ["5s", "1m", "2h", "2d"]
    assert [size(number) for number in (5, 2048, 50 << 20, 3 << 40)] == ["5B", "2.0K", "50M", "3.0T"]
    assert parse_since("2h", 10000) == 2800 and parse_since("2026-11-20", 0) < parse_since("2026-11-20T23:12", 0)
    assert signal_name(11) == "SIGSEGV" and signal_name(signal.SIGRTMIN + 3) == "SIGRTMIN+3"


def test_apport_names() -> None:
    boot = "0b4a2f4e-7a52-4b1c-9f0e-0d8c7f1f2a3b"
    names = [f"core._usr_bin_python3.1000.{boot}.7.123", f"core._usr_bin_python3.1000.{boot}.77.123", "core", f"core.x.1000.{boot}.7"]
    assert handlers.apport_names(names, 7) == names[:1]


def test_every_option_of_run_is_in_its_page() -> None:
    page = (Path(__file__).parent.parent.parent / "docs" / "run.md").read_text()
    options = [option for parameter in command.params if isinstance(parameter, click.Option) for option in parameter.opts]
    assert [option for option in options if option not in page and option.replace("--", "--no-") not in page] == []
