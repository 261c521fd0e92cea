"""A handler that stood between the fault and the end of the process is named in every form of the report."""

from __future__ import annotations

import pytest

from crashkit.model import Crash, Signal
from crashkit.report import html, markdown, text, wording


@pytest.mark.parametrize(
    ("handler", "ended_with", "said"),
    [
        ("on_crash", "SIGABRT", "on_crash then ended the process with SIGABRT"),
        ("on_crash", None, "on_crash then ended the process with SIGSEGV"),
        (None, "SIGABRT", "a signal handler then ended the process with SIGABRT"),
        ("faulthandler_fatal_error", None, None),
        (None, None, None),
    ],
)
def test_said(handler: str | None, ended_with: str | None, said: str | None) -> None:
    signal = Signal(number=11, name="SIGSEGV", handler=handler, ended_with=ended_with, recovered=True)
    assert wording.handled(signal) == said
    crash = Crash(signal=signal)
    for shown in (html.render(crash), markdown.summary(crash).replace("\\", ""), "\n".join(text.summary(crash, None, False, 100))):
        assert ("then ended the process" in shown) is (said is not None)
        assert said is None or said in shown


def test_the_kernel_ends_a_process_whose_handler_has_no_room() -> None:
    signal = Signal(number=8, name="SIGFPE", ended_with="SIGSEGV")
    assert wording.handled(signal) == "the kernel then ended the process with SIGSEGV"
