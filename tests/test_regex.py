"""Patterns that are compiled when they are first used."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor

import pytest

from crashkit.regex import regex


def test_it_is_what_re_compiles() -> None:
    late, usual = regex("(?P<word>a+)b", re.IGNORECASE), re.compile("(?P<word>a+)b", re.IGNORECASE)
    assert late.sub("x", "AAB ab c") == usual.sub("x", "AAB ab c") == "x x c"
    found = late.fullmatch("aAb")
    assert found is not None and found["word"] == "aA"
    assert (late.pattern, late.flags, late.groupindex) == (usual.pattern, usual.flags, usual.groupindex)


def test_it_is_compiled_when_it_is_used() -> None:
    wrong = regex("(")
    with pytest.raises(re.error):
        wrong.search("")


def test_threads_may_use_it_first_at_once() -> None:
    for _ in range(50):
        late = regex("a{1,3}b")
        with ThreadPoolExecutor(4) as pool:
            assert all(pool.map(lambda text, late=late: late.fullmatch(text) is not None, ["ab"] * 8))
