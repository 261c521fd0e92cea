"""A fix is for the run that crashed: what it did already, and what is no use to it, is left out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from crashkit.diagnose import diagnose, load_catalog
from crashkit.diagnose.case import Case
from crashkit.diagnose.fixes import fitting
from crashkit.diagnose.signature import Condition, Fix
from crashkit.evidence.text.log import crash_of_log, read_log
from crashkit.model import Address, Crash, Instruction, Mapping, NativeFrame, Process, PythonFrame, Signal, Thread
from crashkit.pipeline import analyze

from ..crashes import (
    CRASHERS,
    Interpreter,
    a_debuggable_interpreter,
    an_interpreter,
    an_unguarded_interpreter,
    python_crash,
    these_versions,
)
from .causes import library
from .synthetic import crash


def with_environment(**variables: str) -> Crash:
    return replace(crash(signal="SIGSEGV"), process=Process(pid=1, environment=variables))


def fits(fix: Fix, subject: Crash) -> bool:
    return bool(fitting([fix], Case(subject), {}))


@pytest.mark.parametrize(
    ("text", "environment", "kept"),
    [
        ("CUDA_LAUNCH_BLOCKING=1 python train.py", {"CUDA_LAUNCH_BLOCKING": "1"}, False),
        ("CUDA_LAUNCH_BLOCKING=1 python train.py", {"CUDA_LAUNCH_BLOCKING": "0"}, True),
        ("CUDA_LAUNCH_BLOCKING=1 python train.py", {}, True),
        ("AMD_LOG_LEVEL=3 HIP_LAUNCH_BLOCKING=1 python train.py", {"HIP_LAUNCH_BLOCKING": "1"}, True),
        ("AMD_LOG_LEVEL=3 HIP_LAUNCH_BLOCKING=1 python train.py", {"HIP_LAUNCH_BLOCKING": "1", "AMD_LOG_LEVEL": "3"}, False),
        ("export OMP_NUM_THREADS=1", {"OMP_NUM_THREADS": "1"}, False),
        ("TORCH_USE_CUDA_DSA=1   # in a build that supports it", {"TORCH_USE_CUDA_DSA": "1"}, False),
        ("PYTHONMALLOC=malloc_debug python train.py", {"PYTHONMALLOC": "debug"}, True),
        ("CFLAGS='-g -fsanitize=address' pip install x", {"CFLAGS": "'-g"}, True),
        ("unset CUDA_LAUNCH_BLOCKING   # two collectives", {"LANG": "C"}, False),
        ("unset CUDA_LAUNCH_BLOCKING   # two collectives", {"CUDA_LAUNCH_BLOCKING": "1"}, True),
        ("unset CUDA_LAUNCH_BLOCKING   # two collectives", {}, True),
    ],
)
def test_a_variable_that_was_set_is_not_advised(text: str, environment: dict[str, str], kept: bool) -> None:
    assert fits(Fix(text=text), with_environment(**environment)) is kept


def test_code_that_ran_is_not_advised() -> None:
    subject = crash(signal="SIGSEGV", frames="f > py /srv/app.py:3 main | torch.set_num_threads(1); run()")
    assert not fits(Fix(text="torch.set_num_threads(1)   # before the fork"), subject)
    assert fits(Fix(text="torch.set_num_threads(2)   # before the fork"), subject)


SEGV = {"signal": "SIGSEGV", "frames": "f > main", "exit_status": 139}
BUS = {"signal": ["SIGBUS"]}


@pytest.mark.parametrize(
    ("when", "unless", "kept"),
    [
        ([{"signal": ["SIGSEGV"]}], [], True),
        ([BUS], [], False),
        ([{"log": "asan"}], [], True),  # not known: it may be
        ([], [{"signal": ["SIGSEGV"]}], False),
        ([], [BUS], True),
        ([], [{"log": "asan"}], True),
    ],
)
def test_conditions_of_a_fix(when: list[Any], unless: list[Any], kept: bool) -> None:
    import msgspec

    conditions = [msgspec.convert(each, tuple[Condition, ...]) for each in (when, unless)]
    assert fits(Fix(text="Do it.", when=conditions[0], unless=conditions[1]), crash(**SEGV)) is kept


ILLEGAL = """\
{}Traceback (most recent call last):
  File "/srv/train.py", line 9, in step
    loss.backward()
RuntimeError: CUDA error: an illegal memory access was encountered
For debugging consider passing CUDA_LAUNCH_BLOCKING=1
"""


def test_a_run_with_blocking_launches_is_told_so(tmp_path: Path) -> None:
    told = []
    for head in ("", "+ CUDA_LAUNCH_BLOCKING=1 python train.py\n"):
        (tmp_path / "log").write_text(ILLEGAL.format(head))
        told.append(diagnose(crash_of_log(tmp_path / "log", read_log(tmp_path / "log")), load_catalog()).findings[0])
    plain, blocking = told
    assert plain.id == blocking.id == "cuda-illegal-access"
    assert any(one.startswith("CUDA_LAUNCH_BLOCKING=1") for one in plain.fix) and "unless launches were blocking" in (plain.summary or "")
    assert not any("LAUNCH_BLOCKING=" in fix for fix in blocking.fix)
    assert "launches were blocking, so it is the failing call" in (blocking.summary or "")


def overflow(subject: Crash) -> tuple[str, ...]:
    (finding,) = (one for one in subject.findings if one.id == "stack-overflow")
    return finding.fix


def recursion(depth: int) -> tuple[str, ...]:
    frames = " > ".join(["recurse"] + ["py /srv/a.py:3 visit"] * depth)
    subject = crash(signal="SIGSEGV", code="SEGV_MAPERR", reason="stack-overflow", address=0x7000, frames=frames)
    return overflow(diagnose(subject, load_catalog()))


def test_only_a_limit_that_was_raised_is_told() -> None:
    """A thread that has more Python frames than a new interpreter allows."""
    assert "sys.setrecursionlimit" in " ".join(recursion(2000))
    assert "sys.setrecursionlimit" not in " ".join(recursion(900))


@pytest.mark.slow
def test_the_stack_of_the_thread_that_overflowed(tmp_path: Path) -> None:
    """`ulimit -s` is for the main thread, `threading.stack_size` for the others."""
    main, other = (
        " ".join(overflow(analyze(python_crash("faults.py", kind, python=an_interpreter()).core)))
        for kind in ("c_overflow", "c_overflow_thread")
    )
    assert "ulimit -s" in main and "stack_size" not in main
    assert "stack_size" in other and "ulimit" not in other
    assert "recursion limit" not in main + other


@pytest.mark.slow
def test_a_thread_that_was_given_a_small_stack() -> None:
    """No recursion without end. Python 3.14 sees the stack's end."""
    found = analyze(python_crash("small_stack.py", python=an_unguarded_interpreter()).core).findings[0]
    assert "threading.stack_size(16 << 20)" in found.fix[0] and not any("recursion:" in fix for fix in found.fix)


def test_a_thread_that_is_none_of_pythons_has_no_stack_size_of_pythons() -> None:
    frames = " > ".join(["walk", *["walk"] * 400, "start_thread"])
    subject = crash(signal="SIGSEGV", code="SEGV_MAPERR", reason="stack-overflow", address=0x7000, frames=frames)
    told = " ".join(overflow(diagnose(replace(subject, process=Process(pid=7)), load_catalog())))
    assert "pthread_attr_setstacksize" in told and "threading.stack_size" not in told


def test_a_recursion_that_a_small_stack_ended() -> None:
    frames = " > ".join([*["walk"] * 147, "start_thread"])
    (small,) = diagnose(crash(signal="SIGSEGV", reason="stack-overflow", address=0x7000, frames=frames), load_catalog()).findings
    assert "It repeats walk." in (small.summary or "") and "about 150 times" in small.fix[0]
    other = diagnose(crash(signal="SIGSEGV", reason="unmapped", address=0x7000, frames=frames), load_catalog()).findings
    assert "stack-overflow" not in [finding.id for finding in other]


THROUGH_SLOTS = """
import sys, threading
sys.setrecursionlimit(10**9)
class Node:
    def __repr__(self):
        return repr(self)
threading.stack_size(256 << 10)
thread = threading.Thread(target=lambda: repr(Node()))
thread.start()
thread.join()
"""


@pytest.mark.slow
@pytest.mark.parametrize("python", these_versions("3.11"))
def test_a_python_function_is_found_in_a_cycle_of_many_functions(python: Interpreter, tmp_path: Path) -> None:
    """Each of them occurs as often as it, on a stack that is small enough to be shown whole."""
    (tmp_path / "slots.py").write_text(THROUGH_SLOTS)
    finding = analyze(python_crash(tmp_path / "slots.py", python=python).core).findings[0]
    assert finding.id == "stack-overflow" and "It repeats __repr__." in finding.summary
    assert "`__repr__` is about 5" in finding.fix[0] and not any("flatter" in fix for fix in finding.fix)


@pytest.mark.slow
def test_a_function_that_took_more_stack_than_there_is(tmp_path: Path) -> None:
    """No recursion is to be ended."""
    told = overflow(analyze(python_crash("faults.py", "large_frame", python=an_interpreter()).core))
    assert "MiB of stack at once" in told[0] and not any("recursion" in fix for fix in told)


@pytest.mark.slow
@pytest.mark.parametrize("function", ["array", "from_alloca"])
@pytest.mark.parametrize("probes", ["-fstack-clash-protection", "-fno-stack-clash-protection"])
def test_a_function_that_touches_each_page_of_its_frame(function: str, probes: str) -> None:
    built = library(f"frames{probes}", "-xc", "-O2", probes, "-fno-stack-protector", source=(CRASHERS / "large_frames.c").read_text())
    told = overflow(analyze(python_crash("call.py", str(built), function, python=an_interpreter()).core))
    assert told[0].startswith(f"Take what {function} keeps") and "MiB of stack at once" in told[0], told
    assert not any("recursion" in fix for fix in told)


@pytest.mark.slow
def test_a_few_calls_that_use_up_the_stack(tmp_path: Path) -> None:
    """Each takes less than what tells a large frame."""
    built = library("some_deep", "-xc", "-O1", "-fno-stack-protector", source=(CRASHERS / "large_frames.c").read_text())
    told = overflow(analyze(python_crash("call.py", str(built), "some_deep", python=an_interpreter()).core))
    assert told[0].startswith("Move what these functions keep in local arrays") and "calls use up the whole stack" in told[0], told
    assert not any("recursion" in fix for fix in told)


@pytest.mark.parametrize(
    ("instructions", "registers", "took"),
    [
        (("or qword ptr [rsp + 0xff8], 0", "cmp rsp, rcx"), {"rsp": 0x7F00_0000_0000, "rcx": 0x7EF8_0000_0000}, "more than 32.0 GiB"),
        (("str xzr, [sp, #0x400]", "cmp sp, x12"), {"sp": 0x7F00_0000_0000, "x12": 0x7EFF_FC00_0000}, "more than 64.0 MiB"),
        (("or byte ptr [rsp], 0", "cmp rsp, r11"), {"rsp": 0x7F00_0000_0000, "r11": 0x7EFF_FC00_0000}, "more than 64.0 MiB"),
        (("or dword ptr [rsp], 0", "cmp rsp, r11"), {"rsp": 0x7F00_0000_0000, "r11": 0x7EFF_FFFF_F000}, None),  # a page more
        (("or qword ptr [rsp + 0xff8], 0", "mov rsp, rcx"), {"rsp": 0x7F00_0000_0000, "rcx": 0x7EF8_0000_0000}, None),
        (("call rax", "cmp rsp, rcx"), {"rsp": 0x7F00_0000_0000, "rcx": 0x7EF8_0000_0000}, None),
    ],
)
def test_how_much_a_probe_of_the_stack_was_to_touch(instructions: tuple[str, str], registers: dict[str, int], took: str | None) -> None:
    subject = crash(signal="SIGSEGV", reason="stack-overflow", address=0x7EFF_FFFF_FFF8, frames="f > g")
    (thread,) = subject.threads
    subject = replace(
        subject,
        threads=(replace(thread, registers={name: Address(value) for name, value in registers.items()}),),
        mappings=(Mapping(start=Address(0x7F00_0000_0000), end=Address(0x7F00_0080_0000), permissions="rw-"),),
        instructions=tuple(Instruction(address=Address(index), text=text, faulting=index == 0) for index, text in enumerate(instructions)),
    )
    (finding,) = diagnose(subject, load_catalog()).findings
    said = finding.summary or ""
    assert ("at once" in said) == (took is not None) and (took or "") in said


def test_no_fix_of_the_catalog_tells_to_remove_what_it_shows() -> None:
    fixes = [fix.text for signature in load_catalog().signatures for fix in signature.fixes]
    assert not [fix for fix in fixes if "(" in fix.partition("#")[0] and "remove the call" in fix]


@pytest.mark.parametrize(
    ("executable", "expected"),
    [
        ("/opt/conda/bin/python3.12", ["pip install --upgrade torch\nconda update torch   # where conda installed it: see conda list"]),
        ("/usr/bin/python3", ["pip install --upgrade torch"]),
        (None, ["pip install --upgrade torch", "conda install libgcc-ng"]),
    ],
)
def test_conda_has_fixes_of_its_own(executable: str | None, expected: list[str]) -> None:
    subject = replace(crash(signal="SIGSEGV"), process=Process(pid=1, executable=executable))
    fixes = [Fix("pip install --upgrade torch"), Fix("conda install libgcc-ng", when=(Condition(fact="conda"),))]
    found = list(fitting(fixes, Case(subject), {}))
    assert found == expected + (["conda install libgcc-ng"] if executable and "conda" in executable else [])


@pytest.mark.parametrize(
    ("frames", "advised"),
    [
        ("_Py_FatalErrorFunc [libpython3.11.so] > open_table [table.so] > py /srv/app.py:3 main", "Look at open_table in table.so"),
        ("_Py_FatalErrorFunc [libpython3.11.so] > take_gil [libpython3.11.so] > py /srv/app.py:3 main", "Search CPython's"),
        ("fatal_error_exit [libpython3.11.so] > Py_FatalError [libpython3.11.so] > main [python3.11]", "env -u PYTHONHOME"),
    ],
    ids=["an extension's", "the interpreter's", "at its start"],
)
def test_a_fatal_error_is_answered_by_who_told_it_and_when(frames: str, advised: str) -> None:
    finding = diagnose(crash(signal="SIGABRT", frames=f"abort [libc.so.6] > {frames}"), load_catalog()).findings[0]
    assert finding.id == "fatal-python-error"
    assert finding.fix[0].startswith(advised)
    assert ("PYTHONHOME" in " ".join(finding.fix)) is advised.startswith("env")


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"total": "10", "count": "0"}, "Check `count` before /srv/app.py:4 in average: it is 0, and may be what divide divided by."),
        ({"total": "0", "count": "0"}, None),  # either may be
        ({"total": "10", "count": "4"}, None),
    ],
)
def test_the_variable_that_is_zero_where_a_division_failed(values: dict[str, str], said: str | None) -> None:
    line = PythonFrame(function="average", file="/srv/app.py", line=4, source="return lib.divide(total, count)", locals=values)
    died = Crash(
        signal=Signal(number=8, name="SIGFPE", code=1, code_name="FPE_INTDIV", reason="integer-divide"),
        threads=(Thread(tid=1, crashed=True, frames=(NativeFrame(function="divide", module="/srv/lib.so"), line)),),
    )
    (finding,) = [one for one in diagnose(died, load_catalog()).findings if one.id == "sigfpe-integer-divide"]
    assert finding.fix[0] == (said or "Guard the divisor before the division: it was zero, or -1 with the smallest integer.")


@pytest.mark.slow
def test_a_python_function_of_the_name_of_a_c_function_is_no_part_of_its_recursion(tmp_path: Path) -> None:
    """pickle's own `save` follows what the program's `save` gave it. Without symbols, the C function has no name."""
    program = "import pickle, sys\n\nclass Node:\n    def __init__(self, next):\n        self.next = next\n\n"
    program += "def save(node):\n    return pickle.dumps(node)\n\nsys.setrecursionlimit(10**6)\nnode = None\n"
    program += "for _ in range(10**6):\n    node = Node(node)\nsave(node)\n"
    (tmp_path / "linked.py").write_text(program)
    told = overflow(analyze(python_crash(tmp_path / "linked.py", python=a_debuggable_interpreter()).core))
    assert told[0].startswith("Make the data flatter if `save"), told


@pytest.mark.slow
def test_python_code_that_c_functions_run_is_a_recursion_of_pythons(tmp_path: Path) -> None:
    """Too deep for both stacks to be merged: the C functions between the Python ones are not why."""
    program = tmp_path / "program.py"
    program.write_text(
        "import sys\nsys.setrecursionlimit(10**6)\ndef rec(n):\n    return eval('rec(n + 1)', {'rec': rec, 'n': n})\nrec(0)\n"
    )
    found = analyze(python_crash(program, python=an_unguarded_interpreter()).core)
    told = overflow(found)
    assert told[0].startswith("End the recursion: `rec") and not any("Make the data flatter" in fix for fix in told)
