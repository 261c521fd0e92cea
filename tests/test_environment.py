"""No program that reads a crash inherits what would make it load code, behave otherwise, or go to the network."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from crashkit.collect.capture import watcher
from crashkit.debugger.gdb.process import Gdb
from crashkit.debugger.pystack import process as pystack
from crashkit.environment import LOADING as RULES
from crashkit.environment import for_tool, shown
from crashkit.gdb_files import SAFE_START

LOADING = {
    "PYTHONPATH": "/evil",
    "PYTHONSTARTUP": "/evil/start.py",
    "LD_PRELOAD": "/evil/preload.so",
    "LD_AUDIT": "/evil/audit.so",
    "DEBUGINFOD_URLS": "https://debuginfod.example",
    "MALLOC_PERTURB_": "165",
    "GLIBC_TUNABLES": "glibc.malloc.check=3",
    "GCONV_PATH": "/evil",
    "LOCPATH": "/evil",
    "NLSPATH": "/evil/%N",
    "OPENSSL_CONF": "/evil/openssl.cnf",
    "OPENSSL_ENGINES": "/evil",
    "OPENSSL_MODULES": "/evil",
    "GUILE_LOAD_PATH": "/evil",
    "BABELTRACE_PLUGIN_PATH": "/evil",
    "LIBBABELTRACE2_PLUGIN_PATH": "/evil",
    "GDBHISTFILE": "/evil/history",
    "BASH_ENV": "/evil/start.sh",
    "BASH_FUNC_ls%%": "() { :; }",
}
HARMLESS = {"PATH": os.environ["PATH"], "HOME": "/home/me", "LDFLAGS": "-lm", "TMPDIR": "/tmp"}
LIBRARIES = {"LD_LIBRARY_PATH": "/opt/python/lib"}


@pytest.fixture
def hostile(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {**LOADING, **LIBRARIES}.items():
        monkeypatch.setenv(name, value)


def test_what_loads_code_goes_and_the_rest_stays() -> None:
    assert for_tool({**LOADING, **LIBRARIES, **HARMLESS}) == {**HARMLESS, "LC_ALL": "C.UTF-8"}
    assert for_tool({**LOADING, **LIBRARIES}, keep=tuple(LIBRARIES)) == {**LIBRARIES, "LC_ALL": "C.UTF-8"}


def test_each_rule_has_an_example_here() -> None:
    """Else it could go, and no test would notice."""
    assert RULES.names <= LOADING.keys()
    assert [prefix for prefix in RULES.prefixes if not any(name.startswith(prefix) for name in LOADING)] == []


def test_folders_of_the_working_directory_go() -> None:
    given = {"PATH": ".:/usr/bin::bin:/bin:", "LD_LIBRARY_PATH": ":/opt/lib:lib"}
    assert for_tool(given, keep=tuple(LIBRARIES)) == {"PATH": "/usr/bin:/bin", "LD_LIBRARY_PATH": "/opt/lib", "LC_ALL": "C.UTF-8"}


def test_what_loads_code_may_be_shown() -> None:
    """A crash may come of it: that it is shown and that it is inherited are two questions."""
    kept = shown({**LOADING, **HARMLESS})
    assert kept["LD_PRELOAD"] == "/evil/preload.so" and "PATH" in kept
    assert not {"HOME", "TMPDIR", "DEBUGINFOD_URLS"} & set(kept)


def given_to(environment: Path) -> dict[str, str]:
    found: dict[str, str] = json.loads(environment.read_text())
    return found


def test_gdb(hostile: None, tmp_path: Path) -> None:
    out = tmp_path / "environment"
    with Gdb(30.0) as gdb:
        gdb.console(f"python import json, os; open({str(out)!r}, 'w').write(json.dumps(dict(os.environ)))")
        arguments = Path(f"/proc/{gdb.pid}/cmdline").read_bytes().decode().split("\0")
    assert not {*LOADING, *LIBRARIES} & set(given_to(out))
    assert arguments[1 : 1 + len(SAFE_START)] == list(SAFE_START)


def test_pystack(hostile: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    worker = tmp_path / "worker.py"
    worker.write_text("import json, os, sys\nopen(sys.argv[2], 'w').write(json.dumps(dict(os.environ)))\n")
    monkeypatch.setattr(pystack, "_WORKER", worker)
    pystack._run(tmp_path / "request", tmp_path / "result", 30.0, pystack.Running())
    found = given_to(tmp_path / "result")
    assert not set(LOADING) & set(found)
    # The Python that runs us may need it to find its own library.
    assert found["LD_LIBRARY_PATH"] == LIBRARIES["LD_LIBRARY_PATH"]


def test_gdb_that_watches_a_command(hostile: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "gdb").write_text(f'#!/bin/sh\nenv > {tmp_path}/environment\nprintf "%s\\n" "$@" > {tmp_path}/arguments\n')
    (programs / "gdb").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    pid = watcher(tmp_path, keep_core=True)(os.getpid())
    if pid:
        os.waitpid(pid, 0)
    names = {line.partition("=")[0] for line in (tmp_path / "environment").read_text().splitlines()}
    assert "CRASHKIT_CAPTURE_FOLDER" in names and not {*LOADING, *LIBRARIES} & names
    assert (tmp_path / "arguments").read_text().splitlines()[: len(SAFE_START)] == list(SAFE_START)
