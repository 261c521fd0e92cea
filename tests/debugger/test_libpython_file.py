"""Which libpython.py is run: one of this machine that nobody but root and this user can change, wherever the core says that it lies."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from crashkit.cli.gdb import command as gdb_command
from crashkit.crashfolder.manifest import SCHEMA
from crashkit.debugger.gdb import libpython_file
from crashkit.debugger.gdb.libpython_file import Choice, find_script, is_trusted
from crashkit.evidence.core.modules import LoadedModule
from crashkit.evidence.interpreter import Interpreter
from crashkit.evidence.module_files import Finder
from crashkit.pipeline import Options, analyze
from tests.crashes import a_debuggable_interpreter, python_crash

SOMEBODY = 65534
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


REFUSED_PLACE = "it or a folder above it is writable by others, or belongs to another user"
REFUSED_ORIGIN = "files that came with the crash are not run"


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder that only we can write to: everybody may write to /tmp."""
    home = Path.home().resolve()
    if not (home.is_dir() and os.access(home, os.W_OK) and is_trusted(home)):
        pytest.skip("others may write to the home directory, or we may not: chmod go-w,u+w ~")
    before = os.umask(0o022)  # some distributions let a user's group write
    try:
        with tempfile.TemporaryDirectory(dir=home, prefix=".crashkit-test-") as folder:
            yield Path(folder)
    finally:
        os.umask(before)


@pytest.fixture
def script(place: Path) -> Path:
    """In a folder of its own, trusted as it stands. No machine has this version."""
    folder = place / "prefix" / "bin"
    folder.mkdir(parents=True)
    for path in (folder, folder.parent):
        path.chmod(0o755)
    made = folder / "python3.99-gdb.py"
    made.write_text("# gdb runs this\n")
    made.chmod(0o644)
    assert is_trusted(made)
    return made


def choice(script: Path, finder: Finder | None = None, foreign: tuple[Path, ...] = (), program: str | None = None) -> Choice:
    program = program or str(script.with_name("python3.99"))
    module = LoadedModule(path=program, base=0, end=1, bias=0, build_id=None)
    return find_script(Interpreter(module, "3.99", False), program, finder or Finder(), foreign)


def found(script: Path) -> Path | None:
    return choice(script).script


def is_refused(script: Path) -> None:
    assert choice(script) == Choice(None, script, REFUSED_PLACE)


@pytest.mark.parametrize("first", ["#!/usr/bin/env bash", "#!/bin/sh"])
def test_a_program_of_that_name_for_a_shell_is_none(script: Path, first: str) -> None:
    """pyenv puts one into the path for everything beside an interpreter."""
    script.write_text(f"{first}\n[ -n $PYENV_DEBUG ] && set -x\n")
    assert choice(script) == Choice()
    script.write_text("#!/usr/bin/python\n# gdb runs this\n")
    assert found(script) == script


def test_ours_is_found(script):
    assert found(script) == script


def test_none_is_none(script):
    script.unlink()
    assert found(script) is None
    # What lies beside the interpreter's own file is looked at without asking what it is.
    for make in (Path.mkdir, os.mkfifo):
        make(script)
        assert found(script) is None
        script.rmdir() if script.is_dir() else script.unlink()


@needs_root
def test_somebody_elses(script):
    os.chown(script, SOMEBODY, 0)
    is_refused(script)


@pytest.mark.parametrize("mode", [0o646, 0o664, 0o666, 0o775, 0o777])
def test_one_that_others_may_write(script, mode):
    script.chmod(mode)
    is_refused(script)


@pytest.mark.parametrize("mode", [0o775, 0o757, 0o777, 0o1777])
@pytest.mark.parametrize("above", [1, 2, 3])
def test_a_folder_that_others_may_write(script, above, mode):
    """They may put another file in its place; and with a sticky bit, as in /tmp, we may have unpacked it there."""
    script.parents[above - 1].chmod(mode)
    is_refused(script)


@needs_root
@pytest.mark.parametrize("above", [1, 2])
def test_a_folder_of_somebody_else(script, above):
    os.chown(script.parents[above - 1], SOMEBODY, 0)
    is_refused(script)


@needs_root
def test_a_link_is_not_what_counts(script, place):
    """What is run is what was looked at: a link could point elsewhere a moment later."""
    link = place / "links" / script.name
    link.parent.mkdir()
    link.symlink_to(script)
    os.chown(link, SOMEBODY, 0, follow_symlinks=False)
    assert found(link) == script
    os.chown(script, SOMEBODY, 0)
    assert choice(link) == Choice(None, link, REFUSED_PLACE)


def test_the_folders_that_count_are_not_those_of_a_link(script, place):
    link = place / "links" / script.name
    link.parent.mkdir()
    link.symlink_to(script)
    script.parent.chmod(0o777)
    assert choice(link) == Choice(None, link, REFUSED_PLACE)


@needs_root
def test_the_next_place_is_looked_at(script, place):
    """A refused one does not keep a good one from being found."""
    os.chown(script, SOMEBODY, 0)
    module = LoadedModule(path=str(script.with_name("python3.99")), base=0, end=1, bias=0, build_id=None)
    library = place / "good" / "python3.99"
    library.parent.mkdir()
    good = library.with_name("python3.99-gdb.py")
    shutil.copy(script, good)
    taken = find_script(Interpreter(module, "3.99", False), str(library), Finder())
    assert taken == Choice(good, script, REFUSED_PLACE)


def in_sysroot(script: Path) -> tuple[Finder, str]:
    """The script's folder as that of a crashed system, where it lies in /usr/bin."""
    root = script.parents[2] / "sysroot"
    (root / "usr").mkdir(parents=True)
    script.parent.rename(root / "usr/bin")
    return Finder(root), "/usr/bin/python3.99"


class TestWhatCameWithTheCrash:
    """It belongs to us, as what anyone unpacks does, and no others may write to it: it is not run all the same."""

    def test_a_sysroot(self, script):
        finder, program = in_sysroot(script)
        planted = finder.tree.sysroot / "usr/bin" / script.name
        assert is_trusted(planted)
        assert choice(script, finder, program=program) == Choice(None, planted, REFUSED_ORIGIN)

    def test_its_auto_load_folder(self, script, place):
        planted = place / "root/usr/share/gdb/auto-load/usr/bin" / script.name
        planted.parent.mkdir(parents=True)
        script.rename(planted)
        assert choice(script, Finder(place / "root"), program="/usr/bin/python3.99") == Choice(None, planted, REFUSED_ORIGIN)

    def test_a_link_to_it(self, script, place):
        """Neither a sysroot by another name, nor a name in it that leads to it by a detour."""
        finder, program = in_sysroot(script)
        (place / "other").symlink_to(finder.tree.sysroot)
        assert choice(script, Finder(place / "other"), program=program).reason == REFUSED_ORIGIN
        (finder.tree.sysroot / "opt").symlink_to("/usr")
        assert choice(script, finder, program="/opt/bin/python3.99").reason == REFUSED_ORIGIN

    def test_a_link_of_this_machine_to_it(self, script, place):
        """As a package's link would, whose target was unpacked over."""
        link = place / "usr" / script.name
        link.parent.mkdir()
        link.symlink_to(script)
        assert choice(link) == Choice(script)
        assert choice(link, foreign=(script.parents[1],)) == Choice(None, link, REFUSED_ORIGIN)

    def test_a_path_map(self, script):
        finder = Finder(path_maps=(("/usr/bin", script.parent),))
        assert choice(script, finder, program="/usr/bin/python3.99") == Choice(None, script, REFUSED_ORIGIN)

    def test_a_folder_to_search(self, script):
        assert choice(script, Finder(extra_dirs=(script.parents[1],))) == Choice(None, script, REFUSED_ORIGIN)

    def test_a_crash_folder(self, script, monkeypatch):
        assert choice(script, foreign=(script.parents[1],)) == Choice(None, script, REFUSED_ORIGIN)
        monkeypatch.chdir(script.parents[2])
        assert choice(script, foreign=(Path("prefix"),)) == Choice(None, script, REFUSED_ORIGIN)

    def test_a_crash_folder_by_another_name(self, script, place):
        (place / "other").symlink_to(script.parents[1])
        assert choice(script, foreign=(place / "other",)) == Choice(None, script, REFUSED_ORIGIN)

    def test_the_root_of_another_process(self, script):
        """/proc/PID/root reads as a link to `/`."""
        finder = Finder(Path("/proc/self/root"))
        taken = choice(script, finder)
        assert taken == Choice(script, Path(f"/proc/self/root{script}"), REFUSED_ORIGIN)

    def test_this_machine_is_no_other(self, script):
        assert choice(script, Finder(Path("/"))) == Choice(script)


class TestVersion:
    def test_another_one_is_not_run(self, script):
        script.rename(script.with_name("python3.98-gdb.py"))
        assert choice(script, program=str(script.with_name("python3.98"))) == Choice()

    def test_a_name_without_one(self, script, place):
        """A build in its source folder, on the machine that crashed; of another machine it says nothing."""
        script.rename(script.with_name("python-gdb.py"))
        program = str(script.with_name("python"))
        assert choice(script, program=program).script == script.with_name("python-gdb.py")
        (place / "root").mkdir()
        assert choice(script, Finder(place / "root"), program=program).script is None


@pytest.mark.skipif(shutil.which("gdb") is None, reason="no gdb here")
class TestInAReport:
    @pytest.fixture
    def planted(self, place) -> tuple[Path, Path, Path]:
        """A core, the root folder of its system with a script that touches a witness, and the witness."""
        python = a_debuggable_interpreter()
        crash = python_crash("threads.py", python=python)
        program = python.path.resolve()
        bin_folder = place / "root" / program.parent.relative_to("/")
        bin_folder.mkdir(parents=True)
        for file in (program, *program.parent.parent.glob("lib/libpython*.so.*")):
            copy = place / "root" / file.relative_to("/")
            copy.parent.mkdir(exist_ok=True)
            shutil.copy(file, copy)
        witness = place / "executed"
        script = bin_folder / f"{program.name}-gdb.py"
        script.write_text(f"open({str(witness)!r}, 'w').close()\n")
        assert is_trusted(script)
        return crash.core, script, witness

    @pytest.mark.slow
    def test_this_machines_own_is_taken(self, planted, place):
        core, script, witness = planted
        report = analyze(core, options=Options(sysroot=place / "root"))
        assert not witness.exists()
        assert report.python.script and not Path(report.python.script).is_relative_to(place)
        assert {frame.origin for frame in report.thread.pythons()} == {"libpython"}
        (told,) = [error for error in report.soft_errors if "was not run" in error.message]
        assert told.message == f"{script} was not run: {REFUSED_ORIGIN}; used this machine's {report.python.script}"
        assert told.hint == f"If you trust it, pass --libpython {script}"
        # The control: it runs where it is named.
        analyze(core, options=Options(sysroot=place / "root", libpython=script))
        assert witness.exists()

    def test_without_one_the_frames_are_read_all_the_same(self, planted, place, monkeypatch):
        core, script, witness = planted
        monkeypatch.setattr(libpython_file, "_of_this_machine", lambda _names, _interpreter: ())
        report = analyze(core, options=Options(sysroot=place / "root"))
        assert not witness.exists() and report.python.script is None
        assert {frame.origin for frame in report.thread.pythons()} == {"crashkit"}
        (told,) = [error for error in report.soft_errors if "was not run" in error.message]
        assert told.message == f"{script} was not run: {REFUSED_ORIGIN}; read Python frames without it"

    def test_relative_paths_count_from_the_working_directory(self, planted, place, monkeypatch):
        """gdb starts elsewhere."""
        core, script, witness = planted
        monkeypatch.chdir(place)
        report = analyze(core, options=Options(sysroot=Path("root"), libpython=script.relative_to(place)))
        assert witness.exists()
        interpreter = next(module for module in report.modules if module.path == report.python.executable)
        assert interpreter.found and Path(interpreter.found).is_relative_to(place / "root") and interpreter.symbols == "full"

    @pytest.fixture
    def in_crash_folder(self, planted, place, monkeypatch) -> tuple[Path, Path, Path]:
        """What is planted, with the root folder made a crash folder of the core."""
        core, script, _ = planted
        (place / "root" / "manifest.json").write_text(json.dumps({"schema": SCHEMA, "files": [{"name": "core", "kind": "core"}]}))
        shutil.copy(core, place / "root" / "core")
        monkeypatch.setattr(libpython_file, "_names", lambda _interpreter, _executable: [])
        monkeypatch.setattr(libpython_file, "_of_this_machine", lambda _names, _interpreter: (script,))
        return planted

    @pytest.mark.slow
    def test_in_a_crash_folder(self, in_crash_folder, place):
        """Whether the folder is given or the core in it."""
        core, _, witness = in_crash_folder
        for given in (place / "root", place / "root" / "core"):
            report = analyze(given)
            assert [error.message for error in report.soft_errors if REFUSED_ORIGIN in error.message]
            assert not witness.exists()
        analyze(core)
        assert witness.exists(), "the control"

    @pytest.mark.slow
    def test_in_a_crash_folder_that_is_opened_in_gdb(self, in_crash_folder, place, capfd):
        core, script, witness = in_crash_folder
        for given in (place / "root", place / "root" / "core"):
            assert not CliRunner().invoke(gdb_command, [str(given), "-c", "print 6 * 7"]).exit_code
            said = capfd.readouterr().out
            assert "$1 = 42" in said and f"{script} was not run: {REFUSED_ORIGIN}" in said
            assert not witness.exists()
        assert not CliRunner().invoke(gdb_command, [str(core), "-c", "print 6 * 7"]).exit_code
        assert witness.exists(), "the control"
