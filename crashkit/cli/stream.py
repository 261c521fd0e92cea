"""What an output stream is: its width, and whether it shows colour.

Output to pipes and CI is plain: no colour, no wrapping, no truncation, regardless of the environment.
"""

from __future__ import annotations

import os
import shutil
from typing import TextIO

UNBOUNDED = 1 << 20
"""Line width in cells when the output is not a terminal."""


def has_color(stream: TextIO) -> bool:
    """Whether the stream is a terminal and the user wants colour (no-color.org)."""
    return stream.isatty() and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"


def width(stream: TextIO) -> int:
    """Line width in cells: COLUMNS, or the width of the terminal."""
    return shutil.get_terminal_size().columns if stream.isatty() else UNBOUNDED
