"""The modules of real processes: where they lay and which builds they were."""

from __future__ import annotations

import io
import re
import subprocess
from pathlib import Path

import pytest

from crashkit.evidence.core.core import Core, open_core
from crashkit.evidence.core.modules import LoadedModule, ModuleIndex, loaded_modules
from crashkit.evidence.interpreter import find_interpreter
from tests.crashes import Folder, Interpreter, an_interpreter, c_crash, every_interpreter, needs_binutils, python_crash
from tests.evidence import synthetic


def open_file(folder: Folder) -> Core:
    core = open_core(folder.core.open("rb"), folder.core, folder.core.stat().st_size)
    assert core is not None
    return core


def readelf(path: str, option: str) -> str:
    return subprocess.run(["readelf", option, "-W", path], capture_output=True, text=True, check=True).stdout


@needs_binutils
@pytest.mark.parametrize("source", ["threads.py", "no_python.c"])
def test_build_ids_and_biases_are_those_of_the_files(source):
    folder = python_crash(source, python=an_interpreter()) if source.endswith(".py") else c_crash(source)
    with open_file(folder) as core:
        modules = loaded_modules(core)
        entry = core.auxv[9]
        main = next(module for module in modules if module.path == core.executable())
    assert len(modules) >= 3
    compared = 0
    for module in modules:
        if not Path(module.path).exists():
            continue  # the vdso
        found = re.search(r"Build ID: (\w+)", readelf(module.path, "-n"))
        assert module.build_id == (found[1] if found else None), module.path
        first = re.search(r"^  LOAD +0x0+ (0x\w+)", readelf(module.path, "-l"), re.M)
        assert module.bias == module.base - int(first[1], 16)
        assert module.base % 4096 == 0 and module.end > module.base
        compared += 1
    assert compared >= 3
    # The kernel noted where the process began: that is the executable's entry point, moved by the bias.
    assert entry == main.bias + int(re.search(r"Entry point address: +(0x\w+)", readelf(main.path, "-h"))[1], 16)


@pytest.mark.parametrize("python", every_interpreter())
def test_the_interpreter_is_found_in_the_core(python: Interpreter):
    with open_file(python_crash("threads.py", python=python)) as core:
        modules = loaded_modules(core)
        found = find_interpreter(modules, core.executable())
        holders = [module.path for module in modules if "libpython" in module.path] or [core.executable()]
    assert found.version == ".".join(map(str, python.version[:2]))
    assert not found.free_threaded
    assert found.module.path == holders[0]


def test_a_program_without_python_has_no_interpreter():
    with open_file(c_crash("no_python.c")) as core:
        assert find_interpreter(loaded_modules(core), core.executable()) is None


def test_every_program_counter_lies_in_its_module():
    folder = c_crash("no_python.c")
    with open_file(folder) as core:
        index = ModuleIndex(loaded_modules(core))
        where = [Path(index.at(status.registers["rip"]).path).name for status in core.statuses]
        assert where == [folder.program.name, "libc.so.6"]
        assert index.at(0) is None and index.at(1 << 63) is None


@pytest.mark.parametrize(
    ("path", "executable", "others", "expected"),
    [
        ("/usr/lib/libpython3.13t.so.1.0", "/opt/server", (), ("3.13", True)),
        ("/usr/lib/libpython3.7m.so.1.0", "/opt/server", (), ("3.7", False)),
        ("/usr/bin/python3.12", "/usr/bin/python3.12", (), ("3.12", False)),
        ("/usr/bin/python3.14t", "/usr/bin/python3.14t", (), ("3.14", True)),
        ("/usr/bin/python", "/usr/bin/python", ("/x/_json.cpython-310-x86_64-linux-gnu.so",), ("3.10", False)),
        ("/usr/bin/python3", "/usr/bin/python3", ("/usr/lib/python3.9/lib-dynload/a.so",), ("3.9", False)),
        ("/opt/frozen", "/opt/frozen", ("/x/a.cpython-313t-x86_64-linux-gnu.so",), ("3.13", True)),
        ("/bin/ls", "/bin/ls", ("/lib/libc.so.6",), None),
        ("/bin/python-config-tool", "/bin/python-config-tool", (), None),
    ],
)
def test_the_interpreter_by_its_names(path, executable, others, expected):
    modules = [LoadedModule(name, 0x1000 * at, 0x1000 * at + 0x1000, 0, None) for at, name in enumerate((path, *others))]
    found = find_interpreter(modules, executable)
    assert (found and (found.version, found.free_threaded)) == expected


class TestFirstPages:
    """What the first page of a module in memory says, which the process may have overwritten."""

    def modules(self, page: bytes, flags: int = 5) -> list[LoadedModule]:
        notes = synthetic.prstatus(7, range(27)) + synthetic.file_note([(0x10000, 0x11000, 0, b"/lib/a.so")])
        data = synthetic.core(synthetic.EM_X86_64, notes, [synthetic.Load(0x10000, page, flags, 4096)])
        core = open_core(io.BytesIO(data), Path("core"), len(data))
        assert core is not None
        return loaded_modules(core)

    def elf(self, note: bytes, stored: int | None = None, count: int = 2) -> bytes:
        head = synthetic.header(synthetic.EM_X86_64, count, kind=synthetic.ET_DYN)
        table = synthetic.program_header(1, 5, 0, 0, 4096, 4096)
        table += synthetic.program_header(4, 4, 0x100, 0x100, len(note) if stored is None else stored, len(note))
        return (head + table).ljust(0x100, b"\0") + note + bytes(64)

    def test_build_id(self):
        (module,) = self.modules(self.elf(synthetic.note(b"GNU", 3, bytes(range(20)))))
        assert module.build_id == bytes(range(20)).hex()
        assert (module.base, module.bias) == (0x10000, 0x10000)

    @pytest.mark.parametrize("page", [b"", b"\x7fELF", b"\x7fELF\2\1" + b"\xff" * 200, bytes(4096), b"MZ" + bytes(100)])
    def test_a_page_that_is_no_elf_header(self, page):
        """Mapped code is still a module, a mapped file of data is none."""
        assert [module.build_id for module in self.modules(page)] == [None]
        if not page.startswith(b"\x7fELF\2"):
            assert self.modules(page, flags=4) == []

    @pytest.mark.parametrize("page_is_there", [True, False])
    def test_code_mapped_once_more_elsewhere(self, page_is_there):
        """As libffi does with the page of its trampolines. Without the first page nothing tells which of both the loader mapped."""
        page = self.elf(synthetic.note(b"GNU", 3, b"ab")) if page_is_there else b""
        rows = [(0x10000, 0x12000, 0, b"/lib/a.so"), (0x20000, 0x24000, 0, b"/lib/data"), (0x70000, 0x71000, 1, b"/lib/a.so")]
        loads = [synthetic.Load(0x10000, page, 5, 0x2000), synthetic.Load(0x20000, b"", 4, 0x4000), synthetic.Load(0x70000, b"", 5, 4096)]
        notes = synthetic.prstatus(7, range(27)) + synthetic.file_note(rows)
        data = synthetic.core(synthetic.EM_X86_64, notes, loads)
        core = open_core(io.BytesIO(data), Path("core"), len(data))
        assert core is not None
        found = [(module.base, module.end) for module in loaded_modules(core)]
        assert found == [(0x10000, 0x12000), (0x6F000, 0x71000)][: 1 if page_is_there else 2]

    def test_notes_that_lie(self):
        note = synthetic.note(b"GNU", 3, b"ab")
        for stored, count in ((1 << 63, 2), (len(note), 0xFFFF), (3, 2), (0, 2)):
            assert len(self.modules(self.elf(note, stored, count))) == 1
