"""Nothing in the working directory or in a relative folder of the environment runs: each plant touches a witness."""

from __future__ import annotations

import ast
import json
import os
import shutil
import site
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from crashkit import isolation
from crashkit.collect import keep
from crashkit.debugger.gdb.process import Gdb
from crashkit.debugger.pystack.debugger import ask_pystack
from crashkit.diagnose.catalog import configured
from crashkit.errors import EvidenceError
from crashkit.pipeline import Options, analyze
from tests.crashes import a_debuggable_interpreter, an_interpreter, cores_land_in_cwd, needs_gdb, python_crash

ROOT = Path(__file__).parent.parent
SOURCES = {path.relative_to(ROOT).as_posix(): path for top in ("crashkit", "gdb_scripts") for path in (ROOT / top).rglob("*.py")}

# What starts a program, and what looks one up. `os.fork` alone runs only our own code.
STARTING = {
    *(f"subprocess.{name}" for name in ("Popen", "run", "call", "check_call", "check_output", "getoutput", "getstatusoutput")),
    *(f"os.{name}" for name in dir(os) if name.startswith(("exec", "spawn", "posix_spawn")) or name in ("system", "popen", "startfile")),
    *("pty.spawn", "asyncio.create_subprocess_exec", "asyncio.create_subprocess_shell", "webbrowser.open", "click.edit", "click.launch"),
    *("click.echo_via_pager", "sys.executable", "shutil.which"),
    # These run `uname`, `file`, `gcc` or `ldconfig` of PATH.
    *("platform.platform", "platform.uname", "platform.processor", "platform.architecture", "ctypes.util.find_library"),
}
# What turns data into code.
EXECUTING = {"eval", "exec", "compile", "__import__", "importlib.import_module", "importlib.util.spec_from_file_location", "builtins.eval"}
EXECUTING |= {"pickle", "marshal", "shelve", "codeop", "yaml.load", "jinja2.Template"}
MODULES = {"multiprocessing", "concurrent.futures.process", "runpy", "pexpect", "sh"}

# The mechanism itself, and the user's own commands, which run as the user's shell would run them.
ALLOWED = {
    ("crashkit/isolation.py", "subprocess.Popen"),
    ("crashkit/isolation.py", "shutil.which"),
    ("crashkit/isolation.py", "sys.executable"),
    ("crashkit/collect/supervise/spawn.py", "os.execvpe"),  # the command, and gdb that watches it
    ("crashkit/collect/run.py", "os.execvpe"),  # the command, where there is no place for evidence
    ("crashkit/collect/keep.py", "subprocess.run"),  # --on-crash
    ("crashkit/collect/doctor.py", "shutil.which"),  # gdb is only looked for
    ("crashkit/collect/host/program.py", "shutil.which"),  # what the command would be; it is only looked at
    ("crashkit/collect/host/program.py", "sys.executable"),
    ("crashkit/collect/enable.py", "sys.executable"),  # for the manifest
    ("crashkit/pytest_plugin.py", "os.execv"),  # the supervisor, through isolation, and below it the user's command as it was
    ("crashkit/pytest_plugin.py", "sys.executable"),
    ("crashkit/debugger/pystack/process.py", "sys.executable"),  # whether there is one
}

ALLOWED_CODE = {
    ("crashkit/__init__.py", "importlib.import_module"),  # of a table there
    ("crashkit/cli/__init__.py", "importlib.import_module"),  # of a table there
    ("crashkit/cli/__init__.py", "exec"),  # of nothing: what Python remembers of an interrupt ends with it
    ("crashkit/report/renderer.py", "importlib.import_module"),  # of a table there
    ("crashkit/evidence/plain_pickle.py", "pickle"),  # only plain data: tests/job/test_flight_recorder.py
    ("crashkit/evidence/text/required.py", "importlib.import_module"),  # Python's own parser of patterns
    ("gdb_scripts/crashkit_python.py", "importlib.util.spec_from_file_location"),  # libpython.py: tests/debugger/test_libpython_file.py
}


def used(path: Path) -> Iterator[str]:
    """What starts programs here, under whatever name it was imported."""
    tree = ast.parse(path.read_text())
    names: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                names[alias.asname or alias.name.split(".")[0]] = alias.name if alias.asname else alias.name.split(".")[0]
                yield from _with_parents(alias.name)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                names[alias.asname or alias.name] = f"{node.module}.{alias.name}"
                yield from _with_parents(f"{node.module}.{alias.name}")
    # `subprocess.Popen[bytes]` is a type.
    types = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Subscript)}
    for node in ast.walk(tree):
        if isinstance(node, (ast.Attribute, ast.Name)) and id(node) not in types:
            yield resolved(node, names)


def _with_parents(name: str) -> Iterator[str]:
    yield name
    while name := name.rpartition(".")[0]:
        yield name


def resolved(node: ast.expr, names: dict[str, str]) -> str:
    if isinstance(node, ast.Name):
        return names.get(node.id, node.id)
    return f"{resolved(node.value, names)}.{node.attr}" if isinstance(node, ast.Attribute) else "?"


class TestOneMechanism:
    @pytest.mark.slow
    def test_every_start_goes_through_it(self) -> None:
        found = {(name, use) for name, path in SOURCES.items() for use in used(path) if use in STARTING | MODULES}
        assert found - ALLOWED == set()
        assert ALLOWED - found == set(), "no longer there: take it off the list"

    @pytest.mark.slow
    def test_no_data_becomes_code(self) -> None:
        found = {(name, use) for name, path in SOURCES.items() for use in used(path) if use in EXECUTING}
        assert found == ALLOWED_CODE

    @pytest.mark.parametrize(
        "code",
        [
            "import subprocess\nsubprocess.run(['gdb'])",
            "import subprocess as s\ns.Popen(['gdb'])",
            "from subprocess import check_output as ask\nask(['gdb'])",
            "import os\ndef f():\n    os.posix_spawnp('gdb', [], {})",
            "import multiprocessing.pool",
            "from shutil import which",
            "import ctypes.util\nctypes.util.find_library('c')",
        ],
    )
    def test_it_is_noticed(self, code: str, tmp_path: Path) -> None:
        (tmp_path / "new.py").write_text(code)
        assert set(used(tmp_path / "new.py")) & (STARTING | MODULES)

    def test_a_program_without_its_folder_is_not_started(self) -> None:
        with pytest.raises(FileNotFoundError, match="not an absolute path"):
            isolation.start(["true"])


def test_signatures_of_a_relative_folder_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They would be those of the working directory; the specification has such a value ignored."""
    monkeypatch.chdir(tmp_path)
    for home in ("relative", "home/.config"):
        (tmp_path / home / "crashkit/signatures").mkdir(parents=True)
        (tmp_path / home / "crashkit/signatures/own.toml").touch()
    expected = (tmp_path / "home/.config/crashkit/signatures",)
    assert configured({"XDG_CONFIG_HOME": "relative", "HOME": str(tmp_path / "home")}) == expected
    assert configured({"XDG_CONFIG_HOME": str(tmp_path / "relative")}) == (tmp_path / "relative/crashkit/signatures",)


class TestFindProgram:
    @pytest.fixture
    def planted(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        program = tmp_path / "gdb"
        program.write_text("#!/bin/sh\n")
        program.chmod(0o755)
        monkeypatch.chdir(tmp_path)
        return program

    @pytest.mark.parametrize("path", ["", ":", ".", "./", "..:/nowhere", "bin/../", "/nowhere::", "/nowhere:."])
    def test_not_in_relative_folders(self, planted: Path, monkeypatch: pytest.MonkeyPatch, path: str) -> None:
        monkeypatch.setenv("PATH", path)
        assert isolation.find_program("gdb") is None

    def test_in_absolute_ones(self, planted: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PATH", f".:{planted.parent}")
        assert isolation.find_program("gdb") == str(planted)

    def test_a_file_that_the_user_names(self, planted: Path) -> None:
        assert isolation.find_program("./gdb") == str(planted)
        assert isolation.find_program(str(planted)) == str(planted)
        assert isolation.find_program("./gone") is None

    def test_in_a_folder_that_was_removed(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        gone = tmp_path / "gone"
        gone.mkdir()
        monkeypatch.chdir(gone)
        gone.rmdir()
        assert isolation.find_program("./gdb") is None
        assert isolation.find_program("sh") is not None
        assert str(ROOT) in isolation.module_path()
        with pytest.raises(EvidenceError, match="the working directory was removed"):
            analyze("/nowhere", options=Options(sysroot=Path("root")))


PYTHON_PLANTS = (
    "crashkit platform json subprocess click msgspec sitecustomize usercustomize typing_extensions jinja2 pystack capstone".split()
)
PROGRAM_PLANTS = "gdb gdb-multiarch coredumpctl apport-unpack debuginfod-find uname sh env python python3 addr2line c++filt".split()
GDB_PLANTS = ".gdbinit .gdbearlyinit gdbinit python-gdb.py python3-gdb.py python3.11-gdb.py core-gdb.py crashkit_commands.py".split()


class Hostile:
    """A working directory full of plants; `witness` lists those that ran."""

    def __init__(self, folder: Path) -> None:
        self.cwd = folder / "cwd"
        self.cwd.mkdir()
        self._witness = folder / "witness"
        for name in PYTHON_PLANTS:
            (self.cwd / f"{name}.py").write_text(f"open({str(self._witness)!r}, 'a').write('{name}.py\\n')\nraise SystemExit(99)\n")
        for name in PROGRAM_PLANTS:
            (self.cwd / name).write_text(f"#!/bin/sh\necho {name} >> {self._witness}\nexit 99\n")
            (self.cwd / name).chmod(0o755)
        for name in GDB_PLANTS:
            script = f"open({str(self._witness)!r}, 'a').write('{name}\\n')\n"
            (self.cwd / name).write_text(script if name.endswith(".py") else f"python {script}")

    @property
    def witness(self) -> list[str]:
        return self._witness.read_text().split() if self._witness.exists() else []

    def __call__(self, *command: str | Path, **extra: str) -> subprocess.CompletedProcess[str]:
        variables = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        relative = {"LD_LIBRARY_PATH": ":.", "PYTHONPATH": "", "PATH": f".::{os.environ['PATH']}:"}
        home = {"HOME": str(self.cwd.parent), "CRASHKIT_HOME": str(self.cwd.parent / "store")}
        return subprocess.run(
            command, cwd=self.cwd, env={**variables, **relative, **home, **extra}, capture_output=True, text=True, timeout=180
        )


@pytest.fixture
def hostile(tmp_path: Path) -> Hostile:
    return Hostile(tmp_path)


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """The `crashkit` command, as pip makes it."""
    script = tmp_path / "bin" / "crashkit"
    script.parent.mkdir()
    path = [str(ROOT), *(entry for entry in sys.path if entry.endswith("-packages"))]
    script.write_text(f"#!{sys.executable}\nimport sys\nsys.path += {path!r}\nfrom crashkit.cli import main\nmain()\n")
    script.chmod(0o755)
    return script


def reports(folder: Path) -> list[dict[str, object]]:
    return [json.loads(path.read_text()) for path in folder.glob("store/*/report.json")]


CRASH = "import ctypes; ctypes.string_at(0)"


class TestEachGuard:
    """Any one of them keeps the plants out; here each stands alone."""

    def test_the_interpreter_in_the_hostile_folder(self, hostile: Hostile) -> None:
        done = isolation.run(isolation.crashkit("--version"), 60, folder=hostile.cwd, keep=isolation.FOR_PYTHON)
        assert (done.returncode, hostile.witness) == (0, []), done.stderr

    def test_the_folder(self, hostile: Hostile, monkeypatch: pytest.MonkeyPatch) -> None:
        """A Python that is not isolated."""
        monkeypatch.chdir(hostile.cwd)
        done = isolation.run([sys.executable, "-c", "import json, os; print(os.getcwd())"], 60)
        assert (done.stdout, hostile.witness) == ("/\n", []), done.stderr

    def test_the_environment(self, hostile: Hostile, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PYTHONPATH", str(hostile.cwd))
        done = isolation.run([sys.executable, "-c", "import json"], 60)
        assert (done.returncode, hostile.witness) == (0, []), done.stderr

    def test_the_standard_library_before_what_we_import_from(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """PyStack's process: a script's own folder stands first in our path."""
        made = python_crash("threads.py", python=an_interpreter())
        witness = tmp_path / "witness"
        for name in ("json", "dataclasses", "pathlib", "logging", "threading", "enum"):
            (tmp_path / f"{name}.py").write_text(f"open({str(witness)!r}, 'w').close()\nraise SystemExit(99)\n")
        monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
        answer = ask_pystack(made.core, made.program.resolve())
        assert answer.python and not witness.exists()

    def test_the_standard_library_before_what_crashkit_is_imported_from(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        witness = tmp_path / "witness"
        for name in ("json", "typing", "inspect", "enum", "contextlib"):
            (tmp_path / f"{name}.py").write_text(f"open({str(witness)!r}, 'w').close()\nraise SystemExit(99)\n")
        monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
        assert str(tmp_path) in isolation.module_path()
        done = isolation.run(isolation.crashkit("--version"), 60, keep=isolation.FOR_PYTHON)
        assert done.returncode == 0 and not witness.exists(), done.stderr

    @pytest.mark.parametrize("entry", ["", ".", "../cwd"])
    def test_no_relative_folder_to_import_from(self, entry: str, hostile: Hostile, monkeypatch: pytest.MonkeyPatch) -> None:
        """To a child that starts elsewhere, it would be another folder than to us."""
        monkeypatch.setattr(sys, "path", [entry, *sys.path])
        done = isolation.run(isolation.crashkit("--version"), 60, folder=hostile.cwd, keep=isolation.FOR_PYTHON)
        assert (done.returncode, hostile.witness) == (0, []), done.stderr

    @pytest.mark.skipif(shutil.which("bash") is None, reason="no bash here")
    @pytest.mark.parametrize("name", ["BASH_ENV", "BASH_FUNC_ls%%"])
    def test_code_for_shells_in_the_environment(self, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Programs that crashkit needs may be scripts, as wrappers of gdb are."""
        witness, script = tmp_path / "witness", tmp_path / "script"
        script.write_text(f"touch {witness}\n")
        monkeypatch.setenv(name, str(script) if name == "BASH_ENV" else f"() {{ touch {witness}\n}}")
        command = ["bash", "-c", "ls"]
        subprocess.run(command, check=True, capture_output=True, timeout=60)
        assert witness.exists(), "the control"
        witness.unlink()
        assert isolation.run([str(shutil.which("bash")), *command[1:]], 60).returncode == 0 and not witness.exists()

    @needs_gdb
    def test_the_folder_of_gdb(self, hostile: Hostile, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(hostile.cwd)
        with Gdb(30) as gdb:
            gdb.version()
            assert Path(f"/proc/{gdb.pid}/cwd").readlink() == Path("/")

    def test_the_folder_of_an_analysis(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """It is private, and can be written to where nothing else can: Python takes it for temporary files then."""
        crash = tmp_path / "crash"
        crash.mkdir(mode=0o700)
        asking = isolation.python("-c", "import os; print(os.getcwd())")
        monkeypatch.setattr(isolation, "crashkit", lambda *_arguments: asking)
        keep.analyse(crash)
        assert (crash / "analysis.log").read_text() == f"{crash}\n"


@needs_gdb
class TestPlanted:
    """Whatever lies in the working directory, with relative folders in every search path."""

    def test_the_plants_bite(self, hostile: Hostile) -> None:
        """Without protection they run; so their silence means something."""
        for command in ([sys.executable, "-m", "crashkit"], [sys.executable, "-c", "import json"], ["sh", "-c", "gdb"]):
            subprocess.run(command, cwd=hostile.cwd, env={**os.environ, "PATH": f".:{os.environ['PATH']}"}, timeout=60)
        assert {"crashkit.py", "json.py"} <= set(hostile.witness) and {"gdb", "sh"} & set(hostile.witness)

    @pytest.mark.slow
    def test_run(self, hostile: Hostile, installed: Path) -> None:
        with cores_land_in_cwd():
            done = hostile(installed, "run", "--", sys.executable, "-I", "-c", CRASH)
        assert done.returncode == 139, done.stderr
        assert hostile.witness == []
        (report,) = reports(hostile.cwd.parent)
        assert "gdb" in str(report["debugger"])

    @pytest.mark.slow
    def test_run_with_ptrace(self, hostile: Hostile, installed: Path) -> None:
        done = hostile(installed, "run", "--capture", "ptrace", "--", sys.executable, "-I", "-c", CRASH)
        assert done.returncode == 139, done.stderr
        assert hostile.witness == [] and len(reports(hostile.cwd.parent)) == 1

    @pytest.mark.slow
    def test_demo(self, hostile: Hostile, installed: Path) -> None:
        with cores_land_in_cwd():
            done = hostile(installed, "demo")
        assert done.returncode == 0, done.stderr
        assert hostile.witness == []

    @pytest.mark.slow
    def test_analyze(self, hostile: Hostile, installed: Path) -> None:
        shutil.copy(python_crash("threads.py", python=a_debuggable_interpreter()).core, hostile.cwd / "core")
        done = hostile(installed, "analyze", "core", DEBUGINFOD_URLS="http://127.0.0.1:9")
        assert done.returncode == 0, done.stderr
        assert hostile.witness == []
        assert "gdb" in json.loads((hostile.cwd / "core-report" / "report.json").read_text())["debugger"]

    @pytest.mark.slow
    @pytest.mark.parametrize("arguments", [["doctor"], ["list"], ["signatures", "list"], ["doctor", "gdb"], ["show", "1"]])
    def test_what_reads_no_core(self, hostile: Hostile, installed: Path, arguments: list[str]) -> None:
        assert hostile(installed, *arguments).returncode in (0, 1)
        assert hostile.witness == []

    def test_a_bug_of_ours(self, hostile: Hostile, installed: Path, tmp_path: Path) -> None:
        """What is told of the machine is asked of the kernel, not of a program."""
        installed.write_text(installed.read_text().replace("main()", "sys.modules['crashkit.cli.list'] = None; main()"))
        (tmp_path / "temporary").mkdir()
        done = hostile(installed, "list", TMPDIR=str(tmp_path / "temporary"))
        assert done.returncode == 3 and hostile.witness == []
        assert list((tmp_path / "temporary").glob("crashkit-bug-*.log"))


class TestAsAModule:
    """`python -m` itself looks into the working directory before we can say anything: but for us that ends at once."""

    PLANTS = ("platform", "click", "msgspec", "tempfile")

    @pytest.fixture
    def cwd(self, tmp_path: Path) -> Path:
        folder = tmp_path / "cwd"
        folder.mkdir()
        for name in self.PLANTS:
            (folder / f"{name}.py").write_text("raise SystemExit('it ran')\n")
        return folder

    def test_own_modules_of_the_user_do_not_run(self, cwd: Path) -> None:
        path = os.pathsep.join([str(ROOT), *(entry for entry in sys.path if entry.endswith("-packages"))])
        command = [sys.executable, "-m", "crashkit", "--version"]
        done = subprocess.run(command, cwd=cwd, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, timeout=60)
        assert (done.returncode, done.stderr) == (0, "")

    def test_crashkit_in_the_working_directory_is_used(self, tmp_path: Path) -> None:
        """As in a checkout."""
        shutil.copytree(ROOT / "crashkit", tmp_path / "crashkit", ignore=shutil.ignore_patterns("__pycache__"))
        script = "import crashkit, runpy, sys; sys.argv[1:] = ['--version']; print(crashkit.__file__)"
        (tmp_path / "crashkit" / "__main__.py").write_text((ROOT / "crashkit" / "__main__.py").read_text() + f"\n{script}\n")
        code = (tmp_path / "crashkit" / "__main__.py").read_text().replace("    main()\n", f"    {script}\n")
        (tmp_path / "crashkit" / "__main__.py").write_text(code)
        done = subprocess.run([sys.executable, "-m", "crashkit"], cwd=tmp_path, capture_output=True, text=True, timeout=60)
        assert done.stdout.split()[0] == str(tmp_path / "crashkit" / "__init__.py"), done.stderr


class TestTheSameCrashkit:
    """The analysis runs the crashkit that started it, however that was installed."""

    def child_of(self, command: list[str | Path], cwd: Path, **variables: str) -> str:
        """The file of crashkit in an isolated child of `command`, which is a Python that can import crashkit."""
        code = (
            "from crashkit import isolation; import crashkit; "
            "ask = isolation.crashkit(); ask[4] = ask[4].rpartition('; from')[0] + "
            "'; import crashkit, msgspec, click, capstone; print(crashkit.__file__)'; "
            "print(crashkit.__file__ + chr(10) + isolation.run(ask, 60, keep=isolation.FOR_PYTHON, stderr=2).stdout)"
        )
        kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        done = subprocess.run([*command, "-c", code], cwd=cwd, env={**kept, **variables}, capture_output=True, text=True, timeout=120)
        parent, child = done.stdout.split() or [done.stderr, ""]
        assert parent == child, done.stderr
        return child

    @pytest.fixture
    def copy(self, tmp_path: Path) -> Path:
        """A folder to import crashkit from, as pip makes one."""
        folder = tmp_path / "site"
        folder.mkdir()
        shutil.copytree(ROOT / "crashkit", folder / "crashkit", ignore=shutil.ignore_patterns("__pycache__"))
        return folder

    @pytest.fixture
    def dependencies(self) -> str:
        return os.pathsep.join(entry for entry in sys.path if entry.endswith("-packages"))

    def test_by_pythonpath(self, copy: Path, dependencies: str, tmp_path: Path) -> None:
        found = self.child_of([sys.executable, "-S"], tmp_path, PYTHONPATH=f"{copy}{os.pathsep}{dependencies}")
        assert found == str(copy / "crashkit" / "__init__.py")

    def test_in_the_working_directory(self, copy: Path, dependencies: str) -> None:
        found = self.child_of([sys.executable, "-S"], copy, PYTHONPATH=dependencies)
        assert found == str(copy / "crashkit" / "__init__.py")

    def test_editable(self, copy: Path, tmp_path: Path) -> None:
        """A .pth file, as hatchling and pip make it, in a venv."""
        venv = tmp_path / "venv"
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True, timeout=60)
        (site,) = venv.glob("lib/python*/site-packages")
        packages = [entry for entry in sys.path if entry.endswith("-packages")]
        (site / "crashkit.pth").write_text("\n".join([str(copy), *packages]))
        assert self.child_of([venv / "bin/python"], tmp_path) == str(copy / "crashkit" / "__init__.py")

    def test_of_the_user(self, copy: Path, tmp_path: Path) -> None:
        """pip install --user."""
        base = Path(sys.base_prefix) / "bin" / f"python{sys.version_info[0]}.{sys.version_info[1]}"
        version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
        site = tmp_path / "base" / "lib" / version / "site-packages"
        site.mkdir(parents=True)
        (copy / "crashkit").rename(site / "crashkit")
        (site / "others.pth").write_text("\n".join(entry for entry in sys.path if entry.endswith("-packages")))
        found = self.child_of([base], tmp_path, PYTHONUSERBASE=str(tmp_path / "base"))
        assert found == str(site / "crashkit" / "__init__.py")

    def test_where_nothing_can_be_written(self, copy: Path, dependencies: str, tmp_path: Path) -> None:
        for folder in (copy, *(path for path in copy.rglob("*") if path.is_dir())):
            folder.chmod(0o555)
        found = self.child_of([sys.executable, "-S"], tmp_path, PYTHONPATH=f"{copy}{os.pathsep}{dependencies}", TMPDIR="/nowhere")
        assert found == str(copy / "crashkit" / "__init__.py")

    def test_where_packages_are_installed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """It may be the working directory."""
        (packages,) = site.getsitepackages()[:1]
        monkeypatch.chdir(packages)
        assert packages in isolation.module_path()

    def test_the_working_directory_is_not_searched(self, copy: Path, dependencies: str, tmp_path: Path) -> None:
        """Whether it is meant by an empty entry, a relative one or its name."""
        (tmp_path / "click.py").write_text("raise SystemExit('it ran')\n")
        (tmp_path / "msgspec.py").write_text("raise SystemExit('it ran')\n")
        for entry in ("", ".", "./", "../" + tmp_path.name):
            path = os.pathsep.join([str(copy), dependencies, entry])
            command = [
                sys.executable,
                "-S",
                "-c",
                f"import os; from crashkit import isolation; print({str(tmp_path)!r} in isolation.module_path())",
            ]
            done = subprocess.run(command, cwd=tmp_path, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, timeout=60)
            assert done.stdout == "False\n", done.stderr
