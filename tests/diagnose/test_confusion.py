"""docs/confusion-matrix.md: what each case of the corpus was taken for.

Written by `CRASHKIT_WRITE_DOCS=1 pytest tests/diagnose/test_confusion.py`, compared otherwise.
"""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from pathlib import Path
from typing import Optional

import pytest

from crashkit.diagnose import diagnose, load_catalog
from crashkit.errors import EvidenceError
from crashkit.evidence.text.log import crash_of_log, read_log
from crashkit.pipeline import analyze

from ..crashes import NO_DEBUG_INFO, interpreter
from .causes import CAUSES, evidence, first, made
from .synthetic import crash, lines
from .test_gpu_runs import LOGS, of_log
from .test_look_alikes import KNOWN
from .test_public_cases import CASES
from .test_public_reports import verdicts as verdicts_on_reports

PAGE = Path(__file__).parent.parent.parent / "docs" / "confusion-matrix.md"
NOTHING = "(nothing)"

Verdict = tuple[str, str, Optional[str], Optional[str]]
"""Corpus, case, what it is, what it was taken for."""


def public(tmp_path: Path) -> list[Verdict]:
    verdicts: list[Verdict] = []
    for number, (name, case) in enumerate(CASES.items()):
        folder = tmp_path / str(number)
        folder.mkdir()
        told = lines(case.log, folder) if case.log else ()
        subject = crash(**{**case.crash, "log": told})
        if not case.crash:
            subject = crash_of_log(folder / "stderr.log", read_log(folder / "stderr.log"))
        found = diagnose(subject, load_catalog())
        general = {signature.id for signature in load_catalog().signatures if signature.general}
        taken = first(found)
        verdicts.append(("public reports", name, case.expect, None if case.expect is None and taken in general else taken))
    return verdicts


def posted() -> list[Verdict]:
    found = [verdict for sample in verdicts_on_reports().values() for verdict in sample]
    name = "lines quoted from public reports"
    return [
        (
            name,
            verdict.report.url.removeprefix("https://github.com/"),
            verdict.report.expect,
            None if verdict.outcome == "none" else verdict.taken,
        )
        for verdict in found
    ]


def own(tmp_path: Path) -> list[Verdict]:
    verdicts: list[Verdict] = []
    for number, (name, case) in enumerate(KNOWN.items()):
        if case.crash:
            subject = crash(**case.crash)
        else:
            path = tmp_path / f"own-{number}.log"
            path.write_text(case.log)
            subject = crash_of_log(path, read_log(path))
        verdicts.append(("cases of our own", name, case.expect, first(diagnose(subject, load_catalog()))))
    return verdicts


def gpu() -> list[Verdict]:
    return [("runs on a GPU", name, expected, first(of_log(name))) for name, expected in LOGS.items()]


def real() -> list[Verdict]:
    python = interpreter("3.11")
    if not python.has_debug_info:
        pytest.skip(NO_DEBUG_INFO)
    verdicts: list[Verdict] = []
    for cause in CAUSES:
        folder = made(cause, python)
        verdicts.append(("cores with logs", cause.signature, cause.signature, first(analyze(list(evidence(folder))))))
        verdicts.append(("cores alone", cause.signature, cause.signature, first(analyze(folder.core))))
        try:
            alone = first(analyze(folder.path / "stderr.txt"))
        except EvidenceError:
            alone = None
        verdicts.append(("logs alone", cause.signature, cause.signature, alone))
    return verdicts


def page(verdicts: list[Verdict]) -> str:
    text = [
        "# Confusion matrix",
        "",
        "What each case of the corpus was taken for, by its first finding. Made by the tests (`tests/diagnose/test_confusion.py`).",
        "",
        "| corpus | cases | as expected | nothing, where something was | something else |",
        "|---|---|---|---|---|",
    ]
    for corpus in dict.fromkeys(verdict[0] for verdict in verdicts):
        cases = [(expected, taken) for name, _, expected, taken in verdicts if name == corpus]
        right = sum(expected == taken for expected, taken in cases)
        missed = sum(taken is None and expected is not None for expected, taken in cases)
        text.append(f"| {corpus} | {len(cases)} | {right} | {missed} | {len(cases) - right - missed} |")
    text += [
        "",
        "A log without its core often cannot tell the cause; a core without its log has lost what glibc said. Together they do.",
        "",
    ]
    text += ["| what it is | taken for (cases) |", "|---|---|"]
    rows: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for _, _, expected, taken in verdicts:
        rows[expected or NOTHING][taken or NOTHING] += 1
    for expected, row in sorted(rows.items()):
        cells = [f"**{taken}** {count}" if taken == expected else f"{taken} {count}" for taken, count in row.most_common()]
        text.append(f"| {expected} | {', '.join(cells)} |")
    text += ["", "## Every case that was not as expected", "", "| corpus | case | taken for |", "|---|---|---|"]
    text += [f"| {corpus} | {name} | {taken or NOTHING} |" for corpus, name, expected, taken in verdicts if expected != taken]
    unseen = sorted({signature.id for signature in load_catalog().signatures} - set(rows))
    text += ["", "## Signatures without a case here", "", (", ".join(unseen) or "None") + ".", ""]
    return "\n".join(text)


@pytest.mark.long
@pytest.mark.timeout(900)
def test_matrix(tmp_path: Path) -> None:
    verdicts = [*public(tmp_path), *posted(), *own(tmp_path), *gpu(), *real()]
    made_now = page(verdicts)
    if os.environ.get("CRASHKIT_WRITE_DOCS"):
        PAGE.write_text(made_now)
        pytest.skip("written, not compared")
    assert PAGE.read_text() == made_now


def test_nothing_is_taken_for_something_else_by_core_and_log() -> None:
    """As the page says: the only confusions are where half of the evidence is missing."""
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    totals = {cells[1].strip(): [cell.strip() for cell in cells[2:6]] for row in rows if len(cells := row.split("|")) == 7}
    for corpus in ("public reports", "runs on a GPU", "cores with logs"):
        cases, right, missed, other = totals[corpus]
        assert (right, missed, other) == (cases, "0", "0")
