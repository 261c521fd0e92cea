"""The codes with which Windows ends a process (windows_codes.toml), as patterns of log lines, in whatever notation. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple, Optional

import msgspec

from crashkit.own_tables import own_table
from crashkit.prepared import prepared

# Where a code is a code without its `0x`: Windows Error Reporting, its .wer files and events, WinDbg.
_LABEL = (
    r"(?:xception(?:[ _]?[Cc]ode)?[\"']? {0,8}[:=]? {0,20}[\"']?|\.Value=|- code |FAILURE_BUCKET_ID: .{0,200}_"
    r"|P7:  {0,4}|P8:  {0,4}|P9:  {0,4})"
)
# What stands before the code of an end: 2147483651 and 0x80000003 alone are also numbers of bytes, leaves of CPUID, addresses.
_END = (
    r"(?:[Ee]xit|EXIT|[Cc]ode|CODE|[Ss]tatus|STATUS|[Rr]eturn|RETURN|[Ee]rror|ERROR|[Ee]xception|EXCEPTION|[Ff]ehler|[Kk]od\b"
    r"|[Cc]ódigo|[Cc]odice|[Кк]од|码|碼|コード|코드|异常|異常|错误|錯誤|返回"
    r"|[Rr]ückgabe|\brc(?==)|(?:[Cc]rashed|[Dd]ied|[Tt]erminated|[Ff]ailed) with)"
)
_FILL = (
    r"\w{0,12}[^\w\s]{0,4}"
    r"(?:(?: {1,8}|_)(?:was|is|of|value|code|status|number|with|level|unexpectedly|abnormally|non-?zero|decimal)\b[^\w\s]{0,4}){0,3}"
    r"[ :=#(\[\"'`,]{0,12}"
)
_NO_UNIT = r"(?! {0,2}(?:[KMGT]i?B|[Bb]ytes?|tokens?|rows?|items?|records?|[mun]?s)\b)"
_FIELD = {"windows-exception": "message", "windows-exit": "status"}


class _Code(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    value: int
    kind: str
    signal: Optional[str] = None
    ambiguous: bool = False
    """Whether its hexadecimal notation is that of other numbers, too."""


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
    table = msgspec.convert(own_table(Path(__file__).with_name("windows_codes.toml")), prepared(_Table))
    return tuple(Written(code.kind, pattern, code.signal) for code in table.code for pattern in _patterns(code))


@cache
def posted_patterns() -> tuple[Written, ...]:
    """For short texts, besides `patterns`: bare digits behind whatever a language of Windows calls them, or in an event's XML, and a number
    before the word for it."""
    table = msgspec.convert(own_table(Path(__file__).with_name("windows_codes.toml")), prepared(_Table))
    return tuple(
        Written(code.kind, pattern, code.signal)
        for code in table.code
        if not code.ambiguous
        for pattern in (
            rf"(?:^[^:=：]{{3,60}} ?[:=：]|<Data>) {{0,40}}{_named(code, f'{code.value:08X}')}(?:<|\.?$)",
            rf"(?<![\d.]){_named(code, str(code.value))}(?!\d|\.\d){_NO_UNIT}.{{0,40}}(?:[Ee]xit ?[Cc]ode|[Ee]xit status|return ?code)",
        )
    )


def _patterns(code: _Code) -> Iterator[str]:
    """As a number with and without a sign, and in hexadecimal; the Java virtual machine's report tells more than the code in it."""
    upper = f"{code.value:08X}"
    spelt = dict.fromkeys((upper, upper.lower(), upper[0] + upper[1:].lower(), upper[0].lower() + upper[1:]))
    number = _named(code, str(code.value))
    if code.value >> 31:
        yield rf"(?<![\d.]){_named(code, f'-{(1 << 32) - code.value}')}(?!\d|\.\d)"
    yield rf"{_END}{_FILL}(?<![\d.]){number}(?!\d|\.\d){_NO_UNIT}"
    yield rf"^ {{0,8}}{number}\.?$"
    # Each by itself: of alternatives that begin alike, no longer text would be known by which to find the line.
    before = rf"{_END}(?:(?!HRESULT).){{0,80}}?" if code.ambiguous else ""
    for digits in spelt:
        yield rf"{before}{_named(code, f'0x{digits}')}(?![0-9A-Za-z]|\) at pc=)"
    yield _named(code, rf"{_LABEL}(?:{'|'.join(spelt)})(?![0-9A-Za-z])")


def _named(code: _Code, pattern: str) -> str:
    """As the field of such lines."""
    name = _FIELD.get(code.kind)
    return f"(?P<{name}>{pattern})" if name else pattern
