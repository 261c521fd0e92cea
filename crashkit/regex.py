"""Regular expressions that are compiled when they are first used: an analysis imports two hundred of them, and uses eighty."""

from __future__ import annotations

import re
from typing import Any, cast


class LateRegex:
    """What `re.compile` gives, once somebody asks for any of its attributes. Two threads may both compile it."""

    def __init__(self, text: str, flags: int) -> None:
        self._source = text, flags

    def __getattr__(self, name: str) -> Any:
        value = getattr(re.compile(*self._source), name)
        self.__dict__[name] = value
        return value


def regex(text: str, flags: int = 0) -> re.Pattern[str]:
    """The pattern; what is wrong with it shows when it is used."""
    return cast("re.Pattern[str]", LateRegex(text, flags))
