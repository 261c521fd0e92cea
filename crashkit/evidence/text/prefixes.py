"""Removes what log carriers add to a line: colour, timestamps, ranks, pod names."""

from __future__ import annotations

import datetime
import html
import re
from contextlib import suppress
from typing import NamedTuple, Optional

import msgspec

_ESCAPES = re.compile(
    r"\x1b\[[0-9;:?]*[ -/]*[@-~]"  # CSI: colours, cursor
    r"|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)"  # OSC: titles, links
    r"|\x1b[ -/]{1,4}[0-~]"  # character sets
    r"|\x1b[@-Z\\^_]"
    r"|(?:\^\[|\u241b|\\033|\\x1b|\\u001b)\[[0-9;]{0,12}[mK]"  # as an editor shows them
    r"|\[(?:0|[01];[349]\d|[349]\d|1)m(?!\d)"  # without the character that a paste loses
)
_COLOURED = re.compile(r"\x1b|\[[0-9;]{0,12}[mK]")
_ENTITY = re.compile(r"&(?:lt|gt|quot|amp|apos|nbsp|#39|#x27);")
_SPACES = {0xA0: " ", 0x2007: " ", 0x202F: " ", 0x3000: " ", 0x200B: None, 0x200C: None, 0x2060: None}
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\x80-\x9f]")

# Each takes one layer off the front of a line; `who` is the process that wrote the line.
# What is indented is so by an even number of spaces: an odd one is the carrier's.
_SPACE = r"(?: (?=(?:  )*(?:[^ ]|$)))?"
_LAYERS = tuple(
    re.compile(pattern)
    for pattern in (
        r"\ufeff",
        r">{1,2}(?: |$)",  # quoted in a mail or a comment; not Python's prompt
        # docker -t, kubectl, GitHub Actions, the container runtime interface
        r"(?P<when>\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?)"
        # journalctl -o short-iso: the host and the unit follow
        r"(?: (?:(?:stdout|stderr) [FP] )?(?![\w.-]+ (?:kernel|systemd|[\w./@-]+\[\d+\]): )"
        r"| [\w.-]+ (?:kernel: |(?P<who>systemd|[\w./@-]+\[\d+\]): ))",
        r"[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \S+ (?:kernel: |(?P<who>[\w./-]+(?:\[\d+\])?): )",  # syslog, journalctl
        r"\[[ \d]{4,}\.\d{6}\] ?",  # dmesg
        r"##\[(?:error|warning|debug)\]",
        r"\[(?P<who>(?:rank|default)\d+)\]:?" + _SPACE,  # torch's exception hook, torchrun --tee
        r"(?P<who>\d{1,3}(?:\.\d{1,3}){3} \[\d{1,5}\]) ",  # torch_xla's xla_dist: host and worker
        r"\[(?P<who>\d+(?:,\d+)?)\](?:<std(?:out|err)>)?:" + _SPACE,  # torchrun, mpirun --tag-output
        r"\[(?P<who>(?:pod/)?[\w.-]+/[\w.-]+)\] ",  # kubectl --prefix
        r"\[(?P<who>[A-Za-z][\w.-]*:\d{2,8}(?::\d+:\d+)?)\]" + _SPACE,  # Open MPI's and UCX's signal handlers
        r"(?:\d\d:\d\d:\d\d )?(?P<who>[A-Za-z][\w.-]{0,100}[-_.]\d{1,6}) +\| ?",  # docker compose, old and new; honcho
        r"\[(?P<who>[a-z][\w.-]{0,60})\] *\| ?",  # podman-compose
        r"\[(?P<who>gw\d+)\] (?!node down|\[ *\d)",  # pytest-xdist; what it says of a worker is not the worker's
        r"(?P<who>\d{1,5}): (?=\S| {2,4}(?:File|#|at |by |what\(\)|\S{1,200} \([^\s()]{1,200}:\d{1,9}\)$))",  # srun --label
        r"\((?P<who>[\w.]+ (?:pid=)?\d+(?:, ip=[\d.]+)?)\) ",  # ray, vLLM workers
    )
)
_LINKED_NUMBER = re.compile(r"\[(\d{1,9})\]\(https?://[^\s()]{1,400}#step:\d{1,9}:\d{1,9}\)")
"""A number in a log of GitHub Actions that was copied from the page, where it is a link to a line: `ld-linux-x[8](https://...#step:10:9)6`."""
_MOST_LAYERS = 8
_PID = re.compile(r"\[(\d{1,9})\]$|\bpid=(\d{1,9})\b")
_RANK = re.compile(r"(?:rank|default)?\d+(?:,\d+)?")
_ZONED = re.compile(r"(\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d)(?:[.,]\d+)?(Z|[+-]\d\d:?\d\d)")


class _DockerLine(msgspec.Struct):
    """A line of docker's json-file log driver."""

    log: str


_docker = msgspec.json.Decoder(_DockerLine)


def clean(raw: bytes) -> str:
    """The line as text, without colour and control characters; for a progress bar, its last state."""
    raw = raw.rstrip(b"\r\n")
    if raw.startswith(b'{"log":'):
        raw = _unwrap(raw)
    if b"\r" in raw:
        raw = raw[raw.rfind(b"\r") + 1 :]
    text = raw.decode("utf-8", "replace")
    if "&" in text and _ENTITY.search(text):
        text = html.unescape(text)
    if "#step:" in text:
        text = _LINKED_NUMBER.sub(r"\1", text)
    if not text.isascii():
        text = text.translate(_SPACES)
    if _COLOURED.search(text):
        text = _ESCAPES.sub("", text)
    if text.isprintable():
        return text
    return _CONTROLS.sub("", text.replace("\t", "    "))


class Prefixed(NamedTuple):
    """A line and what stood before it."""

    who: str
    """The process that wrote it; empty if unknown."""
    when: Optional[float]
    """Seconds since the epoch; None without a time, or where its zone is not told."""
    text: str


def strip(text: str) -> tuple[str, str]:
    """The process that wrote the line (empty if unknown), and the line without its prefixes."""
    found = split(text)
    return found.who, found.text


def split(text: str) -> Prefixed:
    """The line without its prefixes, and what they told."""
    who, when = "", None
    start = 0
    for _ in range(_MOST_LAYERS):
        found = next((match for layer in _LAYERS if (match := layer.match(text, start)) and match.end() > start), None)
        if found is None:
            break
        told = found.groupdict()
        if told.get("who"):
            who = f"{who} {told['who']}".strip()
        when = when or _seconds(told.get("when"))
        start = found.end()
    return Prefixed(who, when, text[start:])


def pid_of(who: str) -> Optional[int]:
    """The process id in the name of a process, as journals and ray write it: `python[811]`, `EngineCore pid=811`; None without one."""
    match = _PID.search(who)
    return int(match[1] or match[2]) if match else None


def is_of_a_job(who: str) -> bool:
    """Whether the name is a rank's: the processes of one job end together."""
    return all(_RANK.fullmatch(part) for part in who.split())


def _seconds(text: Optional[str]) -> Optional[float]:
    match = _ZONED.fullmatch(text or "")
    if match is None:
        return None
    zone = "+00:00" if match[2] == "Z" else f"{match[2][:3]}:{match[2][-2:]}"
    with suppress(ValueError):
        return datetime.datetime.fromisoformat(f"{match[1]}{zone}").timestamp()
    return None


def _unwrap(raw: bytes) -> bytes:
    try:
        return _docker.decode(raw).log.rstrip("\r\n").encode("utf-8", "replace")
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return raw
