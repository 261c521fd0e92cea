"""Names of signals are the same in reports and in the store, and read back."""

from __future__ import annotations

import signal

import pytest

from crashkit.naming.signals import code_name, signal_name, signal_number


@pytest.mark.parametrize("number", range(1, 65))
def test_every_name_is_read_back(number: int) -> None:
    assert signal_number(signal_name(number)) == number


def test_names_are_those_of_this_systems_c_library() -> None:
    assert (signal_name(signal.SIGRTMIN), signal_name(signal.SIGRTMIN + 6)) == ("SIGRTMIN", "SIGRTMIN+6")
    # Python 3.10 has no SIGSTKFLT.
    known = {one.value: one.name for one in signal.Signals if one.value < 32}
    assert known.keys() >= set(range(1, 32)) - {16}
    assert {number: signal_name(number) for number in known} == known


def test_gdbs_names_of_real_time_signals() -> None:
    assert (signal_number("SIG40"), signal_name(40)) == (40, "SIGRTMIN+6")
    assert signal_number("SIGNEW") is None and signal_number(None) is None


@pytest.mark.parametrize(
    ("number", "name"), [(32, "SIG32"), (33, "SIG33"), (34, "SIGRTMIN"), (0, "signal 0"), (65, "signal 65"), (-1, "signal -1")]
)
def test_numbers_at_the_edges(number: int, name: str) -> None:
    assert signal_name(number) == name


@pytest.mark.parametrize(
    ("number", "code", "name"),
    [
        (signal.SIGSEGV, 1, "SEGV_MAPERR"),
        (signal.SIGSEGV, 10, "SEGV_CPERR"),
        (signal.SIGSEGV, 11, None),
        (signal.SIGSEGV, 0, "SI_USER"),
        (signal.SIGSEGV, 0x80, "SI_KERNEL"),
        (signal.SIGSYS, 2, "SYS_USER_DISPATCH"),
        (signal.SIGTERM, 1, None),
        (signal.SIGTERM, -6, "SI_TKILL"),
    ],
)
def test_codes(number: int, code: int, name: str | None) -> None:
    assert code_name(number, code) == name
