"""Fatal errors of the Java virtual machine: what it prints on stderr, and hs_err_pid*.log (HotSpot, vmError.cpp)."""

from __future__ import annotations

import re

from crashkit.evidence.text.native_backtrace import Layout, format_of

_FRAME = r"(?P<kind>[CVJjvA])  ?\[(?P<module>[^\]+]+)(?:\+(?P<offset>0x[0-9a-f]+))?\](?:  ?(?P<function>\S.*?)(?:\+0x[0-9a-f]+)?)?$"

_LAYOUT = Layout(
    heads=(
        re.compile(r"^# A fatal error has been detected by the Java Runtime Environment:$"),
        re.compile(
            r"^# +(?P<signal>SIG[A-Z]+|EXCEPTION_\w+|Internal Error)(?: \(0x[0-9a-f]+\))?"
            r" at pc=(?P<pc>0x[0-9a-f]+), pid=(?P<pid>\d+), tid=(?P<tid>\w+)"
        ),
        re.compile(r"^# Problematic frame:$"),
        re.compile(r"^# (?P<problem>[CVJjvA]  ?\[[^\]]+\].*)$"),
        re.compile(r"^# (?P<file>/\S*hs_err_pid\d+\.log)$"),
    ),
    frames=(re.compile("^" + _FRAME), re.compile(r"^[jJvA]  (?P<function>\S.*?)(?:\+\d+(?: [\w.@]+)?)?$")),
    between=re.compile(r"^(?:#.*|Native frames: .*|Java frames: .*|Stack: .*|Current thread.*|-+ .*|)$"),
    end=re.compile(r"^(?:Registers:|Register to memory mapping:|Java frames: .*)"),
    starts=(re.compile(r"^# A fatal error has been detected by the Java Runtime Environment"), re.compile(r"^Native frames: ")),
    kind="jvm",
    facts=frozenset({"signal"}),
)

FORMAT = format_of(_LAYOUT, ("Java Runtime Environment", "Native frames: "), "jvm")
