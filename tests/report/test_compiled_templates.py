"""Compiled templates are kept beside the templates, as Python keeps compiled modules, and used for the very same text only."""

from __future__ import annotations

from pathlib import Path

import pytest
from jinja2 import Environment, FileSystemLoader

from crashkit.report.compiled_templates import CompiledTemplates


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("sys.dont_write_bytecode", False)
    (tmp_path / "page.html").write_text("<p>{{ name }}\n")
    return tmp_path


def rendered(folder: Path, autoescape: bool = True) -> tuple[str, int]:
    """The page, and how many templates had to be compiled for it."""
    compiled: list[object] = []

    class Counting(Environment):
        def _compile(self, *given: object, **named: object):  # type: ignore[no-untyped-def, override]
            compiled.append(given)
            return super()._compile(*given, **named)  # type: ignore[arg-type]

    environment = Counting(loader=FileSystemLoader(folder), bytecode_cache=CompiledTemplates(folder), autoescape=autoescape)
    return environment.get_template("page.html").render(name="<a>"), len(compiled)


def test_it_is_compiled_once(folder: Path) -> None:
    assert rendered(folder) == ("<p>&lt;a&gt;", 1)
    assert rendered(folder) == ("<p>&lt;a&gt;", 0)


def test_another_text_is_compiled_again(folder: Path) -> None:
    rendered(folder)
    (folder / "page.html").write_text("<b>{{ name }}\n")
    assert rendered(folder) == ("<b>&lt;a&gt;", 1)


def test_other_options_make_other_code(folder: Path) -> None:
    rendered(folder)
    assert rendered(folder, autoescape=False) == ("<p><a>", 1)


@pytest.mark.parametrize("damage", [b"", b"j2", b"no code at all"])
def test_a_damaged_file_is_compiled_again(folder: Path, damage: bytes) -> None:
    rendered(folder)
    (kept,) = (folder / "__pycache__").iterdir()
    kept.write_bytes(damage)
    assert rendered(folder) == ("<p>&lt;a&gt;", 1)
    assert rendered(folder) == ("<p>&lt;a&gt;", 0)


@pytest.mark.slow
def test_a_file_that_was_cut_is_compiled_again(folder: Path) -> None:
    rendered(folder)
    (kept,) = (folder / "__pycache__").iterdir()
    whole = kept.read_bytes()
    for size in range(len(whole)):
        kept.write_bytes(whole[:size])
        assert rendered(folder)[0] == "<p>&lt;a&gt;"


def test_where_nothing_may_be_written(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "__pycache__").write_text("a file in place of the folder")
    assert rendered(folder) == rendered(folder) == ("<p>&lt;a&gt;", 1)
    (folder / "__pycache__").unlink()
    monkeypatch.setattr("sys.dont_write_bytecode", True)
    assert rendered(folder) == rendered(folder) == ("<p>&lt;a&gt;", 1)
    assert not (folder / "__pycache__").exists()
