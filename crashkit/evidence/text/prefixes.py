"""Removes what log carriers add to a line: colour, timestamps, ranks, pod names."""

from __future__ import annotations

import re

import msgspec

_ESCAPES = re.compile(
    r"\x1b\[[0-9;:?]*[ -/]*[@-~]"  # CSI: colours, cursor
    r"|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)"  # OSC: titles, links
    r"|\x1b[@-Z\\^_]"
)
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\x80-\x9f]")

# Each takes one layer off the front of a line; `who` is the process that wrote the line.
# What is indented is so by an even number of spaces: an odd one is the carrier's.
_SPACE = r"(?: (?=(?:  )*(?:[^ ]|$)))?"
_LAYERS = tuple(
    re.compile(pattern)
    for pattern in (
        r"\ufeff",
        # docker -t, kubectl, GitHub Actions, the container runtime interface
        r"(?:\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?) (?:(?:stdout|stderr) [FP] )?",
        r"[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \S+ (?:kernel: |(?P<who>[\w./-]+(?:\[\d+\])?): )",  # syslog, journalctl
        r"\[[ \d]{4,}\.\d{6}\] ?",  # dmesg
        r"##\[(?:error|warning|debug)\]",
        r"\[(?P<who>(?:rank|default)\d+)\]:?" + _SPACE,  # torch's exception hook, torchrun --tee
        r"\[(?P<who>\d+(?:,\d+)?)\](?:<std(?:out|err)>)?:" + _SPACE,  # torchrun, mpirun --tag-output
        r"\[(?P<who>(?:pod/)?[\w.-]+/[\w.-]+)\] ",  # kubectl --prefix
        r"(?P<who>[\w.-]+-\d+) +\| ?",  # docker compose
        r"(?P<who>\d{1,5}): (?=\S|  File)",  # srun --label
        r"\((?P<who>[\w.]+ (?:pid=)?\d+(?:, ip=[\d.]+)?)\) ",  # ray, vLLM workers
    )
)
_MOST_LAYERS = 8


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
    if text.isascii() and text.isprintable():
        return text
    if "\x1b" in text:
        text = _ESCAPES.sub("", text)
    return _CONTROLS.sub("", text.replace("\t", "    "))


def strip(text: str) -> tuple[str, str]:
    """The process that wrote the line (empty if unknown), and the line without its prefixes."""
    who = ""
    start = 0
    for _ in range(_MOST_LAYERS):
        found = next((match for layer in _LAYERS if (match := layer.match(text, start)) and match.end() > start), None)
        if found is None:
            break
        name = found.groupdict().get("who")
        if name:
            who = f"{who} {name}".strip()
        start = found.end()
    return who, text[start:]


def _unwrap(raw: bytes) -> bytes:
    try:
        return _docker.decode(raw).log.rstrip("\r\n").encode("utf-8", "replace")
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return raw
