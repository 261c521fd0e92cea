"""Each text of a crash, cut in the forms in which people cut: nothing false is claimed of what is left, and what it can only be is still said.

A new sample of a format is measured with the others. What only a certain report has stands in remnants.toml: each of its lines is tried, too.
"""

# ruff: noqa: E501

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple, Optional

import pytest

from crashkit.diagnose import diagnose, load_catalog
from crashkit.errors import EvidenceError
from crashkit.evidence.text.log import crash_of_log, read_log

from .test_log import CSAN, DUMP
from .test_log_formats import THREADS
from .test_native_texts import POSTED
from .test_printed import LOGS
from .test_wrapping import TEXTS

ROOT = Path(__file__).parents[2]
_FRAME = re.compile(
    r'^\W{0,20}(?:#\d+ |\d+ +\S|File "|frame #|@ +0x|at |by 0x|\[ ?\d+\] |goroutine|\S+\.go:\d+|\d+: )|\[0x[0-9a-f]+\]$', re.MULTILINE
)


def _of(rows: Callable[[list[str]], list[str]]) -> Callable[[str], str]:
    return lambda text: "\n".join(rows(text.splitlines())) + "\n"


CUTS: dict[str, Callable[[str], str]] = {
    "without the first line": _of(lambda rows: rows[1:]),
    "without the first third": _of(lambda rows: rows[len(rows) // 3 :]),
    "the last third": _of(lambda rows: rows[2 * len(rows) // 3 :]),
    "the last 10 lines": _of(lambda rows: rows[-10:]),
    "the first 10 lines": _of(lambda rows: rows[:10]),
    "the middle": _of(lambda rows: rows[len(rows) // 3 : 2 * len(rows) // 3 + 1]),
    "80 columns": _of(lambda rows: [row[:80] for row in rows]),
    "without blank lines": _of(lambda rows: [row for row in rows if row.strip()]),
    "the frames": _of(lambda rows: [row for row in rows if _FRAME.search(row)]),
}


class Read(NamedTuple):
    """What is made of a text."""

    signal: Optional[str]
    findings: tuple[tuple[str, str], ...]


@cache
def read(text: str) -> Optional[Read]:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "posted.log"
        path.write_text(text)
        try:
            evidence = read_log(path)
        except EvidenceError:
            return None
        crash = diagnose(crash_of_log(path, evidence), load_catalog())
    assert not [error for error in crash.soft_errors if error.stage == "diagnose" or "reader" in error.message]
    found = tuple((finding.id, str(finding.confidence)) for finding in crash.findings)
    return Read(crash.signal.name if crash.signal else None, found)


_FORMATS = {
    "sanitizers": r"Sanitizer",
    "valgrind": r"^==\d+== ",
    "JVM": r"Java Runtime Environment|java\.lang\.",
    "Go": r"^goroutine \d+|^panic: ",
    "Rust": r"panicked at",
    "MPI and UCX": r"Process received signal|mpirun|Caught signal",
    "glog and Paddle": r"\(unix time\)|C\+\+ Traceback|Check failed",
    "lldb": r"frame #\d+: 0x.*`|thread #\d",
    "macOS": r"^Exception Type:|^\d+ +\S+ +\t?0x\S+ \S+ \+ \d",
    "faulthandler": r"\(most recent call first\):",
    "gdb": r"^#\d+ +0x|received signal",
    "glibc and uWSGI": r"\)? ?\[0x[0-9a-f]+\]$",
    "tracebacks": r"Traceback \(most",
}


def _format(text: str) -> str:
    return next((name for name, pattern in _FORMATS.items() if re.search(pattern, text, re.MULTILINE)), "other lines")


def samples() -> dict[str, str]:
    """The texts of at least three lines, by name."""
    texts = {
        **{f"posted, {name}": posted.text for name, posted in POSTED.items()},
        **{f"wrapped, {name}": text for name, text in TEXTS.items()},
        **{f"printed, {number}: {log.program}": log.text for number, log in enumerate(LOGS)},
        **{path.name: path.read_text() for path in sorted((ROOT / "fixtures" / "timeouts").glob("*.log"))},
        **{name: (ROOT / "fixtures" / "logs" / name).read_text() for name in ("asan-gcc-14.log", "faulthandler-3.14.txt")},
        "DUMP": DUMP,
        "CSAN": CSAN,
        "THREADS": THREADS,
    }
    return {name: text for name, text in texts.items() if text.count("\n") >= 3}


SAMPLES = samples()
GENERAL = {signature.id for signature in load_catalog().signatures if signature.general}
TRUE = {
    # The report of the virtual machine is one of its crash, whatever had led to it.
    "jvm-crash",
    # These logs end with the master being stopped, which is all that such a cut shows.
    "killed-by-sigterm",
}
LEAST = {
    "sanitizers": 0.88,
    "valgrind": 0.95,
    "JVM": 0.75,
    "Go": 0.42,
    "Rust": 0.95,
    "MPI and UCX": 0.92,
    "glog and Paddle": 0.9,
    "lldb": 0.9,
    "macOS": 0.95,
    "faulthandler": 0.55,
    "gdb": 0.0,
    "glibc and uWSGI": 0.8,
    "tracebacks": 0.78,
    "other lines": 0.75,
}
"""Of how many cuts of a format it is still said what happened, or what kind of text it is. The rest shows nothing but what any log may
have: a stack of gdb's may be one of a program that waits, Go's goroutines may be printed by a program that goes on, faulthandler's one that was asked for, a traceback one of any exception."""


@cache
def measured() -> dict[str, list[tuple[str, str, Read, Optional[Read]]]]:
    """By format: the sample and the cut, and what is read of either."""
    found: dict[str, list[tuple[str, str, Read, Optional[Read]]]] = defaultdict(list)
    for name, text in SAMPLES.items():
        whole = read(text)
        if whole is None or not (whole.findings or whole.signal):
            continue
        for how, cut in CUTS.items():
            rest = cut(text)
            if rest.strip() and rest != text:
                found[_format(text)].append((name, how, whole, read(rest)))
    return found


def _is_named(whole: Read, rest: Optional[Read]) -> bool:
    if rest is None:
        return False
    true = {one for one, _ in whole.findings} | GENERAL | TRUE
    return any(one in true for one, _ in rest.findings) or (rest.signal is not None and rest.signal == whole.signal)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_nothing_false_is_claimed_of_what_is_left() -> None:
    claimed = [
        (name, how, one, confidence)
        for several in measured().values()
        for name, how, whole, rest in several
        for one, confidence in (rest.findings if rest is not None else ())
        if confidence != "possible" and one not in {found for found, _ in whole.findings} | GENERAL | TRUE
    ]
    assert claimed == []


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", LEAST)
def test_what_is_left_still_says_what_it_is(name: str) -> None:
    several = measured()[name]
    missed = [(sample, how) for sample, how, whole, rest in several if not _is_named(whole, rest)]
    assert several and 1 - len(missed) / len(several) >= LEAST[name], missed


def test_each_format_has_a_bar() -> None:
    assert {_format(text) for text in SAMPLES.values()} == LEAST.keys()
