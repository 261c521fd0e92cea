"""Which libpython.py is run: one that nobody but root and this user can change, wherever the core says that it lies."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from crashkit.debugger.gdb import libpython_file
from crashkit.debugger.gdb.libpython_file import find_script, is_trusted
from crashkit.errors import DebuggerError
from crashkit.evidence.core.modules import LoadedModule
from crashkit.evidence.interpreter import Interpreter
from crashkit.evidence.module_files import Finder, ModuleFile
from crashkit.pipeline import Options, analyze
from tests.crashes import a_debuggable_interpreter, python_crash

SOMEBODY = 65534
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


@pytest.fixture
def script(tmp_path: Path) -> Path:
    """In a folder of its own, trusted as it stands."""
    folder = tmp_path / "prefix" / "bin"
    folder.mkdir(parents=True)
    for path in (folder, folder.parent):
        path.chmod(0o755)
    made = folder / "python3.11-gdb.py"
    made.write_text("# gdb runs this\n")
    made.chmod(0o644)
    assert is_trusted(made.resolve())
    return made.resolve()


def found(script: Path) -> Path | None:
    program = str(script.with_name("python3.11"))
    module = LoadedModule(path=program, base=0, end=1, bias=0, build_id=None)
    files = {program: ModuleFile("found", Path(program))}
    return find_script(Interpreter(module, "3.11", False), program, files, Finder())


def is_refused(script: Path) -> None:
    with pytest.raises(DebuggerError, match="was not run: users other than root and you can write to it") as raised:
        found(script)
    assert raised.value.hint == f"If you trust it, pass --libpython {script}"


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


@pytest.mark.parametrize("mode", [0o646, 0o666, 0o777])
def test_one_that_everybody_may_write(script, mode):
    script.chmod(mode)
    is_refused(script)


@needs_root
def test_one_that_a_group_may_write(script):
    os.chown(script, 0, SOMEBODY)
    script.chmod(0o664)
    is_refused(script)
    script.chmod(0o644)
    assert found(script) == script


def test_a_group_of_nobody_else_may_write(script):
    """Where the umask is 002, as with private groups."""
    script.chmod(0o664)
    if libpython_file._is_own_group(script.stat().st_gid):
        assert found(script) == script
    else:
        is_refused(script)


@pytest.mark.parametrize("above", [1, 2])
def test_a_folder_that_everybody_may_write(script, above):
    """They may put another file in its place."""
    script.parents[above - 1].chmod(0o777)
    is_refused(script)


@needs_root
@pytest.mark.parametrize("above", [1, 2])
def test_a_folder_of_somebody_else(script, above):
    os.chown(script.parents[above - 1], SOMEBODY, 0)
    is_refused(script)


@needs_root
def test_a_sticky_folder(script):
    """As /tmp: ours stays ours there; but its owner may replace everything."""
    script.parent.chmod(0o1777)
    assert found(script) == script
    os.chown(script.parent, SOMEBODY, 0)
    is_refused(script)


@needs_root
def test_a_link_is_not_what_counts(script, tmp_path):
    """What is run is what was looked at: a link could point elsewhere a moment later."""
    link = tmp_path / "links" / script.name
    link.parent.mkdir()
    link.symlink_to(script)
    os.chown(link, SOMEBODY, 0, follow_symlinks=False)
    assert found(link) == script
    os.chown(script, SOMEBODY, 0)
    is_refused(link)


@needs_root
def test_the_next_place_is_looked_at(script, tmp_path):
    """A refused one does not keep a good one from being found."""
    os.chown(script, SOMEBODY, 0)
    module = LoadedModule(path=str(script.with_name("python3.11")), base=0, end=1, bias=0, build_id=None)
    library = tmp_path / "good" / "python3.11"
    library.parent.mkdir()
    good = library.with_name("python3.11-gdb.py")
    shutil.copy(script, good)
    assert find_script(Interpreter(module, "3.11", False), str(library), {}, Finder()) == good.resolve()


@needs_root
@pytest.mark.skipif(shutil.which("gdb") is None, reason="no gdb here")
def test_in_a_report(tmp_path):
    """Python frames are read without it then, and the report says why."""
    python = a_debuggable_interpreter()
    crash = python_crash("threads.py", python=python)
    program = python.path.resolve()
    hostile = tmp_path / "bin"
    hostile.mkdir()
    shutil.copy(program, hostile)
    planted = hostile / f"{program.name}-gdb.py"
    planted.write_text(f"open({str(tmp_path / 'executed')!r}, 'w').close()\n")
    os.chown(planted, SOMEBODY, 0)
    where = ((str(program.parent), hostile),)
    report = analyze(crash.core, options=Options(path_maps=where))
    assert any("was not run" in error.message for error in report.soft_errors)
    assert not (tmp_path / "executed").exists()
    assert {frame.origin for frame in report.thread.pythons()} == {"crashkit"}
    # The control: the same file runs where its owner is trusted.
    os.chown(planted, 0, 0)
    analyze(crash.core, options=Options(path_maps=where))
    assert (tmp_path / "executed").exists()
