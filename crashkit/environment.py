"""Environment variables: those that may be shown of a crashed process, and those that our tools must not inherit. Pure."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import NamedTuple


class Variables(NamedTuple):
    """A set of variables, by name and by prefix."""

    names: frozenset[str]
    prefixes: tuple[str, ...]

    def has(self, name: str) -> bool:
        """Whether the set contains the variable `name`."""
        return name in self.names or name.startswith(self.prefixes)


SHOWN = Variables(
    names=frozenset(
        """
        LANG LANGUAGE TZ TERM SHELL PATH VIRTUAL_ENV CONDA_PREFIX CONDA_DEFAULT_ENV
        LD_LIBRARY_PATH LD_PRELOAD LD_BIND_NOW GLIBC_TUNABLES
        RANK WORLD_SIZE SLURM_STEP_NUM_TASKS LOCAL_RANK LOCAL_WORLD_SIZE GROUP_RANK MASTER_ADDR MASTER_PORT WEB_CONCURRENCY
        PYTEST_CURRENT_TEST PYTEST_XDIST_WORKER
        OPENBLAS_NUM_THREADS NUMEXPR_NUM_THREADS VECLIB_MAXIMUM_THREADS
        """.split()
    ),
    prefixes=tuple(
        """
        LC_ PYTHON CRASHKIT_ CUDA_ NVIDIA_ NCCL_ TORCH PYTORCH_ CUBLAS_ CUDNN_ TRITON_ UCX_ GLOO_
        OMPI_COMM_WORLD_ HSA_ HIP_ ROCR_ ROCM_ MIOPEN_ OMP_ KMP_ GOMP_ MKL_ OPENBLAS_ MALLOC_
        ASAN_ UBSAN_ TSAN_ LSAN_ SLURM_JOB SLURM_NODE SLURM_PROC
        """.split()
    ),
)
"""Variables that a crash may depend on, or that show where and how the process ran."""

LOADING = Variables(
    names=frozenset(
        """
        GLIBC_TUNABLES GCONV_PATH LOCPATH NLSPATH
        OPENSSL_CONF OPENSSL_ENGINES OPENSSL_MODULES
        BABELTRACE_PLUGIN_PATH LIBBABELTRACE2_PLUGIN_PATH
        BASH_ENV
        """.split()
    ),
    prefixes=tuple("PYTHON LD_ MALLOC_ DEBUGINFOD GUILE_ GDB BASH_FUNC_".split()),
)
"""Variables that make a program load unrequested code, behave differently, or use the network: PYTHON* its own modules, LD_* and
GCONV_PATH libraries, OPENSSL_* engines, GUILE_* and BABELTRACE* extensions of gdb, GDB* its history,
BASH_ENV and BASH_FUNC_* code of shells, MALLOC_* traces and checks, DEBUGINFOD* servers."""

_RANKS = ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK")
_SIZES = ("WORLD_SIZE", "SLURM_STEP_NUM_TASKS", "OMPI_COMM_WORLD_SIZE")
"""How many there are. SLURM_NTASKS is also set for a batch script, which is no rank."""
RESTARTS = "TORCHELASTIC_RESTART_COUNT"
RUN = "TORCHELASTIC_RUN_ID"
ERROR_FILE = "TORCHELASTIC_ERROR_FILE"
"""Where torch's `@record` writes the exception that ends a rank."""
PLACE = frozenset({*_RANKS, *_SIZES, "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT", RUN, "SLURM_JOB_ID", RESTARTS, ERROR_FILE})
"""Variables that tell which process of which job this is."""

LIBRARY_PATH = "LD_LIBRARY_PATH"
"""The Python that runs crashkit may need it to find its own libpython."""

_FOLDER_LISTS = ("PATH", LIBRARY_PATH)


def for_tool(environment: Mapping[str, str], keep: tuple[str, ...] = ()) -> dict[str, str]:
    """The environment for a tool that reads a crash: ours without `LOADING`, but with names that begin with one of `keep`; English output.

    Relative folders in PATH and LD_LIBRARY_PATH are dropped.
    """
    kept = {name: value for name, value in environment.items() if name.startswith(keep) or not LOADING.has(name)}
    kept.update({name: absolute_folders(kept[name]) for name in _FOLDER_LISTS if name in kept})
    return {**kept, "LC_ALL": "C.UTF-8"}


def absolute_folders(path: str) -> str:
    """A search path without its relative and empty entries, both of which depend on the working directory."""
    return os.pathsep.join(entry for entry in path.split(os.pathsep) if entry.startswith("/"))


def shown(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that may be shown, by name; their values may still hold secrets."""
    return {name: value for name, value in sorted(environment.items()) if SHOWN.has(name)}


def number(environment: Mapping[str, str], name: str) -> int | None:
    """The variable as a number; None if it is none."""
    text = environment.get(name, "")
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 9 else None


def rank(environment: Mapping[str, str]) -> int | None:
    """The rank of a process within its job, as torchrun, SLURM or Open MPI sets it; None if it has none."""
    return next((value for name in _RANKS if (value := number(environment, name)) is not None), None)


def world_size(environment: Mapping[str, str]) -> int | None:
    """How many ranks the job of a rank has; None if the variables do not tell."""
    sizes = (number(environment, name) for name in _SIZES) if rank(environment) is not None else ()
    return next((size for size in sizes if size), None)


def is_given_a_rank(environment: Mapping[str, str], parents: Mapping[str, str]) -> bool:
    """Whether its parent made the process a rank: what merely inherits the variables has the same ones.

    A launcher may be a rank itself: torchrun is SLURM's task below srun, and a PyTorchJob sets RANK for each pod.
    """
    return rank(environment) is not None and any(name in environment and name not in parents for name in (*_RANKS, "LOCAL_RANK"))


def is_one_of_several(environment: Mapping[str, str]) -> bool:
    """Whether the process is a rank of a job with more than one."""
    return (world_size(environment) or 0) > 1
