"""What names evidence on the command line: a path of this machine, or a URL, which only `crashkit ci` reads. Pure."""

from __future__ import annotations

import re
from pathlib import Path

from crashkit.errors import EvidenceError

_URL = re.compile(r"[a-z][a-z0-9+.-]*(?:::|://)", re.I)


def is_url(text: str) -> bool:
    """Whether this names something behind a protocol: s3://bucket/run, zip::https://host/a.zip."""
    return bool(_URL.match(text))


def local_path(text: str) -> Path:
    """The path that a text names. Raises EvidenceError for a URL, of which a path would lose a slash."""
    if is_url(text):
        hint = f"Download it; or let crashkit ci read it, with all that is there: crashkit ci {text} --out DIR"
        raise EvidenceError(f"{text} is a URL, not a file", hint)
    return Path(text)
