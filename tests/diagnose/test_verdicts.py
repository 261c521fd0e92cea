"""What is said of a known failure that was not found: contradicted by a fact, or not decidable without one; never more than is known."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Optional

import msgspec
import pytest

from crashkit.diagnose import diagnose, load_catalog
from crashkit.diagnose.case import Case
from crashkit.diagnose.catalog import Catalog
from crashkit.diagnose.engine import judge
from crashkit.diagnose.signature import Condition, Rule, Signature
from crashkit.evidence.text.log import crash_of_log, read_log
from crashkit.model import Crash, LookedFor, Source
from crashkit.report import wording

from .synthetic import crash

SEGV = {"signal": "SIGSEGV", "code": "SEGV_MAPERR"}
NAMELESS = "?? [libc.so.6] > f [app.so] > main [app]"

# What the condition is to be of a crash: contradicted by the first text, or undecided for want of it.
CONDITIONS: dict[str, tuple[dict[str, Any], dict[str, Any], str, str]] = {
    "signal": ({"signal": ["SIGBUS"]}, SEGV, "contradicted", "the signal is SIGSEGV"),
    "no signal": ({"signal": ["SIGBUS"]}, {}, "undecided", "the signal that ended the process"),
    "code": ({"code": ["SEGV_ACCERR"]}, SEGV, "contradicted", "si_code is SEGV_MAPERR"),
    "no code": ({"code": ["SEGV_ACCERR"]}, {"signal": "SIGSEGV"}, "undecided", "the signal's si_code"),
    "reason": ({"reason": ["unmapped"]}, {**SEGV, "reason": "null-pointer"}, "contradicted", "the reason is null-pointer"),
    "no reason": ({"reason": ["unmapped"]}, {**SEGV, "address": 9}, "undecided", "the reason of the signal"),
    "address": ({"address": [0, 9]}, {**SEGV, "address": 0x10}, "contradicted", "the fault address is 0x0000000000000010"),
    "no address": ({"address": [0, 9]}, SEGV, "undecided", "the fault address"),
    "no address of a null": ({"fact": "null-address"}, SEGV, "undecided", "the fault address"),
    "nothing faulted": ({"fact": "null-address"}, {"signal": "SIGABRT"}, "contradicted", "SIGABRT is not a memory fault"),
    "sent": (
        {"address": [0, 9]},
        {**SEGV, "reason": "sent-from-outside"},
        "contradicted",
        "SIGSEGV was sent: no access faulted",
    ),
    "frames": ({"frames": ["g"]}, {**SEGV, "frames": "f > main"}, "contradicted", "g: not on the crashed thread in this order"),
    "nameless frames": ({"frames": ["g"]}, {**SEGV, "frames": NAMELESS}, "undecided", "the names of all native frames"),
    "nameless frames elsewhere": (
        {"frames": [{"function": "g", "module": "libcuda"}]},
        {**SEGV, "frames": NAMELESS},
        "contradicted",
        "g [libcuda]: not on the crashed thread in this order",
    ),
    "no frames": ({"frames": ["g"]}, SEGV, "undecided", "the crashed thread"),
    "top": ({"frames": ["main"], "top": True}, {**SEGV, "frames": "f > main"}, "contradicted", "main: not where the thread crashed"),
    "threads": ({"threads": ["g"]}, {**SEGV, "frames": "f", "others": ["h"]}, "contradicted", "g: on 0 other threads"),
    "threads of a log": (
        {"threads": ["g"]},
        {**SEGV, "frames": "f", "others": ["h"], "kind": "log"},
        "undecided",
        "the native stacks of all threads",
    ),
    "python": ({"python": ["a"]}, {**SEGV, "frames": "py b.py:1 f"}, "contradicted", "a: not among the Python frames"),
    "no python": ({"python": ["a"]}, {**SEGV, "frames": "f"}, "undecided", "the Python stack of the failing thread"),
    "modules": ({"modules": "x"}, {**SEGV, "modules": ["/y.so"]}, "contradicted", "0 such modules are loaded"),
    "no modules": ({"modules": "x"}, SEGV, "undecided", "the loaded modules"),
    "copies of no modules": ({"fact": "two-libstdcxx"}, SEGV, "undecided", "the loaded modules"),
    "log": ({"log": "double-free"}, {**SEGV, "kind": "log"}, "contradicted", "no double-free line in the log"),
    "no log": ({"log": "double-free"}, SEGV, "undecided", "the process's log"),
    "exit": ({"exit": [137]}, {"exit_status": 1}, "contradicted", "the exit status is 1"),
    "no exit": ({"exit": [137]}, {}, "undecided", "the exit status"),
    "environment": ({"environment": {"OMP_NUM_THREADS": "1"}}, {}, "undecided", "the value of OMP_NUM_THREADS"),
    "version": ({"version": {"python": "<3.8,>=3.1"}}, {}, "contradicted", "python is 3.12.3"),
    "no version": ({"version": {"torch": "<2"}}, {}, "undecided", "the version of torch"),
    "instruction": ({"instruction": "^ud2"}, {**SEGV, "instruction": "mov"}, "contradicted", "it is mov"),
    "no instruction": ({"instruction": "^ud2"}, SEGV, "undecided", "the faulting instruction"),
    "finalizing": ({"finalizing": True}, {"finalizing": False}, "contradicted", "it was not finalizing"),
    "whether finalizing": ({"finalizing": True}, {}, "undecided", "whether the interpreter was finalizing"),
    "any": ({"any": [{"log": "double-free"}, {"signal": ["SIGBUS"]}]}, SEGV, "undecided", "the process's log"),
    "all": ({"all": [{"log": "double-free"}, {"signal": ["SIGBUS"]}]}, SEGV, "contradicted", "the signal is SIGSEGV"),
}


def verdict_of(subject: Crash, *rules: Rule, none: tuple[Condition, ...] = ()) -> Optional[LookedFor]:
    """Of a signature beside a condition that holds, so that it comes close."""
    signature = Signature(id="probe", title="Probe", severity="low", cause="", rule=rules, none=none)
    found = diagnose(subject, Catalog((signature,)))
    assert not found.soft_errors
    return found.looked_for[0] if found.looked_for else None


@pytest.mark.parametrize("name", CONDITIONS)
def test_each_condition_tells_what_contradicts_it_from_what_is_not_known(name: str) -> None:
    asks, subject, verdict, by = CONDITIONS[name]
    probe = Signature(
        id="probe", title="", severity="low", cause="", rule=(Rule(confidence="likely", all=(msgspec.convert(asks, Condition),)),)
    )
    told = judge(probe, Case(crash(**subject)))
    assert (told.verdict, told.by) == (verdict, by)


def test_undecided_if_one_rule_is() -> None:
    subject = crash(**SEGV, frames="f > main")
    near = Condition(frames=("f",))
    contradicted = Rule(confidence="likely", all=(near, Condition(signal=("SIGBUS",))))
    undecided = Rule(confidence="likely", all=(near, Condition(fact="null-address")))
    told = verdict_of(subject, contradicted, undecided)
    assert told is not None and (told.verdict, told.by) == ("undecided", "the fault address")
    told = verdict_of(subject, contradicted)
    assert told is not None and (told.verdict, told.by) == ("contradicted", "the signal is SIGSEGV")
    told = verdict_of(subject, Rule(confidence="likely", all=(near,), none=(Condition(frames=("main",)),)))
    assert told is not None and (told.verdict, told.by) == ("contradicted", "main")


LOG = """\
Fatal Python error: Segmentation fault

Current thread 0x00007f0000000740 (most recent call first):
  File "/srv/app.py", line 17 in decode
"""


def test_a_log_without_an_address_rules_no_null_pointer_out(tmp_path: Path) -> None:
    """faulthandler prints no fault address: whether a null pointer was used is not known."""
    path = tmp_path / "stderr.log"
    path.write_text(LOG)
    told = diagnose(crash_of_log(path, read_log(path)), load_catalog())
    verdicts = {one.id: wording.verdict(one) for one in told.looked_for}
    assert verdicts["null-deref"] == "not decidable without the fault address"
    assert "null-deref" not in told.ruled_out
    assert not told.findings
    with_address = diagnose(crash(**SEGV, address=0x10, frames="f > main"), load_catalog())
    assert [finding.id for finding in with_address.findings] == ["null-deref"]
    sent = Case(crash(signal="SIGSEGV", code="SI_USER", reason="raised", frames="kill > f > main"))
    assert wording.verdict(judge(load_catalog().find("null-deref"), sent)) == "contradicted: SIGSEGV was sent, not caused by an instruction"


def test_said_in_every_form_of_the_report() -> None:
    from crashkit.report import html, text

    told = diagnose(crash(signal="SIGSEGV", frames="f > main"), load_catalog())
    assert told.looked_for and told.source == Source(path="core", kind="core")
    rows = "\n".join(text.summary(told, None, color=False, width=100))
    assert wording.looked_for(told) in rows
    page = html.render(told)
    assert "Null (or near-null) pointer dereference" in page and "not decidable without the fault address" in page
    assert "uled out" not in rows + page
