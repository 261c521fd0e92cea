"""Files of a crashed process are found in a repository that lies elsewhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from crashkit.batch.repository import Repository


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    for name in (
        "app/io.py",
        "src/package/core.py",
        "tests/test_io.py",
        "run.py",
        ".venv/lib/python3.11/site-packages/numpy/core.py",
        "abc.py",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    return Repository(tmp_path)


@pytest.mark.parametrize(
    ("file", "own", "expected"),
    [
        ("{}/app/io.py", True, "app/io.py"),
        ("{}/gone.py", True, None),
        # Checked out elsewhere: a container, cibuildwheel.
        ("/home/runner/work/x/x/app/io.py", True, "app/io.py"),
        ("/project/tests/test_io.py", True, "tests/test_io.py"),
        ("app/io.py", True, "app/io.py"),
        ("/srv/run.py", True, "run.py"),
        # Installed from it.
        ("/usr/lib/python3/dist-packages/package/core.py", False, "src/package/core.py"),
        ("/venv/lib/python3.11/site-packages/app/io.py", False, "app/io.py"),
        # Another package's file of that name, the standard library's, one of the environment within.
        ("/venv/lib/python3.11/site-packages/other/app/io.py", False, None),
        ("/venv/lib/python3.11/site-packages/run.py", False, None),
        ("/usr/lib/python3.11/abc.py", False, None),
        ("{}/.venv/lib/python3.11/site-packages/numpy/core.py", False, None),
        ("/a/../run.py", True, None),
        ("<string>", True, None),
        ("", True, None),
        ("a\0b.py", True, None),
        ("/" + "x" * 5000, True, None),
    ],
)
def test_place(file: str, own: bool, expected: str | None, repository: Repository) -> None:
    assert repository.find(file.format(repository.root), own) == expected
