"""From a dead Python process to the line and the cause, in one command.

A crash leaves evidence: a core, a faulthandler dump, a log. `collect` makes sure that it is left, `evidence` reads it,
`debugger` asks gdb, `stacks` puts native and Python frames together, `diagnose` names the cause and the fix, and
`report` shows it. `pipeline` is that path, one call per stage.

    import crashkit
    crash = crashkit.analyze("core")          # a crashkit.Crash: everything that the report shows
    crashkit.enable()                         # in a program of your own: leave evidence if it crashes
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from crashkit.collect.enable import enable
    from crashkit.model import Crash
    from crashkit.pipeline import analyze

__all__ = ["Crash", "analyze", "enable"]

_HOMES = {"analyze": "crashkit.pipeline", "Crash": "crashkit.model", "enable": "crashkit.collect.enable"}


def __getattr__(name: str) -> Any:
    """Loaded on first use: `enable()` in a server must not pay for the analyzer, nor `crashkit run` for either."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)
