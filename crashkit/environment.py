"""Environment variables: those that may be shown of a crashed process, and those that our tools must not inherit. Pure."""

from __future__ import annotations

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
        RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE GROUP_RANK MASTER_ADDR MASTER_PORT WEB_CONCURRENCY
        OPENBLAS_NUM_THREADS NUMEXPR_NUM_THREADS VECLIB_MAXIMUM_THREADS
        """.split()
    ),
    prefixes=tuple(
        """
        LC_ PYTHON CRASHKIT_ CUDA_ NVIDIA_ NCCL_ TORCH PYTORCH_ CUBLAS_ CUDNN_ TRITON_ UCX_ GLOO_
        HSA_ HIP_ ROCR_ ROCM_ MIOPEN_ OMP_ KMP_ GOMP_ MKL_ OPENBLAS_ MALLOC_
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
        """.split()
    ),
    prefixes=tuple("PYTHON LD_ MALLOC_ DEBUGINFOD GUILE_".split()),
)
"""Variables that make a program load unrequested code, behave differently, or use the network: PYTHON* its own modules, LD_* and
GCONV_PATH libraries, OPENSSL_* engines, GUILE_* and BABELTRACE* extensions of gdb, MALLOC_* traces and checks, DEBUGINFOD* servers."""

LIBRARY_PATH = "LD_LIBRARY_PATH"
"""The Python that runs crashkit may need it to find its own libpython."""


def for_tool(environment: Mapping[str, str], keep: tuple[str, ...] = ()) -> dict[str, str]:
    """The environment for a tool that reads a crash: ours without `LOADING` (except `keep`), with English output."""
    kept = {name: value for name, value in environment.items() if name in keep or not LOADING.has(name)}
    return {**kept, "LC_ALL": "C.UTF-8"}


def shown(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that may be shown, by name; their values may still hold secrets."""
    return {name: value for name, value in sorted(environment.items()) if SHOWN.has(name)}
