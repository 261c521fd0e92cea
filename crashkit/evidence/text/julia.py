"""Julia's own report of a signal (src/signal-handling.c, src/stackwalk.c): also of Python in Julia, and of Julia in Python."""

from __future__ import annotations

import re

from crashkit.evidence.text.native_backtrace import Layout, format_of

_SIGNAL = re.compile(
    r"^(?:\[(?P<pid>\d{1,9})\] )?signal (?:(?P<number>\d{1,2}) )?\((?P<code_>-?\d{1,3})(?:\.\d{1,3})?\)"
    r": (?P<signal>[A-Z][A-Za-z /()]{1,40})$"
)
"""`[4217] signal 11 (1): Segmentation fault`; in Julia 1.9 and 1.10 `[4217] signal (11.1): ...`, before `signal (11): ...`."""

FORMAT = format_of(
    Layout(
        heads=(_SIGNAL,),
        frames=(
            re.compile(r"^unknown function \(ip: (?P<pc>0x[0-9a-f]{1,16})\)(?: at (?P<module>\S{1,300}))?(?: \(unknown line\))?$"),
            re.compile(r"^(?P<function>\S[^()]{0,300}) at (?P<module>\S{1,300}) \(unknown line\)$"),
            re.compile(r"^(?P<function>(?!in expression starting )\S.{0,300}) at (?P<file>\S{1,300}):(?P<line>\d{1,9})(?: \[inlined\])?$"),
        ),
        between=re.compile(r"^(?:in expression starting at .*|)$"),
        end=re.compile(r"^Allocations: \d+ \(Pool: .*\); GC: \d+$"),
        starts=(_SIGNAL,),
    ),
    ("signal (", "] signal "),
    "backtrace",
)
