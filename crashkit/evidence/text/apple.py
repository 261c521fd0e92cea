"""Crash reports of macOS as text: what the Console shows and people post. `ips` makes it of the JSON in a file."""

from __future__ import annotations

import re

from crashkit.evidence.text.native_backtrace import Layout, format_of

_LAYOUT = Layout(
    heads=(
        re.compile(r"^Process: +(?P<name>\S.{0,200}?) \[(?P<pid>\d+)\]$"),
        re.compile(r"^Crashed Thread: +(?P<thread>\d+)"),
        re.compile(r"^Exception Type: +(?P<exception>EXC_\w+)(?: \((?P<signal>SIG[A-Z]+)\))?"),
        re.compile(r"^Exception: +(?P<exception>EXC_\w+) \(0x(?P<exception_code>[0-9a-f]{4})\)$"),  # until 10.5
        re.compile(r"^Codes: +(?P<reason>KERN_\w+) \(0x[0-9a-f]{4}\) at (?P<address>0x[0-9a-f]+)$"),
        re.compile(r"^Exception (?:Codes|Subtype): +(?P<reason>KERN_\w+|EXC_\w+)(?: at (?P<address>0x[0-9a-f]+))?"),
        re.compile(r"^Termination (?:Reason|Signal): +(?P<termination>.+)$"),
        re.compile(r"^Code Type: +(?P<architecture>\S+)"),
        re.compile(r"^Path: +(?P<executable>/.+)$"),
    ),
    frames=(
        re.compile(
            r"^(?P<level>\d+) +(?P<module>\S.*?) +(?P<pc>0x[0-9a-f]+) (?P<function>.+?)"
            r"(?: \+ (?P<plus>\d{1,18}))?(?: \((?P<file>[^():]+):(?P<line>\d+)\))?$"
        ),
    ),
    threads=(
        re.compile(
            r"^Thread (?P<index>\d+)(?: name: *(?P<name>.*?))?(?P<crashed> Crashed)(?:::? *(?:Dispatch queue: )?(?P<name2>.*?))?:?$"
        ),
        re.compile(r"^Thread (?P<index>\d+)(?:::? *(?:Dispatch queue: )?(?P<name>.*?))?:?$"),
    ),
    between=re.compile(
        r"^(?:|-+|Translated Report.*|[A-Z][\w /]+: .*|abort\(\) called|Application Specific Information:|.*__TEXT .*|-->.*|VM Region.*)$"
    ),
    end=re.compile(r"^(?:Binary Images:|Thread \d+ crashed with .*|External Modification Summary:)"),
    starts=(re.compile(r"^(?:Process: +\S.{0,200} \[\d+\]|Exception(?: Type)?: +EXC_\w+|Crashed Thread: +\d+|Thread \d+ Crashed)"),),
    facts=frozenset({"signal", "exception"}),
    of_process=True,
)

_BARE_FRAME = re.compile(r"^(?P<level>\d{1,4}) +(?P<module>\S.{0,80}?) +(?P<pc>0x[0-9a-f]{16}) (?P<function>\S.*?) \+ (?P<plus>\d+)$")
"""As backtrace_symbols() writes it (`%-4d%-35s 0x%016lx %s + %lu`, Apple's Libc, gen/backtrace.c), with the level that it has there."""
_BARE = Layout(heads=(), frames=(_BARE_FRAME,), starts=(_BARE_FRAME,), fewest=3)

FORMATS = (
    format_of(_LAYOUT, ("Process: ", "Exception Type: ", "Exception: ", "Crashed Thread: ", " Crashed"), "apple"),
    # What LLVM, Objective-C ("First throw call stack") and other runtimes print, or what is pasted of a report without its head.
    format_of(_BARE, (" 0x0000",), "apple-frames", classifies_opener=False),
)
