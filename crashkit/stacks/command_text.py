"""The program that `python -c` was given, and whether a frame runs it. Pure."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from typing import Optional

NAME = "<string>"
"""What CPython calls the file of `python -c`, and of whatever a program gives to `exec` without a name for it."""
_PROGRAMS = "cm"
_WITH_VALUE = "WX"
"""Options that take the rest of the word, or else the next one (`SHORT_OPTS`, Python/getopt.c)."""
_LONG_WITH_VALUE = "--check-hash-based-pycs"
_NAMELESS = {
    ast.Lambda: "<lambda>",
    ast.ListComp: "<listcomp>",
    ast.SetComp: "<setcomp>",
    ast.DictComp: "<dictcomp>",
    ast.GeneratorExp: "<genexpr>",
}


def command_text(argv: Sequence[str]) -> Optional[str]:
    """The argument of `-c`, None if there is none."""
    words = iter(argv[1:])
    for word in words:
        if word == _LONG_WITH_VALUE:
            next(words, None)
        if word.startswith("--"):
            continue
        if not word.startswith("-") or word == "-":
            return None  # a script
        at = next((index for index, letter in enumerate(word) if letter in _PROGRAMS + _WITH_VALUE), None)
        value = None if at is None else word[at + 1 :] or next(words, None)
        if at is not None and word[at] in _PROGRAMS:
            return value if word[at] == "c" else None
    return None


def runs(text: str, function: str, line: int, is_outermost: bool) -> bool:
    """Whether this line of the text is in a function of that name: other code may be called the same, and have other lines.

    The text itself, `<module>`, is run by nobody: its frame is the outermost one of its thread.
    """
    name = function.rpartition(".")[2]
    if name == "<module>":
        return is_outermost
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False  # Of another version of Python.
    return name in _around(tree, line)


def _around(tree: ast.AST, line: int) -> Iterator[str]:
    """The names of the functions and classes that have this line."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.expr, ast.stmt)) and node.lineno <= line <= (node.end_lineno or node.lineno):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                yield node.name
            elif type(node) in _NAMELESS:
                yield _NAMELESS[type(node)]
