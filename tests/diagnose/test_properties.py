"""A diagnosis never raises, does not depend on the order of threads, and what has nothing to do with the crash does not change what is certain."""

# ruff: noqa: E501

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crashkit.diagnose import diagnose, load_catalog
from crashkit.model import (
    Address,
    Crash,
    ElidedFrames,
    Finding,
    LogLine,
    Module,
    NativeFrame,
    Process,
    PythonFrame,
    PythonRuntime,
    Signal,
    Thread,
)

from .synthetic import crash, thread
from .test_public_cases import CASES, lines

FUNCTIONS = [
    None,
    "",
    "<signal handler called>",
    "abort",
    "std::terminate()",
    "__cxa_throw",
    "cuLaunchKernel",
    "take_gil",
    "__lll_lock_wait",
    "cudnnRNNForward",
    "malloc_printerr",
    "__run_exit_handlers",
    "PyGILState_Ensure",
    "at::native::(anonymous namespace)::_cudnn_impl(at::Tensor const&)",
    "operator<(",
    "a<b<c>>::d()",
    "\x1b[31m\ufffd",
]
texts = st.one_of(st.none(), st.text(max_size=20), st.sampled_from(FUNCTIONS))
natives = st.builds(
    NativeFrame,
    function=texts,
    module=st.sampled_from([None, "/x/libcuda.so.1", "/lib/libc.so.6", ""]),
    trust=st.sampled_from([None, "cfi", "signal"]),
)
pythons = st.builds(PythonFrame, function=texts, file=texts, line=st.one_of(st.none(), st.integers()), source=texts)
frames = st.lists(st.one_of(natives, pythons, st.builds(ElidedFrames, count=st.none())), max_size=12).map(tuple)
threads = st.builds(
    Thread,
    tid=st.one_of(st.none(), st.integers(0, 9)),
    crashed=st.booleans(),
    holds_gil=st.one_of(st.none(), st.booleans()),
    frames=frames,
    python_frames=st.lists(pythons, max_size=3).map(tuple),
    registers=st.dictionaries(st.sampled_from(["rax", "rip"]), st.integers(0, 2**64 - 1).map(Address), max_size=2),
)
signals = st.builds(
    Signal,
    number=st.integers(-1, 99),
    name=st.sampled_from(["SIGSEGV", "SIGABRT", "SIGBUS", "SIGKILL", "SIGFPE", "signal 99"]),
    code_name=st.sampled_from([None, "SI_KERNEL", "SEGV_MAPERR", "SI_USER"]),
    reason=st.sampled_from([None, "null-pointer", "non-canonical", "new-reason"]),
    address=st.one_of(st.none(), st.integers(0, 2**64 - 1).map(Address)),
)
log_lines = st.builds(
    LogLine,
    text=st.text(max_size=30),
    kind=st.one_of(st.none(), st.sampled_from(["device-assert", "fatal-python-error", "launcher-child", "asan", "no-such-kind"])),
    fields=st.dictionaries(st.sampled_from(["message", "{text}", "pid"]), st.text(max_size=5), max_size=2),
)
crashes = st.builds(
    Crash,
    signal=st.one_of(st.none(), signals),
    threads=st.lists(threads, max_size=5).map(tuple),
    modules=st.lists(st.builds(Module, path=st.text(max_size=10)), max_size=3).map(tuple),
    log=st.lists(log_lines, max_size=4).map(tuple),
    process=st.one_of(st.none(), st.builds(Process, exit_status=st.one_of(st.none(), st.integers()))),
    python=st.one_of(st.none(), st.builds(PythonRuntime, version=texts, finalizing=st.one_of(st.none(), st.booleans()))),
)


@pytest.mark.slow
@given(crashes)
def test_never_raises(subject: Crash) -> None:
    found = diagnose(subject, load_catalog())
    assert not found.soft_errors
    for finding in found.findings:
        for item in finding.evidence:
            assert item.log is None or item.log < len(subject.log)
            holders = [each for each in subject.threads if each.tid == item.thread]
            assert item.frame is None or any(item.frame < len(holder.frames) for holder in holders)


def built(name: str, tmp_path: Any) -> Crash:
    case = CASES[name]
    told = lines(case.log, tmp_path) if case.log else ()
    return crash(**{**case.crash, "log": told})


def verdicts(findings: tuple[Finding, ...]) -> list[tuple[str, str]]:
    return [(finding.id, finding.confidence) for finding in findings]


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_order_of_threads_does_not_matter(name: str, tmp_path: Any) -> None:
    subject = built(name, tmp_path)
    expected = verdicts(diagnose(subject, load_catalog()).findings)
    shuffler = random.Random(name)
    for _ in range(3):
        several = list(subject.threads)
        shuffler.shuffle(several)
        assert verdicts(diagnose(msgspec.structs.replace(subject, threads=tuple(several)), load_catalog()).findings) == expected


IDLE = (
    "poll [libc.so.6] > ?? [libcuda.so.1] > start_thread",
    "futex_wait > pthread_cond_wait > py /usr/lib/python3.12/threading.py:327 wait > py /srv/metrics.py:10 report",
    "epoll_wait > grpc_wait > start_thread",
    "pthread_cond_wait > blas_thread_server > start_thread",
    "gomp_team_barrier_wait_end > gomp_simple_barrier_wait > gomp_thread_start > start_thread",
)


@pytest.mark.parametrize("name", CASES)
def test_unrelated_threads_and_lines_do_not_change_what_is_certain(name: str, tmp_path: Any) -> None:
    subject = built(name, tmp_path)
    certain = [verdict for verdict in verdicts(diagnose(subject, load_catalog()).findings) if verdict[1] == "certain"]
    noise = tuple(thread(text, 900 + number) for number, text in enumerate(IDLE))
    chatter = tuple(LogLine(text=text) for text in ("step 17 loss 0.3", "GET /health 200", "saving checkpoint"))
    noisy = msgspec.structs.replace(subject, threads=(*noise, *subject.threads), log=(*chatter, *subject.log))
    after = verdicts(diagnose(noisy, load_catalog()).findings)
    assert [verdict for verdict in after if verdict[1] == "certain"] == certain
    assert after[:1] == certain[:1] or not certain
