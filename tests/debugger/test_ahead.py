"""A gdb that began to read before anything was known of the core: the same report, whether it read the right files or not."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import struct
import subprocess
import tarfile
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from msgspec.structs import replace

from crashkit import isolation, scratch
from crashkit.cli.analyze import command
from crashkit.crashfolder.bundle import EVIDENCE, MANIFEST, ROOT
from crashkit.debugger.gdb import ahead
from crashkit.debugger.gdb.ahead import Ahead, begin
from crashkit.debugger.gdb.debugger import GdbDebugger
from crashkit.debugger.gdb.process import Gdb
from crashkit.debugger.on_demand import OnDemand
from crashkit.elf.headers import PT_NOTE
from crashkit.evidence.core.core import Core
from crashkit.evidence.core.describe import Scene, describe
from crashkit.evidence.module_files import Finder
from crashkit.evidence.pieces import sort_out
from crashkit.gdb_files import DEBUG_ROOT
from crashkit.model import Crash
from crashkit.pipeline import Options, analyze, gdb_settings
from tests.crashes import a_debuggable_interpreter, needs_gdb, python_crash

pytestmark = [needs_gdb, pytest.mark.slow]
SECONDS = 100.0


@pytest.fixture(scope="module")
def core() -> Path:
    return python_crash("threads.py", python=a_debuggable_interpreter()).core


@pytest.fixture(scope="module")
def usual(core: Path) -> Crash:
    return analyze(core)


@pytest.fixture
def begun(core: Path) -> Iterator[Ahead]:
    found = begin([core], "gdb", SECONDS)
    assert found is not None
    with closing(found):
        yield found


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The gdbs that are started from here on."""
    programs: list[str] = []
    start = isolation.start

    def noted(command: Any, **options: Any) -> subprocess.Popen[bytes]:
        programs.extend(name for name in command[:1] if "gdb" in name)
        return start(command, **options)

    monkeypatch.setattr(isolation, "start", noted)
    return programs


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What every gdb is told from here on."""
    told: list[str] = []
    send = Gdb.send

    def noted(gdb: Gdb, text: str) -> int:
        told.append(text)
        return send(gdb, text)

    monkeypatch.setattr(Gdb, "send", noted)
    return told


def with_notes_repeated(core: Path, into: Path) -> Path:
    """The core, with so many headers of its notes that together they are longer than the file."""
    data = core.read_bytes()
    (table,), (count,) = struct.unpack_from("<Q", data, 32), struct.unpack_from("<H", data, 56)
    headers = [data[table + 56 * index :][:56] for index in range(count)]
    (note,) = (one for one in headers if struct.unpack_from("<I", one)[0] == PT_NOTE)
    headers += [note] * (len(data) // struct.unpack_from("<Q", note, 32)[0] + 60)
    forged = bytearray(data)
    struct.pack_into("<Q", forged, 32, len(data))
    struct.pack_into("<H", forged, 56, len(headers))
    into.write_bytes(forged + b"".join(headers))
    return into


def untimed(crash: Crash) -> Crash:
    return replace(crash, seconds={})


def test_the_report_is_the_same_and_from_that_gdb(core: Path, usual: Crash, begun: Ahead, started: list[str]) -> None:
    names = {file.name.partition(".")[0].partition("-")[0] for file in begun.files}
    assert "libc" in names and names & {"libpython3", "python3"}
    begun.gdb.command("-gdb-version")
    found = begun.gdb.console(
        "python import crashkit_native; assert crashkit_native.LOADED == " + repr({(str(a), b) for a, b in begun.files.items()})
    )
    assert found is not None
    assert untimed(analyze(core, ahead=begun)) == untimed(usual)
    assert started == []


@pytest.mark.parametrize("wrong", ["place", "file"])
def test_a_wrong_guess_is_noticed(core: Path, usual: Crash, started: list[str], wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    needed = ahead._needed

    def guess(mappings: Any) -> Iterator[tuple[Path, int]]:
        for file, bias in needed(mappings):
            yield (file, bias + 4096) if wrong == "place" else (Path("/bin/sh").resolve(), bias)

    monkeypatch.setattr(ahead, "_needed", guess)
    begun = begin([core], "gdb", SECONDS)
    assert begun is not None and begun.files
    with closing(begun):
        assert untimed(analyze(core, ahead=begun)) == untimed(usual)
    assert len(started) == 2


def test_another_core_is_noticed(core: Path, usual: Crash, started: list[str], tmp_path: Path) -> None:
    """Of the same modules at the same places, but another one."""
    other = tmp_path / "core"
    shutil.copy(core, other)
    begun = begin([other], "gdb", SECONDS)
    assert begun is not None
    with closing(begun):
        assert untimed(analyze(core, ahead=begun)) == untimed(usual)
    assert len(started) == 2


def test_a_core_that_gdb_cannot_open_is_told(core: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ahead, "open_core", lambda _core, folder: f"-target-select core {folder}/missing")
    begun = begin([core], "gdb", SECONDS)
    assert begun is not None
    with closing(begun):
        assert any("missing" in error.message for error in analyze(core, ahead=begun).soft_errors if error.stage == "gdb")


def test_what_gdb_cannot_load_then_is_loaded_later(core: Path, usual: Crash, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ahead, "commands_file", lambda: Path("/nonexistent"))
    begun = begin([core], "gdb", SECONDS)
    assert begun is not None
    with closing(begun):
        assert untimed(analyze(core, ahead=begun)) == untimed(usual)


def test_nothing_is_started_for_what_is_no_core_of_this_machine(
    core: Path, started: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "stderr.txt"
    log.write_text("Fatal Python error: Aborted\n")
    (tmp_path / "truncated").write_bytes(core.read_bytes()[:64])
    (tmp_path / "packed").write_bytes(gzip.compress(core.read_bytes()[: 1 << 20]))
    for path in (log, tmp_path, Path("/proc/self/exe"), *(tmp_path / name for name in ("nothing", "truncated", "packed"))):
        assert begin([path], "gdb", SECONDS) is None
    assert begin([core], "/nonexistent/gdb", SECONDS) is None
    here = os.uname()
    other = os.uname_result((*here[:4], "aarch64" if here.machine == "x86_64" else "x86_64"))
    monkeypatch.setattr(os, "uname", lambda: other)
    assert begin([core], "gdb", SECONDS) is None
    assert started == []


@pytest.mark.parametrize("fails", [False, True])
def test_the_command_starts_one_and_ends_it(core: Path, tmp_path: Path, started: list[str], fails: bool) -> None:
    options = ["--signatures", tmp_path / "nothing"] if fails else []
    done = CliRunner().invoke(command, [*map(str, (core, "--out", tmp_path / "report", *options)), "--quiet"], standalone_mode=False)
    assert (done.exception is not None) == fails != (tmp_path / "report" / "report.json").exists()
    assert len(started) == 1 and scratch.held() == []
    assert not [process for process in isolation.running() if "gdb" in str(process.args)]


def test_no_gdb_opens_a_core_that_no_kernel_wrote(core: Path, tmp_path: Path, commands: list[str]) -> None:
    """By the command, which starts one before the core is checked."""
    said = {}
    for path in (with_notes_repeated(core, tmp_path / "forged"), core):
        del commands[:]
        done = CliRunner().invoke(command, [str(path), "--json", "--quiet"], standalone_mode=False)
        assert done.exception is None and any("-crashkit-ahead" in text for text in commands)
        said[path] = (any("core" in text.split("crashkit")[0] for text in commands), "no kernel wrote this core" in done.stdout)
    assert list(said.values()) == [(False, True), (True, False)]


def test_files_of_another_system_that_come_in_an_archive_are_known_to_gdb_first(
    core: Path, usual: Crash, tmp_path: Path, commands: list[str]
) -> None:
    """The command sees them only once it has unpacked them: here a bundle of what the process printed, beside the core."""
    bundle, log = tmp_path / "bundle.tar", tmp_path / "stderr.txt"
    log.write_text("Fatal Python error: Segmentation fault\n")
    with tarfile.open(bundle, "w") as archive:
        archive.add(log, MANIFEST)
        archive.add(log, f"{EVIDENCE}/stderr.txt")
        for module in usual.modules:
            if Path(module.path).is_file():
                archive.add(Path(module.path).resolve(), f"{ROOT}{module.path}")
    done = CliRunner().invoke(command, [str(core), str(bundle), "--json", "--quiet"], standalone_mode=False)
    assert done.exception is None and json.loads(done.stdout)["debugger"]
    last = max(index for index, text in enumerate(commands) if text.startswith("-list-features"))
    set_up, opened = (next(i for i, text in enumerate(commands[last:]) if word in text) for word in ("set sysroot", "-target-select core"))
    assert set_up < opened


@pytest.mark.parametrize("settings", [{"sysroot": Path("/")}, {"debug_folders": (Path(DEBUG_ROOT), Path("/nowhere"))}])
def test_a_gdb_without_the_settings_is_a_wrong_guess(core: Path, begun: Ahead, started: list[str], settings: Any) -> None:
    with described(core) as (_, scene):
        begun.open(core)
        debugger = GdbDebugger(gdb_settings(Options())._replace(ahead=begun, **settings), Finder())
        with closing(debugger):
            assert debugger.start() is None
            assert debugger.examine(core, scene, True, lambda _part: None).native
    assert len(started) == 1


def test_what_is_told_to_end_starts_no_other_gdb(core: Path, begun: Ahead, started: list[str]) -> None:
    """By the thread that does not wait for it: after a wrong guess, and before the rounds of the one that has no file."""
    with described(core) as (opened, scene):
        begun.files = {Path("/nonexistent"): 0}
        guessed = GdbDebugger(gdb_settings(Options())._replace(ahead=begun), Finder())
        assert guessed.start() is None
        guessed.close()
        assert guessed.examine(core, scene, True, lambda _part: None).soft_errors
        rounds = OnDemand(opened, gdb_settings(Options()), Finder())

        def end() -> bool:
            rounds.close()
            return True

        assert rounds.examine(core, scene, True, lambda _part: None, end).soft_errors
        assert started == []


@contextmanager
def described(core: Path) -> Iterator[tuple[Core, Scene]]:
    with ExitStack() as stack:
        pieces = sort_out([core], stack)
        assert pieces.core is not None and pieces.core_input is not None
        yield pieces.core, describe(pieces.core, pieces.core_input, Finder())


def test_an_interrupt_as_it_starts_ends_it(core: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    processes: list[subprocess.Popen[bytes]] = []
    start = isolation.start

    def noted(*command: Any, **options: Any) -> subprocess.Popen[bytes]:
        processes.append(start(*command, **options))
        return processes[-1]

    def interrupted(_mappings: Any) -> Iterator[Any]:
        raise KeyboardInterrupt

    monkeypatch.setattr(isolation, "start", noted)
    monkeypatch.setattr(ahead, "_needed", interrupted)
    with pytest.raises(KeyboardInterrupt):
        begin([core], "gdb", SECONDS)
    assert [process.poll() is not None for process in processes] == [True]
