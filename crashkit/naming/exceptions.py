"""Exceptions of Python that tell of a mistake in a program or its data, and hardly follow from a failure of a library or a device. Pure."""

from __future__ import annotations

import re

_OF_OWN_CODE = re.compile(
    r"(?:\w+\.)*(?:Key|Index|Value|Type|Attribute|Name|UnboundLocal|ZeroDivision|FileNotFound|ModuleNotFound|NotImplemented|Assertion|Syntax"
    r"|Indentation|UnicodeDecode|UnicodeEncode|NotADirectory|IsADirectory|FileExists|Lookup|Arithmetic)Error"
)


def is_of_own_code(exception: str) -> bool:
    """Whether that is such an exception, by its type as a traceback names it: `KeyError`, `builtins.ValueError`."""
    return _OF_OWN_CODE.fullmatch(exception) is not None
