"""Signatures as data: one file per family, and the loader that reports mistakes with file and line."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path

import msgspec

from crashkit.diagnose.facts import FACTS
from crashkit.diagnose.signature import CONFIDENCES, SEVERITIES, SUBJECTS, Condition, FramePattern, Signature
from crashkit.diagnose.versions import parse_requirement
from crashkit.errors import CatalogError
from crashkit.own_tables import own_table
from crashkit.prepared import prepared

_SUGGESTED = 3
"""Ids that are named where there is none as asked for."""
_HINT = "See docs/adding-a-signature.md for the format of a signature file."

_HERE = Path(__file__).parent

_TOML_LINE = re.compile(r"\(at line (\d+), column \d+\)")
_STEP = re.compile(r"\.(\w+)|\[(\d+)\]")


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    signature: tuple[Signature, ...]


class Catalog(msgspec.Struct, frozen=True):
    """All signatures that a crash is compared with, in the order they were read."""

    signatures: tuple[Signature, ...]

    def find(self, identity: str) -> Signature:
        """The signature with this id. Raises CatalogError if there is none."""
        for signature in self.signatures:
            if signature.id == identity:
                return signature
        meant = self._resembling(identity)
        hint = f"Did you mean {', '.join(meant)}?" if meant else "Run crashkit signatures list to see all ids."
        raise CatalogError(f"no signature {identity!r}", hint)

    def _resembling(self, identity: str) -> list[str]:
        """The ids that contain what somebody remembers of one, else those that are written almost so."""
        from difflib import get_close_matches

        ids = [signature.id for signature in self.signatures]
        wanted = "-".join(identity.lower().replace("_", " ").split())
        holding = [id for id in ids if wanted and wanted in id]
        return (holding or get_close_matches(wanted, ids, _SUGGESTED))[:_SUGGESTED]

    @property
    def log_patterns(self) -> tuple[str, ...]:
        """Patterns of lines that the log reader must keep for a user's signatures, besides the built-in kinds."""
        further = [signature for signature in self.signatures if not is_ours(signature)]
        found = {condition.pattern for condition in conditions(further) if condition.log == "*" and condition.pattern}
        return tuple(sorted(found))


def is_ours(signature: Signature) -> bool:
    """Whether it came with crashkit."""
    return signature.file.rpartition("/")[0] == str(_HERE)


@cache
def builtin() -> Catalog:
    """The signatures that come with crashkit. The tests check them, so that not every run has to: `problems`."""
    return Catalog(_files([_HERE]))


def load_catalog(extra: Sequence[Path] = ()) -> Catalog:
    """The built-in signatures and those of further files or folders (*.toml).

    Raises CatalogError with file, line and problem.
    """
    if not extra:
        return builtin()
    return Catalog(checked((*builtin().signatures, *_files(extra))))


def configured(environment: Mapping[str, str]) -> tuple[Path, ...]:
    """The user's own folder, `$XDG_CONFIG_HOME/crashkit/signatures`, if it contains signature files."""
    home = environment.get("XDG_CONFIG_HOME", "")
    if not home.startswith("/"):  # a relative one is invalid, says the XDG Base Directory Specification
        home = f"{environment['HOME']}/.config" if environment.get("HOME") else ""
    folder = Path(home) / "crashkit" / "signatures"
    return (folder,) if home and any(folder.glob("*.toml")) else ()


def conditions(signatures: Iterable[Signature]) -> Iterator[Condition]:
    """Every condition, the nested ones too."""
    for signature in signatures:
        yield from _flat(signature.none)
        for fix in (*signature.fixes, *signature.steps):
            yield from _flat((*fix.when, *fix.unless))
        for rule in signature.rule:
            yield from _flat((*rule.all, *rule.any, *rule.none))


def _flat(several: Iterable[Condition]) -> Iterator[Condition]:
    for condition in several:
        yield condition
        yield from _flat((*(condition.any or ()), *(condition.all or ())))


def _files(places: Iterable[Path]) -> tuple[Signature, ...]:
    found: list[Signature] = []
    for place in places:
        paths = sorted(place.glob("*.toml")) if place.is_dir() else [place]
        if not paths:
            raise CatalogError(f"{place}: no signature files (*.toml)", _HINT)
        for path in paths:
            found += _read(path)
    return tuple(found)


def _read(path: Path) -> list[Signature]:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CatalogError(f"{path}: cannot be read: {error}", "Pass a *.toml file, or a folder of them.") from error
    try:
        table = own_table(path) if path.parent == _HERE else msgspec.toml.decode(text)
        signatures = msgspec.convert(table, prepared(_File), strict=True).signature
    except msgspec.ValidationError as error:
        problem, _, place = str(error).partition(" - at `$")
        raise CatalogError(f"{path}:{line_of(text, place.rstrip('`'))}: {problem}", _HINT) from error
    except msgspec.DecodeError as error:
        line = _TOML_LINE.search(str(error))
        raise CatalogError(f"{path}:{line[1] if line else 1}: {error}", _HINT) from error
    except (RecursionError, OverflowError, ValueError) as error:
        raise CatalogError(f"{path}: cannot be read: {str(error)[:200]}", _HINT) from error
    for index, signature in enumerate(signatures if path.parent != _HERE else ()):
        for place, problem in problems(signature):
            raise CatalogError(f"{path}:{line_of(text, f'.signature[{index}]{place}')}: {signature.id}: {problem}", _HINT)
    return [msgspec.structs.replace(signature, file=str(path)) for signature in signatures]


def line_of(text: str, place: str) -> int:
    """Line number (from 1) of the table or key nearest to a place such as `.signature[2].rule[0].all[1].frames`."""
    lines = text.splitlines()
    at = 0
    table = ""
    for name, index in _STEP.findall(place):
        if name:
            table = f"{table}.{name}" if table else name
            found = [number for number in range(at, len(lines)) if re.match(rf"\s*{re.escape(name)}\s*=", lines[number])]
            if found and not any(lines[number].strip() == f"[[{table}]]" for number in range(at, len(lines))):
                return found[0] + 1
        else:
            heads = [number for number in range(at, len(lines)) if lines[number].strip() == f"[[{table}]]"]
            if int(index) >= len(heads):
                break
            at = heads[int(index)]
    return at + 1


def checked(signatures: tuple[Signature, ...]) -> tuple[Signature, ...]:
    """The signatures, if they go together. Raises CatalogError if an id stands twice, or one is named that does not exist."""
    known: set[str] = set()
    for signature in signatures:
        if signature.id in known:
            raise CatalogError(f"{signature.file}: {signature.id}: duplicate id", "Give the signature a unique id.")
        known.add(signature.id)
    for signature in signatures:
        for pattern in signature.yields_to:
            if not any(fnmatchcase(identity, pattern) for identity in known):
                raise CatalogError(f"{signature.file}: {signature.id}: yields_to names {pattern!r}, which is not a signature", _HINT)
    return signatures


def problems(signature: Signature) -> Iterator[tuple[str, str]]:
    """What is wrong with a signature by itself: where, and what."""
    if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", signature.id):
        yield ".id", "an id must be lower-case words joined by hyphens"
    if signature.severity not in SEVERITIES:
        yield ".severity", f"severity must be one of {', '.join(SEVERITIES)}"
    if not signature.rule:
        yield "", "a signature needs a [[signature.rule]]"
    yield from _group_problems(".none", signature.none)
    for name, fixes in ((".fix", signature.fixes), (".next_steps", signature.steps)):
        for fix in fixes:
            yield from _group_problems(name, (*fix.when, *fix.unless))
    for index, rule in enumerate(signature.rule):
        place = f".rule[{index}]"
        if rule.confidence not in CONFIDENCES:
            yield f"{place}.confidence", f"confidence must be one of {', '.join(CONFIDENCES)}"
        if not (rule.all or rule.any):
            yield place, "a rule needs conditions in all or any"
        for name, several in (("all", rule.all), ("any", rule.any), ("none", rule.none)):
            yield from _group_problems(f"{place}.{name}", several)


def _group_problems(place: str, several: Iterable[Condition]) -> Iterator[tuple[str, str]]:
    for condition in _flat(several):
        for problem in _condition_problems(condition):
            yield place, problem


def _condition_problems(condition: Condition) -> Iterator[str]:
    subjects = [name for name in SUBJECTS if getattr(condition, name) is not None]
    if len(subjects) != 1:
        yield f"a condition must ask exactly one thing, this one asks {', '.join(subjects) or 'nothing'}"
    if condition.fact is not None and condition.fact not in FACTS:
        yield f"unknown fact {condition.fact!r}; known facts: {', '.join(FACTS)}"
    if condition.log is not None:
        yield from _log_problems(condition)
    elif condition.pattern is not None:
        yield "pattern requires log"
    for requirement in (condition.version or {}).values():
        yield from _raised(parse_requirement, requirement)
    for pattern in _patterns(condition):
        yield from _raised(re.compile, pattern)


def _log_problems(condition: Condition) -> Iterator[str]:
    from crashkit.evidence.text.log_patterns import kinds, literals
    from crashkit.evidence.text.required import SHORTEST_LITERAL

    if condition.log != "*":
        if condition.log not in kinds():
            yield f"unknown kind of log line {condition.log!r}; known kinds: {', '.join(sorted(kinds()))}"
    elif condition.pattern is None:
        yield 'log = "*" needs a pattern'
    elif not list(_raised(re.compile, condition.pattern)) and not literals(condition.pattern):
        yield f"pattern {condition.pattern!r} needs fixed text of {SHORTEST_LITERAL} or more characters in each branch"


def _raised(check: Callable[[str], object], text: str) -> Iterator[str]:
    try:
        check(text)
    except (re.error, ValueError, OverflowError, RecursionError) as error:
        yield f"{text!r}: {error}"


def _patterns(condition: Condition) -> Iterator[str]:
    for frame in (*(condition.frames or ()), *(condition.threads or ()), *(condition.anywhere or ())):
        if isinstance(frame, FramePattern):
            yield from (pattern for pattern in (frame.function, frame.module) if pattern is not None)
        else:
            yield frame
    yield from condition.python or ()
    yield from (condition.environment or {}).values()
    yield from (
        pattern for pattern in (condition.modules, condition.in_mapping, condition.instruction, condition.pattern) if pattern is not None
    )
