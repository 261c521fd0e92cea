"""Expected errors: one line for what happened, one for what to try."""

from __future__ import annotations


class CrashkitError(Exception):
    """Base class: bad input or a missing file; the command line exits with status 1.

    `hint` says what to try.
    """

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.hint = hint


class EvidenceError(CrashkitError):
    """A file cannot be read as evidence of a crash."""


class DebuggerError(CrashkitError):
    """gdb is missing, died, hung or answered with an error."""


class CollectError(CrashkitError):
    """The command cannot be monitored, or the crash store cannot be used."""


class CatalogError(CrashkitError):
    """A signature file is invalid."""
