"""What /proc has of a process; nothing once that has ended, or may not be looked at."""

from __future__ import annotations

import os


def numbers(folder: str) -> list[int]:
    """The names in a folder that are numbers, sorted."""
    try:
        return sorted(int(name) for name in os.listdir(folder) if name.isdigit())
    except OSError:
        return []


def text_of(path: str, most: int = 4 << 20) -> str:
    """The beginning of a file."""
    try:
        with open(path, "rb") as file:
            return file.read(most).decode("utf-8", "replace")
    except OSError:
        return ""
