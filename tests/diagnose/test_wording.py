"""What is said of a signature and of why it matched, and the names that its texts may use."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from crashkit.diagnose.case import Case
from crashkit.diagnose.explain import explain
from crashkit.diagnose.facts import FACTS
from crashkit.diagnose.page import of_signature
from crashkit.diagnose.signature import Condition, Fix, Rule, Signature
from crashkit.diagnose.texts import names
from crashkit.model import Address, Crash, Module, NativeFrame, Offset, Process, PythonFrame, Signal, Source, Thread

SIGNATURE = Signature(
    id="null-read",
    title="Null was read",
    severity="high",
    cause="A pointer was null.",
    fix=("one line", Fix(text="two\nlines", needs="torch")),
    next_steps=("Look again.",),
    notes=("Not seen yet.",),
    references=("https://example.org/a",),
    none=(Condition(package="numpy"),),
    rule=(
        Rule(confidence="certain", all=(Condition(signal=("SIGSEGV",)), Condition(address=(0, 4095))), none=(Condition(package="torch"),)),
        Rule(confidence="likely", any=(Condition(signal=("SIGBUS",)), Condition(reason=("unmapped",)))),
    ),
    exception=True,
    yields_to=("other-*", "more"),
    file="faults.toml",
)


def test_a_signature_as_text() -> None:
    assert of_signature(SIGNATURE).splitlines() == [
        "null-read: Null was read (high)",
        "",
        "Cause: A pointer was null.",
        "",
        "Fix:",
        "  - one line",
        "  - two",
        "    lines",
        "",
        "Next steps:",
        "  - Look again.",
        "",
        "Notes:",
        "  - Not seen yet.",
        "",
        "Recognised by:",
        "  none: package = 'numpy'",
        "  certain:",
        "    all: signal = ['SIGSEGV']",
        "    all: address = [0, 4095]",
        "    none: package = 'torch'",
        "  likely:",
        "    any: signal = ['SIGBUS']",
        "    any: reason = ['unmapped']",
        "",
        "A Python exception that may have been caught: at most possible if a fault ended the process",
        "",
        "Follows from (if found): other-*, more",
        "",
        "See:",
        "  - https://example.org/a",
        "",
        "From faults.toml",
    ]


def test_what_is_empty_has_no_heading() -> None:
    bare = Signature(
        id="a", title="A", severity="low", cause="C.", rule=(Rule(confidence="likely", all=(Condition(package="numpy"),)),), file="f"
    )
    assert of_signature(bare).splitlines() == [
        "a: A (low)", "", "Cause: C.", "", "Recognised by:", "  likely:", "    all: package = 'numpy'", "", "From f",
    ]  # fmt: skip


def test_each_condition_says_whether_it_helped() -> None:
    crash = Crash(
        signal=Signal(number=11, name="SIGSEGV", address=Address(1 << 40)),
        process=Process(pid=7, exit_status=0),
        threads=(Thread(tid=7, crashed=True, frames=(NativeFrame(function="f", module="/usr/lib/libx.so"),)),),
    )
    lines = list(explain(SIGNATURE, Case(crash)))
    marks = [line.strip() for line in lines if not line.startswith("      ") and not line.startswith("        ")]
    assert [line.split(" = ")[0] for line in marks] == [
        "+ none: package",
        "rule 1 (certain)",
        "+ all: signal",
        "- all: address",
        "+ none: package",
        "rule 2 (likely)",
        "- any: signal",
        "? any: reason",
    ]
    shown = lines[lines.index("  + all: signal = ['SIGSEGV']") + 1]
    assert shown.strip() and shown.startswith("        ")


def test_evidence_says_its_thread() -> None:
    frames = (NativeFrame(function="f", module="/usr/lib/libx.so"),)
    crash = Crash(signal=Signal(number=11, name="SIGSEGV"), threads=(Thread(tid=7, crashed=True, frames=frames, holds_gil=True),))
    condition = Condition(fact="gil-held-by-it")
    signature = replace(SIGNATURE, none=(), rule=(Rule(confidence="likely", all=(condition,)),))
    assert list(explain(signature, Case(crash)))[1:] == [
        "  + all: fact = 'gil-held-by-it'", "        the crashed thread held the GIL (thread 7)",
    ]  # fmt: skip


OWN = PythonFrame(function="load", file="/srv/app.py", line=3, source="copy(x)", context=("copy(x)",), context_start=3)
FAILED = NativeFrame(function="copy", module="/x/site-packages/fast_copy/_fast.so", offset=Offset(0x10))
CRASH = Crash(
    source=Source(path="/tmp/a core", kind="core"),
    signal=Signal(number=11, name="SIGSEGV", address=Address(0x18), access="read", reason="null-pointer"),
    process=Process(
        pid=7, executable="/usr/bin/python3", argv=("python3", "a b.py"), environment={"A": "x y", "B": "\n"}, versions={"fast-copy": "1"}
    ),
    threads=(Thread(tid=8, crashed=True, frames=(FAILED, OWN)),),
)


def named(**facts: Any) -> dict[str, str]:
    return names(Case(replace(CRASH, **facts)))


def test_names_of_a_crash() -> None:
    assert named() == {
        "signal": "SIGSEGV",
        "address": "0x0000000000000018",
        "access": "read",
        "unseen": "The evidence does not show",
        "tid": "8",
        "who": "thread 8",
        "own_stack": "/srv/app.py:3 in load",
        "function": "copy",
        "module": "/x/site-packages/fast_copy/_fast.so",
        "offset": "0x10",
        "python": "/srv/app.py:3 in load",
        "own_python": "/srv/app.py:3 in load",
        "source": "copy(x)",
        "blamed": "copy in _fast.so",
        "extension": "_fast.so",
        "extension_file": "/x/site-packages/fast_copy/_fast.so",
        "package": "fast-copy",
        "executable": "/usr/bin/python3",
        "command": "python3 'a b.py'",
        "pid": "7",
        "core": "'/tmp/a core'",
        "env_A": "'x y'",
        "blocking_run": "CUDA_LAUNCH_BLOCKING=1",
    }


def test_names_that_a_crash_lacks() -> None:
    assert named(process=None, threads=(), signal=None, source=None) == {
        "unseen": "The evidence does not show",
        "no_stack": "The worker's own stack is not in this text.",
        "blocking_run": "CUDA_LAUNCH_BLOCKING=1",
    }
    assert named(source=Source(path="", kind="live"))["live_pid"] == "7" and "core" not in named(source=Source(path="", kind="live"))
    assert "package" not in named(process=Process(pid=7)), "a name that no distribution has"
    blocking = named(process=Process(pid=7, environment={"CUDA_LAUNCH_BLOCKING": "1"}))
    assert blocking["blocking"] == "launches were blocking, so it is the failing call"


def test_a_garbage_collection_blames_no_line() -> None:
    found = named(threads=(Thread(tid=8, crashed=True, collecting=True, frames=(NativeFrame(function="gc_collect_main"), OWN)),))
    assert "python" not in found and "source" not in found


def test_the_wrong_value_is_named_instead_of_a_function() -> None:
    call = replace(OWN, source="copy(where)", context=("copy(where)",), locals={"where": "24"})
    found = named(threads=(Thread(tid=8, crashed=True, frames=(FAILED, NativeFrame(function="ffi_call"), call)),))
    assert (found["culprit"], found["culprit_value"]) == ("where", "24") and "blamed" not in found


@pytest.mark.parametrize(
    ("fact", "paths", "fields"),
    [
        ("two-llvm-openmp", ("/b/libomp.so", "/a/libiomp5.so"), "/a/libiomp5.so and /b/libomp.so"),
        ("two-libstdcxx", ("/a/libstdc++.so.6", "/b/libstdc++.so.6"), "/a/libstdc++.so.6 and /b/libstdc++.so.6"),
        ("two-openssl", ("/a/libcrypto.so.3", "/b/libcrypto.so.1", "/b/libssl.so.1"), "/a/libcrypto.so.3 and /b/libcrypto.so.1"),
        ("two-openssl", ("/a/libssl.so.3", "/b/libssl.so.1"), "/a/libssl.so.3 and /b/libssl.so.1"),
    ],
)
def test_copies_of_a_library_are_named(fact: str, paths: tuple[str, ...], fields: str) -> None:
    found = FACTS[fact](Case(Crash(modules=tuple(Module(path=path) for path in paths))))
    assert found.fields == {"copies": fields} and " and ".join(one.text for one in found.evidence) == fields
    assert fact == "two-openssl" or [one.module for one in found.evidence] == fields.split(" and ")


def test_the_function_that_needs_a_thread_state_is_named() -> None:
    def outer(name: str, **facts: Any) -> NativeFrame:
        return NativeFrame(function=name, module="/usr/bin/python3", **facts)

    frames = (*(outer(f"f{number}") for number in range(3)), outer("_PyObject_Call", args={"tstate": "0x0"}), outer("g"))
    found = FACTS["null-thread-state"](Case(Crash(threads=(Thread(tid=8, crashed=True, frames=frames),))))
    assert found.holds and found.fields == {"frame": "_PyObject_Call"}
    beyond = (outer("f"), *frames)
    assert not FACTS["null-thread-state"](Case(Crash(threads=(Thread(tid=8, crashed=True, frames=beyond),)))).holds


@pytest.mark.parametrize(
    ("module", "expected"),
    [
        ("/opt/my libs/libfast.so", "'/opt/my libs/libfast.so'"),
        ("/dev/zero (deleted)", None),
        ("/memfd:jit (deleted)", None),
        ("[vdso]", None),
        (None, None),
    ],
)
def test_a_module_that_is_a_file_can_be_looked_into(module: str | None, expected: str | None) -> None:
    found = named(threads=(Thread(tid=8, crashed=True, frames=(NativeFrame(function="run", module=module, offset=Address(16)), OWN)),))
    assert found.get("module") == expected
