"""Functions of Cython: the name that their author wrote, and the `.pyx` file, with its line where the line table has it. Pure."""

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
    return _written(function, module)[1]


def cython_module(module: str) -> str:
    """`reader` for `/srv/app/reader.cpython-311-x86_64-linux-gnu.so`: what its source is called, too."""
    return module.rpartition("/")[2].partition(".")[0]


def _written(function: str, module: str) -> tuple[list[str], Optional[str]]:
    """The names of the packages and the module, as far as the function's name has the module's, and what `cython_name` is to say."""
    match = _MANGLED.fullmatch(function)
    if match is None:
        return [], None
    stem = cython_module(module)
    rest, packages, classes, inside = match["scopes"], list[str](), list[str](), False
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
        (classes if inside else packages).append(scope)
        inside = inside or scope == stem
    return packages if inside else [], ".".join((*classes, rest)) if rest else None


def lacks_source(frame: NativeFrame) -> bool:
    """Whether it is a function of Cython's whose source no line table names."""
    return _MANGLED.fullmatch(frame.function or "") is not None and not _SOURCE.search(frame.file or "")


def cython_frame(frame: NativeFrame) -> Optional[PythonFrame]:
    """The frame as a Python one, where its file is the Cython source; None for other code.

    With a line (`#line`), the function alone, and None for its wrapper. Without one, `package.reader.Reader.read`, which tells more where
    the line is missing, and of its wrapper, too: the compiler often puts the function into it.
    """
    match = _MANGLED.fullmatch(frame.function or "")
    if match is None or not _SOURCE.search(frame.file or ""):
        return None
    packages, name = _written(frame.function or "", frame.module or "")
    if frame.line is not None:
        return None if match["kind"].endswith("pw") else PythonFrame(function=name, file=frame.file, line=frame.line)
    return PythonFrame(function=".".join((*packages, name)), file=frame.file) if name else None
