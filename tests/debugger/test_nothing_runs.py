"""gdb runs nothing that the evidence, its modules, the working directory or the home of the user bring along.

Each plant is shown to run in a plain gdb, so that its silence under crashkit means something. Here gdb trusts every folder, as one built
with --with-auto-load-safe-path=/ does: what holds must be our options, not gdb's defaults.
"""

from __future__ import annotations

import http.server
import json
import os
import resource
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from crashkit.debugger.gdb import process as gdb_process
from crashkit.debugger.gdb.process import Gdb
from crashkit.debugger.gdb.session import PlacedModule, Session
from crashkit.debugger.pystack import process as pystack_process
from crashkit.debugger.pystack.debugger import ask_pystack
from crashkit.errors import DebuggerError
from crashkit.model import Crash
from crashkit.pipeline import Options, analyze
from tests.crashes import CRASHERS, NO_COMPILER, Folder, a_debuggable_interpreter, an_interpreter, crash, python_crash

pytestmark = [
    pytest.mark.skipif(shutil.which("gdb") is None, reason="no gdb here"),
    pytest.mark.skipif(shutil.which("gcc") is None, reason=NO_COMPILER),
]
PLAIN = ("-batch", "-iex", "set debuginfod enabled off", "-ex", "backtrace full")


@pytest.fixture(scope="module")
def crashed(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    """`program` calls `fail` of libplanted.so beside it, whose section's script writes `section` there."""
    folder = tmp_path_factory.mktemp("planted")
    build, left = folder / "build", folder / "left"
    build.mkdir()
    left.mkdir()
    library, program = build / "libplanted.so", build / "program"
    compiler = ["gcc", "-g", "-O0", CRASHERS / "planted.c"]
    witness = f'-DWITNESS="{build}/section"'
    subprocess.run([*compiler, "-DLIBRARY", witness, "-shared", "-fPIC", "-o", library], check=True, timeout=60)
    subprocess.run([*compiler, "-o", program, library, f"-Wl,-rpath,{build}"], check=True, timeout=60)
    return crash([program], left)


@pytest.fixture
def trusting(tmp_path: Path):
    """A gdb that trusts every folder, with further options of its own."""

    def make(*options: str) -> str:
        program = tmp_path / "trusting-gdb"
        words = " ".join(f"-iex '{option}'" for option in ("set auto-load safe-path /", *options))
        program.write_text(f'#!/bin/sh\nexec gdb {words} "$@"\n')
        program.chmod(0o755)
        return str(program)

    return make


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The home and the working directory of the user, empty."""
    folder = tmp_path / "home"
    folder.mkdir()
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    cwd = tmp_path / "cwd"
    cwd.mkdir()
    monkeypatch.chdir(cwd)
    return folder


def plain(gdb: str, crashed: Folder, *options: str) -> None:
    subprocess.run([gdb, *options, *PLAIN, crashed.program, crashed.core], check=True, timeout=60, capture_output=True)


def crashkit(gdb: str, crashed: Folder, sysroot: Path | None = None) -> Crash:
    """A full report: gdb read the library and its symbols, and so would have met what is planted there."""
    report = analyze(crashed.core, options=Options(gdb=gdb, sysroot=sysroot))
    assert not [error for error in report.soft_errors if error.stage in ("gdb", "native")]
    innermost = next(report.thread.natives())
    assert (innermost.function, innermost.line is not None, innermost.args) == ("fail", True, {"number": "1"})
    return report


def plant(file: Path, witness: Path) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    script = f"python open({str(witness)!r}, 'w').close()\n"
    file.write_text(script.removeprefix("python ") if file.suffix == ".py" else script)


def witnessed(witness: Path) -> bool:
    """Whether it was written; gone afterwards."""
    there = witness.exists()
    witness.unlink(missing_ok=True)
    return there


class TestAutoLoad:
    @pytest.mark.slow
    def test_script_in_a_section_of_a_module(self, crashed, trusting):
        witness = crashed.program.with_name("section")
        plain(trusting(), crashed, "-nx")
        assert witnessed(witness)
        crashkit(trusting(), crashed)
        assert not witnessed(witness)

    @pytest.mark.slow
    @pytest.mark.parametrize("suffix", ["-gdb.py", "-gdb.gdb"])
    @pytest.mark.parametrize("module", ["libplanted.so", "program"])
    def test_script_beside_a_module(self, crashed, trusting, tmp_path, module, suffix):
        script, witness = crashed.program.with_name(module + suffix), tmp_path / "ran"
        plant(script, witness)
        try:
            plain(trusting(), crashed, "-nx")
            assert witnessed(witness)
            crashkit(trusting(), crashed)
            assert not witnessed(witness)
        finally:
            script.unlink()

    @pytest.mark.slow
    @pytest.mark.parametrize("folder", ["", "usr/share/gdb/auto-load", "usr/lib/debug"])
    def test_script_in_a_sysroot(self, crashed, trusting, tmp_path, folder):
        """gdb looks beside the module, in its auto-load folders and in its debug folders; we tell it of the last."""
        sysroot, witness = tmp_path / "sysroot", tmp_path / "ran"
        library = sysroot / crashed.program.with_name("libplanted.so").relative_to("/")
        shutil.copytree(crashed.program.parent, library.parent)
        script = library.with_name("libplanted.so-gdb.py")
        plant(sysroot / folder / script.relative_to("/") if folder else script, witness)
        gdb = trusting(f"set auto-load scripts-directory $debugdir:{sysroot}/usr/share/gdb/auto-load")
        plain(gdb, crashed, "-nx", "-iex", f"set debug-file-directory {sysroot}/usr/lib/debug", "-iex", f"set sysroot {sysroot}")
        assert witnessed(witness)
        report = crashkit(gdb, crashed, sysroot)
        assert str(library) in [module.found for module in report.modules]
        assert not witnessed(witness)

    def test_all_of_it_is_off(self, trusting, tmp_path):
        """Whatever this gdb can load by itself: also the thread library in the folder of the process's own libraries."""
        found = tmp_path / "settings"
        with Gdb(30, trusting("set auto-load yes")) as gdb:
            gdb.console(f"python open({str(found)!r}, 'w').write(gdb.execute('show auto-load', to_string=True))")
        kinds = {line.split(":")[0].removeprefix("auto-load "): line for line in found.read_text().splitlines() if "loading" in line}
        assert {"gdb-scripts", "libthread-db", "local-gdbinit", "python-scripts"} <= set(kinds)
        # gdb 17 gives the text as it writes it to its machine interface.
        assert [line for line in kinds.values() if not line.removesuffix('\\n"').endswith(" is off.")] == []


def test_libraries_of_the_process_are_not_read(crashed, tmp_path):
    """Those that gdb finds by the link map in the core, as soon as it knows the program; only what a walk meets is placed."""
    found = tmp_path / "found"
    looks = f"python open({str(found)!r}, 'w').write(' '.join(one.filename for one in gdb.objfiles()))"
    for options, read in (((), False), (("set auto-solib-add on",), True)):
        with Gdb(60) as gdb:
            for command in (*options, f"file {crashed.program}", f"core-file {crashed.core}", looks):
                gdb.console(command)
        assert ("libplanted.so" in found.read_text()) is read


class TestStartFiles:
    @pytest.mark.slow
    @pytest.mark.parametrize("name", [".gdbinit", ".gdbearlyinit", ".config/gdb/gdbinit", ".config/gdb/gdbearlyinit"])
    def test_in_the_home(self, crashed, trusting, home, tmp_path, name):
        witness = tmp_path / "ran"
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(f"shell touch {witness}\n")
        plain("gdb", crashed)
        assert witnessed(witness)
        crashkit("gdb", crashed)
        assert not witnessed(witness)

    def test_in_the_working_directory(self, crashed, trusting, home, tmp_path):
        witness = tmp_path / "ran"
        Path(".gdbinit").write_text(f"shell touch {witness}\n")
        plain(trusting(), crashed)
        assert witnessed(witness)
        crashkit(trusting(), crashed)
        assert not witnessed(witness)

    def test_of_the_machine(self):
        """gdb's own start file (/etc/gdb/gdbinit) cannot be planted here; -nx is what leaves it out."""
        with Gdb(60) as gdb:
            gdb.version()  # it has been executed when it answers
            assert b"-nx" in Path(f"/proc/{gdb.pid}/cmdline").read_bytes().split(b"\0")


PRINTER = """
import gdb
class Printer:
    def to_string(self):
        open({witness!r}, "w").close()
        return "printed"
gdb.pretty_printers.append(lambda value: Printer() if value.type.name == "printed" else None)
"""


class TestPrettyPrinters:
    def test_none_runs_on_a_value(self, crashed, trusting, tmp_path):
        """One that is there for whatever reason: values are shown raw."""
        script, witness = tmp_path / "printer.py", tmp_path / "ran"
        script.write_text(PRINTER.format(witness=str(witness)))
        gdb = trusting(f"source {script}")
        plain(gdb, crashed, "-nx")
        assert witnessed(witness)
        report = crashkit(gdb, crashed)
        assert not witnessed(witness)
        assert next(report.thread.natives()).locals["value"] == "{number = 1}"

    @pytest.mark.slow
    def test_those_of_libpython_are_taken_away(self, tmp_path):
        made = python_crash("threads.py", python=a_debuggable_interpreter())
        report = analyze(made.core)
        with Session(made.core, 60) as session:
            module = next(one for one in report.modules if one.path == report.python.executable)
            place = PlacedModule(Path(module.found or module.path), int(module.base), int(module.base + module.size), int(module.base))
            session.python(Path(report.python.script), place)()
            found = tmp_path / "printers"
            session._gdb.console(f"python open({str(found)!r}, 'w').write(repr(gdb.pretty_printers))")
        assert found.read_text() == "[]"


PRELOADED = """
#include <fcntl.h>
#include <stdlib.h>
__attribute__((constructor)) static void loaded(void) { open(WITNESS, O_CREAT | O_WRONLY, 0600); }
"""
DROPPED = {
    "PYTHONPATH": "/planted",
    "PYTHONHOME": "/planted",
    "PYTHONSTARTUP": "/planted",
    "PYTHONINSPECT": "1",
    "LD_PRELOAD": "/planted.so",
    "LD_LIBRARY_PATH": "/planted",
    "DEBUGINFOD_URLS": "http://planted",
    "DEBUGINFOD_CACHE_PATH": "/planted",
    "MALLOC_PERTURB_": "85",
    "GDBHISTFILE": "/planted",
    "BASH_ENV": "/planted",
    "BASH_FUNC_gdb%%": "() { planted; }",
}


class TestEnvironment:
    def test_a_module_on_pythonpath(self, crashed, monkeypatch, tmp_path):
        witness = tmp_path / "ran"
        (tmp_path / "sitecustomize.py").write_text(f"open({str(witness)!r}, 'w').close()\n")
        monkeypatch.setenv("PYTHONPATH", str(tmp_path))
        plain("gdb", crashed, "-nx")
        assert witnessed(witness)
        crashkit("gdb", crashed)
        assert not witnessed(witness)

    def test_a_preloaded_library(self, tmp_path):
        source, library, witness = tmp_path / "preloaded.c", tmp_path / "preloaded.so", tmp_path / "ran"
        source.write_text(PRELOADED)
        subprocess.run(["gcc", "-shared", "-fPIC", f'-DWITNESS="{witness}"', source, "-o", library], check=True, timeout=60)
        environment = {**os.environ, "LD_PRELOAD": str(library)}
        subprocess.run(["gdb", "-nx", "-batch"], env=environment, check=True, timeout=60)
        assert witnessed(witness)
        ours = f"import os; from crashkit.debugger.gdb.process import Gdb; os.environ['LD_PRELOAD'] = {str(library)!r}; Gdb(60).version()"
        subprocess.run([sys.executable, "-c", ours], check=True, timeout=60)
        assert not witnessed(witness)

    def kept(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, str]:
        for name, value in DROPPED.items():
            # This Python has started already.
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("LANG", "kept")
        return folder / "environment", "import json, os, sys; json.dump(dict(os.environ), open({!r}, 'w'))"

    def test_gdb_gets_nothing_that_would_load_code_or_reach_the_network(self, tmp_path, monkeypatch):
        seen, script = self.kept(tmp_path, monkeypatch)
        program = tmp_path / "gdb"
        program.write_text(f"#!{sys.executable} -I\n{script.format(str(seen))}\n")
        program.chmod(0o755)
        with Gdb(20, str(program)) as gdb, pytest.raises(DebuggerError):
            gdb.command("-list-features")
        variables = json.loads(seen.read_text())
        assert not variables.keys() & DROPPED.keys()
        assert variables["LANG"] == "kept" and variables["PYTHONNOUSERSITE"] == "1"

    def test_nor_does_pystack(self, tmp_path, monkeypatch):
        seen, script = self.kept(tmp_path, monkeypatch)
        worker = tmp_path / "worker.py"
        worker.write_text(script.format(str(seen)))
        monkeypatch.setattr(pystack_process, "_WORKER", worker)
        (tmp_path / "core").touch()
        ask_pystack(tmp_path / "core", Path("/bin/true"), deadline=30)
        variables = json.loads(seen.read_text())
        dropped = DROPPED.keys() - {"LD_LIBRARY_PATH"}  # PyStack's own libraries may need it
        assert not variables.keys() & dropped
        assert variables["LANG"] == "kept"


class TestNetwork:
    @pytest.fixture
    def server(self):
        """Its URL and what was asked for."""
        asked: list[str] = []

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                asked.append(self.path)
                self.send_error(404)

            def log_message(self, *_arguments):
                pass

        with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            yield f"http://127.0.0.1:{server.server_port}", asked
            server.shutdown()

    def test_gdb_asks_no_debuginfod(self, trusting, tmp_path, server):
        """Even where its environment names one, and its start files switch it on."""
        url, asked = server
        variables = {**os.environ, "DEBUGINFOD_URLS": url, "DEBUGINFOD_CACHE_PATH": str(tmp_path / "one")}
        stripped = tmp_path / "stripped"
        shutil.copy(sys.executable, stripped)
        subprocess.run(["strip", "--strip-all", stripped], check=True, timeout=60)
        command = ["gdb", "-nx", "-batch", "-iex", "set debuginfod enabled on", stripped]
        subprocess.run(command, env=variables, check=True, timeout=60, capture_output=True)
        if not asked:
            pytest.skip("this gdb was built without debuginfod")
        asked.clear()
        # What was not found is remembered in the cache.
        variables["DEBUGINFOD_CACHE_PATH"] = str(tmp_path / "two")
        with Gdb(60, trusting("set debuginfod enabled on"), environment=variables) as gdb:
            gdb.console(f"file {stripped}")
        assert asked == []


class TestLimits:
    @pytest.mark.slow
    def test_memory(self, monkeypatch):
        too_much = "python bytearray(2 << 30)"
        with Gdb(60) as gdb:
            gdb.console(too_much)
        monkeypatch.setattr(gdb_process, "_MEMORY_LIMIT", 1 << 30)
        with Gdb(60) as gdb, pytest.raises(DebuggerError):
            gdb.console(too_much)

    def test_gdb_leaves_no_core(self, tmp_path):
        seen = tmp_path / "limits"
        with Gdb(60) as gdb:
            gdb.console(f"python import resource; open({str(seen)!r}, 'w').write(repr(resource.getrlimit(resource.RLIMIT_CORE)))")
        assert seen.read_text() == "(0, 0)"

    def test_of_pystack(self, tmp_path, monkeypatch):
        """As many bytes of address space as the core has, and some; no core of its own."""
        seen = tmp_path / "limits"
        (tmp_path / "pystack").mkdir()
        (tmp_path / "pystack" / "__init__.py").touch()
        limits = "[resource.getrlimit(one)[0] for one in (resource.RLIMIT_CORE, resource.RLIMIT_AS)]"
        (tmp_path / "pystack" / "engine.py").write_text(f"import resource; open({str(seen)!r}, 'w').write(repr({limits}))")
        monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
        monkeypatch.delitem(sys.modules, "pystack", raising=False)
        (tmp_path / "core").write_bytes(bytes(5000))
        before = resource.getrlimit(resource.RLIMIT_CORE)
        resource.setrlimit(resource.RLIMIT_CORE, (before[1], before[1]))  # to have something to take away
        try:
            ask_pystack(tmp_path / "core", Path("/bin/true"), deadline=60)
        finally:
            resource.setrlimit(resource.RLIMIT_CORE, before)
        assert seen.read_text() == repr([0, 5000 + (8 << 30)])

    def test_values_are_short(self, crashed):
        local = next(crashkit("gdb", crashed).thread.natives()).locals
        assert local["text"] == '"abcdefghijklmnopqrstuvwx"...'
        assert "more than max-value-size" in local["huge"]

    def test_results_are_bounded(self, crashed, monkeypatch):
        monkeypatch.setattr("crashkit.debugger.gdb.session._MOST_RESULT", 100)
        with Session(crashed.core, 60) as session, pytest.raises(DebuggerError, match="too long"):
            session.native([], None)()

    def test_results_of_pystack_are_bounded(self, monkeypatch):
        made = python_crash("threads.py", python=an_interpreter())
        monkeypatch.setattr(pystack_process, "_MOST_RESULT", 100)
        answer = ask_pystack(made.core, made.program.resolve())
        assert answer.python is None and "too large" in answer.soft_errors[-1].message


class TestPrivacy:
    """What goes to and fro lies in folders that nobody else can enter."""

    @pytest.fixture(autouse=True)
    def open_umask(self):
        before = os.umask(0)
        yield
        os.umask(before)

    def test_folder_of_a_session(self, crashed):
        with Session(crashed.core, 60) as session:
            session.native([], None)()
            folder = session._folder.path
            assert folder.stat().st_mode & 0o777 == 0o700
            assert {path.suffix for path in folder.iterdir()} >= {".request", ".result"}
        assert not folder.exists()

    def test_folder_of_pystack(self, tmp_path, monkeypatch):
        seen, worker = tmp_path / "seen", tmp_path / "worker.py"
        worker.write_text(
            f"import os, sys; f = os.path.dirname(sys.argv[2]); open({str(seen)!r}, 'w').write(f + ' ' + oct(os.stat(f).st_mode & 0o777))"
        )
        monkeypatch.setattr(pystack_process, "_WORKER", worker)
        (tmp_path / "core").touch()
        ask_pystack(tmp_path / "core", Path("/bin/true"), deadline=30)
        folder, mode = seen.read_text().split(" ")
        assert mode == "0o700" and not Path(folder).exists()
