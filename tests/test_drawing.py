"""What the commands draw: on terminals of any width, and plainly everywhere else."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from rich.text import Text

from crashkit.cli import terminal
from crashkit.crashfolder.manifest import SCHEMA, write_manifest
from crashkit.crashfolder.store import Store
from crashkit.model import Crash, Finding, PythonFrame, Signal, Thread
from crashkit.report import safe
from crashkit.report.renderer import renderer
from tests.pseudo_terminal import start

ROOT = Path(__file__).parent.parent
COLOR = re.compile(r"\x1b\[[0-9;]*m")
PROGRESS = re.compile(r"\x1b\[\?25l.*?\x1b\[\?25h\r?(?:\x1b\[(?:1A|2K))+", re.DOTALL)
"""What is drawn where a command takes longer than a second, and is gone at its end: that depends on what else the machine does."""
CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]")
HOSTILE = "a\x1b[31m\nb\u202e [bold]x[/] [link=http://x]y[/link] :smile: 中文字 {} %s " + "long " * 20
DUMP = f"""Fatal Python error: Segmentation fault

Current thread 0x00007f0000000001 [{HOSTILE.split()[1]}] (most recent call first):
  File "/srv/[red]app[/red]/:smile:/a/very/long/path/to/some/module.py", line 10 in {"f" * 50}
  File "/srv/app.py", line 20 in main
"""


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    store = Store(tmp_path / "store")
    for number, argv in ((11, ["python3", "-m", "server"]), (22, ["server", HOSTILE])):
        work = store.begin("crash")
        manifest = {"schema": SCHEMA, "time": "2026-01-01T00:00:00Z", "pid": number, "signal": 11, "signal_name": "SIGSEGV", "argv": argv}
        write_manifest(work.descriptor, manifest)  # type: ignore[arg-type]
        store.publish(work, f"20260101T000000-{number}-python3.11")
        work.done()
    (tmp_path / "dump.log").write_text(DUMP)
    dropped = ("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR")
    kept = {name: value for name, value in os.environ.items() if name not in dropped}
    return {**kept, "CRASHKIT_HOME": str(store.path), "TERM": "xterm", "PYTHONPATH": str(ROOT)}


COMMANDS = {
    "list": ["list"],
    "show": ["show", "22"],
    "doctor": ["doctor"],
    "signatures": ["signatures", "list"],
    "signature": ["signatures", "show", "cuda-concurrent-launch"],
    "test": ["signatures", "test", "dump.log", "--only", "cuda-concurrent-launch"],
    "analyze": ["analyze", "dump.log", "--out", "report"],
}


# What it finds here changes while other tests run.
DOCTOR = f"""
import sys
sys.path.insert(0, {str(ROOT)!r})
from crashkit.collect import doctor
doctor.examine = lambda command: [
    doctor.Finding("core pattern", "ok", "the kernel writes 'core.%p' into the working directory of the process that dies", ""),
    doctor.Finding("setuid", "warning", "a process that changes its user leaves no core", "sysctl -w fs.suid_dumpable=2 (as root)"),
    doctor.Finding("gdb", "problem", "gdb [bold]is[/] not here, and " + "much " * 20, "apt install gdb"),
]
from crashkit.cli import group
group.main(["doctor"])
"""


def argv(name: str) -> list[str]:
    if name == "doctor":
        return [sys.executable, "-c", DOCTOR]
    return [sys.executable, "-m", "crashkit", *COMMANDS[name]]


def on_terminal(command: list[str], folder: Path, environment: dict[str, str], columns: int) -> str:
    process, descriptor = start(command, cwd=folder, environment=environment, columns=columns)
    shown = b""
    try:
        while part := os.read(descriptor, 65536):
            shown += part
    except OSError:
        pass  # EIO: it has ended
    process.wait()
    os.close(descriptor)
    return shown.decode().replace("\r\n", "\n")


def piped(command: list[str], folder: Path, environment: dict[str, str]) -> str:
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120)
    assert "bug" not in done.stderr, done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("columns", [20, 40, 80])
@pytest.mark.parametrize("name", COMMANDS)
def test_rows_fit(name: str, columns: int, environment: dict[str, str], tmp_path: Path) -> None:
    """But for paths, which are copied: only the terminal breaks them."""
    shown = COLOR.sub("", PROGRESS.sub("", on_terminal(argv(name), tmp_path, environment, columns)))
    assert not CONTROL.search(shown.replace("\r", ""))
    wide = [row for row in shown.splitlines() if safe.cells(row.rstrip()) > columns and "/report" not in row and str(tmp_path) not in row]
    assert shown.strip() and wide == []


@pytest.mark.slow
@pytest.mark.parametrize("name", ["show", "doctor", "signatures", "signature", "test"])
def test_nothing_is_lost_on_a_narrow_terminal(name: str, environment: dict[str, str], tmp_path: Path) -> None:
    """Not a character, but spaces: also those that a narrow column folds."""
    narrow = COLOR.sub("", PROGRESS.sub("", on_terminal(argv(name), tmp_path, environment, 40)))
    plain = piped(argv(name), tmp_path, environment)
    assert re.sub(r"\s", "", narrow) == re.sub(r"\s", "", plain)


def test_the_command_line_COLUMNS_narrows(environment: dict[str, str], tmp_path: Path) -> None:
    shown = COLOR.sub("", on_terminal(argv("signatures"), tmp_path, {**environment, "COLUMNS": "40"}, 200))
    assert max(map(len, shown.splitlines())) <= 40


@pytest.mark.slow
@pytest.mark.parametrize("name", COMMANDS)
def test_pipes_get_plain_lines_whatever_the_environment_says(name: str, environment: dict[str, str], tmp_path: Path) -> None:
    plain = piped(argv(name), tmp_path, environment)
    odd = {**environment, "FORCE_COLOR": "1", "CLICOLOR_FORCE": "1", "TTY_COMPATIBLE": "1", "COLUMNS": "20", "GITHUB_ACTIONS": "true"}
    assert piped(argv(name), tmp_path, odd) == plain
    assert "\x1b" not in plain and not [row for row in plain.splitlines() if row != row.rstrip()]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["list", "show"])
def test_strings_of_the_evidence_are_neither_markup_nor_control_characters(name: str, environment: dict[str, str], tmp_path: Path) -> None:
    for shown in (piped(argv(name), tmp_path, environment), on_terminal(argv(name), tmp_path, environment, 500)):
        assert r"a\x1b[31m\nb\u202e [bold]x[/] [link=http://x]y[/link] :smile: 中文字 {} %s" in COLOR.sub("", shown)


@pytest.mark.slow
def test_those_of_a_log_neither(environment: dict[str, str], tmp_path: Path) -> None:
    for shown in (piped(argv("analyze"), tmp_path, environment), on_terminal(argv("analyze"), tmp_path, environment, 120)):
        assert "[red]app[/red]/:smile:/a/very" in COLOR.sub("", shown)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["list", "doctor", "signatures", "analyze"])
def test_color_can_be_declined(name: str, environment: dict[str, str], tmp_path: Path) -> None:
    assert COLOR.search(on_terminal(argv(name), tmp_path, environment, 80))
    for declined in ({"NO_COLOR": "1"}, {"NO_COLOR": ""}, {"TERM": "dumb"}):
        shown = on_terminal(argv(name), tmp_path, {**environment, **declined}, 80)
        assert "\x1b" not in PROGRESS.sub("", shown), declined


SLOW = f"""
import sys, threading
sys.path.insert(0, {str(ROOT)!r})
from crashkit.cli import analyze
from crashkit.model import Crash, Finding, Signal
written, more, really_write = [], threading.Event(), sys.stderr.write
def write(text):
    count = really_write(text)  # click tries whether it takes bytes
    written.append(text)
    more.set()
    return count
sys.stderr.write = write
def until(words):
    while words not in "".join(written):
        more.wait()
        more.clear()
analyze._PATIENCE = 0.1
with analyze.Progress(quiet=False, renders=False) as progress:
    until("reading the evidence …")
    progress.stage("gdb", lambda: Crash(signal=Signal(number=11, name="SIG [bold]X[/]")))
    if "drawn" in sys.argv:
        until("reading stacks with gdb …")
print("done")
"""


@pytest.mark.slow
def test_progress_on_a_terminal_is_drawn_and_gone_at_the_end(environment: dict[str, str], tmp_path: Path) -> None:
    shown = on_terminal([sys.executable, "-c", SLOW, "drawn"], tmp_path, environment, 40)
    assert "reading the evidence …" in shown and "reading stacks with gdb …" in shown
    assert re.search(r"\x1b\[2KSIG \[bold\]X\[/\]\n", shown), "the first answer stands above, on a line of its own"
    assert re.search(r"\x1b\[\?25h\r(?:\x1b\[1A)?\x1b\[2Kdone\n$", shown), "the cursor is back, and the line is free"


@pytest.mark.slow
@pytest.mark.parametrize("variables", [{}, {"TERM": "dumb"}])
def test_progress_elsewhere_is_one_line(variables: dict[str, str], environment: dict[str, str], tmp_path: Path) -> None:
    if variables:
        shown = on_terminal([sys.executable, "-c", SLOW], tmp_path, {**environment, **variables}, 80)
    else:
        shown = subprocess.run([sys.executable, "-c", SLOW], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60).stdout
    assert shown.splitlines() == ["reading the evidence …", "SIG [bold]X[/]", "done"]


def test_what_runs_a_command_does_not_load_what_draws(environment: dict[str, str], tmp_path: Path) -> None:
    command = [sys.executable, "-X", "importtime", "-m", "crashkit", "run", "--", "/bin/true"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and "crashkit.collect.run" in done.stderr
    assert not re.search(r"\brich\b", done.stderr)


def test_what_runs_a_command_does_not_load_what_reads_cores(environment: dict[str, str], tmp_path: Path) -> None:
    """They cost as much as the rest of its start; a crash loads them in the process that keeps it."""
    command = [sys.executable, "-X", "importtime", "-m", "crashkit", "run", "--", "/bin/true"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and "crashkit.collect.run" in done.stderr
    assert not re.search(r"\b(?:msgspec|crashkit\.(?:model|arch|memory|evidence\.core))\b", done.stderr)


def test_a_pipe_gets_one_line_for_one_thing(environment: dict[str, str], tmp_path: Path) -> None:
    rows = piped(argv("doctor"), tmp_path, environment).splitlines()
    assert len(rows) == 5 and len(rows[3]) > 120


def test_a_terminal_that_can_do_nothing_is_as_wide_as_it_says(environment: dict[str, str], tmp_path: Path) -> None:
    shown = on_terminal(argv("doctor"), tmp_path, {**environment, "TERM": "dumb"}, 40)
    assert max(map(len, shown.splitlines())) <= 40 and len(on_terminal(argv("doctor"), tmp_path, environment, 120)) < len(shown)


def lines_of_two(environment: dict[str, str]) -> None:
    """Give the crashes of the store a report each: of short names, and of long ones."""
    at = ("decode", "/home/of/us/audit/crash.py"), ("a_function_of_a_long_name", "/srv/a_module_of_a_very_long_name.py")
    for path, (function, file) in zip(sorted(Path(environment["CRASHKIT_HOME"]).iterdir()), at, strict=True):
        frame = PythonFrame(function=function, file=file, line=4321)
        crash = Crash(signal=Signal(number=11, name="SIGSEGV"), threads=(Thread(tid=1, crashed=True, frames=(frame,)),), crashed_thread=1)
        (path / "report.json").write_bytes(renderer("json").render(crash))


@pytest.mark.slow
@pytest.mark.parametrize("columns", [30, 80, 100, 200])
def test_each_row_of_a_list_has_its_signal_and_the_line_to_look_at(columns: int, environment: dict[str, str], tmp_path: Path) -> None:
    lines_of_two(environment)
    shown = COLOR.sub("", on_terminal(argv("list"), tmp_path, environment, columns))
    assert shown.count("SIGSEGV") == 2 and shown.count(":4321)") == 2
    # At 30 columns, each crash has several lines, and nothing has to stand beside it.
    assert ("decode (…sh.py:4321)" if columns == 80 else "decode (crash.py:4321)") in " ".join(shown.split())
    assert all(len(row) <= columns for row in shown.splitlines())
    # What stands for an id finds it.
    for short in re.findall(r"20260101T000000-\d+", shown):
        assert piped([*argv("show")[:-1], short], tmp_path, environment)


@pytest.mark.slow
@pytest.mark.parametrize(("columns", "beside"), [(90, []), (140, []), (160, ["COMMAND"]), (300, ["CORE", "SIZE", "REPORT", "COMMAND"])])
def test_a_list_cuts_no_cause_for_columns_that_are_worth_less(
    columns: int, beside: list[str], environment: dict[str, str], tmp_path: Path
) -> None:
    cause = "a null pointer was read, and thirty more words would not fit beside it, at 0x10"
    frame = PythonFrame(function="decode", file="/srv/app.py", line=4)
    finding = Finding(id="null", title=cause, confidence="certain")
    thread = Thread(tid=1, crashed=True, frames=(frame,))
    for path in Path(environment["CRASHKIT_HOME"]).iterdir():
        crash = Crash(signal=Signal(number=11, name="SIGSEGV"), threads=(thread,), crashed_thread=1, findings=(finding,))
        (path / "report.json").write_bytes(renderer("json").render(crash))
    head, row, *_ = COLOR.sub("", on_terminal(argv("list"), tmp_path, environment, columns)).splitlines()
    assert [name for name in head.split() if name in {"CORE", "SIZE", "REPORT", "COMMAND"}] == beside
    assert (cause in row) == (columns in (140, 300))


@pytest.mark.parametrize(
    ("columns", "rows"),
    [
        ("60", ["20261127T123617-12377", "  1  46s  SIGSEGV  ./packed  decode_everything (packed.py:6)", "  Null pointer dereference"]),
        ("30", ["20261127T123617-12377", "  1  46s  SIGSEGV  ./packed", "  decode_everything (packed.p…", "  Null pointer dereference"]),
    ],
)
def test_what_is_stacked_is_not_cut_as_if_it_stood_beside_others(
    columns: str, rows: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(terminal, "width", lambda _stream: int(columns))
    cells = [["ID", "N", "AGE", "SIGNAL", "COMMAND", "WHERE", "CAUSE"]]
    known = ["20261127T123617-12377", "1", "46s", "SIGSEGV", "./packed"]
    beside, whole = ([*cells, [*known, where, "Null pointer dereference"]] for where in ("decod…", "decode_everything (packed.py:6)"))
    table, stacked = ([[Text(cell) for cell in row] for row in texts] for texts in (beside, whole))
    terminal.show_rows(table, (), 24, whole=stacked)
    assert capsys.readouterr().out.splitlines() == rows
