"""gdb_scripts/crashkit_lines.py against the interpreters themselves: every instruction of a good part of each one's standard library."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.crashes import Interpreter, every_interpreter

SCRIPTS = Path(__file__).parent.parent.parent / "gdb_scripts"
sys.path.insert(0, str(SCRIPTS))
import crashkit_lines  # noqa: E402

# Run by each interpreter from 3.6 on: code objects with their tables, and the lines that the interpreter itself gives.
# `co_lines` (3.10) knows instructions without a line; before it `dis.findlinestarts` gives the offsets at which a line begins.
DUMP = r"""
import dis, glob, json, os, sys, sysconfig

SOURCE = '''
def strange(a,
            b=1):
    try:
        with a as b, b as c: return [
            x for x in b
            if x
        ]
    except (ValueError,
            TypeError) as error:
        pass
    finally:
        for i in range(3):
            while True: break
    def inner(): yield a; yield (
        b)
    return inner if a else (lambda:
        None)
''' + "\n" * 400 + "after_a_gap = 1; x = (\n" + "\n" * 300 + "  2)\n" + "def far(): return 1\n"

def codes(code):
    yield code
    for constant in code.co_consts:
        if hasattr(constant, "co_code"):
            for one in codes(constant):
                yield one

def sources():
    yield SOURCE
    folder = sysconfig.get_paths()["stdlib"]
    for name in ("argparse", "asyncio/base_events", "contextlib", "enum", "json/decoder", "subprocess", "threading", "traceback"):
        path = os.path.join(folder, name + ".py")
        if os.path.exists(path):
            with open(path, encoding="utf-8") as file:
                yield file.read()

rows = []
for source in sources():
    for code in codes(compile(source, "<dump>", "exec")):
        size = len(code.co_code)
        lines = [0] * size
        if hasattr(code, "co_lines"):
            for start, end, line in code.co_lines():
                lines[start:end] = [line] * (end - start)
        else:
            starts = list(dis.findlinestarts(code)) + [(size, None)]
            # dis leaves out a start whose line does not change, and begins at the first instruction's.
            for (start, line), (end, _) in zip(starts, starts[1:]):
                lines[start:end] = [line] * (end - start)
        table = code.co_linetable if hasattr(code, "co_linetable") else code.co_lnotab
        rows.append([code.co_firstlineno, table.hex(), lines[::2]])
json.dump(rows, sys.stdout)
"""


@cache
def dumped(python: Path) -> list[tuple[int, bytes, list[int | None]]]:
    done = subprocess.run([python, "-I", "-c", DUMP], capture_output=True, text=True, timeout=100, check=True)
    return [(first, bytes.fromhex(table), lines) for first, table, lines in json.loads(done.stdout)]


def decoded(version: tuple[int, int, int], table: bytes, first: int, unit: int) -> int:
    """As crashkit_python.Code.line asks, for the code unit (two bytes) of an instruction."""
    if version >= (3, 11):
        return crashkit_lines.locations(table, first, unit)
    if version >= (3, 10):
        return crashkit_lines.linetable_310(table, first, 2 * unit)
    return crashkit_lines.lnotab(table, first, 2 * unit)


@pytest.mark.long
@pytest.mark.parametrize("python", every_interpreter())
def test_every_instruction(python: Interpreter):
    instructions = 0
    for first, table, lines in dumped(python.path):
        last = first
        for unit, line in enumerate(lines):
            last = last if line is None else line
            assert decoded(python.version, table, first, unit) == last, (first, table.hex(), unit)
        instructions += len(lines)
    assert instructions > 10000


@pytest.mark.slow
@pytest.mark.parametrize("python", every_interpreter())
def test_code_before_its_first_instruction_is_at_the_first_line(python: Interpreter):
    """A frame that was made and has run nothing: f_lasti is -1."""
    for first, table, _lines in dumped(python.path)[:200]:
        assert decoded(python.version, table, first, -1) == first


@given(table=st.binary(max_size=60), first=st.integers(0, 10000), instruction=st.integers(-5, 5000))
def test_damaged_tables_give_some_line(table, first, instruction):
    for decode in (crashkit_lines.lnotab, crashkit_lines.linetable_310, crashkit_lines.locations):
        assert isinstance(decode(table, first, instruction), int)
