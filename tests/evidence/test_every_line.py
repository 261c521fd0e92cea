"""Each form of each known line, as people pass it on: what is read of it is what is read of the line alone.

Where a form comes out otherwise for a reason, it stands below with that reason.
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Optional

import pytest

from crashkit.diagnose import diagnose, load_catalog
from crashkit.errors import EvidenceError
from crashkit.evidence.text.log import crash_of_log, read_log
from crashkit.evidence.text.log_patterns import line_patterns

from .samples import every_line

SAMPLES = every_line()


def test_nearly_every_pattern_has_a_sample() -> None:
    assert len(SAMPLES) > 1000
    assert len({kind for kind, _ in SAMPLES}) > 0.97 * len({line.kind for line in line_patterns()})


def read(text: str, path: Path) -> Optional[tuple[Optional[str], Optional[str]]]:
    """The signal and the first finding; None where the text is refused."""
    path.write_text(text + "\n")
    try:
        found = read_log(path)
    except EvidenceError:
        return None
    findings = diagnose(crash_of_log(path, found), load_catalog())
    assert not [error for error in findings.soft_errors if error.stage == "diagnose" or "reader" in error.message]
    return found.signal.name if found.signal else None, findings.findings[0].id if findings.findings else None


@cache
def alone(third: int) -> dict[str, Optional[tuple[Optional[str], Optional[str]]]]:
    """What is read of lines by themselves: of every third one."""
    with TemporaryDirectory() as folder:
        return {text: read(text, Path(folder) / "posted.log") for _, text in SAMPLES[third::3]}


SAME: dict[str, Callable[[str], str]] = {
    "a logger": lambda text: f"2024-05-01 12:00:00,123 - app.main - ERROR - {text}",
    "JSON": lambda text: json.dumps({"level": "error", "message": text}),
    "docker's JSON": lambda text: json.dumps({"log": f"{text}\n", "stream": "stderr"}),
    "quoted": lambda text: f"> {text}",
    "in ticks": lambda text: f"`{text}`",
    "in stars": lambda text: f"**{text}**",
    "an item": lambda text: f"- {text}",
    "an error": lambda text: f"Error: {text}",
}
OTHERWISE = {
    # A logger's single word; what is one word of a report alone may be told; a frame's number is taken for one of a list.
    "Aborted",
    # In JSON its quotation marks have backslashes before them.
    'cannot locate symbol "a" referenced by "a"',
    "OOMkilled",
    "7: acore::panicking::panic",
    "7: arust_begin_unwind",
    "7: acore::option::unwrap_failed",
    "7: acore::result::unwrap_failed",
    "7: astd::panicking::begin_panic",
    # A line of the Java virtual machine's report in Markdown is a heading.
    "# Problematic frame:",
    "forrtl: severe (174):",
    "segfault (11) at a nip",
    "a.c:7: a: Assertion failed",
    # A heading of its own.
    "#  Assertion failed: aa",
    # Stars of its own.
    "+++ Timeout +++",
    # Programs have such limits of their own: a shell's line is known by its beginning only.
    "[7] CPU time limit exceeded",
    "[7] File size limit exceeded",
    # Shells' lines that are known as a whole: their name is taken for a prefix, and what stands behind goes last.
    "a[7]: 7: Memory fault",
    # A part of a message, which says nothing by itself.
    "(GHC version 7.7.a for a)",
}


@pytest.mark.slow
@pytest.mark.parametrize("third", range(3))
def test_the_same_is_read(third: int, tmp_path: Path) -> None:
    """Each form of a third of the lines, and with three forms of every line."""
    path = tmp_path / "posted.log"
    different = {
        (how, text): (known, found)
        for how in list(SAME)[third::3]
        for text, known in alone(third).items()
        if text not in OTHERWISE and known is not None and (found := read(SAME[how](text), path)) != known
    }
    assert different == {}


def broken(text: str) -> str:
    if len(text) > 60:
        return "\n".join(textwrap.wrap(text, 80, break_long_words=False, break_on_hyphens=False))
    middle = text.find(" ", len(text) // 2)
    return text if middle < 0 else f"{text[:middle]}\n{text[middle + 1 :]}"


def without_last(text: str) -> str:
    return text.rpartition(" ")[0] if text.count(" ") > 3 else text


def without_first(text: str) -> str:
    return text.partition(" ")[2] if text.count(" ") > 3 else text


NEAR: dict[str, tuple[Callable[[str], str], float]] = {
    "in small letters": (str.lower, 0.98),
    "in capitals": (str.upper, 0.98),
    "broken at the width of a terminal": (broken, 0.98),
    "behind other words": (lambda text: f"epoch 3 loss 0.1 {text}", 0.9),
    "the last word cut off": (without_last, 0.68),
    "the first word cut off": (without_first, 0.68),
}
"""What changes the text itself, and of how many lines the same cause must be named."""


@pytest.mark.slow
@pytest.mark.parametrize("third", range(3))
def test_most_causes_are_still_named(third: int, tmp_path: Path) -> None:
    """None of them is too much for a reader."""
    path = tmp_path / "posted.log"
    known = {text: found for text, found in alone(third).items() if found is not None and found[1] is not None}
    for how in list(NEAR)[third::3]:
        change, share = NEAR[how]
        named = [text for text in known if (changed := read(change(text), path)) is not None and changed[1] == known[text][1]]
        assert len(named) >= share * len(known), (how, sorted(set(known) - set(named)))
