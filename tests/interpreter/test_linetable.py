"""Line tables against the interpreters themselves: every instruction of a good part of each one's standard library."""

from __future__ import annotations

import json
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crashkit.interpreter.linetable import Position, linetable_310, lnotab, locations
from tests.crashes import Interpreter, every_interpreter
from tests.debugger.test_lines import DUMP, dumped

POSITIONS = DUMP.partition("rows = []")[0] + (
    "rows = [[code.co_firstlineno, code.co_linetable.hex(), list(code.co_positions())]\n"
    "        for source in sources() for code in codes(compile(source, '<dump>', 'exec'))]\n"
    "json.dump(rows, sys.stdout)\n"
)


def decoded(version: tuple[int, int, int], table: bytes, first: int, unit: int) -> Position:
    if version >= (3, 11):
        return locations(table, first, unit)
    return (linetable_310 if version >= (3, 10) else lnotab)(table, first, 2 * unit)


@pytest.mark.slow
@pytest.mark.parametrize("python", every_interpreter())
def test_lines(python: Interpreter) -> None:
    instructions = 0
    for first, table, lines in dumped(python.path):
        last = first
        for unit, line in enumerate(lines):
            last = last if line is None else line
            assert decoded(python.version, table, first, unit).line == last, (first, table.hex(), unit)
        instructions += len(lines)
        assert decoded(python.version, table, first, -1).line == first
    assert instructions > 10000


@pytest.mark.slow
@pytest.mark.parametrize("python", every_interpreter())
def test_columns(python: Interpreter) -> None:
    if python.version < (3, 11):
        pytest.skip("columns are known from Python 3.11 on")
    done = subprocess.run([python.path, "-I", "-c", POSITIONS], capture_output=True, text=True, timeout=100, check=True)
    for first, table, positions in json.loads(done.stdout):
        for unit, (line, end_line, column, end_column) in enumerate(positions):
            if line is not None:
                ours = locations(bytes.fromhex(table), first, unit)
                # Entries without columns have no end either.
                assert (ours.line, ours.column, ours.end_column) == (line, column, end_column)
                assert ours.end_line in (end_line, None) and (ours.end_line is not None or column is None)


@given(table=st.binary(max_size=60), first=st.integers(0, 10000), instruction=st.integers(-5, 5000))
def test_damaged_tables_give_some_line(table: bytes, first: int, instruction: int) -> None:
    for decode in (lnotab, linetable_310, locations):
        assert isinstance(decode(table, first, instruction).line, int)
