"""`crashes.sarif`: SARIF 2.1.0 (OASIS, 2020), one result a group, as code-scanning tools of GitHub, GitLab and editors take it.

A result has `partialFingerprints`, by which a crash is the same in the next run, and the innermost frame in the repository's own code.
The standard lets a result be without a location, but GitHub then refuses the whole file
(https://docs.github.com/code-security/reference/code-scanning/sarif-files/sarif-support-for-code-scanning): each has one.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Any, Optional
from urllib.parse import quote

from crashkit import __version__
from crashkit.report import safe
from crashkit.report.index import wording
from crashkit.report.index.document import Entry, Group, Index, Place, packed

FILE = "crashes.sarif"

_VERSION = "2.1.0"
_SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
_ROOT = "%SRCROOT%"
_RESULTS = 5000
"""GitHub takes so many results of one run, and shows the first ones."""
_NO_FILE = "no-file-of-this-repository"
"""Where a crash stands that no file of the repository has to do with."""
_GITHUB = "primaryLocationLineHash"
"""The one of `partialFingerprints` that GitHub compares; it would make one of the line's text, which other crashes share."""


def render(index: Index) -> bytes:
    """The log file, with one run."""
    groups = [(group, index.members(group)) for group in index.groups[:_RESULTS]]
    rules: dict[str, dict[str, Any]] = {}
    for _, entries in groups:
        rules.setdefault(_rule_id(entries[0]), _rule(entries[0]))
    numbers = {name: number for number, name in enumerate(rules)}
    driver: dict[str, Any] = {"name": "crashkit", "version": __version__, "rules": list(rules.values())}
    notes = [{"level": "warning", "message": {"text": _text(error.message)}} for error in index.soft_errors]
    run = {
        "tool": {"driver": driver},
        "invocations": [{"executionSuccessful": True, "toolExecutionNotifications": notes}],
        "columnKind": "unicodeCodePoints",
        "originalUriBaseIds": {_ROOT: {"description": {"text": "The root of the repository."}}},
        "results": [_result(group, entries, numbers) for group, entries in groups],
    }
    document = {"$schema": _SCHEMA, "version": _VERSION, "runs": [run]}
    return packed(document)


def _rule_id(entry: Entry) -> str:
    return entry.finding or (entry.signal or "crash").replace(" ", "-").lower()


def _rule(entry: Entry) -> dict[str, Any]:
    title = entry.cause or f"The process ended: {entry.signal or 'crash'}"
    return {
        "id": _rule_id(entry),
        "shortDescription": {"text": _text(title)},
        "fullDescription": {"text": _text(title)},
        "help": {"text": _text(entry.fix or "Open the report of the crash: index.html.")},
        "defaultConfiguration": {"level": "error"},
        "properties": {"tags": ["crash"]},
    }


def _result(group: Group, entries: Sequence[Entry], rules: dict[str, int]) -> dict[str, Any]:
    first = entries[0]
    fingerprint = first.fingerprint or group.key
    result: dict[str, Any] = {
        "ruleId": _rule_id(first),
        "ruleIndex": rules[_rule_id(first)],
        "level": "error",
        "message": {"text": _message(first, entries)},
        "partialFingerprints": {f"crashkit/v{first.fingerprint_version or 0}": fingerprint, _GITHUB: fingerprint},
        "occurrenceCount": len(entries),
        "locations": [_primary(entries)],
    }
    if first.stack:
        frames = [{"location": _location(one)} for one in first.stack]
        result["stacks"] = [{"message": {"text": "The crashed thread, innermost first"}, "frames": frames}]
    if group.known is not None:
        result["baselineState"] = "new" if group.new else "unchanged"
    result["properties"] = {
        name: value
        for name, value in {
            "signal": first.signal,
            "tests": [entry.test for entry in entries if entry.test][:20],
            "reports": [entry.report for entry in entries if entry.report][:20],
            "confidence": first.confidence,
        }.items()
        if value
    }
    return result


def _message(first: Entry, entries: Sequence[Entry]) -> str:
    parts = [first.what]
    if first.cause:
        parts.append(f"{(first.confidence or '').capitalize()}: {first.cause}.")
    tests = wording.several(entry.test for entry in entries)
    if tests:
        parts.append(f"While running {tests}.")
    if len(entries) > 1:
        parts.append(f"{len(entries):,} times in this run.")
    return _text(" ".join(parts))


def _primary(entries: Sequence[Entry]) -> dict[str, Any]:
    """The line of the repository's own code, else the file of the test, else one that says that there is none; always with a line."""
    place = wording.first_in_repository(entries)
    if place is None:
        tests = (PurePosixPath((entry.test or "").partition("::")[0]) for entry in entries)
        test = next((path for path in tests if path.suffix == ".py" and not path.is_absolute() and ".." not in path.parts), None)
        place = Place(file="", path=str(test or _NO_FILE), function=entries[0].native)
    location = _location(place)
    location["physicalLocation"].setdefault("region", {"startLine": 1})
    return location


def _location(place: Place) -> dict[str, Any]:
    """A file of the repository as its relative path; another one by its function alone: its path means nothing elsewhere."""
    location: dict[str, Any] = {}
    if place.path:
        physical: dict[str, Any] = {"artifactLocation": {"uri": quote(place.path), "uriBaseId": _ROOT}}
        if place.line and place.line > 0:
            region: dict[str, Any] = {"startLine": place.line}
            if place.source:
                region["snippet"] = {"text": _text(place.source)}
            physical["region"] = region
        location["physicalLocation"] = physical
    name: Optional[str] = place.function or None
    location["logicalLocations"] = [{"fullyQualifiedName": _text(name or "(no name)"), "kind": "function"}]
    if not place.path:
        location["message"] = {"text": _text(f"{name or '(no name)'} in {wording.place(place)}")}
    return location


def _text(text: str) -> str:
    return safe.line(text)
