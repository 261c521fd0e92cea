"""Reports of valgrind's memcheck."""

from __future__ import annotations

import re

from crashkit.evidence.text.native_backtrace import Layout, format_of
from crashkit.evidence.text.reader import Telling

_LAYOUT = Layout(
    heads=(
        re.compile(
            r"^==?(?P<pid>\d+)== (?P<problem>Invalid (?:read|write) of size \d+|Invalid free\(\).*"
            r"|Mismatched free\(\).*|Jump to the invalid address.*"
            r"|Conditional jump or move depends on uninitialised.*|Use of uninitialised value.*|Syscall param .* points to .*)$"
        ),
        re.compile(
            r"^==?(?P<pid>\d+)== (?P<end>Process terminating with default action of signal (?P<number>\d+) \((?P<signal>SIG\w+)\).*)$"
        ),
        re.compile(r"^==?\d+==  Address (?P<address_of>0x[0-9a-f]+) is (?P<detail>.*)$"),
    ),
    frames=(
        re.compile(
            r"^==?\d+==    (?:at|by) (?P<pc>0x[0-9A-Fa-f]+): (?P<function>.+?)"
            r" \((?:in (?P<module>[^)]+)|(?P<file>[^():]+):(?P<line>\d+)|[^)]*)\)$"
        ),
    ),
    end=re.compile(r"^==?\d+== +$"),
    starts=(re.compile(r"^==?\d+== (?:Invalid |Mismatched |Jump to|Conditional jump|Use of uninit|Syscall param|Process terminating)"),),
    kind="valgrind",
    telling=Telling.REPORT,
    facts=frozenset({"problem", "end"}),
)

FORMAT = format_of(
    _LAYOUT, ("== Invalid ", "== Mismatched ", "== Jump to", "== Conditional", "== Use of", "== Syscall", "== Process term"), "log"
)
