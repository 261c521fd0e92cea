"""Public reports kept as data (fixtures/public-reports): what the rules make of them, and docs/accuracy.md, which says so.

The page's table is written by `CRASHKIT_WRITE_DOCS=1 pytest tests/diagnose/test_public_reports.py`, compared otherwise.
"""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Optional

import msgspec
import pytest

from crashkit.diagnose import diagnose, load_catalog
from crashkit.errors import EvidenceError
from crashkit.evidence.text.log import crash_of_log, read_log
from tests.crashes import lock

ROOT = Path(__file__).parent.parent.parent
FIXTURES = ROOT / "fixtures" / "public-reports"
PAGE = ROOT / "docs" / "accuracy.md"
HALVES = {
    "third-first": 0,
    "third-second": 1,
    "fourth-first": 0,
    "fourth-second": 1,
    "fifth-first": 0,
    "fifth-second": 1,
    "sixth-first": 0,
    "sixth-second": 1,
    "seventh-first": 0,
    "seventh-second": 1,
    "seventh-late": 0,
    "eighth-first": 0,
    "eighth-second": 1,
    "eighth-late": 0,
    "ninth-first": 0,
    "ninth-second": 1,
    "ninth-late": 0,
    "tenth-first": 0,
    "tenth-second": 1,
    "tenth-late": 0,
    "eleventh-first": 0,
    "eleventh-second": 1,
    "eleventh-late": 0,
    "twelfth-first": 0,
    "twelfth-second": 1,
    "thirteenth-first": 0,
    "thirteenth-second": 1,
    "fourteenth-first": 0,
    "fourteenth-second": 1,
    "fifteenth-first": 0,
    "fifteenth-second": 1,
    "sixteenth-first": 0,
    "sixteenth-second": 1,
    "seventeenth-first": 0,
    "seventeenth-second": 1,
    "eighteenth-first": 0,
    "eighteenth-second": 1,
    "nineteenth-first": 0,
    "nineteenth-second": 1,
    "twentieth-first": 0,
    "twentieth-second": 1,
    "twenty-first-first": 0,
    "twenty-first-second": 1,
    "twenty-second-first": 0,
    "twenty-second-second": 1,
    "twenty-third-first": 0,
    "twenty-third-second": 1,
    "twenty-fourth-first": 0,
    "twenty-fourth-second": 1,
    "twenty-fifth-first": 0,
    "twenty-fifth-second": 1,
}
"""The files of halves, each with what the SHA-256 of its URLs leaves modulo 2."""
PARTS = {"first": "first half", "second": "second half", "late": "found after the first half was handed over"}
SAMPLES = ("read", "unread", "second-unread", *HALVES)
FROM, TO = "<!-- counted by the tests -->\n", "<!-- until here -->\n"


class Report(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    url: str
    text: str
    expect: Optional[str] = None
    also: tuple[str, ...] = ()
    cause: str = ""
    crash: bool = True
    later: bool = False
    words: bool = False
    """Whether it is only told, without a line that a program printed."""
    reader: Optional[str] = None
    """What a second reader expects, who saw nothing but the text."""


class Verdict(msgspec.Struct, frozen=True):
    report: Report
    outcome: str
    """`first`, `listed` (not first), `missed`, `refused`; where nothing is expected also `none`."""
    taken: Optional[str]
    false: tuple[str, ...]
    """Signatures claimed as likely or certain that are not true of it."""


def reports(half: str) -> list[Report]:
    return msgspec.toml.decode((FIXTURES / f"{half}.toml").read_bytes(), type=dict[str, list[Report]])["report"]


def judged(report: Report) -> Verdict:
    catalog = load_catalog()
    general = {signature.id for signature in catalog.signatures if signature.general}
    path = Path(_folder().name) / "posted.log"
    path.write_text(report.text)
    try:
        findings = diagnose(crash_of_log(path, read_log(path)), catalog).findings
    except EvidenceError:
        return Verdict(report, "none" if not report.crash else "refused", None, ())
    ids = [finding.id for finding in findings]
    true = {report.expect, *report.also, *general}
    false = tuple(finding.id for finding in findings if finding.confidence != "possible" and finding.id not in true)
    if report.expect is None:
        outcome = "claimed" if false else "none"
    elif report.expect in ids:
        outcome = "first" if ids[0] == report.expect else "listed"
    else:
        outcome = "missed"
    return Verdict(report, outcome, ids[0] if ids else None, false)


def check_named_first(expected: str, text: str) -> None:
    verdict = judged(Report(url="", text=text + "\n", expect=expected))
    assert (verdict.outcome, verdict.taken) == ("first", expected)


def check_nothing_claimed(text: str) -> None:
    verdict = judged(Report(url="", text=text + "\n", crash=False))
    assert (verdict.taken, verdict.false) == (None, ())


@cache
def _folder() -> TemporaryDirectory[str]:
    return TemporaryDirectory()


@cache
def verdicts() -> dict[str, list[Verdict]]:
    """Those of all samples, each judged once in a test session, by whichever worker comes first: that takes a minute of processor time."""
    samples = _samples()
    busy = [name for name in samples if not _kept(name, samples[name], blocking=False)]
    for name in busy:
        _kept(name, samples[name], blocking=True)
    return {name: msgspec.json.decode(_file(name).read_bytes(), type=list[Verdict]) for name in samples}


def _kept(name: str, several: list[Report], blocking: bool) -> bool:
    """Judge the sample if nobody has; False if another worker is about to."""
    kept = _file(name)
    try:
        with lock(kept.with_suffix(".lock"), blocking=blocking):
            if not kept.exists():
                kept.write_bytes(msgspec.json.encode([judged(report) for report in several]))
    except BlockingIOError:
        return False
    return True


def _file(name: str) -> Path:
    return Path(os.environ["CRASHKIT_TEST_CRASHES"]) / f"verdicts, {name}.json"


def _samples() -> dict[str, list[Report]]:
    """By name: the read half that the rules were written with, what came to it later, the unread half, the samples from the second on."""
    read = reports("read")
    return {
        "read, rules written with it": [report for report in read if not report.later],
        "read half by its URL, no rule written with it": [report for report in read if report.later],
        "unread": reports("unread"),
        "second unread": reports("second-unread"),
        **{_name(half): reports(half) for half in HALVES},
    }


def _name(half: str) -> str:
    sample, _, part = half.rpartition("-")
    return f"{sample}, {PARTS[part]}"


def table() -> str:
    rows = [
        "| reports | with a signature expected | first | first, or another true one | listed, not first | missed "
        "| nothing expected, nothing claimed | refused | falsely claimed |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for sample, found in verdicts().items():
        count = Counter(verdict.outcome for verdict in found)
        true = sum(
            verdict.report.expect is not None and verdict.taken in (verdict.report.expect, *verdict.report.also) for verdict in found
        )
        expected = sum(verdict.report.expect is not None for verdict in found)
        false = sum(bool(verdict.false) for verdict in found)
        cells = (expected, count["first"], true, count["listed"], count["missed"], count["none"], count["refused"], false)
        rows.append(f"| {len(found)} {sample} | " + " | ".join(map(str, cells)) + " |")
    rows += ["", "Not as expected:", ""]
    for sample, found in verdicts().items():
        for verdict in found:
            if verdict.outcome not in ("first", "none"):
                slug = verdict.report.url.removeprefix("https://github.com/")
                expected_id = f"`{verdict.report.expect}`" if verdict.report.expect else "nothing"
                rows.append(f"- [{slug}]({verdict.report.url}) ({sample}): {verdict.outcome}, {expected_id} expected")
    return "\n".join(rows) + "\n"


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_page_says_what_is_counted() -> None:
    before, _, rest = PAGE.read_text().partition(FROM)
    kept, end, after = rest.partition(TO)
    assert end, "docs/accuracy.md has lost the marks between which the counts stand"
    if os.environ.get("CRASHKIT_WRITE_DOCS"):
        PAGE.write_text(before + FROM + table() + TO + after)
        pytest.skip("written, not compared")
    assert kept == table()


@pytest.mark.parametrize("report", [report for report in reports("read") if not report.later], ids=lambda report: report.url[19:])
def test_report_that_rules_were_written_with(report: Report) -> None:
    verdict = judged(report)
    assert (verdict.outcome, verdict.false) == ("first" if verdict.report.expect else "none", ())


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_nothing_is_falsely_claimed() -> None:
    assert [(verdict.report.url, verdict.false) for found in verdicts().values() for verdict in found if verdict.false] == []


@pytest.mark.parametrize(("half", "odd"), [("read", 0), ("unread", 1), *HALVES.items()])
def test_halves_are_drawn_by_the_urls(half: str, odd: int) -> None:
    strays = [report.url for report in reports(half) if int(hashlib.sha256(report.url.encode()).hexdigest(), 16) % 2 != odd]
    assert strays == []


def test_each_report_stands_once() -> None:
    urls = Counter(report.url for half in SAMPLES for report in reports(half))
    assert [url for url, count in urls.items() if count > 1] == []


def test_expected_signatures_exist() -> None:
    known = {signature.id for signature in load_catalog().signatures}
    named = {name for half in SAMPLES for report in reports(half) for name in (report.expect, *report.also) if name}
    assert named <= known
