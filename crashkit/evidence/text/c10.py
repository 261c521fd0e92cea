"""Stacks by torch: the handler for fatal signals ("!!!!!!! Segfault encountered !!!!!!!") and the list of an exception of c10."""

from __future__ import annotations

import re

from crashkit.evidence.text.native_backtrace import Layout, format_of
from crashkit.evidence.text.reader import Telling

_FATAL = Layout(
    heads=(re.compile(r"^!+ (?P<signal>Segfault) encountered !+$"),),
    frames=(re.compile(r'^ *File "(?P<file>[^"]*)", line (?P<line>\d+), in (?P<function>.*)$'),),
    between=re.compile(r"^$"),
    by_handler=True,
)

_EXCEPTION = Layout(
    heads=(),
    frames=(
        re.compile(r"^frame #(?P<level>\d+): (?P<function>.*?) \+ (?P<offset>0x[0-9a-f]+) \((?P<pc>0x[0-9a-f]+) in (?P<module>[^)]*)\)$"),
        re.compile(
            r"^frame #(?P<level>\d+): (?P<module>[^\s(]+)\((?P<function>[^()+]*)(?:\+(?P<offset>0x[0-9a-f]+))?\) \[(?P<pc>0x[0-9a-f]+)\]$"
        ),
    ),
    between=re.compile(r"^(?:<omitting python frames>|)$"),
    telling=Telling.EXCEPTION,
)
"""The frames of the thread that threw: it may be caught."""

FORMATS = (
    format_of(_FATAL, ("Segfault encountered",), "backtrace"),
    format_of(_EXCEPTION, ("frame #0: ",), "log"),
)
