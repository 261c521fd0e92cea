"""How findings come together: what follows from another one supports it instead of standing beside it."""

from __future__ import annotations

import msgspec
import pytest

from crashkit.diagnose import Catalog, diagnose
from crashkit.diagnose.case import Case
from crashkit.diagnose.conditions import answer
from crashkit.diagnose.signature import Condition, Fix, Rule, Signature
from crashkit.diagnose.texts import names
from crashkit.model import (
    Address,
    Crash,
    Finding,
    Gpu,
    GpuException,
    GpuKernel,
    GpuMemory,
    GpuPlace,
    LaunchedFrom,
    Module,
    NativeFrame,
    PythonFrame,
    Signal,
    Thread,
)

CRASH = Crash(
    signal=Signal(number=11, name="SIGSEGV"),
    threads=(Thread(tid=1, crashed=True, frames=(NativeFrame(function="shop::buy", module="/srv/shop.so"),)),),
)


def signature(identity: str, confidence: str = "likely", **facts: object) -> Signature:
    rule = Rule(confidence=confidence, all=(Condition(signal=("SIGSEGV",)),))
    return msgspec.structs.replace(
        Signature(id=identity, title=f"The {identity}", severity="high", cause="It happens.", rule=(rule,)), **facts
    )


def findings(*signatures: Signature, crash: Crash = CRASH) -> dict[str, Finding]:
    return {finding.id: finding for finding in diagnose(crash, Catalog(signatures)).findings}


def supports(finding: Finding) -> list[str]:
    return [item.text for item in finding.evidence if "follows from this" in item.text]


def test_a_consequence_supports_its_cause() -> None:
    found = findings(signature("cause"), signature("effect", yields_to=("cause",)))
    assert list(found) == ["cause"]
    assert supports(found["cause"]) == ["The effect: follows from this"]


def test_a_signature_that_yields_to_nobody_stands_beside() -> None:
    found = findings(signature("cause"), signature("effect"))
    assert set(found) == {"cause", "effect"}
    assert not supports(found["cause"]) and not supports(found["effect"])


def test_what_is_only_possible_explains_nothing_away() -> None:
    found = findings(signature("cause", "possible"), signature("effect", yields_to=("cause",)))
    assert set(found) == {"cause", "effect"}
    assert not supports(found["cause"])


def test_two_that_yield_to_each_other_both_stand() -> None:
    found = findings(signature("one", yields_to=("two",)), signature("two", yields_to=("one",)))
    assert set(found) == {"one", "two"}


def test_the_kind_of_fault_is_no_support() -> None:
    found = findings(signature("cause"), signature("kind", general=True, yields_to=("*",)))
    assert list(found) == ["cause"]
    assert not supports(found["cause"])


def test_the_kind_of_fault_explains_no_cause_away() -> None:
    found = findings(signature("kind", "certain", general=True), signature("cause", yields_to=("kind",)))
    assert list(found) == ["cause", "kind"]


TORCH = "/venv/lib/python3.11/site-packages/torch/lib/libtorch_cpu.so"
FIXES = ("Wait for the lock.", Fix(text="torch.set_num_threads(1)", needs="torch"), Fix(text="the torch of the lighthouse"))


@pytest.mark.parametrize(
    ("modules", "fixes"),
    [
        ((TORCH,), (0, 1, 2)),
        (("/srv/shop.so",), (0, 2)),
        ((), (0, 1, 2)),  # a log does not tell what was loaded
    ],
)
def test_a_fix_that_needs_a_package_is_for_processes_that_may_have_it(modules: tuple[str, ...], fixes: tuple[int, ...]) -> None:
    crash = msgspec.structs.replace(CRASH, modules=tuple(Module(path=path) for path in modules))
    texts = ("Wait for the lock.", "torch.set_num_threads(1)", "the torch of the lighthouse")
    assert findings(signature("lock", fix=FIXES), crash=crash)["lock"].fix == tuple(texts[index] for index in fixes)


def test_a_fix_is_better_than_none() -> None:
    crash = msgspec.structs.replace(CRASH, modules=(Module(path="/srv/shop.so"),))
    assert findings(signature("lock", fix=FIXES[1:2]), crash=crash)["lock"].fix == ("torch.set_num_threads(1)",)


@pytest.mark.parametrize("unknown", ["function", "file", "line"])
def test_what_a_frame_lacks_is_not_said(unknown: str) -> None:
    """`None` is no line and no name: neither in what findings may quote nor in their evidence."""
    frame = msgspec.structs.replace(PythonFrame(function="decode", file="/srv/app.py", line=17), **{unknown: None})
    lane = GpuException(
        name="WARP_ILLEGAL_ADDRESS",
        kernel="k",
        file="k.py",
        memory=GpuMemory(address=Address(16), size=8, offset=0, state="freed", freed=(frame,)),
    )
    place = GpuPlace(warps=1, waits="barrier", file="k.py")
    gpu = Gpu(exceptions=(lane,), kernels=(GpuKernel(name="k", places=(place,)),), launched_from=LaunchedFrom(thread=1, frame=0))
    for crash in (
        Crash(threads=(Thread(tid=1, crashed=True, frames=(frame,)),), signal=Signal(number=11, name="SIGSEGV")),
        Crash(threads=(Thread(tid=1, crashed=True, frames=(frame,)),), gpu=(gpu,)),
        Crash(threads=(Thread(tid=1, crashed=True, frames=(frame,)),), gpu=(msgspec.structs.replace(gpu, exceptions=()),)),
    ):
        assert not [text for text in names(Case(crash)).values() if "None" in text]
    evidence = answer(Condition(python=(".*",)), Case(crash)).evidence
    assert evidence and not [one.text for one in evidence if "None" in one.text]
