"""msgspec may crash where two threads decode one structure for the first time at once (crashkit/prepared.py)."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "crashkit"
AT_ONCE = """
import sys, threading, time
sys.setswitchinterval(1e-6)
from crashkit.interpreter import layouts
start = threading.Barrier(4)
def decode(number):
    start.wait()
    time.sleep(number * 0.0003)
    layouts.layout_of.__wrapped__("3.11")
threads = [threading.Thread(target=decode, args=(number,)) for number in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
"""


@pytest.mark.slow
def test_threads_that_decode_at_once() -> None:
    """Without `prepared`, one run of three crashed."""
    statuses = [subprocess.run([sys.executable, "-c", AT_ONCE], check=False, timeout=60, capture_output=True).returncode for _ in range(12)]
    assert set(statuses) == {0}


def test_every_structure_is_prepared() -> None:
    found = 0
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in ("msgspec.json.decode", "msgspec.toml.decode", "msgspec.convert"):
                kinds = [word.value for word in node.keywords if word.arg == "type"]
                kinds += node.args[1:2] if ast.unparse(node.func) == "msgspec.convert" else []
                assert all(ast.unparse(kind).startswith("prepared(") for kind in kinds), f"{path.name}:{node.lineno}"
                found += len(kinds)
    assert found > 15
