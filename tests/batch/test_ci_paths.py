"""What `crashkit ci` takes as PATH beside folders: a bundle, which is one crash, and a pattern that no shell has expanded."""

from __future__ import annotations

from pathlib import Path

import pytest

from crashkit.batch.remote import local
from crashkit.bundling import bundle
from crashkit.pipeline import Options
from tests.batch.test_ci import DUMP, ci, index_of
from tests.crashes import python_crash


@pytest.mark.slow
def test_a_bundle_is_one_crash(tmp_path: Path) -> None:
    """With all that is in it, under its own name, however it is called."""
    crashed = python_crash("threads.py")
    made = bundle([crashed.core, crashed.path / "stderr.txt"], tmp_path / "x.tar.zst", options=Options(gdb=None))
    assert made
    (tmp_path / "x.tar.zst").rename(tmp_path / "artifact")
    shown = ci(tmp_path / "artifact", "--out", tmp_path / "out", "--no-gdb")
    assert shown.returncode == 0, shown.stderr
    (entry,) = index_of(tmp_path / "out").entries
    assert entry.failed is None and entry.evidence == (str(tmp_path / "artifact"),) and entry.stack


def test_a_pattern_that_no_shell_expanded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Quoted in YAML, or on a shell that leaves it alone. What exists under that name is meant itself."""
    for name in ("b/x.log", "a/x.log", "a/y.txt", "a[1].log"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(DUMP)
    monkeypatch.chdir(tmp_path)
    assert local(["*/x.log"], tmp_path) == [(Path("a/x.log"), "a/x.log"), (Path("b/x.log"), "b/x.log")]
    assert local(["**/*.txt"], tmp_path) == [(Path("a/y.txt"), "a/y.txt")]
    assert local(["a[1].log"], tmp_path) == [(Path("a[1].log"), "a[1].log")]
    assert local(["*.none"], tmp_path) == [(Path("*.none"), "*.none")]
    assert local(["a/x.log", "a/*.log"], tmp_path) == [(Path("a/x.log"), "a/x.log")]
