"""How messages read: one line for what happened, without a full stop; one sentence, or a command, for what to try; in plain English."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import crashkit
from crashkit.diagnose.catalog import load_catalog

ROOT = Path(crashkit.__file__).parent
RAISED = {"CrashkitError", "EvidenceError", "DebuggerError", "CollectError", "CatalogError", "HistoryError"}
"""Each is raised with a message and a hint; so is what the methods below report."""
REPORTED = {"_problem", "_error"}
UNKNOWN = "\0"
"""What is only known when the message is made."""
STARTS = re.compile(rf"[A-Z{UNKNOWN}]|crashkit |gdb |(?:pip|apt-get|chmod) ")
"""Sentences begin with a capital letter, commands with themselves."""
ENDS = re.compile(rf"[.{UNKNOWN}]$|: (?:crashkit|dask|cat|Pass|pip) [^.]*$")
"""A sentence ends with a full stop, unless a command to copy stands at its end."""

ODD = {
    r"(?<!there )\bis no (?!longer\b|such\b)": "is not a",
    r"\b(?:was|were) not asked\b": "was not run",
    r"\bleave \S+ away\b": "omit",
    r"\bfor ever\b": "forever",
    r"\bin a circle\b": "in a cycle",
    r"\b(?:it|that|who|which|where \w+) (?:stands?|stood)\b": "is, was",
    r"\btells? of\b": "reports, mentions",
    r"\b(?:is|are|was|were|be) looked at\b": "is examined",
    r"\b(?:goes|went|go) on\b": "continues",
    r"\bbehind (?:the|its) (?:end|start)\b": "past the end",
    r"\bmend(?:s|ed)?\b": "fixed",
    r"\bwhoever\b|\bwhosever\b": "name who it is",
}
"""Phrases that a native speaker would not write, and what to write. CONTRIBUTING.md has the terms."""


def shown(node: ast.AST) -> Iterator[str]:
    """The texts that an expression may stand for; what they are compared with or contain is none."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.JoinedStr):
        yield "".join(str(part.value) if isinstance(part, ast.Constant) else UNKNOWN for part in node.values)
    elif isinstance(node, ast.IfExp):
        yield from shown(node.body)
        yield from shown(node.orelse)
    elif isinstance(node, ast.BoolOp):
        for value in node.values:
            yield from shown(value)


def called(call: ast.Call) -> str:
    return call.func.id if isinstance(call.func, ast.Name) else call.func.attr if isinstance(call.func, ast.Attribute) else ""


def written() -> Iterator[tuple[str, str, str]]:
    """Place, kind and text of each message and hint in crashkit's source."""
    for path in sorted(ROOT.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call):
                continue
            of = {word.arg: word.value for word in node.keywords}
            if called(node) in RAISED | REPORTED:
                of |= dict(zip(("message", "hint"), node.args, strict=False))
            for kind in ("message", "hint", "help"):
                for text in shown(of[kind]) if kind in of else ():
                    yield f"{path.relative_to(ROOT)}:{node.lineno}", kind, text


def explained() -> Iterator[tuple[str, str, str]]:
    """Signature, kind and text of all that a finding may say."""
    for signature in load_catalog().signatures:
        steps = [one.text for one in (*signature.fixes, *signature.steps)]
        for text in (signature.title, signature.cause, *signature.summary, *steps, *signature.notes):
            yield signature.id, "finding", text


def odd(text: str) -> list[str]:
    """What to write instead."""
    return [better for phrase, better in ODD.items() if re.search(phrase, text, re.IGNORECASE)]


def wrong(kind: str, text: str) -> bool:
    if kind == "help":
        return not text.endswith((".", "]"))
    if kind == "message":
        return text.endswith(".") or text[:1].isspace()
    return not STARTS.match(text) or not ENDS.search(text)


def test_messages_and_hints_read_alike() -> None:
    """A message goes before a colon or in front of its hint, so it has no full stop; a hint is a sentence or a command."""
    found = list(written())
    assert sum(kind == "hint" for _, kind, _ in found) > 100 and len(found) > 250
    assert not [one for one in found if wrong(*one[1:])]


def test_messages_and_findings_are_in_plain_english() -> None:
    found = [*written(), *explained()]
    assert sum(kind == "help" for _, kind, _ in found) > 80 and sum(kind == "finding" for _, kind, _ in found) > 700
    assert not [(*one, better) for one in found if (better := odd(one[2]))]


@pytest.mark.parametrize("text", ["core is no ELF file", "gdb was not asked", "it goes on for ever", "where it stood", "Mend that."])
def test_what_is_odd(text: str) -> None:
    assert odd(text)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("hint", "pass a core"),
        ("hint", "Pass a core"),
        ("hint", "pass a core."),
        ("message", "the core is empty."),
        ("message", " is empty"),
    ],
)
def test_what_is_wrong(kind: str, text: str) -> None:
    assert wrong(kind, text)
