"""Tables of crashkit's own are parsed once, and again when they change."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import crashkit
from crashkit.own_tables import own_derived, own_table

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

TABLES = sorted(Path(crashkit.__file__).parent.rglob("*.toml"))


@pytest.fixture
def table(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    path = tmp_path / "words.toml"
    path.write_text('words = ["one"]\n[[more]]\nname = "x"\n')
    return path


def kept(path: Path) -> Path:
    return path.parent / "__pycache__" / f"{path.name}.json"


@pytest.mark.parametrize("path", TABLES, ids=lambda path: path.name)
def test_a_kept_table_is_the_parsed_one(path):
    plain = tomllib.loads(path.read_text())
    assert own_table(path) == plain  # which may keep it
    assert own_table(path) == plain


def test_a_table_is_kept_and_not_parsed_again(table, monkeypatch):
    first = own_table(table)
    monkeypatch.setattr(tomllib, "loads", lambda _: pytest.fail("parsed again"))
    assert own_table(table) == first == {"words": ["one"], "more": [{"name": "x"}]}
    assert kept(table).stat().st_mode & 0o777 == 0o644


def test_a_changed_table_is_parsed_again(table):
    own_table(table)
    table.write_text('words = ["two"]\n')
    assert own_table(table) == {"words": ["two"]}


@pytest.mark.parametrize("damage", [b"", b"x" * 40, None])
def test_a_damaged_copy_does_not_count(table, damage):
    own_table(table)
    data = kept(table).read_bytes()
    kept(table).write_bytes(data[:-3] if damage is None else damage)
    assert own_table(table)["words"] == ["one"]


def test_nothing_is_written_where_python_writes_no_bytecode(table, monkeypatch):
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    own_table(table)
    assert not kept(table).exists()


def test_where_nothing_can_be_written_the_table_is_parsed(table):
    (table.parent / "__pycache__").write_text("a file in its place")
    assert own_table(table)["words"] == ["one"]


def test_what_is_derived_is_kept_until_its_texts_or_its_code_change(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    code, times = tmp_path / "derive.py", []
    code.write_text("1")

    def derived(*texts):
        return own_derived(tmp_path / "lengths", texts, code, lambda: times.append(1) or [len(text) for text in texts])

    assert derived("a", "bc") == derived("a", "bc") == [1, 2] and len(times) == 1
    assert derived("a", "bcd") == [1, 3] and len(times) == 2
    assert derived("ab", "cd") == [2, 2] and len(times) == 3
    code.write_text("22")
    assert derived("ab", "cd") == [2, 2] and len(times) == 4
    (place,) = (tmp_path / "__pycache__").iterdir()
    place.write_bytes(place.read_bytes()[:-1])
    assert derived("ab", "cd") == [2, 2] and len(times) == 5
