"""Every fix of the catalog says what to do here: with this run's names and values, or without the generic part."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from crashkit.diagnose import load_catalog
from crashkit.diagnose.case import Case
from crashkit.diagnose.engine import diagnose
from crashkit.diagnose.fixes import fitting
from crashkit.diagnose.next_steps import _steps
from crashkit.diagnose.signature import Fix
from crashkit.diagnose.texts import names
from crashkit.model import Address, Crash, Mapping, NativeFrame, Process, Signal, Source, Thread
from crashkit.pipeline import analyze

from .synthetic import crash

COMMAND = "python3 -m train --data 'my set'"
ARGUMENTS = ("python3", "-m", "train", "--data", "my set")

# Words in capitals that are names in the world; any other stands for something that the reader would have to put in.
NAMES = frozenset(
    "ACS AER ALL BLAS CDLL CPU CSAN CUDA CUDA_LAUNCH_BLOCKING DETAIL ECC FE_ALL_EXCEPT GIL GNU GPU GTK INFO IOMMU JNI LD_LIBRARY_PATH LWP "
    "MPI MPI_ERRORS_RETURN NT_FILE NULL PAGESIZE PAGE_RETIREMENT "
    "PYTHONHOME PYTHONPATH QEMU ROW_REMAPPER SIGABRT TIMEOUT WARN WORKER YES".split()
)
_CAPITALS = re.compile(r"(?<![\w$/.'\"-])[A-Z][A-Z_]{2,}\b(?![=\w.(])")


def every_fix() -> Iterator[tuple[str, Fix]]:
    for signature in load_catalog().signatures:
        for fix in (*signature.fixes, *signature.steps):
            yield signature.id, fix
    for step in _steps():
        yield "next steps", step


def of_a_run(argv: tuple[str, ...] = ARGUMENTS, kind: str = "log") -> Crash:
    """A crash in `libdecode.so` of a package, with this command line."""
    frame = NativeFrame(function="decode", module="/venv/lib/python3.11/site-packages/fast_decode/libdecode.so", offset=0x10)
    process = Process(pid=7, executable="/usr/bin/python3.11", argv=argv, versions={"fast-decode": "1.2"})
    threads = (Thread(tid=7, crashed=True, frames=(frame,)),)
    return replace(crash(signal="SIGSEGV"), source=Source(path=kind, kind=kind), process=process, threads=threads, crashed_thread=7)


def in_library(path: str, **variables: str) -> Crash:
    """The same crash in this library."""
    subject = of_a_run()
    (thread,), process = subject.threads, subject.process
    assert process is not None
    frame = NativeFrame(function="decode", module=path, offset=0x10)
    return replace(subject, threads=(replace(thread, frames=(frame,)),), process=replace(process, environment=variables))


def filled(fix: Fix, subject: Crash) -> str:
    case = Case(subject)
    return "\n".join(fitting([Fix(text=fix.text)], case, names(case)))


@pytest.mark.parametrize("subject", [crash(signal="SIGSEGV"), of_a_run()], ids=["nothing known", "all known"])
def test_no_fix_has_a_placeholder(subject: Crash) -> None:
    texts = {(name, filled(fix, subject)) for name, fix in every_fix()}
    left = {(name, word, text) for name, text in texts for word in _CAPITALS.findall(text) if word not in NAMES}
    assert left == set()


def test_a_command_that_is_run_again_is_this_run_s() -> None:
    """What starts a program sets variables for it or wraps it; the program is never a made-up one."""
    starts = re.compile(r"(?<!-)\bpython3? (?!-c |-m pip )\S")
    assert [fix.text for _, fix in every_fix() if starts.search(fix.text) and "{command" not in fix.text] == []
    for name, fix in every_fix():
        if "{command" in fix.text:
            assert COMMAND in filled(fix, of_a_run()) or fix.text.startswith("{blocking_run}"), name


def test_nothing_is_left_of_a_command_that_is_not_known() -> None:
    alone = Fix(text="RUST_BACKTRACE=1 {command|}   # the stack of the panic")
    assert filled(alone, crash(signal="SIGSEGV")) == "RUST_BACKTRACE=1   # the stack of the panic"
    assert filled(Fix(text="A=1 {command|}\nB=2 {command|}"), crash(signal="SIGSEGV")) == "A=1\nB=2"


@pytest.mark.parametrize(
    "argv",
    [
        ("python", "-c", "from multiprocessing.spawn import spawn_main; spawn_main(tracker_fd=5, pipe_handle=7)", "--multiprocessing-fork"),
        ("python", "-c", "from multiprocessing.forkserver import main; main(3, 4, ['__main__'], **{})"),
        ("python", "-m", "joblib.externals.loky.backend.popen_loky_posix", "--process-name", "LokyProcess-1"),
        ("python", "/venv/lib/python3.11/site-packages/ray/_private/workers/default_worker.py", "--node-ip-address=10.0.0.1"),
        ("gunicorn: worker [app:app]",),
        ("ray::train()", "", ""),
        ("[celeryd: w1@host:ForkPoolWorker-1]",),
        ("python", "a\nb.py"),
        (),
    ],
    ids=lambda argv: argv[0] if argv else "none",
)
def test_a_worker_s_command_is_not_one_to_type(argv: tuple[str, ...]) -> None:
    assert "command" not in names(Case(of_a_run(argv)))


@pytest.mark.parametrize("argv", [("python3", "-c", "import multiprocessing"), ("/srv/bin/uvicorn", "app:app"), ("D:/python.exe", "a.py")])
def test_a_command_of_a_person_is(argv: tuple[str, ...]) -> None:
    assert "command" in names(Case(of_a_run(argv)))


def test_a_package_is_named_only_if_it_is_known() -> None:
    known = names(Case(of_a_run()))
    assert (known["package"], known["extension"]) == ("fast-decode", "libdecode.so")
    stranger = replace(of_a_run(), process=Process(pid=7, argv=ARGUMENTS, versions={"opencv-python": "4.9"}))
    assert "package" not in names(Case(stranger))


def test_a_core_that_is_there_is_not_to_be_made() -> None:
    keeps = Fix(text="crashkit run -- {command|...}   # keeps the core")
    assert filled(keeps, of_a_run()) and not filled(keeps, of_a_run(kind="core"))


@pytest.mark.parametrize(
    ("frames", "blamed"),
    [
        ("memcpy [libc.so.6] > decode [libdecode.so] > py /srv/app.py:7 query", "decode in libdecode.so"),
        ("memcpy [libc.so.6] > py /srv/app.py:7 query > run [_gevent.so] > main [python3.12]", None),
    ],
)
def test_what_runs_the_python_line_is_not_blamed_for_what_that_calls(frames: str, blamed: str | None) -> None:
    assert names(Case(crash(signal="SIGSEGV", reason="null-pointer", address=8, frames=frames))).get("blamed") == blamed


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("/opt/tables.bin", "read-only from /opt/tables.bin"),
        (None, "the memory from 0x0000000000010000 to 0x0000000000011000, which"),
        ("[heap]", "to 0x0000000000011000 ([heap]), which"),
        ("/dev/zero (deleted)", "to 0x0000000000011000 (/dev/zero (deleted)), which"),
        ("/opt/lib.so (deleted)", "read-only from /opt/lib.so (deleted)"),
    ],
)
def test_what_is_mapped_read_only_is_named(path: str | None, said: str) -> None:
    signal = Signal(number=11, name="SIGSEGV", address=Address(0x10010), reason="read-only", access="write")
    mapping = Mapping(start=Address(0x10000), end=Address(0x11000), permissions="r--", path=path)
    told = diagnose(Crash(source=Source(kind="core", path="core"), signal=signal, mappings=(mapping,)), load_catalog())
    assert [(finding.id, said in finding.fix[0], len(finding.fix)) for finding in told.findings[:1]] == [("write-to-readonly", True, 1)]


@pytest.mark.parametrize(
    ("library", "builds"),
    [
        ("/usr/lib/x86_64-linux-gnu/libz.so.1.2.13", False),
        ("/lib64/libz.so.1", False),
        ("/usr/lib/python3/dist-packages/numpy/core/_multiarray_umath.cpython-311-x86_64-linux-gnu.so", False),
        ("/opt/miniconda3/envs/ocr/lib/libz.so.1", False),
        ("/srv/env/lib/libz.so.1", False),
        ("/srv/env/lib/python3.11/site-packages/fast_decode/libdecode.so", True),
        ("/opt/miniconda3/lib/python3.11/site-packages/fast_decode/libdecode.so", True),
        ("/usr/local/lib/libdecode.so", True),
        ("/home/user/decode/build/libdecode.so", True),
    ],
)
def test_nobody_is_told_to_build_what_came_with_a_package(library: str, builds: bool) -> None:
    subject = in_library(library, CONDA_PREFIX="/srv/env")
    texts = [(fix, filled(fix, subject)) for _, fix in every_fix() if fix.text.startswith("CFLAGS=")]
    assert len(texts) > 5
    name = library.rpartition("/")[2]
    for fix, text in texts:
        command = "pip install --no-deps -e ." if builds else f"valgrind {shlex.join(ARGUMENTS)}   # {name} came with a package"
        assert command in text and ("in the source folder of" in text) == builds
        # What follows on further lines is the same.
        assert text.count("\n") == fix.text.count("\n")


@pytest.mark.parametrize(
    ("text", "fix"),
    [
        (
            "ImportError: /opt/a;reboot;.so: cannot enable executable stack as shared object requires: Permission denied\n",
            "patchelf --clear-execstack '/opt/a;reboot;.so'",
        ),
        (
            "# /srv/a;reboot;/hs_err_pid7.log\n",
            "less '/srv/a;reboot;/hs_err_pid7.log'",
        ),
    ],
    ids=["a library", "a log of Java"],
)
def test_a_name_from_a_text_is_one_word_of_the_shell(text: str, fix: str, tmp_path: Path) -> None:
    """Whoever wrote the text must not choose what is typed."""
    (log := tmp_path / "err.log").write_text(text)
    fixes = [one for finding in analyze(log).findings for one in finding.fix]
    assert any(one.startswith(fix) for one in fixes), fixes
    assert not any("reboot" in one and fix not in one for one in fixes)
