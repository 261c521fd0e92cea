"""The line of an instruction, from a code object's bytes: by the decoder of crashkit itself, which needs neither gdb nor crashkit."""

import importlib.util
import os
from typing import Any


def _decoder() -> Any:
    """Installed, this folder is in the package; in a checkout it is beside it."""
    above = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
    places = [os.path.join(above, *folders, "interpreter", "linetable.py") for folders in ((), ("crashkit",))]
    spec = importlib.util.spec_from_file_location("crashkit_linetable", next(filter(os.path.isfile, places)))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


_DECODER = _decoder()


def lnotab(table: bytes, first: int, instruction: int) -> int:
    """3.6 to 3.9; `instruction` in bytes."""
    return int(_DECODER.lnotab(table, first, instruction).line)


def linetable_310(table: bytes, first: int, instruction: int) -> int:
    """3.10; `instruction` in bytes."""
    return int(_DECODER.linetable_310(table, first, instruction).line)


def locations(table: bytes, first: int, instruction: int) -> int:
    """3.11 and newer; `instruction` in code units of two bytes."""
    return int(_DECODER.locations(table, first, instruction).line)
