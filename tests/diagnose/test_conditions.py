"""Each condition that a signature can ask: when it holds, when it does not, what it shows as evidence and what names it gives to texts."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple, Optional

import pytest
from msgspec.structs import replace

from crashkit.diagnose import diagnose
from crashkit.diagnose.catalog import Catalog
from crashkit.diagnose.signature import Condition, FramePattern, Rule, Signature
from crashkit.model import Address, Crash, Evidence, Finding, LogLine, Mapping, Process
from crashkit.report.json import encode

from .synthetic import crash


def found(condition: Condition, subject: Crash, summary: str = "") -> Optional[Finding]:
    """What a signature of this one condition finds."""
    rule = Rule(confidence="certain", all=(condition,))
    signature = Signature(id="probe", title="-", severity="low", cause="", rule=(rule,), summary=(summary,))
    result = diagnose(subject, Catalog((signature,)))
    assert not result.soft_errors, result.soft_errors
    return result.findings[0] if result.findings else None


class Case(NamedTuple):
    asks: dict[str, Any]
    subject: dict[str, Any]
    holds: bool = True


SEGV = {"signal": "SIGSEGV", "code": "SEGV_MAPERR"}
HANDLED = "raise > handler > <signal handler called> > strlen [libc.so.6] > parse [app.so] > main"
ABORTED = "__pthread_kill_implementation > raise > abort > free [libc.so.6] > parse [app.so] > main"

HOLDS = {
    "signal": Case({"signal": ["SIGBUS", "SIGSEGV"]}, SEGV),
    "another signal": Case({"signal": ["SIGBUS"]}, SEGV, False),
    "no signal": Case({"signal": ["none"]}, {}),
    "no signal, but one": Case({"signal": ["none"]}, SEGV, False),
    "code": Case({"code": ["SEGV_MAPERR"]}, SEGV),
    "another code": Case({"code": ["SEGV_ACCERR"]}, SEGV, False),
    "code without a signal": Case({"code": ["SEGV_ACCERR"]}, {}, False),
    "reason": Case({"reason": ["null-pointer"]}, {**SEGV, "reason": "null-pointer"}),
    "another reason": Case({"reason": ["null-pointer"]}, {**SEGV, "reason": "unmapped"}, False),
    "no reason": Case({"reason": ["null-pointer"]}, SEGV, False),
    "access": Case({"access": ["write"]}, {**SEGV, "access": "write"}),
    "another access": Case({"access": ["write"]}, {**SEGV, "access": "read"}, False),
    "no access": Case({"access": ["write"]}, {}, False),
    "first address": Case({"address": [0x10, 0xFFF]}, {**SEGV, "address": 0x10}),
    "last address": Case({"address": [0x10, 0xFFF]}, {**SEGV, "address": 0xFFF}),
    "below": Case({"address": [0x10, 0xFFF]}, {**SEGV, "address": 0xF}, False),
    "above": Case({"address": [0x10, 0xFFF]}, {**SEGV, "address": 0x1000}, False),
    "no address": Case({"address": [0, 0xFFF]}, SEGV, False),
    "in mapping": Case({"in_mapping": "^/dev/shm/"}, {**SEGV, "address": 0x5010, "mapped": "/dev/shm/a"}),
    "in another mapping": Case({"in_mapping": "^/dev/shm/"}, {**SEGV, "address": 0x5010, "mapped": "/srv/dev/shm/a"}, False),
    "in no mapping": Case({"in_mapping": "^/dev/shm/"}, {**SEGV, "address": 0x5010}, False),
    "mapping without an address": Case({"in_mapping": "."}, SEGV, False),
    "instruction": Case({"instruction": "^ud2"}, {**SEGV, "instruction": "ud2"}),
    "another instruction": Case({"instruction": "^ud2"}, {**SEGV, "instruction": "mov eax, 1"}, False),
    "no instruction": Case({"instruction": "^ud2"}, SEGV, False),
    "frames below the handler": Case({"frames": ["strlen", "main"]}, {**SEGV, "frames": HANDLED}),
    "frames in another order": Case({"frames": ["main", "strlen"]}, {**SEGV, "frames": HANDLED}, False),
    "frames above the handler": Case({"frames": ["handler"]}, {**SEGV, "frames": HANDLED}, False),
    "above the handler": Case({"frames": ["handler"], "above_handler": True}, {**SEGV, "frames": HANDLED}),
    "above the handler, at the top": Case({"frames": ["raise"], "above_handler": True, "top": True}, {**SEGV, "frames": HANDLED}),
    "above the handler, second": Case({"frames": ["handler"], "above_handler": True, "top": True}, {**SEGV, "frames": HANDLED}, False),
    "frames of no thread": Case({"frames": ["main"]}, {"frames": "f > main"}, False),
    "part of a name": Case({"frames": ["str"]}, {**SEGV, "frames": HANDLED}, False),
    "top": Case({"frames": ["strlen"], "top": True}, {**SEGV, "frames": HANDLED}),
    "not the top": Case({"frames": ["parse"], "top": True}, {**SEGV, "frames": HANDLED}, False),
    "top below the abort": Case({"frames": ["free"], "top": True}, {**SEGV, "frames": ABORTED}),
    "within two": Case({"frames": ["parse"], "within": 2}, {**SEGV, "frames": ABORTED}),
    "not within two": Case({"frames": ["main"], "within": 2}, {**SEGV, "frames": ABORTED}, False),
    "the rest follows the top": Case({"frames": ["f", "g"], "top": True}, {**SEGV, "frames": "f > h > g"}),
    "the rest stands above": Case({"frames": ["f", "g"], "within": 3}, {**SEGV, "frames": "g > f > h"}, False),
    "module": Case({"frames": [FramePattern(function="parse", module=r"app\.so")]}, {**SEGV, "frames": HANDLED}),
    "another module": Case({"frames": [FramePattern(function="strlen", module="app")]}, {**SEGV, "frames": HANDLED}, False),
    "a module's frame": Case({"frames": [FramePattern(module="app")]}, {**SEGV, "frames": HANDLED}),
    "other threads": Case({"threads": ["wait", "run"]}, {**SEGV, "frames": "f", "others": ["x > wait > y > run"]}),
    "not the crashed thread": Case({"threads": ["wait"]}, {**SEGV, "frames": "wait", "others": ["f"]}, False),
    "two other threads": Case({"threads": ["wait"], "at_least": 2}, {**SEGV, "frames": "f", "others": ["wait", "f", "wait"]}),
    "only one": Case({"threads": ["wait"], "at_least": 2}, {**SEGV, "frames": "wait", "others": ["wait"]}, False),
    "anywhere": Case({"anywhere": ["wait"], "at_least": 2}, {**SEGV, "frames": "wait", "others": ["f", "wait"]}),
    "anywhere, once": Case({"anywhere": ["wait"], "at_least": 2}, {**SEGV, "frames": "wait", "others": ["f"]}, False),
    "python": Case({"python": [r"a\.py:f", "main"]}, {**SEGV, "frames": "g > py /srv/a.py:1 f > py /srv/b.py:2 main"}),
    "python in another order": Case({"python": ["main", "f$"]}, {**SEGV, "frames": "py /srv/a.py:1 f > py /srv/b.py:2 main"}, False),
    "python of another thread": Case({"python": ["f"]}, {**SEGV, "frames": "py /a.py:1 g", "others": ["py /a.py:1 f"]}, False),
    "python where no thread crashed": Case({"python": ["f"]}, {"others": ["read", "py /a.py:1 g", "py /a.py:1 f"]}),
    "no python": Case({"python": ["f"]}, {**SEGV, "frames": "f"}, False),
    "modules": Case({"modules": "/libiomp5", "at_least": 2}, {"modules": ["/a/libiomp5.so", "/b/libiomp5.so", "/c.so"]}),
    "one module twice": Case({"modules": "/libiomp5", "at_least": 2}, {"modules": ["/a/libiomp5.so", "/a/libiomp5.so"]}, False),
    "no module": Case({"modules": "/libiomp5"}, {"modules": ["/c.so"]}, False),
    "exit": Case({"exit": [137, 9]}, {"exit_status": 137}),
    "another exit": Case({"exit": [137]}, {"exit_status": 1}, False),
    "no exit": Case({"exit": [0]}, {}, False),
    "python's version": Case({"version": {"python": ">=3.12"}}, {}),
    "an older one": Case({"version": {"python": "<3.12"}}, {}, False),
    "finalizing": Case({"finalizing": True}, {"finalizing": True}),
    "not finalizing": Case({"finalizing": False}, {}),
    "finalizing, though": Case({"finalizing": False}, {"finalizing": True}, False),
    "exit handlers": Case({"finalizing": True}, {**SEGV, "frames": "f > __run_exit_handlers > exit"}),
    "another thread's": Case({"finalizing": True}, {**SEGV, "frames": "f", "others": ["take_gil > Py_FinalizeEx"]}),
    "a look-alike": Case({"finalizing": True}, {**SEGV, "frames": "f > my_Py_FinalizeEx"}, False),
    "fact": Case({"fact": "single-thread"}, {**SEGV, "frames": "f"}),
    "not the fact": Case({"fact": "single-thread"}, {**SEGV, "frames": "f", "others": ["g"]}, False),
    "any": Case({"any": [Condition(exit=(1,)), Condition(signal=("SIGSEGV",))]}, SEGV),
    "none of any": Case({"any": [Condition(exit=(1,)), Condition(signal=("SIGBUS",))]}, SEGV, False),
    "all": Case({"all": [Condition(code=("SEGV_MAPERR",)), Condition(signal=("SIGSEGV",))]}, SEGV),
    "not all": Case({"all": [Condition(code=("SEGV_MAPERR",)), Condition(signal=("SIGBUS",))]}, SEGV, False),
}


def condition(**asks: Any) -> Condition:
    return Condition(**{name: tuple(value) if isinstance(value, list) else value for name, value in asks.items()})


@pytest.mark.parametrize("case", [pytest.param(case, id=name) for name, case in HOLDS.items()])
def test_holds(case: Case) -> None:
    assert (found(condition(**case.asks), crash(**case.subject)) is not None) == case.holds


@pytest.mark.parametrize(
    ("asks", "subject", "shown", "summary", "text"),
    [
        ({"signal": ["SIGSEGV"]}, SEGV, [Evidence(text="SIGSEGV (SEGV_MAPERR)")], "", ""),
        ({"signal": ["SIGBUS"]}, {"signal": "SIGBUS"}, [Evidence(text="SIGBUS")], "", ""),
        ({"code": ["SEGV_MAPERR"]}, SEGV, [Evidence(text="SIGSEGV (SEGV_MAPERR)")], "", ""),
        ({"reason": ["unmapped"]}, {**SEGV, "reason": "unmapped"}, [Evidence(text="unmapped")], "", ""),
        ({"frames": ["strlen", "main"]}, {**SEGV, "frames": HANDLED}, [("strlen", 100, 3), ("main", 100, 5)], "{frame}", "strlen"),
        ({"frames": [FramePattern(module="a")]}, {**SEGV, "frames": "?? [a.so]"}, [("code in a.so", 100, 0)], "", ""),
        (
            {"threads": ["wait", "run"]},
            {**SEGV, "frames": "f", "others": ["f > wait > run", "g", "wait > run"]},
            [("wait", 200, 1), ("wait", 202, 0)],
            "{others}",
            "2",
        ),
        (
            {"anywhere": ["wait", "run"]},
            {**SEGV, "frames": "f", "others": ["g > wait > run"]},
            [("wait", 200, 1), ("run", 200, 2)],
            "{frame}",
            "wait",
        ),
        ({"python": ["f"]}, {**SEGV, "frames": "g > py /srv/a.py:7 f"}, [("/srv/a.py:7 in f", 100, 1)], "", ""),
        (
            {"modules": "iomp"},
            {"modules": ["/b/iomp", "/a/iomp"]},
            [Evidence("/a/iomp", module="/a/iomp"), Evidence("/b/iomp", module="/b/iomp")],
            "",
            "",
        ),
        ({"finalizing": True}, {**SEGV, "frames": "f > exit > Py_Exit > Py_FinalizeEx"}, [("Py_Exit", 100, 2)], "", ""),
    ],
)
def test_evidence(asks: dict[str, Any], subject: dict[str, Any], shown: list[Any], summary: str, text: str) -> None:
    """Given as (text, thread, frame) where it points at a frame; `summary` is a text of the signature, filled with what was found."""
    finding = found(condition(**asks), crash(**subject), summary)
    assert finding is not None
    wanted = [Evidence(text=item[0], thread=item[1], frame=item[2]) if isinstance(item, tuple) else item for item in shown]
    assert list(finding.evidence) == wanted
    assert not text or finding.summary == text


@pytest.mark.parametrize(
    ("asks", "subject", "summary", "text"),
    [
        ({"address": [0, 0xFFF]}, {**SEGV, "address": 0x10}, "", "0x0000000000000010"),
        ({"in_mapping": "shm"}, {**SEGV, "address": 0x5010, "mapped": "/dev/shm/a"}, "{mapped_file}", "/dev/shm/a"),
        ({"instruction": "ud2"}, {**SEGV, "instruction": "ud2"}, "{instruction}", "ud2"),
        ({"exit": [137]}, {"exit_status": 137}, "", "137"),
        ({"finalizing": True}, {"finalizing": True}, "", "finalizing"),
    ],
)
def test_evidence_in_words(asks: dict[str, Any], subject: dict[str, Any], summary: str, text: str) -> None:
    finding = found(condition(**asks), crash(**subject), summary)
    assert finding is not None
    assert text in finding.evidence[0].text
    assert not summary or finding.summary == text


def test_of_many_threads_and_modules_a_few_are_evidence() -> None:
    waiting = crash(**SEGV, frames="f", others=["wait > run"] * 20, modules=[f"/{number}.so" for number in range(10)])
    for asks, most in (({"threads": ["wait"]}, 8), ({"anywhere": ["wait"]}, 8), ({"modules": ""}, 4)):
        finding = found(condition(**asks), waiting)
        assert finding is not None and len(finding.evidence) == most


def test_a_mapping_holds_its_first_byte_and_not_its_end() -> None:
    mapping = Mapping(start=Address(0x5000), end=Address(0x6000), path="/dev/shm/a")
    for address, holds in ((0x4FFF, False), (0x5000, True), (0x5FFF, True), (0x6000, False)):
        subject = replace(crash(**SEGV, address=address), mappings=(mapping,))
        assert (found(condition(in_mapping="shm"), subject) is not None) == holds


def test_environment() -> None:
    process = Process(environment={"OMP_NUM_THREADS": "8", "HOME": "/root"})
    subject = Crash(process=process)
    finding = found(condition(environment={"OMP_NUM_THREADS": "^8$", "HOME": "root"}), subject)
    assert finding is not None
    assert [item.text for item in finding.evidence] == ["OMP_NUM_THREADS=8", "HOME=/root"]
    for wanted in ({"OMP_NUM_THREADS": "^$"}, {"OMP_NUM_THREADS": "8", "LD_PRELOAD": "."}, {"HOME": "8"}):
        assert found(condition(environment=wanted), subject) is None
    assert found(condition(environment={"HOME": "."}), Crash()) is None


def test_versions() -> None:
    """What the process had installed; Python's own version is that of the core, unless the process said another."""
    subject = crash()
    assert subject.process is not None
    installed = replace(subject, process=replace(subject.process, versions={"torch": "2.1.0"}))
    finding = found(condition(version={"torch": ">=2", "python": "==3.12"}), installed)
    assert finding is not None
    assert [item.text for item in finding.evidence] == ["torch 2.1.0", "python 3.12.3"]
    assert found(condition(version={"torch": "<2", "python": "==3.12"}), installed) is None
    assert found(condition(version={"torch": ">=2", "numpy": "<2"}), installed) is None
    told = replace(subject, process=replace(subject.process, versions={"python": "3.9.1"}))
    assert found(condition(version={"python": "==3.9"}), told) is not None
    assert found(condition(version={"python": ">=3"}), Crash()) is None


LOG = (
    LogLine(text="step 1", kind=None),
    LogLine(text="CUDA out of memory. Tried to allocate 2 GiB", kind="cuda-oom", fields={"wanted": "2 GiB", "free": ""}),
    LogLine(text="Python runtime state: finalizing (tstate=0x1)", kind="python-state", fields={"state": "finalizing (tstate=0x1)"}),
    LogLine(text="CUDA out of memory. Tried to allocate 3 GiB", kind="cuda-oom", fields={"wanted": "3 GiB", "free": "1 GiB"}),
)


@pytest.mark.parametrize(
    ("asks", "lines", "summary", "text"),
    [
        ({"log": "cuda-oom"}, [1, 3], "{wanted} of {free}: {line}", "2 GiB of 1 GiB: CUDA out of memory. Tried to allocate 2 GiB"),
        ({"log": "cuda-oom", "pattern": "allocate (?P<size>3)"}, [3], "{size} {wanted}", "3 3 GiB"),
        ({"log": "*", "pattern": r"step (?P<number>\d)"}, [0], "{number}", "1"),
        ({"log": "cuda-oom", "pattern": "step"}, [], "", ""),
        ({"log": "*", "pattern": "exhausted"}, [], "", ""),
        ({"log": "asan"}, [], "", ""),
        ({"finalizing": True}, [2], "", ""),
    ],
)
def test_log_lines(asks: dict[str, Any], lines: list[int], summary: str, text: str) -> None:
    """The first line that knows a name gives it."""
    finding = found(condition(**asks), Crash(log=LOG), summary)
    if not lines:
        assert finding is None
        return
    assert finding is not None
    assert list(finding.evidence) == [Evidence(text=LOG[number].text, log=number) for number in lines]
    assert not text or finding.summary == text


def test_a_running_interpreter_is_not_finalizing() -> None:
    for line in (LogLine(text="-", kind="python-state", fields={"state": "initialized"}), LogLine(text="-", kind="python-state")):
        assert found(condition(finalizing=True), Crash(log=(line,))) is None


def test_of_many_lines_five_are_evidence() -> None:
    finding = found(condition(log="cuda-oom"), Crash(log=LOG[1:2] * 9))
    assert finding is not None and len(finding.evidence) == 5


def test_conditions_within_give_their_evidence_and_names() -> None:
    subject = crash(**SEGV, frames="f > g", exit_status=139)
    both = found(condition(all=[condition(frames=["g"]), condition(exit=[139])]), subject, "{frame}")
    assert both is not None
    assert [item.frame for item in both.evidence] == [1, None] and both.summary == "g"
    either = found(condition(any=[condition(exit=[1]), condition(frames=["f"]), condition(frames=["g"])]), subject, "{frame}")
    assert either is not None
    assert [item.frame for item in either.evidence] == [0] and either.summary == "f"


WHY_NOT = {
    'signal = ["SIGBUS"]': "SIGSEGV",
    'code = ["SEGV_ACCERR"]': "SEGV_MAPERR",
    'reason = ["unmapped"]': "null-pointer",
    'access = ["write"]': "read",
    "address = [4096, 8192]": "0x0000000000000010",
    "in_mapping = 'shm'": "/srv/weights",
    "instruction = 'ud2'": "mov rax, 1",
    'frames = ["g"]': "g: not",
    'frames = ["main"], top = true': "main: not",
    'threads = ["wait"], at_least = 3': "wait: on 1 ",
    'anywhere = ["wait"], at_least = 3': "wait: on 1 ",
    "python = ['b.py']": "b.py: not",
    "modules = 'libiomp5', at_least = 2": "1 such",
    'log = "cuda-oom"': "?the process's log",
    "exit = [137]": "139",
    'environment = { HOME = "srv" }': "HOME is /root",
    'environment = { LD_PRELOAD = "." }': "LD_PRELOAD is not set",
    'version = { python = "<3" }': "python is 3.12.3",
    'version = { torch = ">=2" }': "?not decidable without the version of torch",
    "finalizing = true": "?whether the interpreter was finalizing",
    'fact = "hang"': "",
    "any = [{ exit = [1] }, { exit = [2] }]": "139; ",
}


def test_why_a_condition_does_not_hold(tmp_path: Path) -> None:
    """As `crashkit signatures test` tells: what was there instead, or (`?`) what is not known."""
    subject = crash(
        **SEGV,
        address=0x10,
        reason="null-pointer",
        access="read",
        mapped="/srv/weights",
        instruction="mov rax, 1",
        frames="f > py /a.py:1 run > main",
        others=["wait"],
        modules=["/libiomp5.so"],
        exit_status=139,
    )
    assert subject.process is not None
    subject = replace(subject, process=replace(subject.process, environment={"HOME": "/root"}))
    (tmp_path / "report.json").write_bytes(encode(subject))
    rules = "".join(f'[[signature.rule]]\nconfidence = "possible"\nall = [{{ {asked} }}]\n' for asked in WHY_NOT)
    (tmp_path / "probe.toml").write_text(f'[[signature]]\nid = "probe"\ntitle = "-"\nseverity = "low"\ncause = "-"\n{rules}')
    command = [
        sys.executable,
        "-m",
        "crashkit",
        "signatures",
        "test",
        tmp_path / "report.json",
        "--only",
        "probe",
        "--signatures",
        tmp_path,
    ]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    told = {}
    for rule in said.split("rule ")[1:]:
        _, asked, *why = rule.splitlines()
        told[asked.partition(": ")[2]] = (asked.split()[0], " ".join(why))
    assert len(told) == len(WHY_NOT), said
    for (asked, (mark, why)), wanted in zip(told.items(), WHY_NOT.values(), strict=True):
        assert mark == ("?" if wanted.startswith("?") else "-") and wanted.lstrip("?") in why, (asked, why)
