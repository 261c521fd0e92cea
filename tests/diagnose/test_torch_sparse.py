"""Sparse tensors of torch whose indices do not fit: nothing checks them before an operator follows them."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

from crashkit.diagnose import diagnose, load_catalog
from crashkit.model import Address, Crash, NativeFrame, Signal, Thread

from ..crashes import NO_TORCH, python_crash
from .causes import analyzed, evidence, first

SIGNATURE = "torch-sparse-indices"
needs_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason=NO_TORCH)


def crash(kind: str, threads: int) -> Crash:
    return analyzed(evidence(python_crash("torch_sparse.py", kind, str(threads), python=Path(sys.executable))))


@pytest.mark.torch
@pytest.mark.slow
@needs_torch
@pytest.mark.parametrize(
    ("kind", "threads"),
    [("dense", 1), ("added", 2), *(pytest.param(*one, marks=pytest.mark.long) for one in (("dense", 2), ("product", 1)))],
)
def test_an_operator_follows_an_index(kind: str, threads: int) -> None:
    """With two threads it may be OpenMP's that faults, with no operator and no Python on its stack."""
    found = crash(kind, threads)
    assert first(found) == SIGNATURE, [(finding.id, finding.confidence) for finding in found.findings]
    assert found.findings[0].fix[0].startswith("torch.sparse.check_sparse_tensor_invariants.enable()")


@pytest.mark.torch
@pytest.mark.slow
@needs_torch
def test_a_crash_elsewhere_is_none() -> None:
    assert SIGNATURE not in [finding.id for finding in crash("healthy", 2).findings]


def stack(tid: int, *names: str, crashed: bool = True) -> Thread:
    return Thread(tid=tid, crashed=crashed, frames=tuple(NativeFrame(function=name) for name in names))


def found(*threads: Thread, reason: str = "unmapped") -> list[str]:
    signal = Signal(number=11, name="SIGSEGV", address=Address(1 << 44), reason=reason)
    return [finding.id for finding in diagnose(Crash(signal=signal, threads=threads), load_catalog()).findings]


OPERATOR = ("at::native::addmm_out_sparse_compressed_cpu", "at::_ops::addmm::call", "THPVariable_mm")
WAITING = stack(1, "gomp_team_start", "GOMP_parallel", *OPERATOR, crashed=False)


def test_the_thread_that_waits_for_openmp_names_the_operator() -> None:
    worker = stack(2, "at::internal::invoke_parallel", "gomp_thread_start", "start_thread")
    assert SIGNATURE in found(worker, WAITING)
    dense = stack(1, "GOMP_parallel", "at::native::cpu_kernel", "at::native::add_kernel", crashed=False)
    assert SIGNATURE not in found(worker, dense), "another operator"
    assert SIGNATURE not in found(stack(2, "decode_jpeg", "start_thread"), WAITING), "a thread of somebody else's"
    assert SIGNATURE not in found(worker, stack(1, *OPERATOR, crashed=False)), "an operator that waits for no other thread"


def test_a_null_pointer_is_no_index() -> None:
    assert SIGNATURE in found(stack(1, *OPERATOR))
    assert SIGNATURE not in found(stack(1, *OPERATOR), reason="null-pointer")
    assert SIGNATURE not in found(stack(1, *(["decode"] * 7), *OPERATOR)), "far out on the stack"
    assert SIGNATURE not in found(stack(1, "at::native::parse_shape", "THPVariable_mm"))
