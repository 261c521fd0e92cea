"""Where no known failure matched: next steps that know the run, the process's last words, and log lines with those around them."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from crashkit.evidence.text.log import read_log
from crashkit.evidence.text.neighbours import last_words
from crashkit.pipeline import Options, analyze
from crashkit.report import html, markdown, text
from tests.crashes import a_debuggable_interpreter, an_interpreter, python_crash

RAISES = """\
import os, signal, sys
print("connecting to the queue", file=sys.stderr)
print("token=ghp_0123456789abcdefghijABCDEFGHIJ012345", file=sys.stderr, flush=True)
if os.fork() == 0:
    os.kill(os.getppid(), signal.SIGSYS)
    os._exit(0)
while True:
    signal.pause()
"""


@pytest.mark.slow
def test_a_core_and_its_log(tmp_path: Path) -> None:
    script = tmp_path / "ends.py"
    script.write_text(RAISES)
    made = python_crash(script, python=an_interpreter(), faulthandler=False)
    alone = analyze(made.core, options=Options(gdb=None))
    assert not alone.findings
    assert any(step.startswith(f"crashkit analyze {made.core} ... ") for step in alone.next_steps)
    assert any(step.startswith(f"crashkit gdb {made.core}") for step in alone.next_steps)
    assert not any("crashkit run" in step for step in alone.next_steps), "there is a core"
    both = analyze([made.core, made.path / "stderr.txt"], options=Options(gdb=None))
    assert both.last_words[0] == "connecting to the queue" and "ghp_" not in "".join(both.last_words), "its last words, masked"
    assert not any("core ... " in step for step in both.next_steps)
    for shown in ("\n".join(text.summary(both, None, False, 120)), html.render(both), markdown.summary(both)):
        assert "connecting to the queue" in shown and "crashkit gdb" in shown


@pytest.mark.slow
def test_the_fix_says_which_value_it_is_about() -> None:
    crash = analyze(python_crash("values.py", "small", python=a_debuggable_interpreter()).core, options=Options(gdb=None))
    (finding,) = [one for one in crash.findings if one.id == "null-deref"]
    assert finding.fix[0].startswith("Check `buffer` before ") and "it is 24" in finding.fix[0] and len(finding.fix) == 1
    assert crash.next_steps and not any("--locals" in step for step in crash.next_steps)


def test_without_a_core_it_is_run_again(tmp_path: Path) -> None:
    log = tmp_path / "err.log"
    log.write_text("started\nworker crashed: got SIGBUS\n")
    crash = analyze(log)
    assert crash.next_steps[0].startswith("crashkit run -- ") and not any("gdb" in step for step in crash.next_steps)
    assert crash.last_words == ("started", "worker crashed: got SIGBUS")


STORED = """\
           PID: 12345 (python3)
        Signal: 11 (SEGV)
  Command Line: python3 serve.py --name "two words"
    Executable: /usr/bin/python3.11
       Storage: {storage}
       Message: Process 12345 (python3) of user 1000 dumped core.

                Stack trace of thread 12345:
                #0  0x00007f0011223344 n/a (libfoo.so + 0x1234)
"""
KEPT = "/var/lib/systemd/coredump/core.python3.1000.7f.12345.1714990272000000.zst"


@pytest.mark.parametrize(
    ("told", "first"),
    [
        (STORED.format(storage=f"{KEPT} (present)"), f"crashkit analyze {KEPT} "),
        (STORED.format(storage=f"{KEPT} (missing)"), "crashkit run -- python3 serve.py --name 'two words' "),
        (STORED.format(storage="/var/lib/x;reboot;#.zst (present)"), "crashkit analyze '/var/lib/x;reboot;#.zst' "),
        (STORED.format(storage="none"), "crashkit run -- python3 serve.py --name 'two words' "),
        (
            "systemd-coredump[9]: [\U0001f845] Process 12345 (python3) of user 1000 dumped core.\n",
            "coredumpctl dump 12345 --output=core; crashkit analyze core ",
        ),
        (
            "systemd-coredump[9]: Process 12345 (python3) of user 1000 terminated abnormally without generating a coredump.\n",
            "crashkit run -- ... ",
        ),
    ],
    ids=["present", "missing", "a path to be quoted", "none", "journal", "no core"],
)
def test_a_core_that_the_system_kept_is_the_next_step(told: str, first: str, tmp_path: Path) -> None:
    (log := tmp_path / "told.txt").write_text(told)
    crash = analyze(log)
    assert crash.next_steps[0].startswith(first), crash.next_steps
    kept = "crashkit run" not in first
    assert any(step.startswith("crashkit run") for step in crash.next_steps) is not kept


def test_each_line_has_its_neighbours_once(tmp_path: Path) -> None:
    log = tmp_path / "err.log"
    rows = [f"line {number}" for number in range(5000)]
    rows[3000], rows[3001], rows[4999] = "Segmentation fault (core dumped)", "", "Segmentation fault (core dumped)"
    rows[2999] = "\x1b[31mred\x1b[0m"
    log.write_text("\n".join(rows))
    lines = read_log(log).lines
    assert [(line.before, line.text, line.after) for line in lines[-2:]][-1] == (
        ("line 4997", "line 4998"),
        "Segmentation fault (core dumped)",
        (),
    )
    only = tmp_path / "one.log"
    only.write_text("\n".join(rows[:3003]))
    (line,) = read_log(only).lines
    assert (line.before, line.line, line.after) == (("line 2998", "red"), 3001, ("line 3002",))
    assert "line 2998\nred\nSegmentation fault" in markdown.summary(analyze(only))
    assert '<code class="near">line 2998</code>' in html.render(analyze(only))


@pytest.mark.parametrize(
    ("log", "words"),
    [
        (b"", ()),
        (b"one\n\ntwo\n", ("one", "two")),
        (b"loading\nFatal Python error: Segmentation fault\n\nCurrent thread 0x1 (most recent call first):\n", ("loading",)),
        (b"x" * 200_000, ("x" * 300 + "\xe2\x80\xa6".encode("latin-1").decode(),)),
        (b"\xff\xfe\n", ("\ufffd\ufffd",)),
    ],
)
def test_last_words(log: bytes, words: tuple[str, ...]) -> None:
    assert last_words(io.BytesIO(log)) == words
