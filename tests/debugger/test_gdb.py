"""A gdb that is missing, too old, hangs, dies or talks nonsense costs its own part of the report and nothing else.

The real gdb does none of these things when asked to. So here, and only here, a shell script that speaks as much MI as is needed stands
in for it (`--gdb PROGRAM`); where gdb itself can be made to fail, it is gdb itself.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import sys
import threading
import time
from pathlib import Path

import pytest

from crashkit.debugger.gdb.process import Gdb
from crashkit.debugger.gdb.session import PlacedModule, Session
from crashkit.errors import DebuggerError
from crashkit.gdb_files import gdb_program
from crashkit.model import Crash
from crashkit.pipeline import Options, analyze
from tests.crashes import Folder, a_debuggable_interpreter, an_interpreter, needs_gdb, python_crash

# Speaks MI: for the first of these commands that a line holds, its answer; `TOKEN` stands for the command's token.
ANSWERS = """#!{python} -I
import os, re, sys
for line in sys.stdin:
    token, command = re.match(r"(\\d*)(.*)", line).groups()
    for wanted, answer in {answers!r}:
        if wanted in command:
            {also}
            print(answer.replace("TOKEN", token), flush=True)
            break
"""
FEATURES = ("-list-features", 'TOKEN^done,features=["python"]')
AT_LAST = """#!{python}
import re, sys
questions = []
for line in sys.stdin:
    questions.append(re.match("\\\\d+", line)[0])
    if "-crashkit-python" in line:
        break
for question in questions[:-2]:
    print(question + '^done,features=["python"]')
for question in questions[-2:]:
    print(question + '^error,msg="that is all"', flush=True)
sys.stdin.read()
"""
VERSION = ("-gdb-version", '~"GNU gdb (Fake) 12.1\\n"\nTOKEN^done')
ANYTHING = ("", "TOKEN^done")


def fake_gdb(folder: Path, script: str) -> str:
    program = folder / "fake-gdb"
    program.write_text(script)
    program.chmod(0o755)
    return str(program)


def answering(folder: Path, *answers: tuple[str, str], also: str = "pass") -> str:
    return fake_gdb(folder, ANSWERS.format(python=sys.executable, answers=answers, also=also))


@pytest.fixture(scope="module")
def crashed() -> Folder:
    return python_crash("threads.py", python=an_interpreter())


def command_fails(program: str, deadline: float = 60) -> DebuggerError:
    with Gdb(deadline, program) as gdb, pytest.raises(DebuggerError) as raised:
        gdb.command("-list-features")
    return raised.value


def session_fails(program: str, core: Path, deadline: float = 60) -> DebuggerError:
    with pytest.raises(DebuggerError) as raised, Session(core, deadline, program) as session:
        session.native([], None)()
    return raised.value


def notes_only(core: Path, program: str, deadline: float = 60.0) -> Crash:
    """The report that is left with this gdb: all that the notes tell, and the reason why there is no more."""
    crash = analyze(core, options=Options(gdb=program, deadline=deadline))
    assert (crash.signal.name, crash.signal.reason) == ("SIGSEGV", "null-pointer")
    assert len(crash.threads) == 7
    assert all(thread.registers for thread in crash.threads)
    assert crash.thread.tid == crash.crashed_thread
    assert crash.modules and crash.process.argv and crash.instructions
    return crash


def gdb_error(crash: Crash) -> str:
    errors = [error for error in crash.soft_errors if error.stage == "gdb"]
    assert len(errors) == 1 and errors[0].hint
    return errors[0].message


class TestDeadline:
    @pytest.mark.slow
    def test_gdb_that_never_answers(self, tmp_path, crashed):
        program = fake_gdb(tmp_path, "#!/bin/sh\necho still thinking >&2\nexec sleep 1000\n")
        with Gdb(60, program) as gdb:
            select.select([gdb._process.stderr], [], [])  # it has said so
            gdb._ends = time.monotonic() + 1
            with pytest.raises(DebuggerError, match="gdb did not finish within 60 s: still thinking"):
                gdb.command("-list-features")
        assert "did not finish" in gdb_error(notes_only(crashed.core, program, deadline=0.5))

    def test_gdb_that_talks_for_ever_but_does_not_answer(self, tmp_path):
        program = fake_gdb(tmp_path, """#!/bin/sh\nwhile printf '~"more"\\n'; do :; done\n""")
        assert "did not finish" in str(command_fails(program, deadline=0.1))

    @pytest.mark.slow
    def test_gdb_that_leaves_a_child_behind(self, tmp_path):
        """A FIFO that the child holds open ends when the child does."""
        held = tmp_path / "held"
        os.mkfifo(held)
        reader = os.open(held, os.O_RDONLY | os.O_NONBLOCK)
        os.set_blocking(reader, True)
        script = f"#!/bin/sh\nexec 3> '{held}'\nsleep 1000 2> /dev/null > /dev/null &\necho started >&3\nwait\n"
        with os.fdopen(reader) as file, Gdb(60, fake_gdb(tmp_path, script)) as gdb:
            select.select([file], [], [])
            assert file.readline() == "started\n"
            gdb._ends = time.monotonic() + 0.1
            with pytest.raises(DebuggerError, match="did not finish"):
                gdb.command("-list-features")
            gdb.close()
            assert file.read() == ""

    @pytest.mark.slow
    @needs_gdb
    def test_gdb_itself(self, crashed):
        """A loop in gdb's own Python, which no MI command interrupts."""
        with Gdb(1.0) as gdb, pytest.raises(DebuggerError, match="did not finish within 1 s"):
            gdb.console("python while True: pass")


class TestDeath:
    def test_gdb_that_ends_at_once(self, tmp_path, crashed):
        program = fake_gdb(tmp_path, "#!/bin/sh\necho 'error while loading shared libraries: libfoo.so' >&2\nexit 127\n")
        assert str(command_fails(program)) == "gdb exited with status 127: error while loading shared libraries: libfoo.so"
        assert "libfoo.so" in gdb_error(notes_only(crashed.core, program))

    @pytest.mark.slow
    def test_gdb_that_closes_its_output(self, tmp_path):
        program = fake_gdb(tmp_path, "#!/bin/sh\nexec 1>&-\nexec sleep 1000\n")
        assert "gdb ended" in str(command_fails(program))

    @needs_gdb
    def test_gdb_killed_in_the_middle_of_a_command(self, tmp_path, crashed):
        """gdb says through a FIFO that it is in the middle of the command; only then is it killed."""
        gate = tmp_path / "gate"
        os.mkfifo(gate)
        with Session(crashed.core, 60) as session:

            def kill() -> None:
                gate.read_bytes()
                os.kill(session.pid, signal.SIGKILL)

            killer = threading.Thread(target=kill)
            killer.start()
            code = f"python open({str(gate)!r}, 'w').close(); import time; time.sleep(1000)"
            with pytest.raises(DebuggerError, match="killed by signal 9"):
                session._gdb.console(code)
            killer.join()
            with pytest.raises(DebuggerError, match="killed by signal 9"):
                session.native([], None)()

    @needs_gdb
    def test_gdb_closed_while_another_thread_waits_for_it(self, tmp_path, monkeypatch):
        """That thread notices late that gdb has ended: it must, and not wait on until the deadline."""
        gdb = Gdb(60, fake_gdb(tmp_path, "#!/bin/sh\nexec sleep 1000\n"))
        waits, late, real = threading.Event(), threading.Event(), gdb._selector.select

        def select(timeout: float | None = None) -> object:
            waits.set()
            assert late.wait(60)
            return real(timeout)

        monkeypatch.setattr(gdb._selector, "select", select)
        errors: list[BaseException] = []

        def ask() -> None:
            try:
                gdb.command("-list-features")
            except BaseException as error:
                errors.append(error)

        asks, closes = threading.Thread(target=ask), threading.Thread(target=gdb.close)
        asks.start()
        assert waits.wait(60)
        closes.start()
        while gdb._process.poll() is None:
            time.sleep(0.01)
        closes.join(0.2)  # time enough to close what is still in use
        late.set()
        asks.join(30)
        closes.join(30)
        assert not asks.is_alive() and not closes.is_alive()
        assert [str(error) for error in errors] == ["gdb was killed by signal 9"]

    def test_report_when_gdb_is_killed_after_its_native_answer(self, monkeypatch):
        """What was got by then stays. Without debug info gdb is asked nothing more."""
        crashed = python_crash("threads.py", python=a_debuggable_interpreter())
        native = Session.native

        def answer_and_die(self, *arguments, **names):
            result = native(self, *arguments, **names)
            os.kill(self.pid, signal.SIGKILL)
            return result

        monkeypatch.setattr(Session, "native", answer_and_die)
        crash = notes_only(crashed.core, "gdb")
        assert any(frame.function == "PyCFuncPtr_call" for frame in crash.thread.natives())
        assert any("killed by signal 9" in error.message for error in crash.soft_errors)

    def test_gdb_that_dies_of_its_own(self, tmp_path, crashed):
        """As gdb does on a failed assertion or without memory."""
        also = "if 'target-select' in command: print('internal-error: cannot go on', file=sys.stderr, flush=True); os.abort()"
        program = answering(tmp_path, FEATURES, VERSION, ANYTHING, also=also)
        assert str(session_fails(program, crashed.core)) == "gdb was killed by signal 6: internal-error: cannot go on"
        assert "cannot go on" in gdb_error(notes_only(crashed.core, program))


class TestStderr:
    def test_a_flood_does_not_freeze_gdb(self, tmp_path):
        """A pipe holds 64 KiB: who does not read it waits for ever."""
        flood = "print('warning: something in this core is not as it should be\\n' * 4000, file=sys.stderr, flush=True)"
        with Gdb(60, answering(tmp_path, ANYTHING, also=flood)) as gdb:
            assert gdb.command("-anything") == {}
            assert len(gdb._complaints) <= 8 << 10

    @needs_gdb
    def test_a_flood_of_the_real_gdb(self):
        with Gdb(60) as gdb:
            gdb.console("python import sys; sys.__stderr__.write('x' * 1000000); sys.__stderr__.flush()")
            assert gdb.command("-list-features")["features"]


class TestUnfit:
    def test_missing(self, crashed):
        error = session_fails("no-such-gdb", crashed.core)
        assert str(error) == "no-such-gdb is not installed"
        assert "apt-get install gdb" in error.hint
        assert gdb_error(analyze(crashed.core, options=Options(gdb="no-such-gdb"))) == "no-such-gdb is not installed"

    @needs_gdb
    def test_cuda_gdb_where_there_is_no_other(self, tmp_path, monkeypatch):
        """It is a gdb with more in it: here a link to the one that is installed."""
        (tmp_path / "cuda-gdb").symlink_to(shutil.which("gdb"))
        monkeypatch.setenv("PATH", str(tmp_path))
        assert gdb_program() == str(tmp_path / "cuda-gdb")
        with Gdb(60) as gdb:
            assert gdb.command("-list-features")["features"]
        with pytest.raises(DebuggerError, match="other-gdb is not installed"):
            Gdb(1, "other-gdb")

    def test_not_a_program(self, tmp_path):
        program = fake_gdb(tmp_path, "neither ELF nor a script")
        with pytest.raises(DebuggerError, match="could not be started: Exec format error"):
            Gdb(1, program)

    def test_without_python(self, tmp_path, crashed):
        program = answering(tmp_path, ("-list-features", 'TOKEN^done,features=["frozen-varobjs"]'), ANYTHING)
        error = session_fails(program, crashed.core)
        assert (str(error), error.hint) == ("this gdb was built without Python", "Install gdb 12 or newer with Python support.")
        assert gdb_error(notes_only(crashed.core, program)) == "this gdb was built without Python"

    def test_older_than_12(self, tmp_path, crashed):
        refusal = ("MICommand", 'TOKEN^error,msg="Error while executing Python code."')
        program = answering(tmp_path, FEATURES, refusal, ANYTHING)
        assert "older than 12" in str(session_fails(program, crashed.core))
        assert "older than 12" in gdb_error(notes_only(crashed.core, program))

    def test_answer_without_a_result_file(self, tmp_path, crashed):
        """It says done, but nothing was written."""
        program = answering(tmp_path, FEATURES, VERSION, ANYTHING)
        with Session(crashed.core, 60, program) as session:
            assert session.version == "GNU gdb (Fake) 12.1"
            with pytest.raises(DebuggerError, match="cannot read gdb's response"):
                session.native([], None)()
        assert "cannot read gdb's response" in gdb_error(notes_only(crashed.core, program))

    def test_it_has_every_question_before_it_answers_the_first(self, tmp_path, crashed):
        """It works through them without waiting for us."""
        program = fake_gdb(tmp_path, AT_LAST.format(python=sys.executable))
        with Session(crashed.core, 60, program) as session:
            answers = session.native([], None), session.python(Path("libpython.py"))
            for answer in answers:
                with pytest.raises(DebuggerError, match="gdb: that is all"):
                    answer()

    def test_no_room_for_temporary_files(self, crashed, monkeypatch):
        def full(*_arguments, **_names):
            raise OSError(28, "No space left on device")

        monkeypatch.setattr("crashkit.scratch.tempfile.mkdtemp", full)
        assert "No space left on device" in gdb_error(notes_only(crashed.core, "gdb"))


class TestRecords:
    def answer(self, folder: Path, *lines: str) -> dict:
        with Gdb(20, answering(folder, ("", "\n".join(lines)))) as gdb:
            return gdb.command("-anything")

    def test_only_the_answer_with_our_token_counts(self, tmp_path):
        lines = [
            '~"1^done is what the console says\\n"',
            '7^done,value="another\'s"',
            '^done,value="nobody\'s"',
            '=library-loaded,id=\\"x\\"',
            'TOKEN^done,value="ours"',
        ]
        assert self.answer(tmp_path, *lines) == {"value": "ours"}

    def test_a_late_answer_is_not_taken_for_the_next(self, tmp_path):
        answers = [("-first", '1^done,value="first"'), ("-second", '1^done,value="late"\n2^done,value="second"')]
        with Gdb(20, answering(tmp_path, *answers)) as gdb:
            assert gdb.command("-first") == {"value": "first"}
            assert gdb.command("-second") == {"value": "second"}

    def test_an_error_is_raised_in_gdbs_words(self, tmp_path):
        with pytest.raises(DebuggerError, match=r"^gdb: No symbol \"x\" in current context\.$"):
            self.answer(tmp_path, 'TOKEN^error,msg="No symbol \\"x\\" in current context."')

    @pytest.mark.parametrize(
        "record",
        [
            'TOKEN^done,stack=[frame={level="0"}',
            'TOKEN^done,stack=[frame={level="0"',
            "TOKEN^done,stack=[}",
            'TOKEN^done,value="open',
            "TOKEN^done,value=",
            "TOKEN^done,value",
            "TOKEN^",
        ],
    )
    def test_a_record_that_was_cut_off(self, tmp_path, record):
        """pygdbmi's parser alone never returns on the first of these."""
        with pytest.raises(DebuggerError, match="cannot parse gdb's response"):
            self.answer(tmp_path, record)

    def test_a_line_without_end(self, tmp_path):
        program = fake_gdb(tmp_path, "#!/bin/sh\nexec cat /dev/zero\n")
        assert str(command_fails(program)) == "gdb's response is too long"

    def test_invalid_utf8(self, tmp_path):
        body = "#!/bin/sh\nread -r line\nprintf '1^done,value=\"\\377\\376\"\\n'\nexec sleep 1000\n"
        with Gdb(20, fake_gdb(tmp_path, body)) as gdb:
            assert gdb.command("-anything") == {"value": "\ufffd\ufffd"}


@needs_gdb
class TestNames:
    """What is handed to gdb is data, whatever it is called."""

    def test_quoting(self, tmp_path):
        text, witness = 'a "b" \\ c', tmp_path / "witness"
        with Gdb(60) as gdb:
            gdb.console(f"python open({str(witness)!r}, 'w').write({text!r})")
        assert witness.read_text() == text

    def test_a_newline_in_a_file_name_begins_no_command(self, tmp_path, crashed):
        witness = tmp_path / "executed"
        file = tmp_path / f"lib.so\nshell touch {witness.name}\n"
        shutil.copy("/bin/true", file)
        before = Path.cwd()
        os.chdir(tmp_path)
        try:
            with Session(crashed.core, 60) as session:
                thread = analyze(crashed.core, options=Options(gdb=None)).thread
                address = thread.registers["rip"]
                session.native([PlacedModule(file, 0, 1 << 64, 0)], None)()
                with pytest.raises(DebuggerError, match="file with this name"):
                    session.python(Path("libpython.py"), PlacedModule(file, 0, address, 0))()
        finally:
            os.chdir(before)
        assert not witness.exists()


@needs_gdb
def test_threads_without_names_at_the_end_of_the_interpreter() -> None:
    """Its modules are None by then, `threading` among them."""
    crash = analyze(python_crash("late_finalizer.py", python=a_debuggable_interpreter()).core)
    assert not [error.message for error in crash.soft_errors if error.stage in ("gdb", "python")]
