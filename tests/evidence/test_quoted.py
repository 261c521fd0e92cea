"""Text that a mail or a comment quotes, and what editors and chats make of its characters."""

from __future__ import annotations

from pathlib import Path

import pytest

from crashkit.evidence.text.log import read_log
from crashkit.evidence.text.prefixes import strip
from crashkit.model import PythonFrame

DUMP = """Fatal Python error: Segmentation fault

Current thread 0x00007f0000000700 (most recent call first):
  File "/work/app.py", line 12 in decode
  File "/work/app.py", line 30 in <module>
"""


@pytest.mark.parametrize("mark", ["> ", "> > ", ">> "])
def test_quoted_dump(mark: str, tmp_path: Path) -> None:
    (tmp_path / "mail.txt").write_text("".join((mark + line).rstrip() + "\n" for line in DUMP.splitlines()))
    found = read_log(tmp_path / "mail.txt")
    assert found.signal is not None and found.signal.name == "SIGSEGV"
    frames = [frame for frame in found.threads[0].frames if isinstance(frame, PythonFrame)]
    assert [(frame.function, frame.line) for frame in frames] == [("decode", 12), ("<module>", 30)]


@pytest.mark.parametrize("text", [">>> import x", "-> 12 x = 1", "->  0x103077d9b <+11>: movq", "<x> y", ">=3.10"])
def test_what_is_no_quotation(text: str) -> None:
    assert strip(text)[1] == text


@pytest.mark.parametrize(
    "text",
    [
        "terminate called after throwing an instance of \u2018std::length_error\u2018",
        "python: a.c:1: f: Assertion \u2018x > 0\u2019 failed.",
        "Segmentation fault \uff08core dumped\uff09",
        "Process finished with exit code\uff1a139",
    ],
)
def test_bent_characters(text: str, tmp_path: Path) -> None:
    (tmp_path / "chat.txt").write_text(text + "\n")
    found = read_log(tmp_path / "chat.txt")
    assert found.signal is not None and found.soft_errors == ()
    assert found.lines[0].text == text
