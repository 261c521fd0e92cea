"""What a match of a pattern cannot do without: a text that lacks it is not searched, so nothing that would match may lack it."""

from __future__ import annotations

import re

import pytest

from crashkit.evidence.text import required
from crashkit.evidence.text.causes import cause_patterns
from crashkit.evidence.text.log_patterns import line_patterns
from tests.evidence.samples import forms

PATTERNS = sorted({pattern for _, pattern in cause_patterns()} | {line.pattern for line in line_patterns()})


@pytest.mark.slow
def test_every_match_of_ours_has_a_required_text() -> None:
    tried = 0
    for pattern in PATTERNS:
        texts = required.literals(pattern, shortest=1)
        for form in forms(pattern):
            match = re.search(pattern, f" {form} ")
            if match is not None and texts:
                assert any(text in match[0] for text in texts), (pattern, match[0])
                assert all(any(text in match[0] for text in one) for one in required.needs(pattern)), (pattern, match[0])
                tried += 1
    assert tried > len(PATTERNS)


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        (r"\bkilled\b", ("killed",)),
        ("a(?:bc|de)f", ("bc", "de")),
        ("(?:one|two)?(?:three|four)", ("three", "four")),
        ("x?y*", ()),
        ("(?i)killed", ()),
        ("(?<!not )killed", ("killed",)),
    ],
)
def test_what_is_required(pattern: str, expected: tuple[str, ...]) -> None:
    assert required.literals(pattern, shortest=1) == expected


def test_short_ones_are_of_no_use_to_those_who_say_so() -> None:
    assert required.literals("abc[0-9]") == () and required.literals("abcd[0-9]") == ("abcd",)
