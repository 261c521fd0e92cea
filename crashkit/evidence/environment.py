"""Which environment variables of a dead process may be shown, and which parts of its text must not be."""

from __future__ import annotations

import re
from collections.abc import Iterable

# What bears on a crash: runtimes, allocators, threads, loaders. Everything else stays out: an environment is full of secrets.
_PREFIXES = (
    "ASAN_ ATEN_ CUBLAS_ CUDA_ CUDNN_ GLIBC_TUNABLES GLOO_ GOMP_ GUNICORN_ HIP_ HSA_ KMP_ LD_ LSAN_ MALLOC_ MKL_ NCCL_ NVIDIA_ OMP_ "
    "OPENBLAS_ PYTHON PYTORCH_ RCCL_ TORCH TRITON_ TSAN_ UBSAN_ UVICORN_ VIRTUAL_ENV CONDA_PREFIX"
).split()
_NAMES = frozenset("LANG LC_ALL LOCAL_RANK MASTER_ADDR MASTER_PORT PATH PWD RANK SHELL TZ WORLD_SIZE".split())
_SECRET_NAME = re.compile(r"(?i)(token|secret|passw|credential|api_?key|private|auth)")
_SECRET = re.compile(
    r"(?i)(?P<keep>\b[\w.-]*(?:token|secret|passw(?:or)?d|passphrase|credential|api[_-]?key|access[_-]?key|authorization)[\w.-]*[\"']?\s*"
    r"(?:[=:]\s*(?:bearer\s+|basic\s+)?|\s))(?P<secret>[^\s\"',;&]{4,})"
    r"|(?P<user>://[^/\s:@]*:)(?P<password>[^@\s/]+)(?=@)"
    r"|\b(?:ghp|gho|ghs|github_pat|glpat|hf|sk|xox[abp]|AKIA|ASIA|eyJ)[-_A-Za-z0-9.]{16,}"
)


def allowed(variables: Iterable[str]) -> dict[str, str]:
    """The variables, each `NAME=value`, that may be shown."""
    kept = {}
    for variable in variables:
        name, separator, value = variable.partition("=")
        if separator and (name in _NAMES or name.startswith(tuple(_PREFIXES))) and not _SECRET_NAME.search(name):
            kept[name] = scrubbed(value)
    return kept


def scrubbed(text: str) -> str:
    """The text with what looks like a password or a token replaced."""
    return _SECRET.sub(lambda found: (found["keep"] or found["user"] or "") + "[removed]", text)
