"""The formats of multi-line text, in the order in which they are tried. To add one, write its module and list it here."""

from __future__ import annotations

from typing import Any

from crashkit.evidence.text import faulthandler, gdb, sanitizer, traceback
from crashkit.evidence.text.reader import Format

FORMATS: tuple[Format[Any], ...] = (faulthandler.FORMAT, traceback.FORMAT, gdb.FORMAT, *sanitizer.FORMATS)
