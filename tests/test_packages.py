"""Crashes within packages of the index: in a callback, a worker, a thread or a destructor of theirs. The packages are the real ones."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from crashkit.model import Crash, PythonFrame, Thread
from crashkit.pipeline import analyze
from crashkit.report import html, text, wording
from crashkit.report.wording import own_at

from .collect.conftest import DEADLINE, Crashkit, runner_in
from .crashes import NO_COMPILER, Interpreter, at_hand, needs_gdb, python_crash
from .packages import folder_with

pytestmark = [pytest.mark.network, pytest.mark.slow, needs_gdb]

ORJSON = """\
import ctypes

import orjson


class Record:
    def __init__(self, address):
        self.address = address


def plain(value):
    return ctypes.string_at(value.address)


def save(records):
    return orjson.dumps({"records": records}, default=plain)


save([Record(16)])
"""

POLARS = """\
import ctypes

import polars


def lengths(column):
    address = int(column[0])
    ctypes.string_at(address)
    return column


def main():
    frame = polars.LazyFrame({"group": [1, 2], "address": [16, 16]})
    of_each = polars.col("address").map_batches(lengths, return_dtype=polars.Int64)
    frame.group_by("group").agg(of_each, polars.col("address").sum().alias("sum")).collect(engine="in-memory")


main()
"""

GRPC = """\
import ctypes
from concurrent import futures

import grpc


class Memory(grpc.GenericRpcHandler):
    def service(self, details):
        return grpc.unary_unary_rpc_method_handler(self.read)

    def read(self, request, context):
        address = int.from_bytes(request, "little")
        return ctypes.string_at(address)


def main():
    server = grpc.server(futures.ThreadPoolExecutor(2))
    server.add_generic_rpc_handlers([Memory()])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        channel.unary_unary("/memory/read")(bytes([16]))


main()
"""

UWSGI = """\
import ctypes


def application(environ, start_response):
    address = int(environ["QUERY_STRING"] or id(environ))
    found = ctypes.string_at(address)
    start_response("200 OK", [])
    return [found]
"""

STORAGE = """\
#include <pybind11/pybind11.h>
#include <stdexcept>

struct Store {
    std::string name;
    ~Store() { throw std::runtime_error("the store " + name + " is still open"); }
};

struct Table {
    long *rows = nullptr;
    long total(long count) const {
        long sum = 0;
        for (long i = 0; i < count; i++)
            sum += rows[i];
        return sum;
    }
};

PYBIND11_MODULE(storage, m) {
    pybind11::class_<Store>(m, "Store").def(pybind11::init([](std::string name) { return new Store{name}; }));
    pybind11::class_<Table>(m, "Table").def(pybind11::init<>()).def("total", &Table::total);
}
"""

PYBIND11 = """\
import sys

import storage


def load(name):
    store = storage.Store(name)
    del store


def count(table, rows):
    return table.total(rows)


if sys.argv[1] == "load":
    load("2026")
else:
    count(storage.Table(), 3)
"""


@pytest.fixture(scope="module")
def python() -> Interpreter:
    """A version for which all of these packages have wheels."""
    found = next(filter(None, map(at_hand, ("3.11", "3.12", "3.13"))), None)
    if found is None:
        pytest.skip("no Python 3.11 to 3.13 here: pyenv install 3.11")
    return found


def crashed(python: Interpreter, program: str, tmp_path: Path, *arguments: str, path: str) -> Crash:
    (tmp_path / "program.py").write_text(program)
    return analyze(python_crash(tmp_path / "program.py", *arguments, python=python, environment={"PYTHONPATH": path}).core)


def thread_of(crash: Crash) -> Thread:
    assert crash.thread is not None, [error.message for error in crash.soft_errors]
    return crash.thread


def own(crash: Crash) -> tuple[str | None, int | None]:
    frame = own_at(thread_of(crash))
    assert frame is not None
    return frame.function, frame.line


def answer(crash: Crash) -> str:
    """What the terminal says, which the page says, too."""
    said = " ".join("\n".join(text.summary(crash, None, color=False, width=200)).split())
    page = html.render(crash)
    for frame in thread_of(crash).pythons():
        assert frame.function and html_of(frame) in page
    return said


def html_of(frame: PythonFrame) -> str:
    return (frame.function or "").replace("<", "&lt;").replace(">", "&gt;")


def modules(crash: Crash) -> list[str]:
    """The files in which the thread's native frames are, innermost first, each once."""
    return list(dict.fromkeys((frame.module or "").rpartition("/")[2].partition(".")[0] for frame in thread_of(crash).natives()))


def version(crash: Crash, package: str) -> str | None:
    return crash.process.versions.get(package) if crash.process else None


def installed(python: Interpreter, package: str) -> str:
    """As the folder with its metadata says."""
    (found,) = folder_with(python, package).glob(f"{package}-*.dist-info")
    return found.name.removesuffix(".dist-info").partition("-")[2]


def test_orjson_calls_back(python: Interpreter, tmp_path: Path) -> None:
    crash = crashed(python, ORJSON, tmp_path, path=str(folder_with(python, "orjson")))
    assert own(crash) == ("plain", 12) and crash.findings[0].id == "null-deref"
    assert "plain (program.py:12): value.address = 16, used as a pointer by strlen" in answer(crash)
    assert [frame.function for frame in thread_of(crash).pythons()] == ["string_at", "plain", "save", "<module>"]
    assert "orjson" in modules(crash) and any(frame.function == "dumps" for frame in thread_of(crash).natives())
    assert version(crash, "orjson") == installed(python, "orjson")


def test_polars_calls_back_in_a_thread_of_its_own(python: Interpreter, tmp_path: Path) -> None:
    """The thread was started by Rust, and Python's main thread waits in collect()."""
    crash = crashed(python, POLARS, tmp_path, path=str(folder_with(python, "polars")))
    thread = thread_of(crash)
    assert thread.tid != (crash.process.pid if crash.process else None)
    assert own(crash) == ("lengths", 8) and crash.findings[0].id == "null-deref"
    assert "lengths (program.py:8): address = 16, used as a pointer by strlen" in answer(crash)
    assert "main" not in [frame.function for frame in thread.pythons()]
    main = next(one for one in crash.threads if crash.process and one.tid == crash.process.pid)
    assert "main" in [frame.function for frame in main.pythons()]
    names = [wording.said(thread, frame) for frame in thread.natives() if frame.function and "rayon" in frame.function]
    assert names and not [name for name in names if "[" in name], "a crate's hash says nothing to anybody"
    assert version(crash, "polars") == installed(python, "polars")


def test_grpc_serves_in_a_pool(python: Interpreter, tmp_path: Path) -> None:
    crash = crashed(python, GRPC, tmp_path, path=str(folder_with(python, "grpcio")))
    assert own(crash) == ("read", 13) and crash.findings[0].id == "null-deref"
    assert (thread_of(crash).name or "").startswith("ThreadPoolExecutor-0_")
    assert "read (program.py:13): address = 16, used as a pointer by strlen" in answer(crash)
    functions = {thread.name: [frame.function for frame in thread.pythons()] for thread in crash.threads if not thread.crashed}
    assert functions["MainThread"][-2:] == ["main", "<module>"]
    assert "_serve" in functions["Thread-1 (_serve)"]
    assert version(crash, "grpcio") == installed(python, "grpcio")


@pytest.fixture(scope="module")
def storage(python: Interpreter, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The folder with an extension that pybind11 made."""
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip(NO_COMPILER)
    folder = tmp_path_factory.mktemp("storage")
    (folder / "storage.cpp").write_text(STORAGE)
    headers = folder_with(python, "pybind11") / "pybind11" / "include"
    ask = "import sysconfig; print(sysconfig.get_path('include'))"
    of_python = subprocess.run([python.path, "-c", ask], capture_output=True, text=True, check=True, timeout=DEADLINE).stdout.strip()
    options = ["-std=c++17", "-g", "-shared", "-fPIC", "-fvisibility=hidden", "-Wno-terminate", f"-I{headers}", f"-I{of_python}"]
    command = [compiler, *options, "storage.cpp", "-o", "storage.so"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=DEADLINE)
    assert done.returncode == 0, done.stderr[-2000:]
    return str(folder)


def test_a_null_pointer_behind_pybind11(python: Interpreter, storage: str, tmp_path: Path) -> None:
    crash = crashed(python, PYBIND11, tmp_path, "count", path=storage)
    assert own(crash) == ("count", 12) and crash.findings[0].id == "null-deref"
    assert "count (program.py:12): rows = 3; failed in Table::total" in answer(crash)
    native = wording.native_at(crash.thread, crash.signal)
    assert native is not None and (native.module or "").endswith("/storage.so") and (native.file or "").endswith("storage.cpp")


def test_a_destructor_that_throws_behind_pybind11(python: Interpreter, storage: str, tmp_path: Path) -> None:
    """What throws it is named, not the nameless code of the C++ runtime that ended the process; with its type and message."""
    crash = crashed(python, PYBIND11, tmp_path, "load", path=storage)
    assert own(crash) == ("load", 8)
    assert "load (program.py:8): failed in Store::~Store" in answer(crash)
    (finding,) = [one for one in crash.findings if one.id == "cxx-throw-in-destructor"]
    assert finding.confidence == "certain" and crash.findings[0] is finding
    assert (finding.summary or "").startswith(
        "An exception of type std::runtime_error tried to leave a function that must not throw. "
        "Its message: the store 2026 is still open. It was thrown in Store::~Store."
    )


def asked(place: tuple[str, int], path: str) -> bytes:
    with socket.create_connection(place, timeout=DEADLINE) as client:
        client.sendall(f"GET {path} HTTP/1.0\r\n\r\n".encode())
        return b"".join(iter(lambda: client.recv(4096), b""))


@pytest.fixture
def crashkit(tmp_path: Path) -> Iterator[Crashkit]:
    with runner_in(tmp_path) as crashkit:
        yield crashkit


class TestUwsgi:
    """Its handler of SIGSEGV prints a backtrace; then it ends the worker by exit(1), which leaves nothing, or by abort()."""

    def served(self, crashkit: Crashkit, python: Interpreter, **variables: str) -> str:
        """What was written to stderr: a worker was asked for what it crashes of, and then the master to end."""
        folder = folder_with(python, "pyuwsgi")
        crashkit.environment.update(variables)
        crashkit.script("app.py", UWSGI)
        with socket.socket() as listening:
            listening.bind(("127.0.0.1", 0))
            listening.listen()
            os.set_inheritable(listening.fileno(), True)
            place, number = listening.getsockname(), listening.fileno()
            options = ["--http-socket", f"fd://{number}", "--master", "--wsgi-file", "app.py", "--die-on-term"]
            begin = f"import sys; sys.path.append({str(folder)!r}); import pyuwsgi; pyuwsgi.run(sys.argv[1:])"
            process = crashkit.start("run", "--", python.path, "-c", begin, *options, pass_fds=(number,))
            assert asked(place, "/?16") == b"", "the worker is gone"
            assert asked(place, "/").startswith(b"HTTP/1.0 200"), "the master has started another one"
        process.terminate()
        return str(process.communicate(timeout=DEADLINE)[1])

    def test_under_run(self, crashkit: Crashkit, python: Interpreter) -> None:
        told = self.served(crashkit, python)
        assert "got Segmentation Fault !!!" in told
        assert "in application (app.py:6): address = 16, used as a pointer by strlen" in told, told[-3000:]
        (crash,) = crashkit.crashes()
        assert (crash["signal"], crash["is_command"]) == (signal.SIGABRT, False)
        report = json.loads((crash["folder"] / "report.json").read_text())
        assert report["findings"][0]["id"] == "null-deref" and report["signal"]["name"] == "SIGSEGV"
        assert report["process"]["versions"]["pyuwsgi"] == installed(python, "pyuwsgi")
        shown = crashkit("show", crash["id"]).stdout
        assert "uwsgi_segfault then ended the process with SIGABRT" in shown and "uWSGIWorker1Core0" in shown

    def test_of_its_log_alone(self, crashkit: Crashkit, python: Interpreter, tmp_path: Path) -> None:
        """As it is without crashkit: no core. What it printed begins with its handler, which did not fail."""
        told = self.served(crashkit, python, UWSGI_USE_ABORT="0")
        assert "DAMN ! worker 1" in told and crashkit.crashes() == []
        (tmp_path / "uwsgi.log").write_text(told)
        crash = analyze(tmp_path / "uwsgi.log")
        native = wording.native_at(crash.thread, crash.signal)
        assert native is not None and "libc.so" in (native.module or "") and native.trust != "signal"
        assert "_ctypes" in wording.said(thread_of(crash), native)
        (finding,) = [one for one in crash.findings if one.id == "supervisor-worker-crashed"]
        assert (finding.summary or "").startswith("worker 1 ended by SIGSEGV") and finding.fix[0].startswith("UWSGI_USE_ABORT=1 ")
