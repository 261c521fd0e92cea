"""What docs/architecture.md draws: which room uses which, and that the pure ones open no file that evidence names."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from crashkit.diagnose import diagnose, load_catalog
from crashkit.model import Address, Crash, Gpu, GpuException, Module, NativeFrame, Process, PythonFrame, Signal, Source, Thread
from crashkit.report.renderer import RENDERERS, renderer

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "crashkit"
ENTRIES = {"__init__", "__main__", "demo_server", "pytest_plugin"}
"""Programs, and what `import crashkit` offers: they use what they start."""
OF_ALL = {"model", "limits"}
"""The only rooms that modules without a room may use, since every room uses those."""
ALONE = {"sqlalchemy": "history", "alembic": "history", "pygdbmi": "debugger", "pystack": "debugger", "jinja2": "report", "click": "cli"}
"""Packages that one room wraps for all others."""
NAMED = {("cli", "sqlalchemy.Connection")}
"""For types only."""


@cache
def drawn() -> dict[str, str]:
    """The rooms in the order of the list, and what it says of each."""
    text = (ROOT / "docs" / "architecture.md").read_text().split("```")[1]
    return dict(re.findall(r"^(\w+) +(.+)$", text, re.MULTILINE))


@cache
def imports() -> frozenset[tuple[str, str, str]]:
    """Each import, wherever it stands: the file, its room, and what is imported."""
    found = set()
    for path in PACKAGE.rglob("*.py"):
        file = path.relative_to(PACKAGE)
        found |= {(str(file), file.parts[0].removesuffix(".py"), name) for name in imported(path)}
    return frozenset(found)


def imported(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def test_every_room_is_on_the_list() -> None:
    packages = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    assert packages <= drawn().keys()
    assert all((PACKAGE / room).is_dir() or (PACKAGE / f"{room}.py").is_file() for room in drawn())


@pytest.mark.slow
def test_dependencies_point_upwards() -> None:
    order = {room: number for number, room in enumerate(drawn())}
    used = {(room, name.split(".")[1], file) for file, room, name in imports() if name.startswith("crashkit.")}
    assert len({(room, other) for room, other, _ in used}) > 50, "the imports were read"
    assert [one for one in sorted(used) if order.get(one[0], -1) < order.get(one[1], -1) and one[0] in order] == []
    assert [one for one in sorted(used) if one[0] not in {*order, *ENTRIES} and one[1] in order.keys() - OF_ALL] == []


@pytest.mark.slow
def test_one_room_wraps_a_package() -> None:
    for package, alone in ALONE.items():
        assert {room for _, room, name in imports() if name.split(".")[0] == package and (room, name) not in NAMED} == {alone}, package


def test_scripts_in_gdb_use_nothing_of_the_package() -> None:
    """The Python of gdb may be an old one, without any of it."""
    for path in (ROOT / "gdb_scripts").glob("*.py"):
        assert not [name for name in imported(path) if name.split(".")[0] == "crashkit"], path.name


# Nothing that the evidence names is opened.

LOOKS = {"open", "os.listdir", "os.scandir"}
STARTS = {"subprocess.Popen", "os.exec", "os.fork", "os.posix_spawn", "os.system", "socket.connect"}
_seen: list[str] | None = None


def _notice(event: str, arguments: tuple[Any, ...]) -> None:
    if _seen is not None and event in LOOKS | STARTS:
        _seen.append(f"{event}: {arguments[0]}")


def crash_of(file: str) -> Crash:
    """Of which each path is this file's."""
    python = PythonFrame(function="f", file=file, line=1, locals={"path": repr(file)})
    native = NativeFrame(function="g", file=file, line=1, module=file, offset=None, pc=Address(0x1010))
    return Crash(
        source=Source(path=file, kind="core"),
        process=Process(pid=1, executable=file, argv=(file,), environment={"PYTHONPATH": file}),
        signal=Signal(number=11, name="SIGSEGV", address=Address(0x18), access="read", reason="null-pointer"),
        crashed_thread=1,
        threads=(Thread(tid=1, crashed=True, frames=(native, python)),),
        modules=(Module(path=file, base=Address(0x1000), symbols="missing"),),
        gpu=(Gpu(path=file, exceptions=(GpuException(name="WARP_ILLEGAL_ADDRESS", file=file, line=1, kernel="k"),)),),
    )


def test_neither_diagnosis_nor_reports_open_a_file_that_the_evidence_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    global _seen
    file = tmp_path / "app.py"
    file.write_text("secret = 1\n")
    crash = crash_of(str(file))
    sys.addaudithook(_notice)
    monkeypatch.setattr(sys.modules[__name__], "_seen", [])
    opened = _seen
    assert opened is not None
    file.read_bytes()
    assert opened == [f"open: {file}"], "the test sees who opens it"
    opened.clear()
    found = diagnose(crash, load_catalog())
    assert found.findings or found.looked_for or found.next_steps
    for name in RENDERERS:
        assert renderer(name).render(found)
    # Their own templates and tables they do read.
    assert [one for one in opened if str(tmp_path) in one or one.partition(":")[0] in STARTS] == []
