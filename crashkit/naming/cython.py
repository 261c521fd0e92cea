"""Functions of Cython: the name that their author wrote, and the line of the `.pyx` file where the line table has it. Pure."""

from __future__ import annotations

import re
from typing import Optional

from crashkit.model import NativeFrame, PythonFrame

# What Cython calls the C functions of `cdef` (f), of `def` (pf), of a generator's body (gb) and the wrapper (pw) that unpacks the arguments
# (Cython/Compiler/Naming.py; Symtab.py mangles the names).
_MANGLED = re.compile(r"__pyx_(?P<kind>f|pf|gb|pw|fuse_\d{1,3}_?(?:pf|f|pw)?)_(?P<scopes>\d.*)", re.DOTALL)
_COUNTED = re.compile(r"\d{1,6}")
_SOURCE = re.compile(r"\.(?:pyx|pxd|pxi|py)$")
_MOST_SCOPES = 20


def cython_name(function: str, module: str = "") -> Optional[str]:
    """`Reader.read` for `__pyx_pf_7package_6reader_6Reader_2read` of `reader.cpython-311-x86_64-linux-gnu.so`; None if it is none.

    Each scope is written as its length, its name and `_`; a function's name may follow a number that only counts. So `2do_it` may be both:
    it is a scope up to that of the extension module, and a class only if it begins with a capital letter. Classes are told only where the
    module is known.
    """
    match = _MANGLED.fullmatch(function)
    if match is None:
        return None
    stem = module.rpartition("/")[2].partition(".")[0]
    rest, classes, inside = match["scopes"], [], False
    for _ in range(_MOST_SCOPES):
        counted = _COUNTED.match(rest)
        if counted is None:
            break
        length = int(counted[0])
        after = rest[counted.end() :]
        scope = after[:length]
        if after[length : length + 1] != "_" or not scope.isidentifier() or (inside and not scope.lstrip("_")[:1].isupper()):
            rest = after
            break
        rest = after[length + 1 :]
        if inside:
            classes.append(scope)
        inside = inside or scope == stem
    return ".".join((*classes, rest)) if rest else None


def cython_frame(frame: NativeFrame) -> Optional[PythonFrame]:
    """The frame as a Python one, where the line table names the Cython source (`#line`); None for wrappers and other code."""
    match = _MANGLED.fullmatch(frame.function or "")
    if match is None or match["kind"].endswith("pw") or not _SOURCE.search(frame.file or ""):
        return None
    return PythonFrame(function=cython_name(frame.function or "", frame.module or ""), file=frame.file, line=frame.line)
