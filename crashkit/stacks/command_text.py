"""The program that `python -c` was given, and which frames run it. Pure."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from functools import cached_property
from typing import Optional

NAME = "<string>"
"""What CPython calls the file of `python -c`, and of whatever a program gives to `exec` without a name for it."""
_PROGRAMS = "cm"
_WITH_VALUE = "WX"
"""Options that take the rest of the word, or else the next one (`SHORT_OPTS`, Python/getopt.c)."""
_LONG_WITH_VALUE = "--check-hash-based-pycs"
_NAMELESS: dict[type[ast.AST], str] = {
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


class Program:
    """The text of the program, and which frames run it."""

    def __init__(self, text: str) -> None:
        self._text = text

    def runs(self, function: str, line: int, is_outermost: bool) -> bool:
        """Whether this line is in a function of that name: other code may be called the same, and have other lines.

        The program itself, `<module>`, is run by nobody: its frame is the outermost one of its thread.
        """
        name = function.rpartition(".")[2]
        return is_outermost if name == "<module>" else any(line in lines for lines in self._functions.get(name, ()))

    @cached_property
    def _functions(self) -> dict[str, list[range]]:
        """The lines of each function and class, by its name."""
        found: dict[str, list[range]] = {}
        try:
            nodes = list(ast.walk(ast.parse(self._text)))
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            nodes = []  # Of another version of Python.
        for node in nodes:
            if isinstance(node, (ast.expr, ast.stmt)):
                named = isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
                name = getattr(node, "name", None) if named else _NAMELESS.get(type(node))
                if name is not None:
                    found.setdefault(name, []).append(range(node.lineno, (node.end_lineno or node.lineno) + 1))
        return found
