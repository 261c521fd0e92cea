"""What std::terminate of libc++ was called for, from the core alone: compared with what the process wrote."""

from __future__ import annotations

import re

import pytest

from crashkit.model import Crash

from ..crashes import Folder, needs_x86_64
from .test_last_words import FIRST, KEPT, THROWN, ended, library, said

# g++ is here wherever tests run; clang++ -stdlib=libc++ does the same.
OPTIONS = ("-g", "-nostdinc++", "-isystem", "/usr/include/c++/v1", "-nodefaultlibs", "-lc++", "-lc++abi", "-lm", "-lc", "-lgcc_s")
NO_LIBCXX = "no headers of libc++ here: apt-get install libc++-dev libc++abi-dev"
WROTE = re.compile(
    r"^libc\+\+abi: terminating(?: (?:with|due to) uncaught exception of type (?P<type>[^:\n]+(?:::[^:\n]+)*)(?:: (?P<what>.*))?)?$", re.M
)

pytestmark = [needs_x86_64(), pytest.mark.slow]


def of_libcxx(function: str) -> tuple[Folder, Crash]:
    return ended(library("exceptions.cpp", *OPTIONS, needs="c++/v1", reason=NO_LIBCXX), function)


@pytest.mark.parametrize("function", [*THROWN, "second_in_noexcept"])
def test_as_the_process_wrote_it(function: str) -> None:
    folder, crash = of_libcxx(function)
    wrote = WROTE.search(folder.stderr)
    assert wrote is not None
    told = [line.text for line in said(crash) if line.kind != "cxx-in-flight"]
    if wrote["type"] is None:
        assert told == ["terminate called without an active exception"]
    else:
        assert told[0] == f"terminate called after throwing an instance of '{wrote['type']}'"
        assert told[1:] == ([f"  what():  {wrote['what']}"] if wrote["what"] else [])


@pytest.mark.parametrize(("function", "what"), [("number", "42"), ("characters", "just characters"), ("text", "a string")])
def test_of_what_is_no_exception(function: str, what: str) -> None:
    """The process does not write the value; the core has it."""
    folder, crash = of_libcxx(function)
    first, second = said(crash)
    assert first.fields["type"] in folder.stderr and second.fields == {"what": what}


@pytest.mark.parametrize("function", ["second", "second_in_noexcept", *KEPT])
def test_of_an_exception_thrown_while_another_one_unwound_the_stack(function: str) -> None:
    _, crash = of_libcxx(function)
    assert FIRST in [line.text for line in said(crash)] and not any("nobody's" in line.text for line in said(crash))
    told = crash.findings[0]
    assert (told.id, told.confidence) == ("cxx-throw-in-destructor", "certain")
    assert "type std::logic_error" in told.summary and "Its message: from the destructor." in told.summary


def test_an_exception_that_is_kept_unwinds_nothing() -> None:
    _, crash = of_libcxx("caught_kept_and_bare")
    assert [line.text for line in said(crash)] == ["terminate called without an active exception"]
