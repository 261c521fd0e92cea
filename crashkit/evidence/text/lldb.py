"""Stacks printed by lldb (`bt`, `bt all`, `thread backtrace all`)."""

from __future__ import annotations

import re

from crashkit.evidence.text.native_backtrace import Layout, format_of

# A core file's first thread stopped by SIGSTOP is lldb's way of saying that it does not know the signal.
_REASON = (
    r"stop reason = (?P<crashed>(?:signal (?P<signal>SIG(?!STOP)[A-Z]+)|(?P<exception>EXC_\w+|hit program assert))"
    r"(?:: [^(]*)?(?: ?\((?:code=(?P<exception_code>\w+)(?:, address=)?|fault address: )(?P<address>0x[0-9a-f]+)?\))?)"
)

_LAYOUT = Layout(
    # The line of the source at which it stands, where it is an assertion.
    heads=(re.compile(r"^ *-> {1,4}\d{1,7}\s{1,8}(?:\w{1,20}_)?assert\((?P<assertion>.{1,400})\);?"),),
    frames=(
        re.compile(
            r"^ *(?:\* )?frame #(?P<level>\d+): (?P<pc>0x[0-9a-f]+) (?P<module>[^`]+)`(?P<function>.+?)"
            r"(?: \+ (?P<plus>\d+))?(?: at (?P<file>[^\s:]+):(?P<line>\d+)(?::\d+)?)?(?: \[.*\])?$"
        ),
        re.compile(r"^ *(?:\* )?frame #(?P<level>\d+): (?P<pc>0x[0-9a-f]+)$"),
    ),
    threads=(
        re.compile(r"^ *(?:\* )?thread #\d+(?:: tid = (?P<tid>\w+))?.*?(?:name = '(?P<name>[^']*)'.*?)?, " + _REASON),
        re.compile(r"^ *(?:\* )?thread #\d+(?:: tid = (?P<tid>\w+))?(?:.*?name = '(?P<name>[^']*)')?.*$"),
    ),
    between=re.compile(r"^(?: *->.*| *0x[0-9a-f]+ <\+\d+>.*|\(lldb\).*|.*`[^`]*:|Target \d+:.*|Process \d+ stopped|)$"),
    starts=(re.compile(r"^ *(?:\* )?(?:thread #\d+|frame #\d+: 0x[0-9a-f]+ [^`]+`)"),),
    facts=frozenset({"signal", "exception"}),
)

FORMAT = format_of(_LAYOUT, ("thread #", "frame #"), "lldb")
