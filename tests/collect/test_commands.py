"""What the commands print for people in a hurry, and how they answer mistakes."""

from __future__ import annotations

import json
import os
import pty
import select
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from crashkit.cli import _SYNONYMS, COMMANDS
from crashkit.model import Crash, Process
from crashkit.report.json import encode
from tests import pseudo_terminal
from tests.collect.conftest import SEGFAULT, Crashkit
from tests.crashes import an_interpreter, python_crash


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("anlyze", "core"), "no such command 'anlyze'; did you mean 'analyze'?"),
        (("lsit",), "no such command 'lsit'; did you mean 'list'?"),
        (("some.core",), "no such command 'some.core'; to analyze a file: crashkit analyze some.core"),
        # A file that is there, or a crash, rather than a command of a similar name.
        (("core",), "no such command 'core'; to analyze a file: crashkit analyze core"),
        (("20261120T231200-57",), "no such command '20261120T231200-57'; to show a crash: crashkit show 20261120T231200-57"),
        (("remove",), "no such command 'remove'; did you mean 'rm'?"),
        (("help",), "no such command 'help'; did you mean '--help'?"),
        (("frobnicate",), "no such command 'frobnicate'\n"),
        (("frobnicate" * 30,), "no such command 'frobnicate"),
        (("run", "--wat", "--", "true"), "No such option"),
        (("attach", "gunicorn: master"), "To find that of a program: pgrep -af 'gunicorn: master'\n"),
        (("attach", "0"), "'0' is not a pid"),
        (("analyze", "core", "--json", "--markdown"), "--json and --markdown cannot be combined: pass one of them."),
        (("analyze", "core", "--sysroot", "roofts"), "'roofts' does not exist"),
        (("bundle", "core", "-o", "x.tar", "--search", "lisb"), "'lisb' does not exist"),
        (("gdb", "core", "--sysroot", "roofts"), "'roofts' does not exist"),
        (("gdb", "core", "--search", "lisb"), "'lisb' does not exist"),
        (("show", "--issue", "--open"), "--issue and --open cannot be combined"),
    ],
)
def test_mistyped(crashkit: Crashkit, arguments: tuple[str, ...], message: str) -> None:
    for name in ("some.core", "core"):
        (crashkit.cwd / name).touch()
    result = crashkit(*arguments)
    assert result.returncode == 2 and message in result.stderr


def test_words_of_other_tools_are_no_commands() -> None:
    assert not {*_SYNONYMS} & {*COMMANDS} and {*_SYNONYMS.values()} <= {*COMMANDS, "--help", "--version"}


@pytest.mark.parametrize("arguments", [("signatures", "list"), ("doctor", "--json"), ("--help",)])
def test_a_full_disk_is_no_bug(crashkit: Crashkit, arguments: tuple[str, ...]) -> None:
    with Path("/dev/full").open("w") as full:
        process = crashkit.start(*arguments, stdout=full)
        _, said = process.communicate(timeout=60)
    assert process.returncode == 1
    assert said == "crashkit: cannot write the output: No space left on device\nMake room, or write to another disk.\n"


def test_a_report_is_not_analyzed_as_a_log(crashkit: Crashkit, tmp_path: Path) -> None:
    """It quotes a crash. Beside the core that it is of, it is no mistake."""
    core = python_crash("threads.py", python=an_interpreter()).core
    folder = tmp_path / "crash-report"
    assert crashkit("analyze", core, "--no-gdb", "-q", "--out", folder).returncode == 0
    for name in ("report.json", "report.html"):
        refused = crashkit("analyze", folder / name)
        assert refused.returncode == 1
        assert refused.stderr.splitlines()[-2:] == [
            f"crashkit: {folder / name} is a report of crashkit, not evidence",
            f"Open {folder / 'report.html'}, or pass the core or log itself.",
        ]
    alone, beside = (
        crashkit("analyze", core, *more, "--no-gdb", "--json") for more in ((), (folder / "report.json", folder / "report.html"))
    )
    texts = [json.loads(one.stdout) for one in (alone, beside)]
    assert texts[0].get("soft_errors") == texts[1].get("soft_errors") and texts[0].get("log") == texts[1].get("log")


def test_options_of_the_command_are_its_own(crashkit: Crashkit) -> None:
    assert crashkit("run", "--no-stderr", sys.executable, "-c", "print(1)", "--wat").stdout == "1\n"


@pytest.mark.slow
def test_analyze_says_as_much_as_asked_for(crashkit: Crashkit, tmp_path: Path) -> None:
    core = python_crash("threads.py", python=an_interpreter()).core
    whole, brief, quiet, markdown = (
        crashkit("analyze", core, *options)
        for options in (("--out", tmp_path / "1"), ("--brief", "--out", tmp_path / "2"), ("-q", "--out", tmp_path / "3"), ("--markdown",))
    )
    assert [one.returncode for one in (whole, brief, quiet, markdown)] == [0] * 4
    assert "innermost first" in whole.stdout and "innermost first" not in brief.stdout
    assert whole.stdout.splitlines()[0] == brief.stdout.splitlines()[0]
    assert "report    " in brief.stdout
    assert (quiet.stdout, quiet.stderr) == ("", "") and (tmp_path / "3" / "report.html").exists()
    assert markdown.stdout.startswith("### ") and markdown.stderr == ""


@pytest.mark.slow
def test_show_in_markdown_in_brief_and_in_a_browser(crashkit: Crashkit, tmp_path: Path) -> None:
    crashkit.python(SEGFAULT, options=())
    assert crashkit("show", "--markdown").stdout.startswith("### Segmentation fault")
    assert "innermost first" not in crashkit("show", "--brief").stdout
    opened = tmp_path / "opened"
    os.mkfifo(opened)
    browser = crashkit.script("xdg-open", f"#!/bin/sh\necho $1 > {opened}\n")
    browser.chmod(0o755)
    crashkit.environment["PATH"] = f"{browser.parent}:{os.environ['PATH']}"
    report = crashkit.crashes()[0]["folder"] / "report.html"
    shown = crashkit("show", "--open")
    assert shown.returncode == 0 and shown.stdout == f"opening {report}\n", "the browser may be on no screen that the user sees"
    assert opened.read_text().strip() == report.as_uri()


@pytest.mark.slow
def test_all_crashes_are_removed_only_after_asking(crashkit: Crashkit) -> None:
    crashkit.python(SEGFAULT)
    assert _on_terminal(crashkit, "rm", "--all", answer="n\n") == 1 and len(crashkit.crashes()) == 1
    assert _on_terminal(crashkit, "rm", "--all", answer="y\n") == 0 and crashkit.crashes() == []
    crashkit.python(SEGFAULT)
    assert _on_terminal(crashkit, "rm", "--all", "--yes", answer="") == 0 and crashkit.crashes() == []
    crashkit.python(SEGFAULT)
    assert crashkit("rm", "--all").returncode == 0, "a script is not asked"


@pytest.mark.slow
@pytest.mark.parametrize("typed", [b"\x03", b"\x04"], ids=["interrupt", "end-of-input"])
def test_a_question_without_an_answer_leaves_the_prompt_a_line_of_its_own(crashkit: Crashkit, typed: bytes) -> None:
    crashkit.python(SEGFAULT)
    process, terminal = pseudo_terminal.start(crashkit.argv("rm", "--all"), cwd=crashkit.cwd, environment=crashkit.environment)
    shown = _read_until(terminal, b"[y/N]: ")
    # input() misses a signal that comes in the moment before it reads (CPython, Parser/myreadline.c): a person types it again.
    answered = False
    while not answered:
        os.write(terminal, typed)
        while not answered and select.select([terminal], [], [], 2)[0]:
            shown += os.read(terminal, 1024)
            answered = b"\n" in shown.partition(b"[y/N]: ")[2]
    assert process.wait(60) == 130 and shown.endswith(b"\n") and len(crashkit.crashes()) == 1
    os.close(terminal)


@pytest.mark.slow
def test_list_tells_the_values_and_the_native_function(crashkit: Crashkit) -> None:
    script = crashkit.script("app.py", "import ctypes\ndef read(size):\n    return ctypes.string_at(size)\nread(24)\n")
    crashkit("run", "--", sys.executable, script)
    (row,) = crashkit("list").stdout.splitlines()[1:]
    assert "read (app.py:3)" in row and "pointer dereference: size = 24, used as a pointer by " in row
    # The folder of the interpreter says nothing, and takes the room of what does.
    assert f"  {Path(sys.executable).name} {script}" in row


def _read_until(terminal: int, wanted: bytes) -> bytes:
    shown = b""
    while wanted not in shown:
        shown += os.read(terminal, 1024)
    return shown


def _on_terminal(crashkit: Crashkit, *arguments: str, answer: str) -> int:
    ours, theirs = pty.openpty()
    try:
        process = crashkit.start(*arguments, stdin=theirs, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.write(ours, answer.encode())
        return process.wait(60)
    finally:
        os.close(ours)
        os.close(theirs)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "refused"), [("notes.txt", True), ("core_of_apples", True), ("core.123", False), ("report.html", False)])
def test_demo_leaves_a_folder_with_other_files_alone(crashkit: Crashkit, name: str, refused: bool) -> None:
    folder = crashkit.cwd / "mine"
    folder.mkdir()
    (folder / name).write_text("precious")
    result = crashkit("demo", "--out", folder)
    assert (f"mine contains other files, such as {name}" in result.stderr) == refused
    assert not refused or (result.returncode == 1 and (folder / name).read_text() == "precious")


def test_bash_completes_commands_options_and_ids(crashkit: Crashkit) -> None:
    crashkit.python(SEGFAULT)
    (crash,) = crashkit.crashes()
    begun = crash["id"][:12]
    assert _completed(crashkit, "ana") == ["analyze"]
    assert "--markdown" in _completed(crashkit, "show", "--")
    assert _completed(crashkit, "show", begun) == _completed(crashkit, "rm", begun) == [crash["id"]]


def test_ids_of_signatures_are_completed_and_files_beside_ids(crashkit: Crashkit) -> None:
    assert _completed(crashkit, "signatures", "show", "cuda-oo") == ["cuda-oom"]
    assert _completed(crashkit, "signatures", "test", "core", "--only", "cuda-oo") == ["cuda-oom"]
    # An empty name: the shell adds whatever files there are.
    assert _completed(crashkit, "gdb", "co") == _completed(crashkit, "compare", "report", "co") == ["co"]
    assert _completed(crashkit, "ci", "art") == ["art"] and _completed(crashkit, "run", "--", "python", "ser") == ["ser"]


def test_pids_of_python_are_completed_for_attach(crashkit: Crashkit) -> None:
    code = "import signal; print(flush=True); signal.pause()"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as program, subprocess.Popen(["sleep", "100"]) as other:
        assert program.stdout is not None and program.stdout.readline()
        try:
            assert str(program.pid) in _completed(crashkit, "attach", str(program.pid)[:-1])
            assert _completed(crashkit, "attach", str(other.pid)) == []
        finally:
            program.kill()
            other.kill()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_reads_what_it_is_given(crashkit: Crashkit, shell: str) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"needs {shell}: apt-get install {shell}")
    done = subprocess.run(
        crashkit.argv(), env={**crashkit.environment, "_CRASHKIT_COMPLETE": f"{shell}_source"}, capture_output=True, text=True, check=True
    )
    assert "compdef" in done.stdout or "complete" in done.stdout
    prepared = "compdef() { :; };" if shell == "zsh" else ""
    subprocess.run([shell, "-c", f"{prepared}{done.stdout}"], check=True)


def test_fish_shows_whole_descriptions(crashkit: Crashkit) -> None:
    """One with a comma in it, too."""
    fish = shutil.which("fish")
    if fish is None:
        pytest.skip("needs fish: apt-get install fish")
    program = crashkit.cwd / "crashkit"
    program.write_text(f'#!/bin/sh\nexec {shlex.join(crashkit.argv())} "$@"\n')
    program.chmod(0o700)
    environment = {**crashkit.environment, "PATH": f"{crashkit.cwd}:{os.environ['PATH']}"}
    code = "_CRASHKIT_COMPLETE=fish_source crashkit | source; complete -C 'crashkit show --show'"
    done = subprocess.run([fish, "--no-config", "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "--show-secrets\tShow what looks like a password, token or key, instead of masking it.\n"


def _completed(crashkit: Crashkit, *words: str) -> list[str]:
    """What the function that the shell is given asks for and gets."""
    environment = {"_CRASHKIT_COMPLETE": "bash_complete", "COMP_WORDS": " ".join(("crashkit", *words)), "COMP_CWORD": str(len(words))}
    done = subprocess.run(
        crashkit.argv(), env={**crashkit.environment, **environment}, cwd=crashkit.cwd, capture_output=True, text=True, check=True
    )
    return [line.partition(",")[2] for line in done.stdout.split()]


@pytest.mark.slow
def test_compare(crashkit: Crashkit) -> None:
    for code in (SEGFAULT, SEGFAULT, "import os; os.abort()"):
        crashkit.python(code, options=())
    first, second, third = (crash["id"] for crash in crashkit.crashes())
    equal = crashkit("compare", first, second)
    assert equal.returncode == 0 and equal.stdout.startswith("The same crash: the fingerprints are equal.\n")
    different = crashkit("compare", first, crashkit.home / third)
    assert different.stdout.startswith("Different crashes.\n")
    assert "signal\n  1  SIGSEGV\n  2  SIGABRT\n" in different.stdout
    nothing = crashkit("compare", first, "zzz")
    assert nothing.returncode == 1 and nothing.stderr.startswith("crashkit: no crash matches 'zzz'")


def test_compare_shows_no_secrets(crashkit: Crashkit) -> None:
    """Also of reports that were written with --show-secrets."""
    for name, password in (("one.json", "pl4ntOne"), ("two.json", "pl4ntTwo")):
        crash = Crash(process=Process(argv=("python", "app.py", "--db-pass", password), environment={"PYTHONPATH": f"/srv/{name}"}))
        (crashkit.cwd / name).write_bytes(encode(crash))
    shown = crashkit("compare", "one.json", "two.json").stdout
    assert "/srv/two.json" in shown and "pl4nt" not in shown
