"""Who installed an interpreter, by where it is: what installs debug info for it, and what updates a package. Pure."""

from __future__ import annotations

import re
from typing import Optional

_CONDA = re.compile(r"/(?:(?:ana|mini)conda\d{0,2}|mini(?:forge|mamba)\d{0,2}|mambaforge|micromamba|\.?conda|\.pixi/envs)/")
_DISTRIBUTION = re.compile(r"^/usr/(?:bin|lib(?:32|64)?)/")
_SYSTEM = re.compile(r"^(?:/usr)?/lib(?:32|64|x32)?/")
_BUILDS = "CFLAGS="
"""How a fix begins that compiles an extension in its source folder."""
_OPTIONS = frozenset({"--upgrade", "--force-reinstall", "--no-cache-dir"})
_NAME = re.compile(r"[A-Za-z][\w.-]*")


def is_of_conda(path: str, prefix: Optional[str] = None) -> bool:
    """Whether the file is in an environment of conda, mamba or pixi; `prefix` is the process's CONDA_PREFIX."""
    return _CONDA.search(path) is not None or bool(prefix and path.startswith(prefix.rstrip("/") + "/"))


def is_packaged(path: str, prefix: Optional[str] = None) -> bool:
    """Whether the library came with a package of the distribution, or with one of conda that is no Python package: nobody here built it."""
    return _SYSTEM.match(path) is not None or (is_of_conda(path, prefix) and "/site-packages/" not in path)


def as_it_is(text: str, library: str, command: Optional[str]) -> str:
    """A fix that compiles an extension, with what checks a library without its source in place of that line; any other as it is."""
    first, newline, rest = text.partition("\n")
    if not first.startswith(_BUILDS):
        return text
    return f"PYTHONMALLOC=malloc valgrind {command or '...'}   # {library} came with a package: valgrind checks it as it is{newline}{rest}"


def how_to_get_debug_info(path: str, version: Optional[str], of_conda: bool, on_musl: bool) -> str:
    """What to do about an interpreter without debug info: who packages it, and whether anybody has it."""
    package = f"python{version}" if version else "python3"
    if _DISTRIBUTION.match(path) is None:
        whose = "conda's packages have none, nor has a debuginfod server" if of_conda else "No package has it for an interpreter here"
        kept = f"pyenv install {version}" if version else "pyenv install"
        return f"{whose}: use a build that keeps it, as {kept} does."
    if on_musl:
        return "Install it: apk add python3-dbg musl-dbg."
    return f"Install it: apt-get install {package}-dbg, dnf debuginfo-install {package}, or let crashkit fetch it with --debuginfod."


def for_conda(text: str) -> str:
    """A fix that lets pip update packages, with what does it where conda installed them; any other as it is."""
    code, _, _ = text.partition("   #")
    words = code.split(" ")
    names = [word for word in words[2:] if word not in _OPTIONS]
    if words[:2] != ["pip", "install"] or not names or len(names) == len(words) - 2 or not all(map(_NAME.fullmatch, names)):
        return text
    how = "install --force-reinstall" if "--force-reinstall" in words else "update"
    return f"{text}\nconda {how} {' '.join(names)}   # where conda installed it: see conda list"
