"""The codes with which Windows ends a process (windows_codes.toml), as patterns of log lines, in whatever notation. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple, Optional

import msgspec

# Where a code is a code without its `0x`: Windows Error Reporting, its .wer files and events, WinDbg.
_LABEL = (
    r"(?:xception[ _]?[Cc]ode[\"']? {0,8}[:=]? {0,20}[\"']?|\.Value=|- code |FAILURE_BUCKET_ID: .{0,200}_"
    r"|P7:  {0,4}|P8:  {0,4}|P9:  {0,4})"
)
_FIELD = {"windows-exception": "message", "windows-exit": "status"}


class _Code(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    value: int
    kind: str
    signal: Optional[str] = None


class _Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    code: tuple[_Code, ...]


class Written(NamedTuple):
    """A pattern for one code, the kind of such a line, and the signal that it tells of."""

    kind: str
    pattern: str
    signal: Optional[str]


@cache
def patterns() -> tuple[Written, ...]:
    """In the order of the table."""
    table = msgspec.toml.decode(Path(__file__).with_name("windows_codes.toml").read_bytes(), type=_Table)
    return tuple(Written(code.kind, pattern, code.signal) for code in table.code for pattern in _patterns(code))


def _patterns(code: _Code) -> Iterator[str]:
    """As a number with and without a sign, and in hexadecimal; the Java virtual machine's report tells more than the code in it."""
    upper = f"{code.value:08X}"
    spelt = dict.fromkeys((upper, upper.lower(), upper[0] + upper[1:].lower(), upper[0].lower() + upper[1:]))
    signed = rf"|-{(1 << 32) - code.value}" if code.value >> 31 else ""
    found = [rf"(?<![\d.])(?:{code.value}{signed})(?!\d|\.\d)"]
    # Each by itself: of alternatives that begin alike, no longer text would be known by which to find the line.
    found += [rf"0x{digits}(?![0-9A-Za-z]|\) at pc=)" for digits in spelt]
    found.append(rf"{_LABEL}(?:{'|'.join(spelt)})(?![0-9A-Za-z])")
    name = _FIELD.get(code.kind)
    for pattern in found:
        yield f"(?P<{name}>{pattern})" if name else pattern
