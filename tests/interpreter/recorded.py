"""Recorded crashes of free-threaded interpreters, as minimal cores: see fixtures/free-threaded/README.md."""

from __future__ import annotations

import gzip
from pathlib import Path

from tests.crashes import Folder

FOLDER = Path(__file__).parent.parent.parent / "fixtures" / "free-threaded"
VERSIONS = ("3.13t", "3.14t")


def recorded(version: str, program: str, folder: Path, records: Path = FOLDER) -> Folder:
    """The crash of a program of fixtures/crashers, as it lies in `records`, unpacked into the empty folder."""
    name = f"{version}-{Path(program).stem}"
    (folder / "core").write_bytes(gzip.decompress((records / f"{name}.core.gz").read_bytes()))
    (folder / "stderr.txt").write_bytes((records / f"{name}.stderr.txt").read_bytes())
    return Folder(folder, Path("/nothing"), -11, 0)
