"""What runs inside gdb runs in gdb's own Python, which may be older than ours."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.crashes import interpreters

SCRIPTS = sorted((Path(__file__).parents[2] / "gdb_scripts").glob("*.py"))
OLD = {one.name: one for one in interpreters() if one.version >= (3, 8)}
# A gdb of which every attribute exists: the annotations of functions are evaluated as the files are read.
LOAD = """
import sys, types
from unittest import mock
gdb = mock.MagicMock()
gdb.MICommand = gdb.unwinder.Unwinder = type("Base", (), {"__init__": lambda self, *arguments: None})
gdb.error = RuntimeError
sys.modules.update({"gdb": gdb, "gdb.unwinder": gdb.unwinder})
sys.path.insert(0, sys.argv[1])
import crashkit_commands
"""


def test_there_are_scripts():
    assert len(SCRIPTS) == 6


@pytest.mark.slow
@pytest.mark.parametrize("name", OLD)
def test_they_load(name):
    folder = SCRIPTS[0].parent
    subprocess.run([OLD[name].path, "-I", "-B", "-c", LOAD, folder], check=True, timeout=60)
    for script in SCRIPTS:
        subprocess.run([OLD[name].path, "-I", "-c", "compile(open(__import__('sys').argv[1]).read(), 's', 'exec')", script], check=True)
