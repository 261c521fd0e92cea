"""Signatures as text for people: one, and the page of docs with all of them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

from crashkit.diagnose.catalog import Catalog
from crashkit.diagnose.explain import told
from crashkit.diagnose.signature import Condition, Fix, Signature

_HEAD = """\
# Known failures

Made from `crashkit/diagnose/catalog/` by `python -m crashkit.diagnose.page docs/signatures.md`; a test checks that it is up to date.

A finding is *certain* (its facts allow no other cause), *likely* or *possible*. A signature that names only the kind of fault ranks below
every one that names a cause. [Adding a signature](adding-a-signature.md) takes ten minutes.
"""


def of_signature(signature: Signature) -> str:
    """What `crashkit signatures show` prints."""
    return "\n".join(_lines(signature))


_EXCEPTION = "A Python exception that may have been caught: at most possible if a fault ended the process"


def of_catalog(catalog: Catalog) -> str:
    """The whole page, Markdown."""
    parts = [_HEAD]
    for file, signatures in groupby(catalog.signatures, key=lambda signature: signature.file):
        family = list(signatures)
        parts.append(f"## {Path(file).stem}\n\n| id | what | highest confidence |\n|---|---|---|")
        parts += [f"| [{each.id}](#{each.id}) | {each.title} | {each.rule[0].confidence} |" for each in family]
        parts.append("")
        parts += [_section(each) for each in family]
    return "\n".join(parts)


def _section(signature: Signature) -> str:
    lines = [f"### {signature.id}", "", f"**{signature.title}.** {signature.cause}", ""]
    for fix in signature.fixes:
        lines += [*([f"{_for(fix)}:", ""] if _for(fix) else []), "```", fix.text, "```", ""]
    lines += [f"- Note: {note}" for note in signature.notes]
    if signature.exception:
        lines.append(f"- {_EXCEPTION}")
    lines += [f"- {reference}" for reference in signature.references]
    if signature.yields_to:
        lines.append(f"- Follows from: {', '.join(f'`{identity}`' for identity in signature.yields_to)}, if one of them is found")
    return "\n".join([*lines, "", "```text", *_rules(signature), "```", ""])


def _for(fix: Fix) -> str:
    """Which runs a fix is for; '' if for all."""
    parts = [f"With {fix.needs}"] if fix.needs else []
    parts += [f"When `{told(condition)}`" for condition in fix.when] + [f"Unless `{told(condition)}`" for condition in fix.unless]
    return ", ".join(parts)


def _lines(signature: Signature) -> Iterator[str]:
    yield f"{signature.id}: {signature.title} ({signature.severity})"
    yield f"\nCause: {signature.cause}"
    yield from _list("Fix", tuple(fix.text for fix in signature.fixes))
    yield from _list("Next steps", tuple(step.text for step in signature.steps))
    yield from _list("Notes", signature.notes)
    yield "\nRecognised by:"
    yield from (f"  {line}" for line in _rules(signature))
    if signature.exception:
        yield f"\n{_EXCEPTION}"
    if signature.yields_to:
        yield f"\nFollows from (if found): {', '.join(signature.yields_to)}"
    yield from _list("See", signature.references)
    yield f"\nFrom {signature.file}"


def _list(title: str, texts: tuple[str, ...]) -> Iterator[str]:
    if texts:
        yield f"\n{title}:"
        for text in texts:
            first, *rest = text.splitlines()
            yield f"  - {first}"
            yield from (f"    {line}" for line in rest)


def _rules(signature: Signature) -> Iterator[str]:
    yield from _conditions("none", signature.none)
    for rule in signature.rule:
        yield f"{rule.confidence}:"
        for name, several in (("all", rule.all), ("any", rule.any), ("none", rule.none)):
            yield from (f"  {line}" for line in _conditions(name, several))


def _conditions(name: str, several: tuple[Condition, ...]) -> Iterator[str]:
    yield from (f"{name}: {told(condition)}" for condition in several)


if __name__ == "__main__":
    import sys

    from crashkit.diagnose.catalog import builtin

    Path(sys.argv[1]).write_text(of_catalog(builtin()), encoding="utf-8")
