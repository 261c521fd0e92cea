"""What shells and the C library say of a signal in other languages: as their catalogues on this machine translate it."""

from __future__ import annotations

import gettext
from collections.abc import Iterator
from pathlib import Path
from typing import Optional

import pytest

from crashkit.evidence.text.log_patterns import Classifier

ENDS = {
    "Segmentation fault": "SIGSEGV",
    "Aborted": "SIGABRT",
    "Bus error": "SIGBUS",
    "Illegal instruction": "SIGILL",
    "Floating point exception": "SIGFPE",
    "Killed": "SIGKILL",
    "Trace/breakpoint trap": "SIGTRAP",
    "Bad system call": "SIGSYS",
}
FORMS = (
    "./run.sh: line 3: 12345 {said}               python app.py",
    "./run.sh: 行 3: 12345 {said}               python app.py",
    "./run.sh : ligne 3 : 12345 {said}          python app.py",
    "[1]+  {said}              python app.py",
    "make: *** [Makefile:2: run] {said}",
    "{said} (core dumped)",
    "{said} (Speicherabzug geschrieben)",
    "{said} (核心已转储)",
    "python app.py: {said} （核心已转储）",
)
AMBIGUOUS = {"Nutraukta"}
"""The same word for two signals."""
SHORTEST = 4
"""Bytes of a fixed text by which a line is found."""


def _said(message: str, domain: str) -> Iterator[tuple[str, str]]:
    """Language and translation."""
    for catalog in sorted(Path("/usr/share/locale").glob(f"*/LC_MESSAGES/{domain}.mo")):
        with catalog.open("rb") as file:
            said = gettext.GNUTranslations(file).gettext(message).strip().rstrip(".")
        if said != message and said not in AMBIGUOUS and len(said.encode()) >= SHORTEST:
            yield catalog.parent.parent.name, said


def _known(classifier: Classifier, text: str) -> Optional[tuple[Optional[str], dict[str, str]]]:
    found = classifier.classify(text)
    return found if found is not None and found[0] != "told" else classifier.loosely(text)


@pytest.fixture(scope="module")
def classifier() -> Classifier:
    return Classifier()


@pytest.mark.parametrize("domain", ["libc", "bash", "make"])
@pytest.mark.parametrize("message", ENDS)
def test_each_language(message: str, domain: str, classifier: Classifier) -> None:
    known = list(_said(message, domain))
    if not known:
        pytest.skip(f"the translations of {domain} are not installed")
    missed = []
    for language, said in known:
        for form in FORMS:
            text = form.format(said=said)
            found = _known(classifier, text)
            if found is None or (found[0], found[1].get("signal")) != ("process-end", ENDS[message]):
                missed.append((language, form.format(said=said), found))
    # Newer catalogues than those that were read translate more.
    assert len({language for language, _, _ in missed}) <= len(known) / 10, missed


@pytest.mark.parametrize(
    "text",
    [
        "取消",
        "中止",
        "任务已中止，请重试",
        "Finalizado",
        "Terminado",
        "Proceso Abortado por el usuario: 3 archivos",
        "Tué par le chef de projet",
        "der Auftrag wurde Abgebrochen (Benutzer)",
        "非法指令集 of a newer machine",
        "убит",
        "La instrucció no és permesa aquí",
        "浮点异常处理",
        "1024 Abgebrochene Verbindungen",
        "14 Abgebrochen",
        "12 Abandon",
        "1042  Abandon    12:30",
        "任务 17 状态: 已中止",
        "任务 17 状态：已放弃",
        "Status: Abgebrochen",
        "3 取消",
        "5 Annulé",
        "3 Annullato",
        "12 Avbruten",
        "3 중지됨",
        "3 中止",
    ],
)
def test_ordinary_words(text: str, classifier: Classifier) -> None:
    found = _known(classifier, text)
    assert found is None or found[0] == "told"


@pytest.mark.parametrize(
    "text",
    [
        "12345 Abgebrochen             (Speicherabzug geschrieben) python app.py",
        "12345 Abandon                 (core dumped) python app.py",
        "12345 已放弃               (核心已转储) python app.py",
        "Abandon",
        "已中止",
    ],
)
def test_an_ordinary_word_with_what_a_shell_adds(text: str, classifier: Classifier) -> None:
    found = _known(classifier, text)
    assert found is not None and (found[0], found[1].get("signal")) == ("process-end", "SIGABRT")


@pytest.mark.parametrize("text", ["PARÇALAMA ARIZASI", "Veriyolu HATASI", "SEGMENTATİON FAULT (CORE DUMPED)"])
def test_in_capitals_whatever_the_dot(text: str) -> None:
    """Turkish has two letters that are I in capitals or i in small ones."""
    found = Classifier().loosely(text)
    assert found is not None and found[0] == "process-end"
