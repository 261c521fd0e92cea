"""Stacks that backward-cpp prints from its signal handler, as ROS's nodes do: outermost frame first. Source: backward.hpp, `Printer`."""

from __future__ import annotations

import re

from crashkit.evidence.text.native_backtrace import Layout, format_of

_PC = r"(?P<pc>0x[0-9a-f]{1,16})"
_LEVEL = r"^#(?P<level>\d{1,4}) {1,4}"
_OBJECT = re.compile(rf'{_LEVEL}Object "(?P<module>[^"]{{0,1000}})", at {_PC}, in (?P<function>.{{0,4000}})$')
_SOURCE = re.compile(rf'{_LEVEL}Source "(?P<file>[^"]{{0,1000}})", line (?P<line>\d{{1,9}}), in (?P<function>.{{1,4000}}?)(?: \[{_PC}\])?$')

_LAYOUT = Layout(
    heads=(re.compile(r"^Stack trace \(most recent call last\)(?: in thread \d{1,10})?:$"),),
    frames=(_OBJECT, _SOURCE),
    between=re.compile(r"^ {4,10}\S|^ *$|^ {0,10}\d{1,7}: "),
    starts=(re.compile(r"^Stack trace \(most recent call last\)"), _OBJECT, _SOURCE),
    fewest=2,
    outermost_first=True,
)

FORMAT = format_of(_LAYOUT, ("Stack trace (most recent call", 'Object "', 'Source "'), "backtrace")
