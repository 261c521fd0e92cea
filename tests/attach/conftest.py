"""The native code that the programs call."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.attach import programs
from tests.crashes import NO_COMPILER


@pytest.fixture(scope="package")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("gcc") is None:
        pytest.skip(NO_COMPILER)
    folder = tmp_path_factory.mktemp("native")
    (folder / "native.c").write_text(programs.NATIVE)
    subprocess.run(["gcc", "-shared", "-fPIC", "-O1", "-o", folder / "native.so", folder / "native.c", "-lpthread"], check=True)
    return folder / "native.so"
