"""Names of functions that stay the same from build to build and from run to run: what fingerprints are made of."""

from __future__ import annotations

import re
from pathlib import PurePosixPath

from crashkit.model import PythonFrame
from crashkit.naming.functions import libc_name, plain

_LONGEST = 200

# Which of its inner functions malloc fails in is chance.
_ALLOCATOR = {
    **dict.fromkeys(("_int_malloc", "malloc_consolidate", "sysmalloc", "tcache_get", "_int_memalign", "memalign"), "malloc"),
    **dict.fromkeys(("_int_free", "cfree", "unlink_chunk", "tcache_put", "_int_free_merge_chunk", "_int_free_chunk"), "free"),
    **dict.fromkeys(("_int_realloc", "mremap_chunk"), "realloc"),
    "memmove": "memcpy",
    "_raise": "raise",
}
_NUMBER = re.compile(r"0x[0-9a-fA-F]+|(?<![0-9A-Za-z])(?=[a-fA-F]*[0-9][0-9a-fA-F]{5})[0-9a-fA-F]+(?![0-9A-Za-z])")
_HASH = re.compile(r"\b(?=\w*\d)[0-9a-z]{24,}\b")


def native_name(function: str) -> str:
    """`at::native::add<T>` for `at::native::add<int>(at::Tensor const&) [clone .cold]`, `memcpy` for `__memcpy_avx_unaligned`."""
    name = libc_name(plain(function.strip(), "<T>"))
    return stable(_ALLOCATOR.get(name, name))[:_LONGEST]


def python_name(frame: PythonFrame) -> str:
    """`rnn.forward`: the module's name, taken from its file, and the function's. A package's `__init__.py` gives the package."""
    path = PurePosixPath((frame.file or "").replace("\\", "/"))
    module = path.parent.name if path.stem == "__init__" else path.stem
    function = frame.function or "?"
    return stable(f"{module}.{function}" if module else function)[:_LONGEST]


def stable(text: str) -> str:
    """Without numbers and hashes that differ in every run: addresses, cell numbers, names of generated files."""
    return _HASH.sub("HASH", _NUMBER.sub("ADDR", text))
