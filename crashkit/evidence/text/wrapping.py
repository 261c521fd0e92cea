"""What loggers, exporters, editors and pages put around a line, or fold it into. Pure.

`prefixes` takes off what a carrier of logs adds, which tells the process; what is taken off here tells nothing, and may be a part of
the text: so a line is tried as it stands first.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Optional

import msgspec

from crashkit.evidence.text import ips
from crashkit.limits import LONGEST_LINE

_MOST_LAYERS = 8
_MOST_PIECES = 2000
_DEEPEST = 8
_LEVEL = (
    r"(?:TRACE|DEBUG|DEBG|INFO|NOTICE|WARN(?:ING)?|ERR(?:OR)?|CRIT(?:ICAL)?|FATAL|ALERT|SEVERE"
    r"|[Tt]race|[Dd]ebug|[Ii]nfo|[Nn]otice|[Ww]arn(?:ing)?|[Ee]rr(?:or)?|[Cc]ritical|[Ff]atal|stderr|stdout)"
)
_LOUD = r"(?:TRACE|DEBUG|INFO|NOTICE|WARN(?:ING)?|ERR(?:OR)?|CRIT(?:ICAL)?|FATAL|ALERT|SEVERE)"
_DATE = (
    r"(?:\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{1,2}[-/.]\d{1,2}[-/.]\d{2,4}|\d\d-\d\d"
    r"|(?:[A-Z][a-z]{2},? )?[A-Z][a-z]{2} [ \d]\d)(?:T|,? {1,2})"
)
_TIME = r"\d{1,2}:\d\d:\d\d(?:[.,:]\d{1,9})?(?: ?(?:Z|UTC|GMT|[AP]M|[+-]\d\d:?\d\d))?(?: \d{4}(?= ))?"
# What is indented is so by an even number of spaces: an odd one is the prefix's.
_GAP = r"(?:[:,]| [-\u2013|])?(?: (?=(?:  )*(?:[^ ]|$))| {2}(?=(?:  )*[^ ])|(?=[\[{|])|$)"
_STEP = r"(?: (?=(?:  )*(?:[^ ]|$))| {1,5}(?=\S)|(?=[\[{|])|$)"


def _any_of(*patterns: str) -> re.Pattern[str]:
    """The first of them that matches. One pattern: each line is tried with all."""
    return re.compile("|".join(f"(?:{pattern})" for pattern in patterns))


_LAYERS = _any_of(
    rf"(?:{_DATE})?{_TIME}{_GAP}",
    r"\[(?=[^\]]{0,60}[A-Za-z:/-])(?!\d{1,3}\] )[\w ./:@#,=+()-]{1,80}\](?=[ \[:({]) ?",  # a time, a level, a step, a place
    r"\{[\w.]{1,60}(?::\d{1,6})?\} (?:(?=\S)|$)",  # Airflow
    r"#\d{1,3} (?:\d{1,5}\.\d{1,3}|\[[^\]]{1,60}\]) ",  # docker build
    r"\d{1,5}\.\d{1,3} (?=\S|  )",
    r"\[ {0,8}\d{1,10}\.\d{6}\] ",  # dmesg
    r"\d\d[EO]\+? ",  # GitLab
    r"[IWE]\d{4,8} \d\d:\d\d:\d\d\.\d{6} {1,8}\d{1,10} [\w./-]{1,100}:\d{1,6}\] ",  # glog, absl
    r"<\d{1,3}>(?:1 )?",  # RFC 5424
    r"[a-z]{1,20}\[[\w.-]{1,30}\]: ",  # Heroku
    r"[A-Za-z][\w.-]{0,60} {1,20}\| ",  # docker compose without a number
    r"[a-z][a-z0-9]{0,40}(?:-[a-z0-9]{1,20}){1,6}-[a-z0-9]{5} [a-z][a-z0-9-]{0,40} (?=\S|  )",  # stern: pod and container
    r"kernel: ",
    r"(?:npm (?:ERR!|error)|yarn error) ",
    r"\d{1,3}\|\S{1,60} {0,20}\| ",  # pm2
    r"E {3}(?=\S| {2})",  # pytest
    r"\d{13}(?: {4}| )",  # CloudWatch
    r"[\w./-]{1,100}\.(?:log|txt|out|err):\d{1,7}[:-] ?",  # grep
    r"[a-z][a-z.-]{0,30}\d{1,4}: (?=[A-Z# ])",  # pdsh
    r"[^\d\s][^:]{0,80}? {3,8}(?=\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)",  # gh run view --log: job and step
    r"[|\u2502\u2551\u2503] ?",
    r"(?:[-+\u2022\u2013]|\*(?! ?thread #| \d| frame #)|\d{1,2}[.)]) (?=[^\s#*])",  # lists
    # A heading; not the Java virtual machine's report.
    r"#{2,6} (?=[^\s#])|# (?!A fatal|JRE |Java|Problematic|Core dump|If you|The crash|No core|An error|Failed|[CVJ] )(?=[A-Z`\"'*])",
    r"(?<!\*)\*{1,2}(?=[\w\"'`=\[])|(?<!_)__(?=[A-Z])(?!GI_)",
    r"`{1,3}(?=\S)",
    r"b?[\"'](?=[\w#=*\[])",
    r"<(?:p|pre|code|div|span|li|b|strong|em|td)\b[^<>]{0,80}>",
)
_LOGGERS = _any_of(
    rf"[\[(<] ?{_LEVEL} ?[\])>]:?{_STEP}",
    rf"{_LEVEL}:[\w.]{{1,60}}:(?=\S|  |$)",
    rf"{_LEVEL}(?: {{0,10}}[:|-])(?! ?\w{{1,20}}Sanitizer){_STEP}",
    rf"{_LOUD} {{1,6}}(?=\S)",
)
"""What a program puts before its own messages: a single word behind it is none of a shell's."""
_AFTER_OTHERS = _any_of(
    r"[\w.-]{1,60}(?::[\w.<>]{1,60}){0,2} - (?=\S| {2})",
    r"\[\d{1,10}\]:? ",
    r"\d{1,7} {1,5}\d{1,7} [VDIWEF] [^:]{1,40}: ",  # Android
    r"[\w.-]{1,60} [\w.-]{1,60} (?:\d{1,10}|-) (?:[\w-]{1,40}|-) - ",  # RFC 5424
    r"-\s",
)
_TAIL = " `*|\u2502\u2551\u2503\"',.;\\"
_TAGS = ("<br>", "<br/>", "<br />", "</p>", "</pre>", "</code>", "</div>", "</span>", "</li>", "</b>", "</strong>", "</em>", "</td>", "\\n")
_BARE_WORDS = frozenset({"Aborted", "Killed", "Terminated"})


_QUOTED = re.compile(r"\\([#_*`<>\[\]()~|])")
"""A mark of Markdown that an editor, or a bug tracker that was moved, has taken for text."""


def _unmarked(text: str) -> str:
    """The line without the backslashes of Markdown; one of Windows' paths keeps its own."""
    return _QUOTED.sub(r"\1", text) if "\\" in text and _DRIVE.search(text) is None else text


def views(text: str) -> Iterator[str]:
    """The line, then without one layer of its wrapping after the other, at last without what stands behind it."""
    yield text
    text = _unmarked(text).lstrip(" ")
    yield text
    start, of_a_logger = 0, False
    for start, of_a_logger in _stripped(text):
        if not (of_a_logger and text[start:].strip() in _BARE_WORDS):
            yield text[start:]
    bare = text[start:]
    shorter = _without_tail(bare)
    if shorter != bare and not (of_a_logger and shorter in _BARE_WORDS):
        yield shorter


def bare(text: str) -> str:
    """The line without all that stands before it: its indentation is its own."""
    text = _unmarked(text)
    start = max((start for start, _ in _stripped(text)), default=0)
    return text[start:].removesuffix("<br>").removesuffix("<br/>").rstrip(" ")


def _stripped(text: str) -> Iterator[tuple[int, bool]]:
    """Where the text begins without one more layer, and whether a logger wrote one of them."""
    start, of_a_logger = 0, False
    for _ in range(_MOST_LAYERS):
        # A line may be indented as a whole, by a code block.
        at = start or len(text) - len(text.lstrip(" "))
        end = _layer(text, at, _LOGGERS)
        of_a_logger = of_a_logger or end > 0
        end = end or _layer(text, at, _LAYERS) or (_layer(text, at, _AFTER_OTHERS) if start else 0)
        if not end:
            return
        start = end
        yield start, of_a_logger


def _layer(text: str, start: int, layers: re.Pattern[str]) -> int:
    """Where the first layer from `start` on ends; 0 if there is none."""
    match = layers.match(text, start)
    return match.end() if match is not None and match.end() > start else 0


def _without_tail(text: str) -> str:
    while True:
        shorter = text.rstrip(_TAIL)
        tag = next((tag for tag in _TAGS if shorter.endswith(tag)), "")
        if not tag:
            return shorter
        text = shorter[: -len(tag)]


_ESCAPED = re.compile(r"(?:(?<!\\)\\r)?(?<!\\)\\n")
_DRIVE = re.compile(r"(?<![A-Za-z])[A-Za-z]:\\(?!\\)")
_OPENS = re.compile(r"""^\s*(?:"[^"]{1,80}"\s?:\s?)?(?:[\w.\]\[ ]{1,60}[:=] ?)?b?["']""")
_VALUE = re.compile(r'\b(?:msg|message|error|err|line|log|text)="(?P<text>(?:[^"\\]|\\.)*)"')
"""Of logfmt."""
_JOINED = re.compile(r"(?<=\S) {1,4}(?=terminate called (?:after|without) |what\(\): )")
"""Where the lines of one message were joined."""
_SHORTHAND = {"\\t": "    ", '\\"': '"', "\\'": "'", "\\\\": "\\"}
_BACKSLASHED = re.compile(r"""\\[t"'\\]""")


def unfold(text: str) -> tuple[str, ...]:
    """The lines within a line of JSON, or within a string whose line ends are escaped; none of any other line."""
    if report := ips.parts(text):
        return report
    stripped = text.strip().rstrip(",")
    if stripped[:1] in ("{", "[") and stripped[-1:] in ("}", "]") and len(stripped) < LONGEST_LINE:
        try:
            value = msgspec.json.decode(stripped.encode("utf-8", "replace"))
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            value = None
        if isinstance(value, (dict, list)):
            return tuple(line.replace("\t", "    ") for string in _strings(value, 0) for line in string.splitlines())[:_MOST_PIECES]
    if _JOINED.search(text):
        return tuple(_JOINED.split(text))
    if value := _VALUE.search(text):
        return _unescaped(value["text"])
    if _ESCAPED.search(text) is None or _DRIVE.search(text) is not None:
        return ()
    start = _OPENS.match(text)
    return _unescaped(text[start.end() :] if start else text)


def escaped(text: str) -> Optional[str]:
    """The text as JSON writes it in ASCII; None if that is the same."""
    return None if text.isascii() else json.dumps(text)[1:-1]


def _unescaped(text: str) -> tuple[str, ...]:
    pieces = _ESCAPED.split(text)[:_MOST_PIECES]
    return tuple(_BACKSLASHED.sub(lambda match: _SHORTHAND[match[0]], piece) for piece in pieces)


def _strings(value: Any, depth: int) -> Iterator[str]:
    """What a value of JSON holds of text, in order."""
    if isinstance(value, str):
        yield value
    elif depth < _DEEPEST and isinstance(value, (dict, list)):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _strings(inner, depth + 1)
