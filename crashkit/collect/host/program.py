"""Which program runs a command."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Optional


def program_of(command: tuple[str, ...], path: Optional[str] = None) -> tuple[Optional[Path], Optional[str]]:
    """The program that runs a command, after following `#!` lines; or None and the reason. `path`: its PATH, if it is not ours."""
    if not command:
        return Path(sys.executable).resolve(), None
    found = shutil.which(command[0], path=path)
    if found is None:
        return None, f"{command[0]}: command not found"
    for _ in range(4):
        try:
            with open(found, "rb") as file:
                head = file.read(4096)
        except OSError as error:
            return None, f"{found}: {error.strerror}"
        if not head.startswith(b"#!"):
            return Path(found).resolve(), None
        words = os.fsdecode(head[2:].split(b"\n", 1)[0]).split()
        if words and os.path.basename(words[0]) == "env":
            words = [shutil.which(word, path=path) or word for word in words[1:] if not word.startswith("-") and "=" not in word]
        if not words:
            break
        found = words[0]
    return None, f"cannot find the program that {command[0]} starts"
