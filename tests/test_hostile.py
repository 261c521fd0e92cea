"""A process whose names try to break the report, through the whole command line.

That nothing which comes with a core is run is tested in debugger/test_nothing_runs.py.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

from tests.crashes import NO_DEBUG_INFO, python_crash, some_interpreters

ROOT = Path(__file__).parent.parent
ARGUMENT = b"<marquee onload=alert(2)>\xff\x1b]0;owned\x07\n--flag"
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


class Tags(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.attributes += [name for name, _ in attributes]


@pytest.fixture(scope="module", params=some_interpreters("3.8", "3.12"))
def analyzed(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("hostile")
    crash = python_crash("hostile.py", ARGUMENT, python=request.param)
    command = [sys.executable, "-m", "crashkit", "analyze", crash.core, "--out", folder / "report"]
    run = subprocess.run(command, capture_output=True, timeout=120, cwd=folder, env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"})
    assert run.returncode == 0, run.stderr
    return run, folder


@pytest.mark.slow
def test_the_terminal_gets_no_control_characters(analyzed):
    run, _ = analyzed
    for stream in (run.stdout, run.stderr):
        assert not CONTROL.search(stream.decode())


@pytest.mark.slow
def test_the_report_has_no_markup_of_the_process(analyzed):
    _, folder = analyzed
    page = (folder / "report" / "report.html").read_text()
    tags = Tags(page)
    assert "img" not in tags.tags
    assert "marquee" not in tags.tags
    assert not [name for name in tags.attributes if name.startswith("on")]
    assert "<script>alert" not in page
    assert "alert" in page  # it is shown, as text


def crashed_thread(folder):
    report = json.loads((folder / "report" / "report.json").read_bytes())
    return report["python"]["debug_info"], next(thread for thread in report["threads"] if thread.get("crashed"))


@pytest.mark.slow
def test_json_is_valid(analyzed):
    _, folder = analyzed
    _, crashed = crashed_thread(folder)
    assert {"string_at", "crash", "run"} <= {frame["function"] for frame in crashed["frames"] if frame["kind"] == "python"}


@pytest.mark.slow
def test_json_keeps_what_was_there(analyzed):
    """PyStack leaves out the frame whose file has a name beyond Latin-1, and names no threads."""
    _, folder = analyzed
    debuggable, crashed = crashed_thread(folder)
    if not debuggable:
        pytest.skip(NO_DEBUG_INFO)
    assert crashed["name"].startswith("</script><script>")
    frame = next(frame for frame in crashed["frames"] if frame["kind"] == "python" and frame["function"] != "string_at")
    assert frame["function"].startswith("</script><script>")
    assert "\x1b" in frame["file"] or "\\x1b" in frame["file"]
    assert {"text", "markup", "escapes", "lines", "surrogate", "endless", "rogue"} <= frame["locals"].keys()
    assert len(frame["locals"]["endless"]) < 10_000
