"""What the other tests stand on: a crash that cannot be made says why, to each that asks for it; skips are counted by reason."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.crashes import c_crash, some_interpreters, these_versions

pytest_plugins = ["pytester"]


def test_a_program_that_cannot_be_built_says_why_every_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CRASHKIT_TEST_CRASHES", str(tmp_path))
    (tmp_path / "wrong.c").write_text("#include <no-such-header.h>\n")
    for _ in range(2):
        with pytest.raises(AssertionError, match=r"no-such-header\.h: No such file"):
            c_crash(str(tmp_path / "wrong.c"))


def test_a_version_that_is_not_here_is_replaced_or_skipped_once() -> None:
    (stands_in,) = some_interpreters("3.1", "3.2")
    assert stands_in.values[0] is not None and not stands_in.marks
    (skipped,) = these_versions("3.1", "3.2")
    assert [mark.name for mark in skipped.marks] == ["skip"]


@pytest.mark.slow
@pytest.mark.parametrize("options", [(), ("-n", "2")])
def test_skips_are_counted_by_reason(pytester: pytest.Pytester, options: tuple[str, ...]) -> None:
    pytester.makeconftest((Path(__file__).parent / "conftest.py").read_text())
    pytester.makepyfile(
        "import pytest\n"
        "@pytest.mark.skip('no gdb here')\n"
        "@pytest.mark.parametrize('n', range(3))\n"
        "def test_marked(n): pass\n"
        "def test_called(): pytest.skip('no gdb here')\n"
        "def test_other(): pytest.skip('no torch here')\n"
    )
    result = pytester.runpytest_subprocess("-q", *options)
    result.stdout.fnmatch_lines(["*= skipped =*", "   4  no gdb here", "   1  no torch here", "5 skipped in *"])
