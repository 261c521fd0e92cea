"""The text of an issue: what a maintainer needs, and nothing that is only the user's."""

from __future__ import annotations

import re

import pytest
from msgspec.structs import replace

from crashkit.model import Crash, PythonFrame, Thread
from crashkit.report.issue import issue
from tests.report import samples


def test_what_is_asked_for() -> None:
    text = issue(samples.flask_lstm())
    assert text.startswith("# Segmentation fault: a null pointer was read in libcuda.so.1")
    for told in (
        "\n- torch 2.11.0+cu130\n",
        "\n- python 3.11.7\n",
        "forward  crnn.py:41\n",
        "9f31c07ab2e4",
        "cuLaunchKernel  libcuda.so.1+0x",
    ):
        assert told in text, told
    assert text.count("3.11.7") == 1


@pytest.mark.parametrize("name", samples.ALL)
def test_no_values_no_folders_no_arguments(name: str) -> None:
    crash = samples.ALL[name]()
    text = issue(crash)
    frames = [frame for thread in crash.threads for frame in thread.pythons()]
    values = [value for frame in frames for value in frame.locals.values() if len(value) > 3]
    folders = [f"{frame.file.rpartition('/')[0]}/" for frame in frames if frame.file and frame.file.startswith("/")]
    arguments = [argument for argument in (crash.process.argv[1:] if crash.process else ()) if argument.startswith(("-", "/"))]
    logged = [line.text for line in crash.log if len(line.text) > 40]
    assert [word for word in (*values, *folders, *arguments, *logged) if word in text] == []


def test_of_a_long_stack_both_ends_are_shown() -> None:
    frames = tuple(PythonFrame(function=f"f{number}", file="/srv/a.py", line=number) for number in range(100))
    crash = Crash(threads=(Thread(tid=1, crashed=True, frames=frames),), crashed_thread=1)
    shown = re.findall(r"^(f\d+|\.\.\..*)", issue(crash), re.M)
    assert shown == [*(f"f{number}" for number in range(9)), "... 88 more frames", "f97  a.py:97"[:3], "f98", "f99"]
    few = replace(crash, threads=(replace(crash.threads[0], frames=frames[:13]),))
    assert "more frames" not in issue(few)
