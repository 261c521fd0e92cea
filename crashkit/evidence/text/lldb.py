"""Stacks printed by lldb (`bt`, `bt all`, `thread backtrace all`)."""

from __future__ import annotations

import re

from crashkit.evidence.text.native_backtrace import Layout, format_of

_REASON = (
    r"stop reason = (?P<crashed>signal (?P<signal>SIG[A-Z]+)"
    r"|(?P<exception>EXC_\w+)(?: \(code=\w+(?:, address=(?P<address>0x[0-9a-f]+))?\))?)"
)

_LAYOUT = Layout(
    heads=(),
    frames=(
        re.compile(
            r"^ *(?:\* )?frame #(?P<level>\d+): (?P<pc>0x[0-9a-f]+) (?P<module>[^`]+)`(?P<function>.+?)"
            r"(?: \+ (?P<plus>\d+))?(?: at (?P<file>[^\s:]+):(?P<line>\d+)(?::\d+)?)?(?: \[.*\])?$"
        ),
    ),
    threads=(
        re.compile(r"^ *(?:\* )?thread #\d+(?:: tid = (?P<tid>\w+))?.*?(?:name = '(?P<name>[^']*)'.*?)?, " + _REASON),
        re.compile(r"^ *(?:\* )?thread #\d+(?:: tid = (?P<tid>\w+))?(?:.*?name = '(?P<name>[^']*)')?.*$"),
    ),
    between=re.compile(r"^(?: *->.*| *0x[0-9a-f]+ <\+\d+>.*|\(lldb\).*|.*`[^`]*:|Target \d+:.*|Process \d+ stopped|)$"),
    starts=(re.compile(r"^ *(?:\* )?thread #\d+"),),
    facts=frozenset({"signal", "exception"}),
)

FORMAT = format_of(_LAYOUT, ("thread #",), "lldb")
