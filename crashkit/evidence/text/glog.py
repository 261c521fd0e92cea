"""Stacks by glog's and absl's failure handlers (TensorFlow, Caffe, JAX, Ray), and by Paddle's."""

from __future__ import annotations

import re

from crashkit.evidence.text.native_backtrace import Layout, format_of

_SIGNAL = re.compile(
    r"^(?:\[SignalInfo: )?\*\*\* (?P<signal>SIG(?!TERM)[A-Z]+) (?:\(@(?P<address>0x[0-9a-f]+|\(nil\))\)(?:, see \S{1,100})? )?"
    r"received by PID (?P<pid>\d+)"
)

_GLOG = Layout(
    heads=(
        _SIGNAL,
        re.compile(r"^\*\*\* Check failure stack trace: \*\*\*$"),
        re.compile(r"^\*\*\* Aborted at \d+ \(unix time\)"),
        re.compile(r"^(?:FatalError|Fatal error): [`'](?P<signal>[A-Z][a-z ]+)[`'] is detected by the operating system"),
        re.compile(r"^PC: @ +(?P<fault_pc>0x[0-9a-f]+) "),
    ),
    # glog: address and name; absl: also the size of the stack frame.
    frames=(re.compile(r"^ *@ +(?P<pc>0x[0-9a-f]+) +(?:\d+ +)?(?P<function>\S.*)$"),),
    by_handler=True,
    between=re.compile(r"^(?:PC: @.*| *\.\.\. and at least .*|\[TimeInfo: .*|)$"),
    starts=(
        _SIGNAL,
        re.compile(r"^\*\*\* Check failure stack trace|^\*\*\* Aborted at \d+ \(unix time\)|^(?:FatalError|Fatal error): [`']"),
    ),
)

_PADDLE = Layout(
    heads=(re.compile(r"^C\+\+ Traceback \(most recent call last\):$"), *_GLOG.heads),
    frames=(re.compile(r"^(?P<level_>\d+) +(?P<function>[A-Za-z_][\w:~<>, *&()\[\].]*)$"),),
    between=re.compile(r"^(?:-+|No stack trace in paddle.*|Error Message Summary:|\[TimeInfo: .*|)$"),
    starts=(re.compile(r"^C\+\+ Traceback \(most recent call last\):$"),),
    outermost_first=True,
)

_FRAMES = Layout(heads=(), frames=_GLOG.frames, between=_GLOG.between, starts=(re.compile(r"^ *@ {5,12}0x[0-9a-f]+ +\S"),), fewest=2)
"""What is left where the head was cut off."""

FORMATS = (
    format_of(
        _GLOG,
        ("received by PID", "Check failure stack trace", "(unix time)", "is detected by the operating system"),
        "backtrace",
    ),
    format_of(_PADDLE, ("C++ Traceback (most recent call",), "backtrace"),
    format_of(_FRAMES, ("@     ",), "backtrace"),
)
