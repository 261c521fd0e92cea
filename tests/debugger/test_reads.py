"""What gdb logs of its reads, as its versions write it."""

from __future__ import annotations

from pathlib import Path

from crashkit.debugger.gdb.reads import logged_reads

LOG = b"""\
&"core:target_xfer_partial (1, (null), 0x7ffe3a0d2d80, 0x0, 0x7fed82a50000, 64) = 1, 64, bytes =\\n"
&"core:target_xfer_partial (3, (null), 0x5612fb00c6d0, 0x0, 0x7fed82a50040, 224) = 1, 100, bytes =\\n"
0x561ed804e170:\t[target] core:target_xfer_partial (1, (null), 0x55b7b4885ff0, 0x0, 0x561ed804e170, 4) = 1, 4, bytes =
&"core:target_xfer_partial (1, (null), 0x7ffe3a0d23f7, 0x0, 0x0, 9) = 0, 0\\n"
&"core:target_xfer_partial (10, target.xml, 0x5612fb011680, 0x0, 0x0, 4096) = -1, 0\\n"
&"core:target_xfer_partial (6, (null), 0x5612fb100a00, 0x0, 0x170, 4096) = 1, 368\\n"
[target] core:target_xfer_partial (1, (null), 0x7ffd7556539f, 0x0, 0x7fcb788a8eec, 1) = 2, 1
&"exec:target_xfer_partial (1, (null), 0x7ffe3a0d2d18, 0x0, 0x1d2b78, 8) = 1, 8\\n"
"""
"""Of gdb 13.1, in MI, and of gdb 18.1."""


def test_reads_of_memory_that_succeeded(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(LOG)
    assert list(logged_reads(log)) == [(0x7FED82A50000, 64), (0x7FED82A50040, 100), (0x561ED804E170, 4)]


def test_without_a_log_there_are_none(tmp_path: Path) -> None:
    assert list(logged_reads(tmp_path / "none")) == []
