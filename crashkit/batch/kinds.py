"""What a file is, from its first bytes: names lie, and CI renames everything. Pure."""

from __future__ import annotations

import re
from typing import Literal, Optional

from crashkit.elf.headers import ET_CORE, ET_DYN, ET_EXEC
from crashkit.evidence.input import compression_of

HEAD = 4096
"""Bytes that tell what a file is."""

_ELF_KINDS = {ET_CORE: "core", ET_EXEC: "program", ET_DYN: "program"}
ARCHIVES = frozenset({"zip", "tar"})

_TAR_MAGIC, _TAR_AT = b"ustar", 257  # POSIX pax, "ustar Interchange Format"
_ZIP_MAGICS = (b"PK\x03\x04", b"PK\x05\x06")  # PKWARE's APPNOTE, 4.3.7 and 4.3.16
_CONTROLS = bytes({*range(32), 127} - {*b"\t\n\v\f\r\x1b\b"})
_OTHER_DOCUMENTS = re.compile(rb"\s*(?:<!doctype html|<html|%PDF|\{\s*\"(?:schema|\$schema)\"\s*:\s*\"(?:crashkit\.|https?://))", re.I)
_JUNIT = re.compile(rb"<testsuites?[\s>]")


def kind_of(head: bytes) -> Optional[str]:
    """core (of a CPU or a GPU), program (an executable or a library), zip, tar, compressed, junit, text; None: it holds no evidence."""
    if head.startswith(b"\x7fELF"):
        order: Literal["big", "little"] = "big" if head[5:6] == b"\2" else "little"
        return _ELF_KINDS.get(int.from_bytes(head[16:18], order))
    if head.startswith(_ZIP_MAGICS):
        return "zip"
    if head[_TAR_AT : _TAR_AT + len(_TAR_MAGIC)] == _TAR_MAGIC:
        return "tar"
    if compression_of(head):
        return "compressed"
    if not head or b"\0" in head or _OTHER_DOCUMENTS.match(head):
        return None
    if len(head) - len(head.translate(None, _CONTROLS)) > len(head) // 20:
        return None
    return "junit" if head.lstrip().startswith(b"<") and _JUNIT.search(head) else "text"


_PROGRAM_TEXT = re.compile(
    r"(?i)\.(?:py|pyi|pyx|c|cc|cpp|cxx|cu|cuh|h|hpp|rs|go|java|js|ts|css|html?|md|rst|toml|ya?ml|cfg|ini|sh|cmake|ipynb|svg|csv|lock|patch|diff)$"
)


def is_program_text(name: str) -> bool:
    """Whether a text of this name is source code or a document, which may quote a crash but is no evidence of one."""
    return bool(_PROGRAM_TEXT.search(name))
