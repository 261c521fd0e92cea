"""The interpreter's own memory is lost, and its threads' states are not: they still say who holds the GIL, and what each thread handles."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from crashkit.evidence.core.constants import read_constant
from crashkit.evidence.core.core import Core
from crashkit.evidence.module_files import ModuleFile
from crashkit.interpreter.finding import Module, find
from crashkit.interpreter.read import PythonState, read_python
from crashkit.interpreter.view import View
from tests.crashes import Interpreter, every_interpreter, python_crash
from tests.interpreter.process import idents, interpreter_of, main_ident, opened
from tests.interpreter.recorded import VERSIONS, recorded
from tests.interpreter.test_held import Hidden


def read(core: Core, lost: str, with_file: bool) -> PythonState:
    """Without the memory of the "interpreter", or also that of the "module" that it is in, with the types that are in there."""
    loaded, version = interpreter_of(core)
    known = idents(core)
    found = find(View(core), [Module(loaded, Path(loaded.path))], version, known)
    assert found is not None and len(found.interpreters) == 1
    start, fields = found.interpreters[0], msgspec.structs.astuple(found.layout.interpreter)
    end = start + 64 + max(field for field in fields if field is not None)
    hidden = [range(start, end)] * bool(lost) + [range(loaded.base, loaded.end)] * (lost == "module")
    memory = Hidden(core, {}, hidden)
    files = {loaded.path: ModuleFile("found", Path(loaded.path))} if with_file else {}

    def constants(address: int, size: int) -> bytes:
        return memory.read(address, size) or read_constant(core, files, address, size)

    module = Module(loaded, Path(loaded.path) if with_file else None)
    state = read_python(memory, [module], version, known, constants, main=main_ident(core))
    assert state is not None
    return state


def holders(state: PythonState) -> dict[int, bool | None]:
    return {thread.state.ident: thread.holds_gil for thread in state.threads}


def handled(state: PythonState) -> dict[int, tuple[str | None, list[str]]]:
    return {thread.state.ident: (state.exception(thread), [one.text for one in state.raised(thread)]) for thread in state.threads}


@pytest.mark.slow
@pytest.mark.parametrize("python", every_interpreter())
def test_the_gil_has_its_holder(python: Interpreter) -> None:
    environment = {"PYTHON_GIL": "1"} if python.free_threaded else None
    made = python_crash("gil.py", python=python, faulthandler=False, environment=environment)
    with opened(made.core) as core:
        whole = holders(read(core, "", with_file=True))
        assert sorted(filter(None, whole.values())) == [True] and len(whole) == 6
        ours = read(core, "interpreter", with_file=True)
        assert holders(ours) == (whole if not python.free_threaded else dict.fromkeys(whole))


@pytest.mark.slow
@pytest.mark.parametrize("with_file", [True, False])
@pytest.mark.parametrize("python", every_interpreter())
def test_threads_have_their_exceptions(python: Interpreter, with_file: bool) -> None:
    with opened(python_crash("raised.py", python=python).core) as core:
        whole = handled(read(core, "", with_file=True))
        assert len([one for one, _ in whole.values() if one]) == 4
        ours = handled(read(core, "interpreter", with_file))
        assert {ident: len(chain) for ident, (_, chain) in ours.items()} == {ident: len(chain) for ident, (_, chain) in whole.items()}
        assert ours == whole or not with_file
        if with_file:
            # The file says where None is. From 3.11 on the main thread's state is lost, too.
            lengths = {ident: len(chain) for ident, (_, chain) in handled(read(core, "module", with_file)).items() if chain}
            assert len(lengths) >= 3 and lengths.items() <= {ident: len(chain) for ident, (_, chain) in whole.items()}.items()


@pytest.mark.parametrize("version", VERSIONS)
def test_a_gil_that_is_off_has_no_holder(version: str, tmp_path: Path) -> None:
    with opened(recorded(version, "known_threads.py", tmp_path).core) as core:
        assert set(holders(read(core, "interpreter", with_file=False)).values()) == {None}
