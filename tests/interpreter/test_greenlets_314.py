"""Greenlets of CPython 3.14, in a Debian sid: held to what the program saw, with greenlet's extension as it is installed, and stripped."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from crashkit.pipeline import Options, analyze
from tests.crashes import CRASHERS, Interpreter, crash, needs_binutils
from tests.interpreter.test_greenlets import ours, told
from tests.packages import install
from tests.test_support_matrix import sid, sid_is_there

pytestmark = [
    pytest.mark.chroot,
    pytest.mark.network,
    pytest.mark.slow,
    pytest.mark.skipif(not sid_is_there(), reason="no Debian sid here: run as root with CRASHKIT_TEST_CHROOT=1"),
]

SCRIPT = "greenlets.py"


@needs_binutils
@pytest.mark.parametrize("stripped", [False, True], ids=["as installed", "stripped"])
def test_they_are_what_the_program_saw(stripped: bool) -> None:
    inside = sid() / "tmp" / f"crashkit-greenlets-{os.getpid()}"
    shutil.rmtree(inside, ignore_errors=True)
    inside.mkdir()
    try:
        wheel = ["--python-version", "3.14", "--implementation", "cp", "--abi", "cp314", "--only-binary", ":all:"]
        platforms = [word for version in ("2_28", "2_24", "2_17") for word in ("--platform", f"manylinux_{version}_{platform.machine()}")]
        here = Interpreter(Path(sys.executable), sys.version_info[:3], has_debug_info=False)
        install(here, inside / "packages", "greenlet", options=[*wheel, *platforms])
        if stripped:
            (extension,) = (inside / "packages" / "greenlet").glob("_greenlet.cpython-314-*.so")
            subprocess.run(["strip", "--strip-all", extension], check=True)
        shutil.copy(CRASHERS / SCRIPT, inside)
        program = f"cd /tmp/{inside.name} && exec /usr/bin/python3.14 {SCRIPT} packages"
        command: list[str | bytes | Path] = ["chroot", sid(), "/bin/sh", "-c", program]
        made = crash(command, inside, {"PYTHONFAULTHANDLER": "1"})
        found = analyze(made.core, options=Options(gdb=None, sysroot=sid()))
        assert ours(found) == told(made) and len(found.greenlets) == 11
    finally:
        shutil.rmtree(inside)
