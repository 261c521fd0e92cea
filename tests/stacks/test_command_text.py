"""What CPython takes for the program of `-c`, and which frames run it."""

from __future__ import annotations

import ast
import json
import subprocess
import sys

import pytest

from crashkit.stacks.command_text import Program, command_text

SHOWN = "import json, sys; print(json.dumps(sys.orig_argv))"
TEXT = """\
class Decoder:
    def decode(self):
        return [(lambda: 1 / 0)() for _ in (1,)]

Decoder().decode()
"""


@pytest.mark.parametrize(
    "words",
    [
        ["-c", SHOWN],
        ["-c", SHOWN, "-c", "x"],
        [f"-c{SHOWN}"],
        ["-Ic", SHOWN],
        ["-Iuc" + SHOWN, "a"],
        ["-W", "ignore", "-c", SHOWN],
        ["-Wignore", "-BXdev", "-c", SHOWN],
        ["-X", "faulthandler", "-Ec", SHOWN],
        ["--check-hash-based-pycs", "never", "-c", SHOWN],
    ],
)
def test_the_program_of_a_command_line(words: list[str]) -> None:
    """The interpreter itself takes it for that, too."""
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True, check=True)
    assert command_text(json.loads(done.stdout)) == SHOWN


@pytest.mark.parametrize(
    "argv",
    [[], ["python"], ["python", "app.py", "-c", "x"], ["python", "-m", "app", "-c", "x"], ["python", "-", "-c", "x"], ["python", "-mapp"],
     ["python", "-W", "-c", "x"], ["python", "-c"]],
)  # fmt: skip
def test_without_one(argv: list[str]) -> None:
    assert command_text(argv) is None


@pytest.mark.parametrize(
    ("function", "line", "is_outermost", "expected"),
    [
        ("decode", 3, False, True),
        ("Decoder.decode", 3, False, True),
        ("Decoder.decode.<locals>.<lambda>", 3, False, True),
        ("<listcomp>", 3, False, True),
        ("Decoder", 2, False, True),
        ("decode", 5, False, False),
        ("encode", 3, False, False),
        ("<genexpr>", 3, False, False),
        ("<module>", 5, True, True),
        ("<module>", 5, False, False),
    ],
)
def test_which_frames_run_it(function: str, line: int, is_outermost: bool, expected: bool) -> None:
    assert Program(TEXT).runs(function, line, is_outermost) is expected


def test_what_no_python_here_can_read() -> None:
    text = "print 'of Python 2'\ndef f(): pass"
    with pytest.raises(SyntaxError):
        ast.parse(text)
    assert not Program(text).runs("f", 2, False) and Program(text).runs("<module>", 1, True)
