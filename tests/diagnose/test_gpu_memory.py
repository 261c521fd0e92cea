"""Out of memory on a GPU: the fix follows from the numbers in torch's message.

The first message is what an H200 printed with torch 2.11; the others are of the same shape, or of torch 1.13's, with other numbers.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from crashkit.diagnose import diagnose, load_catalog
from crashkit.model import Crash, Source

from . import synthetic

FULL = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 8.00 GiB. GPU 0 has a total capacity of 139.80 GiB of which 2.77 GiB is "
    "free. Process 1281 has {others} memory in use. Including non-PyTorch memory, this process has 136.51 GiB memory in use. Of the "
    "allocated memory 136.00 GiB is allocated by PyTorch, and {unused} is reserved by PyTorch but unallocated.\n"
)
OLD = (
    "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 8.00 GiB total capacity; 3.50 GiB already allocated; 1.20 GiB "
    "free; {reserved} reserved in total by PyTorch)\n"
)
SEGMENTS, OTHERS, SMALLER = "expandable_segments", "nvidia-smi", "batch_size"
CASES = (
    (FULL.format(others="520.00 MiB", unused="0 bytes"), [SMALLER]),
    (FULL.format(others="520.00 MiB", unused="9.50 GiB"), [SEGMENTS, SMALLER]),
    (FULL.format(others="70.00 GiB", unused="1.00 MiB"), [OTHERS, SMALLER]),
    (FULL.format(others="70.00 GiB", unused="20.00 GiB"), [OTHERS, SEGMENTS, SMALLER]),
    (OLD.format(reserved="3.60 GiB"), [SMALLER]),
    (OLD.format(reserved="6.00 GiB"), [SEGMENTS, SMALLER]),
    ("RuntimeError: CUDA error: out of memory\n", [OTHERS, SEGMENTS, SMALLER]),  # no number: nothing is ruled out
)


@pytest.mark.parametrize(("text", "expected"), CASES)
def test_fixes_follow_from_the_numbers(text: str, expected: list[str], tmp_path: Path) -> None:
    crash = Crash(source=Source(kind="log", path="log"), log=synthetic.lines(text, tmp_path))
    finding = next(finding for finding in diagnose(crash, load_catalog()).findings if finding.id == "cuda-oom")
    assert [next((word for word in (SEGMENTS, OTHERS, SMALLER) if word in fix), None) for fix in finding.fix[: len(expected)]] == expected
    assert sum(word in fix for fix in finding.fix for word in (SEGMENTS, OTHERS, SMALLER)) == len(expected)
