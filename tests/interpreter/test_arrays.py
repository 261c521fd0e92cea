"""numpy's arrays, torch's tensors, pointers of ctypes and cffi, and objects with slots, held to what the program said of them."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from pathlib import Path

import pytest

from crashkit.model import Crash
from crashkit.pipeline import Options, analyze
from tests.crashes import (
    NO_TORCH,
    Folder,
    Interpreter,
    a_debuggable_interpreter,
    every_interpreter,
    needs_gdb,
    python_crash,
    some_interpreters,
)
from tests.packages import folder_with


def shown(made: Folder, gdb: str | None = None) -> dict[str, str]:
    """The values by the name that each has in the program, with secrets."""
    return of_frames(analyze(made.core, options=Options(gdb=gdb, show_secrets=True)))


def of_frames(crash: Crash) -> dict[str, str]:
    frames = [frame for frame in crash.threads[0].pythons() if frame.function == "nested"]
    return {frame.locals["name"].strip("'"): frame.locals["value"] for frame in frames}


def told(made: Folder) -> dict[str, list[str]]:
    found: dict[str, list[str]] = json.loads(next(line for line in made.stderr.splitlines() if line.startswith("{")))
    return found


def check_arrays(made: Folder, gdb: str | None = None) -> None:
    truth, ours = told(made), shown(made, gdb)
    assert len(truth) == 9
    expected = {
        name: f"<{kind} {dtype} {tuple(shape)}, data at {data}>"  # type: ignore[arg-type]
        for name, (kind, dtype, shape, data) in truth.items()
    }
    assert {name: re.sub(r"<[\w.]*\.", "<", value) for name, value in ours.items()} == expected


@pytest.mark.network
@pytest.mark.slow
@pytest.mark.parametrize("python", some_interpreters("3.6", "3.8", "3.11", "3.13"))
def test_of_numpy(python: Interpreter) -> None:
    """1.19 to 2."""
    check_arrays(python_crash("arrays.py", "numpy", str(folder_with(python, "numpy")), python=python))


@pytest.mark.network
@pytest.mark.slow
@needs_gdb
def test_of_numpy_beside_libpython() -> None:
    """Which is asked first where debug info is, and knows them by type and address."""
    python = a_debuggable_interpreter()
    check_arrays(python_crash("arrays.py", "numpy", str(folder_with(python, "numpy")), python=python), "gdb")


@pytest.mark.torch
@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason=NO_TORCH)
def test_of_torch() -> None:
    made = python_crash("arrays.py", "torch", python=Path(sys.executable))
    truth, ours = told(made), shown(made)
    assert len(truth) == 9
    for name, (kind, dtype, shape, data, device) in truth.items():
        placed = f", data at {data}" if int(data, 16) else ""
        assert ours[name] in (
            f"<{kind} {dtype} {tuple(shape)} on {device}{placed}>",
            f"<{kind} {dtype} {tuple(shape)} on {device}:0{placed}>",
        )


@pytest.mark.slow
@pytest.mark.parametrize("python", every_interpreter())
def test_of_objects_with_slots(python: Interpreter) -> None:
    made = python_crash("arrays.py", "slots", python=python)
    at = told(made)
    assert shown(made) == {
        "point": f"<Point(x=1, y=[2]) at {at['point']}>",
        "named": f"<Named(x=1, y=2.5, name='n') at {at['named']}>",
        "deeper": f"<Deeper(a=None, password='hunter2', x=1, y=2j, name='n') at {at['deeper']}>",
    }
    assert "hunter2" not in of_frames(analyze(made.core, options=Options(gdb=None)))["deeper"]


def check_pointers(made: Folder, form: str, count: int, gdb: str | None = None) -> None:
    truth, ours = told(made), shown(made, gdb)
    pointers = {name: one for name, one in truth.items() if len(one) == 2}
    assert len(pointers) == count
    for name, (kind, value) in pointers.items():
        assert ours[name] == form.format(kind, hex(int(value)) if value else "NULL")
    numbers = {name: one[0] for name, one in truth.items() if len(one) == 1}
    assert {name: ours[name] for name in numbers} == numbers
    assert all(re.fullmatch(r"<[\w.]+ at (?:remote )?0x[0-9a-f]+>", ours[name]) for name, one in truth.items() if not one), ours


@pytest.mark.slow
@pytest.mark.parametrize("python", every_interpreter())
def test_of_ctypes(python: Interpreter) -> None:
    check_pointers(python_crash("arrays.py", "ctypes", python=python), "<{} {}>", 7)


@pytest.mark.slow
@needs_gdb
def test_of_ctypes_beside_libpython() -> None:
    """Which shows some as objects without attributes."""
    check_pointers(python_crash("arrays.py", "ctypes", python=a_debuggable_interpreter()), "<{} {}>", 7, "gdb")


@pytest.mark.network
@pytest.mark.slow
@pytest.mark.parametrize("python", some_interpreters("3.8", "3.11", "3.13"))
def test_of_cffi(python: Interpreter) -> None:
    check_pointers(python_crash("arrays.py", "cffi", str(folder_with(python, "cffi")), python=python), "<cdata '{}' {}>", 4)
