"""The value of `--index`."""

from __future__ import annotations

from typing import Optional

import click

from crashkit.history.address import problem


def checked_index(_context: click.Context, _parameter: click.Parameter, value: Optional[str]) -> Optional[str]:
    """Refuse what cannot be the address of a history."""
    wrong = problem(value) if value else None
    if wrong:
        raise click.BadParameter(wrong)
    return value or None
