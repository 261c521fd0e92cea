"""What the docs say in numbers and names is what the code does."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from crashkit import limits
from crashkit.collect.supervise.stderr_tail import KEPT
from crashkit.crashfolder import bundle
from crashkit.crashfolder.store import Retention
from crashkit.debugger.gdb.session import _FRAMES
from crashkit.elf.twin import BIG
from crashkit.evidence.input import _FORMATS, DISK_RESERVE

ROOT = Path(__file__).parent.parent
DOCS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ("docs/architecture.md", f"A module of {BIG >> 20} MiB or more without DWARF"),
        ("docs/architecture.md", f"After {_FRAMES} frames the walk stops"),
        ("docs/report-schema.md", f"Compression of the file: {', '.join(_FORMATS)}."),
        (
            "docs/run.md",
            f"The newest {Retention().crashes} crashes of {Retention().age / 86400:.0f} days and {Retention().size >> 30} GiB are kept",
        ),
        ("docs/bundle.md", f"format (`{bundle.SCHEMA}`)"),
        ("docs/bundle.md", f"$ crashkit: {bundle.WARNING[:100]}"[2:]),
        ("docs/bundle.md", f"if they have less than {BIG >> 20} MiB"),
        ("docs/bundle.md", f"compressed with {', '.join([*_FORMATS][:-1])} or {[*_FORMATS][-1]}"),
        ("docs/bundle.md", f"too many members: {limits.MOST_MEMBERS:,} files"),
        ("docs/bundle.md", f"{limits.unpacked_bytes(0) >> 30} GiB and a thousand times its size"),
        ("docs/bundle.md", f"never more than {limits.unpacked_bytes(1 << 60) >> 40} TiB"),
        ("docs/bundle.md", f"less than {DISK_RESERVE >> 20} MiB left"),
        ("crashkit/crashfolder/store.py", f"the last {KEPT >> 10} KiB of the command's stderr"),
    ],
)
def test_numbers(document: str, words: str) -> None:
    assert words in " ".join((ROOT / document).read_text().split())


@pytest.mark.parametrize("path", DOCS, ids=lambda path: path.name)
def test_files_that_are_named_exist(path: Path) -> None:
    named = re.findall(r"`((?:crashkit/)?[a-z_]+(?:/[a-z_*]+)*\.(?:py|toml))`", path.read_text())
    # A page that has said which room it speaks of names the files alone.
    assert [
        name
        for name in named
        if not list(ROOT.glob(name))
        and not any(list((ROOT / room).rglob(name)) for room in ("crashkit", "gdb_scripts"))
        and name != "libpython.py"
    ] == []


def test_every_kind_of_file_in_a_bundle_is_described() -> None:
    kinds = re.findall(r"^- `([a-z-]+)`:", (ROOT / "docs/bundle.md").read_text(), re.M)
    told = " ".join((ROOT / "crashkit/crashfolder/bundle.py").read_text().split())
    (listed,) = re.findall(r'kind: str """(.*?)\.?"""', told)
    assert {"core", "gpu-core", "log", "manifest", *kinds} == {re.sub(r" \(.*?\)", "", kind) for kind in re.split(r", (?![^(]*\))", listed)}


def defined() -> dict[str, set[str]]:
    """The files in which each test, class of tests and test of such a class is defined; the last as `TestIt::test_this`."""
    found: dict[str, set[str]] = {}
    for path in (ROOT / "tests").rglob("test_*.py"):
        inside = ""
        for indent, kind, name in re.findall(r"^( {4})?(class|def) (\w+)", path.read_text(), re.M):
            inside = inside if indent else f"{name}::" if kind == "class" else ""
            found.setdefault(f"{inside}{name}" if indent else name, set()).add(path.relative_to(ROOT).as_posix())
    return found


def promises() -> Iterator[tuple[str, str]]:
    """Each promise of docs/security.md, or hole of others, and the cell of its row that names its tests."""
    columns: list[str] = []
    for line in (ROOT / "docs/security.md").read_text().splitlines():
        row = line.strip("| ").split(" | ") if line.startswith("|") else []
        if not row or not columns:
            columns = row
        elif line.startswith("|-"):
            continue
        elif columns[-1] in ("test", "tests", "held by") and "does not apply" not in line:
            yield row[0], row[-1]


def test_each_promise_names_a_test_that_exists() -> None:
    """`tests/test_x.py`: `test_of_that_file`, `TestThere::test_this`; `test_whose_name_only_one_file_has`."""
    places = defined()
    wrong = []
    for promise, tests in promises():
        named = 0
        for part in tests.split(";"):
            (file,) = re.findall(r"`(tests/[^`]+\.py)`:", part) or [""]
            for name in re.findall(r"`(test_\w+|Test\w+(?:::test_\w+)?)`", part):
                named += 1
                there = places.get(name, set())
                if not (file in there if file else len(there) == 1):
                    wrong.append(f"{promise}: {name} is in {sorted(there) or 'no file'}")
        if not named and not tests.startswith("the same"):
            wrong.append(f"{promise}: names no test")
    assert wrong == []
