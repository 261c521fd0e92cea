"""Signatures of the user's own bring patterns of their own: one that does not end is stopped, and the report says so."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from crashkit.pipeline import Options, analyze
from crashkit.processor_time import TooSlow, at_most

SIGNATURE = """
[[signature]]
id = "mine"
title = "t"
severity = "low"
summary = ["s"]
cause = "c"
fix = ["f"]
[[signature.rule]]
confidence = "likely"
all = [{condition}]
"""
LOG = "Fatal Python error: " + "x" * 60 + "\nmarker " + "a" * 60 + "!\n"


def analyzed(folder: Path, condition: str):
    (folder / "mine.toml").write_text(SIGNATURE.replace("{condition}", condition))
    (folder / "log").write_text(LOG)
    return analyze(folder / "log", options=Options(signatures=(folder / "mine.toml",)))


@pytest.mark.slow
def test_of_lines(tmp_path):
    """It is left out; built-in kinds are found all the same."""
    crash = analyzed(tmp_path, "{ log = '*', pattern = 'marker (a+)+$' }")
    assert [line.kind for line in crash.log] == ["fatal-python-error"]
    assert [error for error in crash.soft_errors if "(a+)+$" in error.message and "left out" in error.message]


@pytest.mark.slow
def test_of_conditions(tmp_path):
    """The signature is left out, all others are tried."""
    slow = analyzed(tmp_path, "{ log = 'fatal-python-error', pattern = '([a-z]+)+#' }")
    assert [error for error in slow.soft_errors if "signature mine took more than" in error.message]
    assert slow.ruled_out or slow.findings


def test_the_timer_stops_a_match_and_is_gone():
    import re
    import signal

    before = signal.getsignal(signal.SIGVTALRM)
    began = time.process_time()
    with pytest.raises(TooSlow), at_most(0.2):
        re.search("(a+)+$", "a" * 60 + "!")
    assert time.process_time() - began < 5
    assert signal.getitimer(signal.ITIMER_VIRTUAL) == (0, 0) and signal.getsignal(signal.SIGVTALRM) is before
    with at_most(0.2):
        pass


def test_elsewhere_nothing_is_limited():
    """Only the main thread gets signals: another must not fail."""
    done = []

    def work():
        with at_most(0.001):
            done.append(sum(range(100_000)))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert done
