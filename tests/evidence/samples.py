"""A sample line of each form that a pattern of log lines has: the pattern itself, with what it leaves open filled in."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

from crashkit.evidence.text.log_patterns import Classifier, LinePattern, line_patterns
from crashkit.evidence.text.required import parser

MOST_FORMS = 12
"""Of one pattern."""
_DEEPEST = 6
"""Items of a pattern before the alternatives that are tried one by one."""
_LETTERS = "a7 B/.:-_([)'\"`+*#,;=<>|{}!~"
_TESTS = {"SPACE": str.isspace, "DIGIT": str.isdecimal, "WORD": lambda letter: letter.isalnum() or letter == "_"}

Items = Sequence[tuple[Any, Any]]


def _is_one(members: Items, letter: str) -> bool:
    for operation, argument in members:
        name = str(operation)
        if name == "LITERAL" and ord(letter) == argument:
            return True
        if name == "RANGE" and argument[0] <= ord(letter) <= argument[1]:
            return True
        if name == "CATEGORY":
            category = str(argument).removeprefix("CATEGORY_")
            if _TESTS[category.removeprefix("NOT_")](letter) is not category.startswith("NOT_"):
                return True
    return False


def _letter(members: Items) -> str:
    negated = str(members[0][0]) == "NEGATE"
    found = next((letter for letter in _LETTERS if _is_one(members, letter) is not negated), None)
    if found is not None:
        return found
    name, argument = members[0]
    return chr(argument if str(name) == "LITERAL" else argument[0])


def _filled(items: Items) -> str:
    return "".join(_piece(str(operation), argument) for operation, argument in items)


def _piece(name: str, argument: Any) -> str:
    if name == "LITERAL":
        return chr(argument)
    if name == "NOT_LITERAL":
        return "b" if argument == ord("a") else "a"
    if name == "IN":
        return _letter(argument)
    if name == "ANY":
        return "a"
    if name == "SUBPATTERN":
        return _filled(argument[-1])
    if name == "BRANCH":
        return _filled(argument[1][0])
    if name.endswith("REPEAT"):
        least, most, repeated = argument
        return _filled(repeated) * (least or int(most > 1))
    return ""


def _forms(items: Items) -> Iterator[Items]:
    """The items, once for each of the first alternatives."""
    for at, (operation, argument) in enumerate(items):
        name = str(operation)
        if name == "BRANCH":
            for branch in argument[1]:
                yield from _forms([*items[:at], *branch, *items[at + 1 :]])
            return
        if name == "SUBPATTERN" and at < _DEEPEST and any(str(inner) == "BRANCH" for inner, _ in argument[-1]):
            yield from _forms([*items[:at], *argument[-1], *items[at + 1 :]])
            return
    yield items


def forms(pattern: str) -> list[str]:
    """Texts that should match it, one for each of its first alternatives."""
    return [_filled(form) for form in islice(_forms(list(parser.parse(pattern))), MOST_FORMS)]


def of_pattern(line: LinePattern, classifier: Classifier) -> Iterator[str]:
    """Lines that this pattern, and no earlier one of another kind, matches."""
    for text in map(str.strip, forms(line.pattern)):
        found = classifier.classify(text)
        if "\n" not in text and found is not None and found[0] == line.kind:
            yield text


def every_line(lines: Iterable[LinePattern] = ()) -> list[tuple[str, str]]:
    """Kind and text of each, of texts with the same beginning one."""
    classifier = Classifier()
    found: dict[tuple[str, str], str] = {}
    for line in lines or line_patterns():
        for text in of_pattern(line, classifier):
            found.setdefault((line.kind, text[:12]), text)
    return [(kind, text) for (kind, _), text in found.items()]
