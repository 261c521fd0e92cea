"""Text by systemd-coredump: its entry in the journal, and `coredumpctl info`."""

from __future__ import annotations

import re

from crashkit.evidence.text.native_backtrace import Layout, format_of

_FIELDS = (
    "PID|[UG]ID|Signal|Timestamp|Command Line|Executable|Control Group|(?:User )?Unit|Slice|Session|Owner UID|(?:Boot|Machine) ID|Hostname"
    "|Storage|Disk Size|Size on Disk|Message|Packages?|Coredump"
)
"""Its own (systemd's src/coredump/coredumpctl.c): another line with a colon may be what the process printed."""

_LAYOUT = Layout(
    heads=(
        re.compile(r"^ *PID: (?P<pid>\d+) \((?P<name>[^)]*)\)$"),
        re.compile(r"^ *Signal: (?P<number>\d+) \((?P<signal>[A-Z]+)\)$"),
        re.compile(r"^ *Executable: (?P<executable>/.*)$"),
        re.compile(r"^ *Command Line: (?P<command_line>\S.*)$"),
        # Up to systemd 233 without a state; of `none` and a path that is missing there is no core.
        re.compile(r"^ *(?:Storage|Coredump): (?P<stored_core>/\S+)(?: \((?:present|truncated|inaccessible)\)|$)"),
        re.compile(r"^ *Message: Process (?P<pid>\d+) \((?P<name>[^)]*)\) of user \d+ (?P<end>dumped core|terminated abnormally).*$"),
        # Its entry in the journal, which does not say where the core is.
        re.compile(r"^Process (?P<pid>(?P<core_of>\d+)) \((?P<name>[^)]*)\) of user \d+ (?P<end>dumped core).*$"),
        re.compile(r"^Process (?P<pid>\d+) \((?P<name>[^)]*)\) of user \d+ (?P<end>terminated abnormally).*$"),
    ),
    frames=(
        re.compile(
            r"^ *#(?P<level>\d+) +(?P<pc>0x[0-9a-f]+) (?P<function>\S.*?) \((?P<module>[^\s()]+)(?: \+ (?P<offset>0x[0-9a-f]+))?\)$"
        ),
    ),
    threads=(re.compile(r"^ *Stack trace of thread (?P<tid>\d+):$"),),
    between=re.compile(rf"^ *(?:|(?:Module|Found module) .*|ELF object binary architecture: .*|(?:{_FIELDS}): .*)$"),
    starts=(
        re.compile(r"^ *(?:PID: \d+ \(|(?:Message: )?Process \d+ \([^)]*\) of user \d+ |Stack trace of thread \d+:$)"),
        re.compile(r"^ *#0 +0x[0-9a-f]+ \S.*? \([^\s()]+ \+ 0x[0-9a-f]+\)$"),
    ),
    facts=frozenset({"signal", "number", "end"}),
    fewest=1,
)

FORMAT = format_of(_LAYOUT, ("PID: ", "of user ", "Stack trace of thread ", "#0  "), "coredumpctl")
