"""Which facts of the model each format shows, by a crash that has every fact, each with a value of its own.

A fact that goes missing is found here, whatever the wording. shown.txt is the table; after a change that is meant, write it again, and
read the difference: python -m tests.report.test_shown > tests/report/shown.txt
"""

from __future__ import annotations

import re
import types
import typing
from collections.abc import Callable, Iterator
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from crashkit import model
from crashkit.model import Crash, Signal, Source
from crashkit.report import one_line
from crashkit.report.first_answer import first_answer
from crashkit.report.renderer import renderer
from crashkit.report.text import summary
from tests.report.schema_doc import structs

FORMATS: dict[str, Callable[[Crash], str]] = {
    name: lambda crash, name=name: renderer(name).render(crash).decode()  # type: ignore[misc]
    for name in ("html", "issue", "markdown", "text")
}
FORMATS["first screen"] = lambda crash: "\n".join(summary(crash, None, color=False, width=120, brief=True))
FORMATS["first answer"] = first_answer
FORMATS["one line"] = lambda crash: f"{one_line.where(crash)} {one_line.cause(crash)}"
TABLE = Path(__file__).parent / "shown.txt"
NOTHING = re.compile(r".*(?:\bNone\b| \(\)(?! =>)).*")
TID, PID = 7001, 7002
LINKS = {"frame": 0, "log": 0, "awaits_tasks": 0, "awaited_by": 0, "parent": 0, "context_start": 7100, "start": 0, "end": 3}
"""Numbers that are looked up: indices, lines."""
LINKS |= dict.fromkeys(("tid", "thread", "loop_thread", "crashed_thread", "held_by", "context_threads"), TID)
LINKS |= dict.fromkeys(("pid", "process"), PID)
TEXTS = {
    "Crash.schema": model.SCHEMA, "Source.kind": "core", "Signal.name": "SIGSEGV", "Signal.reason": "unmapped", "Signal.access": "read",
    "Finding.confidence": "likely", "LookedFor.verdict": "contradicted", "Task.state": "waiting", "Greenlet.state": "suspended",
    "JobProcess.role": "followed",
}  # fmt: skip


class Made:
    """A crash, and the place of each of its values."""

    def __init__(self, *unknown: str) -> None:
        self.unknown = unknown
        self.places: dict[str, str] = {}
        self.crash: Crash = self.value(Crash, "", "")

    def value(self, hint: Any, place: str, field: str) -> Any:
        if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
            hints = typing.get_type_hints(hint)
            at = f"{place} {hint.__name__}".lstrip()
            return hint(**{name: self.value(hints[name], f"{at}.{name}", f"{hint.__name__}.{name}") for name in hint.__struct_fields__})
        origin, parts = typing.get_origin(hint), typing.get_args(hint)
        if field in self.unknown and type(None) in parts:
            return None
        if origin in (typing.Union, types.UnionType):
            return self.value(next(part for part in parts if part is not type(None)), place, field)
        if origin is tuple and parts[-1] is not Ellipsis:
            return tuple(self.value(part, place, field) for part in parts)
        if origin is tuple:
            kinds = typing.get_args(parts[0]) if typing.get_origin(parts[0]) in (typing.Union, types.UnionType) else (parts[0],)
            return tuple(self.value(kind, place, field) for kind in kinds)
        if origin is dict:
            return {self.value(parts[0], f"{place}-name", field): self.value(parts[1], place, field)}
        return self.single(hint, place, field)

    def single(self, hint: Any, place: str, field: str) -> Any:
        link = LINKS.get(field.partition(".")[2])
        if hint is bool:
            return True
        if hint is str and field in TEXTS:
            return TEXTS[field]
        if hint is not str and link is not None:
            return hint(link)
        number = 8000 + len(self.places)
        shown = f"w{number}w" if hint is str else str(number)
        self.places[shown] = place
        if hint is str:
            return f"/srv/{shown}.py" if field == "PythonFrame.file" else shown
        return hint(number)


@cache
def made() -> Made:
    return Made()


def answers(whole: Crash) -> Iterator[Crash]:
    """Of a job, of a GPU that failed or hung, of a process that crashed."""
    source = whole.source or Source(path="", kind="")
    yield replace(whole, source=replace(source, kind="job"))
    alone = replace(whole, job=None)
    aborted = replace(alone, signal=Signal(number=6, name="SIGABRT", reason="abort"))
    yield aborted
    yield replace(aborted, gpu=tuple(replace(gpu, exceptions=()) for gpu in alone.gpu))
    yield alone
    yield replace(alone, gpu=(), findings=())


def variants() -> Iterator[Crash]:
    """With all of it, of which one answer is told; then with less and less of it."""
    whole = made().crash
    yield from (whole, *answers(whole))
    host = replace(whole, job=None, gpu=())
    for crash in (
        host,
        replace(host, findings=()),
        replace(host, findings=(), signal=None),
        replace(host, findings=(), signal=None, log=()),
    ):
        yield crash
        for change in (
            lambda thread: replace(thread, python_frames=(), frames=thread.frames[1:]),
            lambda thread: replace(thread, python_frames=(), frames=thread.frames[::-1]),
            lambda thread: replace(thread, tid=None, crashed=False),
        ):
            yield replace(crash, threads=tuple(map(change, crash.threads)))
        yield replace(crash, threads=(*crash.threads, replace(crash.threads[0], tid=TID + 1, crashed=False)))


def shown(name: str) -> set[str]:
    texts = [FORMATS[name](crash) for crash in variants()]
    return {place for value, place in made().places.items() if any(value in text for text in texts)}


def table(places: set[str]) -> str:
    """A line for each fact: where it stands in the crash, and those of its fields that are shown."""
    facts = groupby(sorted(place.rpartition(".")[::2] for place in places), key=lambda place: place[0])
    return "\n".join(f"{fact}: {' '.join(field for _, field in fields)}" for fact, fields in facts)


def document() -> str:
    return "\n\n".join(f"{name}\n{'-' * len(name)}\n{table(shown(name))}" for name in FORMATS)


@pytest.mark.parametrize("name", FORMATS)
def test_each_format_shows_these_facts(name: str) -> None:
    expected = TABLE.read_text().partition(f"{name}\n{'-' * len(name)}\n")[2].partition("\n\n")[0].rstrip("\n")
    assert table(shown(name)).splitlines() == expected.splitlines()


def optional() -> dict[str, list[str]]:
    """The fields of each struct that may be unknown."""
    found = {}
    for struct in structs():
        hints = typing.get_type_hints(struct)
        found[struct.__name__] = [f"{struct.__name__}.{name}" for name, hint in hints.items() if type(None) in typing.get_args(hint)]
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    "struct",
    [
        name if name in ("Crash", "Thread", "NativeFrame", "PythonFrame") else pytest.param(name, marks=pytest.mark.long)
        for name, fields in optional().items()
        if fields
    ],
)
def test_what_is_not_known_is_not_shown(struct: str) -> None:
    """One field of the struct at a time, and all of them together."""
    fields = optional()[struct]
    for unknown in (*([field] for field in fields), fields):
        for crash in answers(Made(*unknown).crash):
            formats = FORMATS if unknown is fields else ("markdown", "text", "first answer", "one line")
            assert [found[0].strip() for name in formats for found in NOTHING.finditer(FORMATS[name](crash))] == [], unknown


if __name__ == "__main__":
    print(document())
