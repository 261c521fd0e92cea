"""Each rule has one definition: no other module writes down what belongs to it."""

from __future__ import annotations

import re
import tokenize
from functools import cache
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent.parent / "crashkit"

# A format of tracebacks, where packages lie whose versions are told, and whether one was used: they ask something else.
OWN_CODE = {"naming/own_code.py", "diagnose/conditions.py", "evidence/text/traceback.py", "evidence/package_versions.py"}

# What betrays a second copy of a rule: a pattern over the package's source, and where it may stand.
RULES = {
    "the user's own code": (r"python\)?-input|\(\?:site\|dist\)-packages", OWN_CODE),
    "compiler-added suffixes": (r"constprop\b.*isra|\[clone", {"naming/functions.py"}),
    "processors' variants of libc": (r"\b(?:evex|avx)\|", {"naming/functions.py"}),
    "abort machinery": (
        r"malloc_printerr|gsignal\||_Py_FatalErrorFunc",
        {"naming/machinery.py", "evidence/core/fatal_error.py", "evidence/text/gdb.py"},
    ),
    "signal frames": (r"signal handler called", {"naming/machinery.py", "evidence/text/gdb.py"}),
    "signal names": (r'"SIGHUP"|signal\.Signals\([a-z]|f"SIG', {"naming/signals.py"}),
    "the null area": (r"\b0x10000\b|NULL_(?:PAGE|AREA) =", {"naming/addresses.py"}),
    "fill bytes": (r"\b0xDD\b", {"naming/addresses.py"}),
    "ids of crashes": (r"%Y%m%dT%H%M%S", {"crashfolder/ids.py"}),
    "environment of tools": (r"DEBUGINFOD[_\" ]|GCONV_PATH", {"environment.py", "cli/options.py", "evidence/module_files.py"}),
    "what stands for a secret": (r"<masked>", {"secrets/text.py"}),
    "gdb's safe start": (r"set auto-load no", {"gdb_files.py"}),
}


def places(pattern: str, files: str) -> set[str]:
    paths = {path.relative_to(PACKAGE).as_posix(): path for path in PACKAGE.rglob(files)}
    return {name for name, path in paths.items() if re.search(pattern, code(path))}


@cache
def code(path: Path) -> str:
    """A Python file without comments and docstrings; another one as it is."""
    if path.suffix != ".py":
        return path.read_text()
    with tokenize.open(path) as file:
        tokens = tokenize.generate_tokens(file.readline)
        return " ".join(token.string for token in tokens if token.type != tokenize.COMMENT and not token.string.startswith('"""'))


@pytest.mark.slow
@pytest.mark.parametrize("rule", RULES)
def test_one_place(rule: str) -> None:
    pattern, allowed = RULES[rule]
    found = places(pattern, "*.py")
    assert found and found <= allowed, found - allowed


def test_signatures_have_no_null_area_of_their_own() -> None:
    assert places(r"address = \[0, 0x(?:f{3,}|10{3,})\]", "catalog/*.toml") == set()
