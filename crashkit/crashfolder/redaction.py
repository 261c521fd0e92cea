"""Filters what is written to a crash folder: allow-listed environment variables, and texts without secrets. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from crashkit.environment import SHOWN

HIDDEN = "[removed]"

_SECRET_NAME = re.compile(r"(?i)(token|secret|passw|pwd$|credential|api_?key|access_?key|private|auth|cookie|session|license|dsn$)")
_PATTERNS = (
    # user:password@ in an address
    (re.compile(r"(?i)([a-z][a-z0-9+.-]{1,20}://)[^/\s:@]{0,256}:[^/\s@]{1,512}@"), rf"\1{HIDDEN}@"),
    # shapes that announce themselves: GitHub, OpenAI, Hugging Face, Slack, AWS, Google, GitLab, PyPI, Stripe
    (
        re.compile(
            r"\b(?:gh[pousr]_[A-Za-z0-9]{20,255}|github_pat_\w{20,255}|sk-[A-Za-z0-9_-]{20,255}|hf_[A-Za-z0-9]{20,255}|xox[abprs]-[\w-]{10,255}"
            r"|AKIA[0-9A-Z]{16}|ASIA[0-9A-Z]{16}|AIza[\w-]{35}|glpat-[\w-]{20,255}|pypi-[\w-]{20,255}|[sr]k_(?:live|test)_\w{10,255})"
        ),
        HIDDEN,
    ),
    # JSON web tokens
    (re.compile(r"\beyJ[\w-]{8,4096}\.[\w-]{8,4096}\.[\w-]{0,4096}"), HIDDEN),
    (re.compile(r"(?i)\b((?:bearer|basic)\s+)[A-Za-z0-9+/=._~-]{12,4096}"), rf"\1{HIDDEN}"),
    # name=value, name: value, --name value
    (
        re.compile(
            r"(?i)((?:token|secret|password|passwd|credential|api[_-]?key|access[_-]?key)[\w-]{0,32}['\"]?\s{0,3}[=:]\s{0,3}['\"]?)"
            r"[^\s'\",;&]{1,1024}"
        ),
        rf"\1{HIDDEN}",
    ),
)
_SECRET_OPTION = re.compile(r"(?i)^--?[\w-]{0,64}(token|secret|password|passwd|credential|api[_-]?key|access[_-]?key)[\w-]{0,64}$")


def scrub(text: str) -> str:
    """The text with everything that looks like a secret replaced by `HIDDEN`."""
    for pattern, replacement in _PATTERNS:
        text = pattern.sub(replacement, text)
    return text


def scrub_argv(argv: Sequence[str]) -> list[str]:
    """Like `scrub`, and also replaces the value after an option such as `--token`."""
    clean = []
    hide = False
    for argument in argv:
        clean.append(HIDDEN if hide else scrub(argument))
        hide = bool(_SECRET_OPTION.match(argument))
    return clean


def allowed_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The allow-listed variables, without those whose names suggest a secret; values are scrubbed."""
    return {name: scrub(value) for name, value in sorted(environment.items()) if SHOWN.has(name) and not _SECRET_NAME.search(name)}
