"""The contract for a report format, and the list of formats. To add one, write its module with a RENDERER and list it here."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

import msgspec

from crashkit.model import Crash

RENDERERS = {
    "html": "crashkit.report.html",
    "issue": "crashkit.report.issue",
    "json": "crashkit.report.json",
    "markdown": "crashkit.report.markdown",
    "text": "crashkit.report.text",
}
"""The module of each format by its name; imported when the format is requested."""


def _nothing() -> None:
    pass


class Renderer(msgspec.Struct, frozen=True):
    """One format of the report."""

    file: str
    """The name of the report's file."""
    render: Callable[[Crash], bytes]
    """The whole file. Needs nothing but the crash, and escapes strings as the format requires."""
    warm: Callable[[], None] = _nothing
    """Load what `render` needs; called in another thread while a debugger works."""


def renderer(name: str) -> Renderer:
    """The format of this name. Raises KeyError if there is none."""
    found: Renderer = import_module(RENDERERS[name]).RENDERER
    return found
