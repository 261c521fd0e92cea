"""The variables that make the CUDA driver leave core dumps (cuda-gdb manual, "GPU core dump support"), and torch its flight recorder's
(torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp). Pure but for what looks into the run's folder."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Mapping
from pathlib import Path

from crashkit.crashfolder.files import is_regular

LIGHTWEIGHT = "skip_nonrelocated_elf_images,skip_global_memory,skip_shared_memory,skip_local_memory,skip_constbank_memory"
"""CUDA_COREDUMP_GENERATION_FLAGS, CUDA 12.5 and newer: registers, kernels and code without memory, so megabytes instead of gigabytes."""

SUFFIXES = (".nvcudmp", ".nvcudmp.gz")
RECORDING = "nccl_trace_rank_"
"""How a rank's flight recorder dump is called; its rank follows."""
_COLLECTIVES = "2000"
"""That each rank remembers: as many as torch's documentation proposes."""
_OLDER = {"TORCH_FR_BUFFER_SIZE": "TORCH_NCCL_TRACE_BUFFER_SIZE", "TORCH_FR_DUMP_TEMP_FILE": "TORCH_NCCL_DEBUG_INFO_TEMP_FILE"}
"""What torch called a variable before; it still reads that, too."""


def variables(environment: Mapping[str, str], folder: Path) -> dict[str, str]:
    """Variables to add for GPU core dumps and flight recorder dumps into `folder` (absolute); variables that the user set stay as they are.

    Also enables dumps on request: a hung process writes one when a MiB is written to its pipe in `folder`. The flight recorder does nothing
    in a process that has no NCCL process group.
    """
    wanted = {
        "CUDA_ENABLE_COREDUMP_ON_EXCEPTION": "1",
        "CUDA_ENABLE_USER_TRIGGERED_COREDUMP": "1",
        "CUDA_COREDUMP_FILE": f"{folder}/gpu.%h.%p.%t{SUFFIXES[0]}",
        "CUDA_COREDUMP_PIPE": f"{folder}/gpu-pipe.%h.%p",
        "CUDA_COREDUMP_SHOW_PROGRESS": "1",
        "CUDA_COREDUMP_GENERATION_FLAGS": LIGHTWEIGHT,
        "TORCH_FR_BUFFER_SIZE": _COLLECTIVES,
        "TORCH_NCCL_DUMP_ON_TIMEOUT": "1",
        "TORCH_FR_DUMP_TEMP_FILE": f"{folder}/{RECORDING}",
    }
    return {name: value for name, value in wanted.items() if name not in environment and _OLDER.get(name) not in environment}


def dumps(folder: Path, pid: int) -> list[Path]:
    """The GPU dumps of one process."""
    return sorted(path for path in folder.glob(f"gpu.*.{pid}.*") if path.name.endswith(SUFFIXES) and is_regular(path))


def pipes(folder: Path, pid: int) -> list[Path]:
    """Where a process takes requests for its GPU core. `pid`: as it sees it itself."""
    return sorted(folder.glob(f"gpu-pipe.*.{pid}"))


def note_asked(folder: Path, pid: int, start: int) -> None:
    """Leave word that a process was asked for its GPU core, of which it ends. `start`: when it was started. Raises OSError."""
    (folder / f"asked.{pid}.{start}").touch(mode=0o600)


def was_asked(folder: Path, pid: int, start: int) -> bool:
    """Whether a process was asked for its GPU core. `start`: when it was started; 0 if that is not known."""
    return any(True for _ in folder.glob(f"asked.{pid}.{start or '*'}"))


def dumping(folder: Path, quiet: float = 3.0) -> bool:
    """Whether a GPU dump is being written: one changed within the last `quiet` seconds."""
    for path in folder.glob("gpu.*.nvcudmp*"):
        with contextlib.suppress(OSError):
            if time.time() - os.stat(path, follow_symlinks=False).st_mtime < quiet:
                return True
    return False
