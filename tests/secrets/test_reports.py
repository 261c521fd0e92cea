"""A real crash with secrets everywhere: no report of it shows one, unless asked."""

from __future__ import annotations

import html
import json
import subprocess
import sys
from pathlib import Path

import pytest

from crashkit.model import Crash
from crashkit.pipeline import Options, analyze
from crashkit.report.renderer import RENDERERS, renderer
from crashkit.secrets.crash import strings
from crashkit.secrets.text import MASK
from tests.crashes import DEADLINE, Folder, needs_gdb, python_crash, some_interpreters
from tests.secrets import planted

pytestmark = [needs_gdb, pytest.mark.slow]


def crash(python: object = None) -> Folder:
    return python_crash("with_secrets.py", *planted.ARGUMENTS, python=python, environment=planted.ENVIRONMENT)  # type: ignore[arg-type]


def command(*options: object, folder: Folder) -> tuple[str, str]:
    argv = [sys.executable, "-m", "crashkit", "analyze", folder.core, folder.path / "stderr.txt", *map(str, options)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=DEADLINE, check=True)
    return done.stdout, done.stderr


@pytest.mark.parametrize("gdb", ["gdb", None], ids=["gdb", "pystack"])
@pytest.mark.parametrize("python", some_interpreters("3.8", "3.11", "3.13"))
def test_no_format_shows_a_secret(python: object, gdb: str | None) -> None:
    made = crash(python)
    found = analyze([made.core, made.path / "stderr.txt"], options=Options(gdb=gdb))
    documents = {name: renderer(name).render(found).decode() for name in RENDERERS}
    assert {name: left for name, text in documents.items() if (left := planted.left([text]))} == {}
    assert found.masked == sum(text.count(MASK) for text in strings(found)) > len(planted.ALL)
    assert documents["json"].count(MASK) == json.loads(documents["json"])["masked"] == found.masked
    assert [text for text in planted.READABLE if text not in html.unescape(documents["html"])] == []


def test_the_command_shows_none_on_the_way_either(tmp_path: Path) -> None:
    shown = command("--out", tmp_path, folder=crash())
    assert planted.left(shown) == planted.in_files(tmp_path) == set()
    assert "likely secrets" in shown[0] and MASK in html.unescape((tmp_path / "report.html").read_text())


def test_they_are_shown_if_asked(tmp_path: Path) -> None:
    out, _ = command("--show-secrets", "--out", tmp_path, folder=crash())
    # The lines of the program's other functions are not shown.
    assert planted.in_files(tmp_path) >= planted.SHOWN and "likely secret" not in out
    assert "masked" not in json.loads((tmp_path / "report.json").read_text())


def test_a_report_without_locals_has_none(tmp_path: Path) -> None:
    command("--show-secrets", "--no-locals", "--out", tmp_path, folder=crash())
    report = json.loads((tmp_path / "report.json").read_text())
    frames = [frame for thread in report["threads"] for frame in thread["frames"]]
    assert frames and not [frame for frame in frames if "locals" in frame or "args" in frame]
    assert not {"pl4ntNested02", "pl4ntEnv24"} & planted.left(
        text for frame in frames for text in map(str, frame.get("locals", {}).values())
    )


@pytest.mark.parametrize("shown", [True, False])
def test_nor_has_what_is_told_on_the_way(shown: bool) -> None:
    seen: list[Crash] = []
    analyze([crash().core], options=Options(locals=shown, show_secrets=True), progress=lambda _, so_far: seen.append(so_far()))
    frames = [frame for so_far in seen for thread in so_far.threads for frame in thread.pythons()]
    assert frames and any(frame.locals for frame in frames) is shown


def test_the_fingerprint_and_the_findings_are_the_same_with_and_without() -> None:
    made = crash()
    hidden, shown = (analyze([made.core, made.path / "stderr.txt"], options=Options(show_secrets=show)) for show in (False, True))
    assert hidden.fingerprint and shown.fingerprint and hidden.fingerprint.hash == shown.fingerprint.hash
    # Even the name of a function on which it depends.
    assert planted.left(shown.fingerprint.frames) and not planted.left(hidden.fingerprint.frames)
    assert [(finding.id, finding.confidence) for finding in hidden.findings] == [(one.id, one.confidence) for one in shown.findings]
    assert planted.left(strings(shown.findings)) and not planted.left(strings(hidden.findings))
