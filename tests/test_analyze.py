"""`crashkit analyze` and the command line around it, end to end: exit statuses, what is printed, what is written.

Inputs of every kind are in test_inputs.py, hostile content in test_hostile.py.
"""

from __future__ import annotations

import ast
import json
import os
import re
import select
import shlex
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import click
import pytest

import crashkit.cli
from crashkit.cli import COMMANDS
from crashkit.errors import EvidenceError
from tests import pseudo_terminal
from tests.crashes import NO_NAMESPACES, Folder, an_interpreter, c_crash, python_crash
from tests.evidence import synthetic

CRASHKIT = [sys.executable, "-m", "crashkit"]
ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def crashed() -> Folder:
    return python_crash("threads.py", python=an_interpreter())


def crashkit_(*arguments: str | Path, **options) -> subprocess.CompletedProcess[str]:
    command = [*map(str, options.pop("before", ())), *CRASHKIT, *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL, env=environment, **options)


def status_of(capfd, *arguments: str | Path) -> tuple[int, str, str]:
    """The same in this process, which spares an interpreter's start."""
    status = crashkit.cli._status(list(map(str, arguments)))
    captured = capfd.readouterr()
    return status, captured.out, captured.err


def expected_error(result: tuple[int, str, str], what: str) -> None:
    """One line what, one line what to try, on stderr."""
    status, out, err = result
    assert (status, out) == (1, "")
    # After a second, as it takes on a busy machine, it also says what it does.
    first, second = (line for line in err.splitlines() if not line.endswith(" …"))
    assert first.startswith("crashkit: ") and re.search(what, first), err
    assert second and not second.startswith("crashkit:")


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


class TestBadInput:
    def test_missing(self, capfd, tmp_path):
        expected_error(status_of(capfd, "analyze", tmp_path / "no-such-core"), "does not exist")

    def test_empty(self, capfd, tmp_path):
        (tmp_path / "core").touch()
        expected_error(status_of(capfd, "analyze", tmp_path / "core"), "is empty")

    def test_text_that_is_no_evidence(self, capfd, tmp_path):
        (tmp_path / "notes.txt").write_text("Buy milk.\n" * 100)
        expected_error(status_of(capfd, "analyze", tmp_path / "notes.txt"), "notes.txt")
        assert list(tmp_path.iterdir()) == [tmp_path / "notes.txt"]

    def test_executable(self, capfd):
        expected_error(status_of(capfd, "analyze", Path("/bin/true").resolve()), "not a core")

    def test_executable_under_a_name_that_tries_to_write_the_terminal(self, capfd, tmp_path):
        path = tmp_path / "core\x1b[2J\nsecond\udcff"
        shutil.copy("/bin/true", path)
        result = status_of(capfd, "analyze", path)
        expected_error(result, "not a core")
        assert "\x1b" not in result[2]

    def test_folder_without_evidence(self, capfd, tmp_path):
        expected_error(status_of(capfd, "analyze", tmp_path), "contains no crash evidence")

    @pytest.mark.slow
    def test_an_earlier_report_beside_the_core(self, capfd, crashed, tmp_path):
        """`crashkit analyze core*`, a second time."""
        core = tmp_path / "core"
        core.symlink_to(crashed.core)
        for paths in ((core,), (core, tmp_path / "core-report")):
            status, out, _ = status_of(capfd, "analyze", "--no-gdb", *paths)
            assert status == 0 and "SIGSEGV" in out and "core-report contains" not in out
        expected_error(status_of(capfd, "analyze", tmp_path / "core-report"), "contains a report")
        (tmp_path / "empty").mkdir()
        status, out, _ = status_of(capfd, "analyze", "--no-gdb", core, tmp_path / "empty")
        assert status == 0 and "empty contains no crash evidence" in out

    @pytest.mark.slow
    @pytest.mark.parametrize(
        ("name", "content", "said"),
        [
            ("empty.log", b"", "empty.log is empty"),
            ("gone.log", None, "gone.log does not exist"),
            ("program", b"\x7fELF\2\1\1" + bytes(9) + b"\2\0\x3e\0" + bytes(44), "program is an ELF file but"),
            ("err.log.gz", b"\x1f\x8b\x08", "err.log.gz is gzip data that unpacks to nothing"),
            ("logs.zip", b"PK\5\6" + bytes(18), "logs.zip contains no evidence"),
        ],
        ids=["empty", "gone", "program", "gzip", "zip"],
    )
    def test_a_useless_file_beside_the_core(self, capfd, crashed, tmp_path, name, content, said):
        """`python app.py 2> err.log`, of a process that wrote nothing: the core says what there is to say."""
        if content is not None:
            (tmp_path / name).write_bytes(content)
        for paths in ((crashed.core, tmp_path / name), (tmp_path / name, crashed.core)):
            status, out, _ = status_of(capfd, "analyze", "--no-gdb", "--json", *paths)
            crash = json.loads(out)
            assert status == 0 and crash["threads"]
            hints = [error["hint"] for error in crash["soft_errors"] if said in error["message"]]
            assert hints and not (name.endswith(".log") and "core" in hints[0])
        expected_error(status_of(capfd, "analyze", tmp_path / name), said)

    @pytest.mark.parametrize(
        "command", [["analyze"], ["bundle"], ["gdb", "-c", "bt"], ["compare", "last"], ["signatures", "test"], ["ci", "--out", "out"]]
    )
    def test_a_url_keeps_its_slashes_and_the_hint_fits(self, capfd, tmp_path, monkeypatch, command):
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("CRASHKIT_HOME", str(tmp_path))
        url = "nowhere://host//a/b.core"
        if command == ["compare", "last"]:
            command = ["compare", url]
        status, out, err = status_of(capfd, *command, url)
        message, hint = err.splitlines()
        assert (status, out) == (1, "") and url in message
        assert f"crashkit ci {url} --out" in hint or command[0] == "ci"

    @pytest.mark.skipif(find_spec("s3fs") is not None, reason="the package is installed")
    def test_a_url_whose_package_is_missing(self, capfd, tmp_path):
        pytest.importorskip("fsspec")
        result = status_of(capfd, "ci", "--quiet", "--out", tmp_path / "out", "s3://bucket//a/b.core")
        expected_error(result, "s3://bucket//a/b.core cannot be read: .*s3fs")
        assert "pip install s3fs" in result[2] and "credentials" not in result[2]

    def test_a_url_given_to_the_library(self):
        with pytest.raises(EvidenceError, match=r"https://host//a/b\.core is a URL"):
            crashkit.analyze("https://host//a/b.core")

    def test_a_pattern_that_no_shell_expanded(self, capfd, tmp_path):
        (tmp_path / "core.1").touch()
        result = status_of(capfd, "analyze", tmp_path / "core*")
        expected_error(result, r"core\* does not exist")
        assert f"crashkit ci '{tmp_path}/core*' --out DIR" in result[2]

    def test_nothing_but_useless_files(self, capfd, tmp_path):
        (tmp_path / "core").touch()
        expected_error(status_of(capfd, "analyze", tmp_path / "gone", tmp_path / "core"), "is empty|does not exist")

    @pytest.mark.slow
    def test_two_cores(self, capfd, crashed):
        expected_error(status_of(capfd, "analyze", crashed.core, c_crash("no_python.c").core), "these are 2 crashes, not one")

    @pytest.mark.slow
    @pytest.mark.skipif(os.geteuid() == 0 and not shutil.which("setpriv"), reason="root reads everything, and there is no setpriv here")
    @pytest.mark.parametrize("what", ["file", "folder"])
    def test_unreadable(self, tmp_path, what):
        path = tmp_path / "core"
        path.mkdir() if what == "folder" else path.write_bytes(b"\x7fELF")
        path.chmod(0)
        # Root without its capabilities is a user like others.
        without = ["setpriv", "--bounding-set=-all", "--inh-caps=-all"] if os.geteuid() == 0 else []
        done = crashkit_("analyze", path, before=without)
        path.chmod(0o700)
        expected_error((done.returncode, done.stdout, done.stderr), "no permission to read|cannot be read")

    def test_nothing_given_is_wrong_usage(self, capfd):
        status, out, err = status_of(capfd, "analyze")
        assert (status, out) == (2, "") and "Missing argument" in err

    @pytest.mark.parametrize(
        "arguments",
        [
            ["--path-map", "nonsense"],
            ["--path-map", "/srv=/no/such/folder"],
            ["--sysroot", "/no/such/folder"],
            ["--search", "/no/such/folder"],
            ["--timeout", "0"],
            ["--no-such-option"],
        ],
    )
    def test_wrong_usage(self, capfd, crashed, arguments):
        status, out, _ = status_of(capfd, "analyze", crashed.core, *arguments)
        assert (status, out) == (2, "")

    def test_report_that_cannot_be_written(self, capfd, crashed, tmp_path):
        (tmp_path / "out").write_text("a file")
        status, _, err = status_of(capfd, "analyze", crashed.core, "--no-gdb", "--out", tmp_path / "out")
        assert status == 1
        assert err.splitlines()[-2].endswith("File exists") and "--out" in err.splitlines()[-1]
        assert (tmp_path / "out").read_text() == "a file"


class TestOutput:
    @pytest.mark.slow
    def test_report_beside_the_core_for_this_user_only(self, capfd, crashed, tmp_path):
        core = tmp_path / "core"
        core.symlink_to(crashed.core)
        before = os.umask(0)
        try:
            status, out, err = status_of(capfd, "analyze", core)
        finally:
            os.umask(before)
        assert status == 0
        folder = tmp_path / "core-report"
        assert str(folder / "report.html") in out.replace("\n", "")
        assert {path.name for path in folder.iterdir()} == {"report.html", "report.json"}
        assert mode(folder) == 0o700
        assert {mode(path) for path in folder.iterdir()} == {0o600}
        # The first answer comes before gdb starts.
        assert err.startswith("SIGSEGV")
        first_screen = "\n".join(out.splitlines()[:16])
        for said in ("null pointer", "crasher", "threads.py:70", "return ctypes.string_at(address)"):
            assert said in first_screen
        # A stripped C library has no name for the variant of strlen that the processor asked for.
        assert re.search(r"native +\S*(strlen.* in libc\.so\.6|code in libc\.so\.6, called by \S.* +libc\.so\.6\+0x)", first_screen)

    @pytest.mark.slow
    def test_out(self, capfd, crashed, tmp_path):
        folder = tmp_path / "deep" / "er"
        assert status_of(capfd, "analyze", crashed.core, "--no-gdb", "--out", folder)[0] == 0
        assert mode(folder) == 0o700
        assert json.loads((folder / "report.json").read_bytes())["schema"] == "crashkit.report/1"
        # Again: the report is replaced, and nothing else is left there.
        assert status_of(capfd, "analyze", crashed.core, "--no-gdb", "--out", folder)[0] == 0
        assert {path.name for path in folder.iterdir()} == {"report.html", "report.json"}

    def test_a_link_in_the_way_is_replaced_not_followed(self, capfd, crashed, tmp_path):
        victim = tmp_path / "victim"
        victim.write_text("precious")
        (tmp_path / "out").mkdir()
        (tmp_path / "out" / "report.json").symlink_to(victim)
        assert status_of(capfd, "analyze", crashed.core, "--no-gdb", "--out", tmp_path / "out")[0] == 0
        assert victim.read_text() == "precious"
        assert not (tmp_path / "out" / "report.json").is_symlink()
        # Nor one by the name that it has until it is complete.
        (tmp_path / "out" / f".report.json.{os.getpid()}").symlink_to(victim)
        assert status_of(capfd, "analyze", crashed.core, "--no-gdb", "--out", tmp_path / "out")[0] == 1
        assert victim.read_text() == "precious"

    def test_json_writes_json_and_no_files(self, capfd, crashed, tmp_path):
        core = tmp_path / "core"
        core.symlink_to(crashed.core)
        status, out, err = status_of(capfd, "analyze", core, "--json")
        assert (status, err) == (0, "")
        document = json.loads(out)
        assert (document["schema"], document["signal"]["name"]) == ("crashkit.report/1", "SIGSEGV")
        assert list(tmp_path.iterdir()) == [core]

    def test_json_and_out(self, capfd, crashed, tmp_path):
        status, out, _ = status_of(capfd, "analyze", crashed.core, "--no-gdb", "--json", "--out", tmp_path / "out")
        assert status == 0
        assert json.loads((tmp_path / "out" / "report.json").read_bytes()) == json.loads(out)

    def test_without_gdb(self, capfd, crashed, tmp_path):
        _, out, _ = status_of(capfd, "analyze", crashed.core, "--no-gdb", "--json")
        document = json.loads(out)
        assert document["signal"]["reason"] == "null-pointer"
        crashed_thread = next(thread for thread in document["threads"] if thread.get("crashed"))
        assert any(frame.get("function") == "read" and frame["line"] == 70 for frame in crashed_thread["frames"])
        assert any(error["stage"] == "gdb" for error in document["soft_errors"])

    @pytest.mark.slow
    @pytest.mark.skipif(subprocess.run(["unshare", "-rm", "true"], capture_output=True).returncode != 0, reason=NO_NAMESPACES)
    def test_input_on_a_read_only_disk(self, crashed, tmp_path):
        """The report goes to the working directory then."""
        evidence, work = tmp_path / "evidence", tmp_path / "work"
        evidence.mkdir()
        work.mkdir()
        shutil.copy(crashed.core, evidence / "core")
        script = f'mount --bind "{evidence}" "{evidence}" && mount -o remount,ro,bind "{evidence}" && cd "{work}" && exec "$@"'
        done = crashkit_("analyze", evidence / "core", "--no-gdb", before=["unshare", "-rm", "sh", "-c", script, "sh"])
        assert done.returncode == 0, done.stderr
        (folder,) = work.iterdir()
        assert folder.name.startswith("crashkit-report-")
        assert {path.name for path in folder.iterdir()} == {"report.html", "report.json"}
        assert [path.name for path in evidence.iterdir()] == ["core"]

    @pytest.mark.slow
    def test_nobody_reads_what_we_print(self, crashed):
        process = subprocess.Popen(
            [*CRASHKIT, "analyze", str(crashed.core), "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT
        )
        process.stdout.close()
        assert (process.stderr.read(), process.wait(60)) == ("", 0)


class TestPartialEvidence:
    def test_core_of_another_architecture(self, capfd, tmp_path, monkeypatch):
        path = tmp_path / "core"
        path.write_bytes(synthetic.aarch64())
        monkeypatch.setattr("crashkit.debugger.gdb.debugger.MULTIARCH", "gdb-of-no-such-name")
        status, out, _ = status_of(capfd, "analyze", path)
        assert status == 0
        assert "SIGSEGV" in out and "4242" in out
        document = json.loads((tmp_path / "core-report" / "report.json").read_bytes())
        assert document["process"]["architecture"] == "aarch64"
        assert all(error["message"] and "\n" not in error["message"] for error in document["soft_errors"])

    @pytest.mark.slow
    @pytest.mark.parametrize("program", ["/no/such/gdb", "/bin/false"])
    def test_gdb_that_cannot_be_used(self, capfd, crashed, program):
        status, out, _ = status_of(capfd, "analyze", crashed.core, "--json", "--gdb", program)
        document = json.loads(out)
        assert status == 0 and len(document["threads"]) == 7
        (error,) = [error for error in document["soft_errors"] if error["stage"] == "gdb"]
        assert error["hint"]

    def test_wrong_executable_is_told(self, capfd, crashed):
        _, out, _ = status_of(capfd, "analyze", crashed.core, "--no-gdb", "--json", "--exe", "/bin/true")
        assert any("is not the executable that crashed" in error["message"] for error in json.loads(out)["soft_errors"])


class TestCommands:
    def test_help_lists_every_command(self, capfd):
        status, out, _ = status_of(capfd, "--help")
        assert status == 0
        text = " ".join(out.split())
        for name, help_line in COMMANDS.items():
            assert f"{name} {help_line}" in text

    @pytest.mark.parametrize("name", COMMANDS)
    def test_the_line_is_that_of_the_commands_own_help(self, name):
        command = import_module(f"crashkit.cli.{name}").command
        assert isinstance(command, click.Command)
        assert command.help.strip().splitlines()[0] == COMMANDS[name]

    def test_every_command_module_is_listed(self):
        there = {
            path.stem
            for path in (ROOT / "crashkit" / "cli").glob("*.py")
            if "def command(" in path.read_text() or "\ncommand = " in path.read_text()
        }
        assert there == COMMANDS.keys()

    def test_help_imports_no_command(self):
        code = "import sys; from crashkit.cli import _status; _status(['--help']); print(*sorted(sys.modules), file=sys.stderr)"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
        loaded = set(done.stderr.split())
        assert not loaded & {f"crashkit.cli.{name}" for name in COMMANDS}
        assert not loaded & {"msgspec", "jinja2", "elftools", "rich", "crashkit.pipeline"}

    def test_an_analysis_imports_what_reads_logs_only_for_logs(self):
        """Their patterns took as long to compile as all other modules to import, before anything is known of a core."""
        code = "import sys, crashkit.pipeline; print(*sorted(sys.modules))"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
        late = {"log", "formats", "log_patterns", "several", "prefixes"}
        assert not set(done.stdout.split()) & {f"crashkit.evidence.text.{name}" for name in late}

    def test_unknown_command(self, capfd):
        status, _, err = status_of(capfd, "analyse")
        assert status == 2 and "no such command" in err

    def test_version(self, capfd):
        assert status_of(capfd, "--version")[:2] == (0, f"crashkit, version {crashkit.__version__}\n")

    @pytest.mark.slow
    def test_only_the_command_line_prints_and_exits(self):
        """And only the debugger speaks MI: the contract of the layers."""
        for path in (ROOT / "crashkit").rglob("*.py"):
            tree = ast.parse(path.read_text())
            called = {ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
            imported = {alias.name.split(".")[0] for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
            imported |= {(node.module or "").split(".")[0] for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
            inside = path.relative_to(ROOT / "crashkit")
            # testrun/supervise.py is what pytest replaces itself with: a program of its own.
            if inside.parts[0] not in ("cli", "__main__.py", "demo_server.py") and str(inside) != "testrun/supervise.py":
                assert not called & {"print", "sys.exit", "exit", "quit"}, inside
                assert "click" not in imported, inside
            if inside.parts[0] != "debugger":
                assert "pygdbmi" not in imported, inside


class TestOurBug:
    """What nobody foresaw: status 3, a log file with the traceback, its path on stderr, no traceback there."""

    @pytest.fixture
    def broken(self, monkeypatch):
        def explode(*_arguments, **_names):
            raise ZeroDivisionError("not foreseen")

        # No reader: there is no net below.
        monkeypatch.setattr("crashkit.pipeline.sort_out", explode)

    def test_log_file(self, capfd, crashed, tmp_path, broken, monkeypatch):
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
        status, out, err = status_of(capfd, "analyze", crashed.core)
        assert (status, out) == (3, "")
        assert "Traceback" not in err and len(err.splitlines()) == 2
        (log,) = tmp_path.iterdir()
        assert str(log) in err
        assert mode(log) == 0o600
        text = log.read_text()
        assert f"crashkit {crashkit.__version__}, Python {sys.version.split()[0]}" in text
        assert str(crashed.core) in text
        assert text.rstrip().endswith("ZeroDivisionError: not foreseen")

    def test_no_room_for_the_log_file(self, capfd, crashed, broken, monkeypatch):
        def full(*_arguments, **_names):
            raise OSError(28, "No space left on device")

        monkeypatch.setattr("tempfile.mkstemp", full)
        status, _, err = status_of(capfd, "analyze", crashed.core)
        assert status == 3 and "ZeroDivisionError: not foreseen" in err


def interrupted(arguments: Sequence[str | Path], gate: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    """Send SIGINT once something below the command has opened the gate, as Ctrl-C does: to the whole process group."""
    process = subprocess.Popen(
        [*CRASHKIT, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        start_new_session=True,
    )
    try:
        gate.read_bytes()
        os.killpg(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


@pytest.mark.slow
def on_screen(shown: str) -> list[str]:
    """The lines that a terminal has after all that was written to it, of the codes that an erased answer uses."""
    lines = [""]
    for code, text in re.findall(r"(\x1b\[\??\d*[A-Za-z]|\r?\n|\r)|([^\x1b\r\n]+)", shown):
        if code.endswith("\n"):
            lines.append("")
        elif code.endswith("A"):
            del lines[len(lines) - int(code[2:-1] or 1) - 1 :]
            lines.append("")
        elif code.endswith("K"):
            lines[-1] = ""
        lines[-1] += text
    return lines


@pytest.mark.slow
@pytest.mark.parametrize("columns", [60, 120])
def test_a_terminal_has_one_answer_in_the_end(crashed, tmp_path, columns):
    """The first one is there while gdb works; the whole one takes its place. Neither what stood above nor a log on stderr is touched."""
    analyze = f"{shlex.quote(sys.executable)} -m crashkit analyze {crashed.core} --brief --out {tmp_path / 'report'}"
    environment = {**os.environ, "TERM": "xterm", "NO_COLOR": "1"}
    for redirected, first in (("", 0), (f" 2>{tmp_path / 'log'}", 0), (f" >{tmp_path / 'out'}", 1)):
        process, terminal = pseudo_terminal.start(
            ["sh", "-c", f"echo above; {analyze}{redirected}"], environment=environment, columns=columns
        )
        shown = b""
        with suppress(OSError):  # EIO: it has ended
            while part := os.read(terminal, 65536):
                shown += part
        os.close(terminal)
        assert process.wait() == 0
        screen = on_screen(shown.decode())
        assert screen[0] == "above"
        assert sum(line.startswith("SIGSEGV: ") for line in screen) == first
        assert (screen[1].startswith("SIGSEGV  ")) == (not first)
        assert (b"SIGSEGV: " in shown) == (not redirected.startswith(" 2>"))


def test_interrupted_while_gdb_works(crashed, tmp_path):
    """A gdb that takes its first command and never answers; it holds a FIFO open for as long as it lives."""
    gate, held, program = tmp_path / "gate", tmp_path / "held", tmp_path / "slow-gdb"
    os.mkfifo(gate)
    os.mkfifo(held)
    alive = os.open(held, os.O_RDONLY | os.O_NONBLOCK)
    program.write_text(f"#!/bin/sh\nexec 3> '{held}'\nread -r command\n: > '{gate}'\nexec sleep 1000\n")
    program.chmod(0o755)
    done = interrupted(["analyze", crashed.core, "--gdb", program, "--out", tmp_path / "out"], gate, tmp_path)
    assert done.returncode == 130
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "out").exists()
    ended = select.poll()
    ended.register(alive, select.POLLHUP)
    assert ended.poll(30_000), "gdb was left behind"
    os.close(alive)
