"""What handlers print of siginfo_t: an address is one only where the kernel had one, and null only where it says that nothing is there."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from crashkit.evidence.text.log import read_log
from crashkit.model import Crash
from tests.crashes import CRASHERS, compile_c

UNION = "{signal} received by PID 2619 (TID 0x2b78aa92c700) from PID {sender}; stack trace: ***\n    @     0x2b77d9cf8b6b compute_forces()"
STACK = 'Stack trace (most recent call last):\n#0 Object "/usr/lib/libfoo.so", at 0x7f5f6012f39c, in compute_forces\n'


@cache
def said(folder: Path, kind: str) -> str:
    """What psiginfo() itself says of such a fault."""
    program = folder / "psiginfo"
    if not program.exists():
        compile_c(CRASHERS / "psiginfo.c", program)
    return subprocess.run([program, kind], capture_output=True, text=True, timeout=60, check=False).stderr.strip()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("psiginfo")


PSIGINFO = {
    "null": ("SIGSEGV", 0, "null-pointer", None),
    "wild": ("SIGSEGV", None, None, "SI_KERNEL"),
    "unmapped": ("SIGSEGV", 0x12345678000, "unmapped", None),
    "own": ("SIGSEGV", None, "sent", None),
    "abort": ("SIGABRT", None, None, None),
    "trap": ("SIGILL", None, None, None),
}


@pytest.mark.parametrize("alone", [True, False], ids=["alone", "below a stack of backward-cpp"])
@pytest.mark.parametrize("kind", PSIGINFO)
def test_psiginfo(kind: str, alone: bool, folder: Path, tmp_path: Path) -> None:
    log = tmp_path / "app.log"
    text = said(folder, kind)
    assert text.startswith("app: ")
    log.write_text(text if alone else STACK + text.removeprefix("app: "))
    signal = read_log(log).signal
    assert signal is not None
    assert (signal.name, signal.address, signal.reason, signal.code_name) == PSIGINFO[kind]


def test_what_psiginfo_says_of_memory_that_may_only_be_read(folder: Path, tmp_path: Path) -> None:
    log = tmp_path / "app.log"
    log.write_text(said(folder, "read-only"))
    signal = read_log(log).signal
    assert signal is not None and (signal.name, signal.reason) == ("SIGSEGV", None) and (signal.address or 0) > 1 << 16


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("*** SIGSEGV (@0x0)", ("null-deref", "likely")),
        ("*** SIGSEGV (@0x18)", ("null-deref", "likely")),
        ("*** SIGSEGV (@0xa3b)", ("self-signal", "likely")),
        ("*** SIGSEGV (@0x3e800000a3b)", ("self-signal", "likely")),
        ("  [SignalInfo: *** SIGSEGV (@0xa3b)", ("self-signal", "likely")),
    ],
)
def test_handlers_that_print_no_code(text: str, expected: tuple[str, str], told: Callable[[str], Crash]) -> None:
    """A sender's pid and user id are where a fault's address would be (siginfo_t); the address is 0 where the kernel has none."""
    sender = int(text.partition("@")[2].rstrip(")"), 16) & 0xFFFFFFFF
    first = told(UNION.format(signal=text, sender=sender)).findings[0]
    assert (first.id, first.confidence) == expected


OPEN_MPI = "*** Process received signal ***\nSignal: Segmentation fault (11)\nSignal code: {code}\nFailing at address: {address}"


@pytest.mark.parametrize(
    "text",
    [
        "[signal SIGSEGV: segmentation violation code=0x0 addr=0xa3b pc=0x4b1c5e]",
        "[signal SIGSEGV: segmentation violation code=0xfffffffffffffffa addr=0xa3b pc=0x4b1c5e]",
        OPEN_MPI.format(code=" (-6)", address="0x62"),
        OPEN_MPI.format(code=" (0)", address="0x3e800000a3b"),
        OPEN_MPI.format(code="User function (kill, sigsend, abort, etc.) (0)", address="0xa3b"),
        "Caught signal 11 (Segmentation fault: tkill(2) or tgkill(2) at address 0xa3b)",
        "Caught signal 11 (Segmentation fault: Sent by kill, sigsend or raise at address 0xa3b)",
        "Fatal signal 11 (SIGSEGV), code -6 (SI_TKILL), fault addr 0xa3b in tid 123 (python), pid 123",
        "Fatal signal 11 (SIGSEGV), code 0 (SI_USER), fault addr 0xa3b in tid 123 (python)",
    ],
)
def test_a_signal_that_was_sent_has_no_address(text: str, told: Callable[[str], Crash]) -> None:
    crash = told(text)
    assert crash.signal is not None
    assert (crash.signal.name, crash.signal.address, crash.signal.reason) == ("SIGSEGV", None, "sent")
    assert crash.findings == ()


@pytest.mark.parametrize(
    "text",
    ["Process finished with exit code -11 (interrupted by signal 11: SIGSEGV)", "train.py exited with code -11\nSegmentation fault"],
)
def test_the_code_of_an_exit_is_none_of_a_signal(text: str, told: Callable[[str], Crash]) -> None:
    crash = told(text)
    assert crash.signal is not None and (crash.signal.name, crash.signal.reason) == ("SIGSEGV", None)


@pytest.mark.parametrize(
    ("text", "confidence"),
    [
        ("Segmentation fault at address 0x0", "likely"),
        ("PID 18483 received SIGSEGV for address: 0x0", "likely"),
        ("*** SIGSEGV (@(nil)), see go/stacktraces#s15 received by PID 160 (TID 3418) on cpu 100; stack trace: ***", "likely"),
        ("[signal SIGSEGV: segmentation violation code=0x1 addr=0x0 pc=0x4b1c5e]", "certain"),
        ("Fatal signal 11 (SIGSEGV), code 1, fault addr 0x0 in tid 123 (python)", "certain"),
        ("Caught signal 11 (Segmentation fault: address not mapped to object at address (nil))", "certain"),
        (" *** caught segfault ***\naddress (nil), cause 'memory not mapped'", "certain"),
        ("Received signal 11 SEGV_MAPERR 000000000000", "certain"),
    ],
)
def test_a_zero_is_a_null_pointer_where_nothing_is_mapped(text: str, confidence: str, told: Callable[[str], Crash]) -> None:
    first = told(text).findings[0]
    assert (first.id, first.confidence) == ("null-deref", confidence)
