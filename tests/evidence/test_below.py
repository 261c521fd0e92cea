"""A folder whose subfolders hold cores: the only one is analyzed, several are named."""

from __future__ import annotations

import gzip
import re
import shutil
from pathlib import Path

import pytest

from crashkit.errors import EvidenceError
from crashkit.evidence import below
from crashkit.pipeline import Options, analyze

from ..crashes import Folder, an_interpreter, python_crash


@pytest.fixture(scope="module")
def crashed() -> Folder:
    return python_crash("scenarios.py", "read_null", python=an_interpreter())


def put(core: Path, place: Path) -> Path:
    place.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(core, place)
    return place


def test_the_only_core_is_found(crashed: Folder, tmp_path: Path) -> None:
    put(crashed.core, tmp_path / "cores" / "app" / "core.77")
    (tmp_path / "README").write_text("What is in these folders.\n")
    crash = analyze(tmp_path, options=Options(gdb=None))
    assert crash.signal is not None and crash.signal.reason == "null-pointer"
    assert crash.source is not None and crash.source.path.endswith("cores/app/core.77")


def test_a_log_above_belongs_to_it(crashed: Folder, tmp_path: Path) -> None:
    put(crashed.core, tmp_path / "cores" / "core")
    shutil.copy(crashed.path / "stderr.txt", tmp_path / "stderr.log")
    crash = analyze(tmp_path, options=Options(gdb=None))
    assert crash.signal is not None and crash.signal.reason == "null-pointer"
    assert any(line.path and line.path.endswith("stderr.log") for line in crash.log)


def test_several_are_named(crashed: Folder, tmp_path: Path) -> None:
    put(crashed.core, tmp_path / "a" / "core.1")
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "core.2.gz").write_bytes(gzip.compress(b"\x7fELF"))
    with pytest.raises(EvidenceError, match=re.escape("contains 2 crashes, not one: a/core.1, b/core.2.gz")) as raised:
        analyze(tmp_path, options=Options(gdb=None))
    assert f"crashkit ci {tmp_path} --out DIR" in (raised.value.hint or "")


def test_a_core_in_the_folder_itself_counts_alone(crashed: Folder, tmp_path: Path) -> None:
    put(crashed.core, tmp_path / "core")
    put(crashed.core, tmp_path / "old" / "core.1")
    assert analyze(tmp_path, options=Options(gdb=None)).signal is not None


def test_bounds(crashed: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither links nor hidden folders nor what lies too deep, and no more entries than a person would look through."""
    deep = tmp_path.joinpath(*"12345")
    put(crashed.core, deep / "core")
    put(crashed.core, tmp_path / ".git" / "core")
    (tmp_path / "link").symlink_to(deep)
    assert below.cores_below(tmp_path) == below.Below((), False)
    shallow = put(crashed.core, tmp_path / "z" / "core")
    assert below.cores_below(tmp_path).cores == (shallow,)
    monkeypatch.setattr(below, "MOST_ENTRIES", 2)
    assert below.cores_below(tmp_path) == below.Below((), False)
