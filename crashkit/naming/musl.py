"""Recognises musl, the C library of Alpine and Void Linux: loader and library are one file. Pure."""

from __future__ import annotations

import re

# Alpine's (which programs load as libc.musl-x86_64.so.1, a link to it), Debian's and Void's. glibc's libc.so is no library.
_FILE = re.compile(r"(?:^|/)(?:ld-musl-[^/]*\.so\.1|libc\.musl-[^/]*\.so\.1|libc\.so)$")


def is_musl(path: str) -> bool:
    """Whether the module of this path is musl."""
    return _FILE.search(path) is not None
