"""What a function has taken where it stands, by its source alone."""

from __future__ import annotations

import pytest

from crashkit.interpreter.acquired import Parsed, Standing, Taken

MADE = ("stack = AsyncExitStack()", "await stack.enter_async_context(lock)")


def taken(*lines: str) -> tuple[Taken, ...]:
    """At the last line."""
    text = "async def f(lock, other, stack):\n" + "".join(f"    {line}\n" for line in (*lines, "await other.wait()"))
    return Parsed(text).taken(Standing("f", 1, text.count("\n")))


@pytest.mark.parametrize("lines", [MADE, (*MADE, "print(other)"), (*MADE, "stack.push_async_callback(other.close)")])
def test_a_stack_holds_its_locks(lines: tuple[str, ...]) -> None:
    assert [one.lock for one in taken(*lines)] == [("lock",)]


@pytest.mark.parametrize(
    "behind",
    ["async with stack: print(1)", "async with other, stack as same: print(1)", "keep(stack)", "self.stack = stack", "same = stack",
     "async with wrap(stack): print(1)"],
)  # fmt: skip
def test_a_stack_that_is_a_context_or_goes_elsewhere_holds_nothing(behind: str) -> None:
    assert taken(*MADE, behind) == ()


def test_a_stack_that_others_see_holds_nothing_for_sure() -> None:
    assert taken("await other.stack.enter_async_context(lock)") == ()


def test_a_bare_name_may_release_it() -> None:
    assert [one.lock for one in taken("await lock.acquire()")] == [("lock",)]
    assert taken("await lock.acquire()", "release()") == ()
