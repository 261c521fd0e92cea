"""A stack whose modules' files are gone: what a debugger guessed behind the last frame that it knows is no stack."""

from __future__ import annotations

import pytest

from crashkit.debugger.contract import NativeStack
from crashkit.model import Address, Mapping, NativeFrame
from crashkit.stacks.in_code import within_code

CODE = Mapping(start=Address(0x1000), end=Address(0x3000), permissions="r-x")
DATA = Mapping(start=Address(0x5000), end=Address(0x6000), permissions="rw-")


def stack(*addresses: int, signal: int | None = None) -> NativeStack:
    trust = {signal: "signal"}
    return NativeStack(tuple(NativeFrame(pc=Address(pc), trust=trust.get(index)) for index, pc in enumerate(addresses)))


@pytest.mark.parametrize(
    ("given", "left"),
    [
        (stack(0x1100, 0x2000, 0x3000), 3),
        (stack(0x0, 0x1100, 0x1200), 3),
        (stack(0x1100, 0x5100, 0x1200), 1),
        (stack(0x1100, 0x1200, 0x7), 2),
        (stack(0x1100, 0x1200, 0x0, 0x1300, signal=1), 4),
    ],
)
def test_cut_where_it_left_code(given: NativeStack, left: int) -> None:
    found = within_code(given, (CODE, DATA))
    assert found.frames == given.frames[:left]
    assert found.cut == (left < len(given.frames))


def test_nothing_is_known_of_memory() -> None:
    given = stack(0x1100, 0x7)
    assert within_code(given, ()) == given
