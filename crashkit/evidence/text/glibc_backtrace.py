"""Backtraces by glibc's backtrace_symbols(): `lib(function+0x1f)[0x7f...]`. uWSGI, Open MPI, old glibc's "======= Backtrace", UCX."""

from __future__ import annotations

import re

from crashkit.evidence.text.native_backtrace import Layout, format_of

FRAME = re.compile(
    r"^ {0,12}(?:\[ {0,3}(?P<level>\d{1,5})\] {1,4}|#? {0,4}\d{1,5}[:.]? {1,4})?(?P<module>[^\s()\[\]]{1,1000})"
    r"(?:\((?P<function>[^()+]*)(?:\+(?P<offset>0x[0-9a-f]+))?\))? ?\[(?P<pc>0x[0-9a-f]+)\]$"
)
"""`/lib/libc.so.6(abort+0x12) [0x7f12]`, `[ 3] python(+0x5)[0x5]`, `/usr/bin/python[0x819c82e]`."""

_ITS_OWN = re.compile(r"^Backtrace:$")
"""libSegFault's."""

_LAYOUT = Layout(
    heads=(
        # Open MPI, opal/util/stacktrace.c
        re.compile(r"^\*\*\* Process received signal \*\*\*$"),
        re.compile(r"^Signal: (?P<text>[A-Za-z /]+?) \((?P<number>\d+)\)$"),
        re.compile(r"^Signal code: {1,3}(?P<code>\((?:128|0|-\d{1,2})\)$|[A-Z].*?(?= ?\(-?\d+\)$))?"),  # it has no words for some
        re.compile(r"^Failing at address: (?P<address>0x[0-9a-f]+|\(nil\))$"),
        # UCX, src/ucs/debug/debug.c
        re.compile(r"^Caught signal (?P<number>\d+) \((?P<text>[^:)]+)(?:: [^)]*?(?: at address (?P<address>0x[0-9a-f]+|\(nil\)))?)?\)?$"),
        # uWSGI, core/uwsgi.c
        re.compile(r"^!!! uWSGI process (?P<pid>\d+) got (?P<signal>Segmentation Fault) !!!$"),
        re.compile(r"^(?:uwsgi: )?\*\*\* backtrace of (?P<pid>\d+) \*\*\*$"),
        _ITS_OWN,
    ),
    frames=(
        FRAME,
        # Open MPI on i386 and ppc64le: the frame by which the kernel called the handler is in no file
        re.compile(r"^\[ {0,3}(?P<level>\d{1,5})\] {1,4}\[(?P<pc>0x[0-9a-f]+)\]$"),
        # UCX with debug information
        re.compile(r"^ *\d+ (?P<pc>0x[0-9a-f]+) (?P<function>[^\s()]+)\(\) +(?P<file>[^:]+):(?P<line>\d+)$"),
    ),
    between=re.compile(r"^(?:=+ ?[Bb]acktrace.*|=+|\*\*\* glibc detected .*|\*\*\* Error in .*|\*\*\* end of backtrace.*|)$"),
    end=re.compile(r"^(?:=+ Memory map: =+|\*\*\* End of error message \*\*\*)$"),
    starts=(
        re.compile(
            r"^\*\*\* Process received signal|^Signal: .*\(\d+\)$|^Caught signal \d+ \(|^!!! uWSGI process|^(?:uwsgi: )?\*\*\* backtrace of"
        ),
        re.compile(r"^=+ ?[Bb]acktrace"),
        _ITS_OWN,
        re.compile(r"^[^()]{1,1000}\([^()]{0,4000}\) ?\[0x[0-9a-f]+\]$"),
    ),
    fewest=2,
    by_handler=True,
)

FORMAT = format_of(
    _LAYOUT,
    ("Process received signal", "Signal: ", "Caught signal ", "uWSGI process ", "backtrace", "Backtrace", ")[0x", ") [0x"),
    "backtrace",
)
