"""Expected errors: what happened in one line, what to try in another."""

from __future__ import annotations


class CrashkitError(Exception):
    """Bad input or a missing piece; the command line exits with status 1.

    `hint` says what to try.
    """

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.hint = hint


class EvidenceError(CrashkitError):
    """A file that cannot be read as evidence of a crash."""


class DebuggerError(CrashkitError):
    """gdb is missing, died, hung or answered with an error."""


class CollectError(CrashkitError):
    """The command cannot be watched, or the crash store cannot be used."""


class CatalogError(CrashkitError):
    """A signature file that is not valid."""
