"""core(5) patterns: as recorded on other systems, and one of our own where the kernel lets us set it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from crashkit.collect.host.core_pattern import folder_glob, name_expression, parse, resolve
from tests import crashes
from tests.collect.conftest import SEGFAULT, Crashkit

# Where each was seen: what /proc/sys/kernel/core_pattern holds there.
RECORDED = {
    "vanilla kernel": ("core", "file", ""),
    "Ubuntu": ("|/usr/share/apport/apport -p%p -s%s -c%c -d%d -P%P -u%u -g%g -F%F -- %E", "pipe", "apport"),
    "Fedora, Arch, Debian with systemd-coredump": (
        "|/usr/lib/systemd/systemd-coredump %P %u %g %s %t 9223372036854775808 %h %d",
        "pipe",
        "systemd-coredump",
    ),
    "older systemd": ("|/lib/systemd/systemd-coredump %P %u %g %s %t %c %h %e", "pipe", "systemd-coredump"),
    "RHEL 7": ("|/usr/libexec/abrt-hook-ccpp %s %c %p %u %g %t e %P %I %h", "pipe", "abrt"),
    "WSL 2": ("|/wsl-capture-crash %t %E %p %s", "pipe", "wsl"),
    "switched off": ("|/bin/false", "pipe", "discarded"),
    "GKE": ("|/bin/core_collector %p", "pipe", "other"),
    "Linux 6.16": ("@/run/systemd/coredump.socket", "socket", "other"),
    "Kubernetes nodes": ("/var/crash/core-%e.%p.%h.%t", "file", ""),
    "empty": ("", "none", ""),
}


@pytest.mark.parametrize("where", RECORDED)
def test_recorded_patterns(where: str) -> None:
    text, kind, handler = RECORDED[where]
    pattern = parse(text + "\n")
    assert (pattern.kind, pattern.handler) == (kind, handler)


FIELDS = {"p": "7", "P": "4007", "i": "9", "I": "4009", "u": "1000", "g": "100", "d": "1", "s": "11", "t": "1700000000"}
FIELDS |= {"h": "host.example", "e": "python3", "f": "python3.11", "E": "/usr/bin/python3.11", "c": "18446744073709551615", "C": "3"}


@pytest.mark.parametrize(
    ("text", "uses_pid", "path"),
    [
        ("core", False, "/srv/app/core"),
        ("core", True, "/srv/app/core.7"),
        ("core.%p", True, "/srv/app/core.7"),
        ("", True, "/srv/app/.7"),
        ("cores/%e-%p", False, "/srv/app/cores/python3-7"),
        ("/var/crash/core-%e.%p.%h.%t", False, "/var/crash/core-python3.7.host.example.1700000000"),
        ("/c/%P.%i.%I.%u.%g.%d.%s.%f.%c.%C", False, "/c/4007.9.4009.1000.100.1.11.python3.11.18446744073709551615.3"),
        ("/c/%E", False, "/c/!usr!bin!python3.11"),
        ("/c/100%%-%p", False, "/c/100%-7"),
        ("/c/%%p", True, "/c/%p.7"),
        ("/c/%q%p", False, "/c/7"),  # an unknown field is dropped
        ("/c/%p%", False, "/c/7"),  # and so is a lone % at the end
        ("/%h/%p", False, "/host.example/7"),
    ],
)
def test_names(text: str, uses_pid: bool, path: str) -> None:
    pattern = parse(text, uses_pid)
    assert resolve(pattern, FIELDS, "/srv/app/") == path
    name = path.removeprefix("/srv/app/") if pattern.relative else path
    match = name_expression(pattern).fullmatch(name)
    assert match is not None
    if "pid" in match.groupdict():
        assert match["pid"] == "7"
    assert name_expression(pattern).fullmatch(name + "x/y") is None


def test_a_field_that_is_not_known_makes_a_glob() -> None:
    assert resolve(parse("/c/%e.%p.%t"), {"p": "7"}, "/") == "/c/*.7.*"
    assert folder_glob(parse("/c/%h/%e.%p")) == "/c/*"
    assert folder_glob(parse("core")) == "" and folder_glob(parse("/core")) == "/" and folder_glob(parse("a/core")) == "a"


def test_a_comm_cannot_leave_the_folder() -> None:
    assert resolve(parse("/c/%e"), {"e": "../../etc/x"}, "/") == "/c/..!..!etc!x"


@pytest.fixture
def own_pattern(tmp_path: Path) -> Iterator[tuple[Crashkit, Path]]:
    """The machine's pattern is ours for the length of one test."""
    if not os.access(crashes.PATTERN, os.W_OK):
        pytest.skip("core_pattern can only be written by root, outside of containers")
    with crashes.lock(crashes.PATTERN_LOCK):
        before = crashes.PATTERN.read_text()
        runner = Crashkit(tmp_path)
        try:
            yield runner, tmp_path
        finally:
            runner.end()
            crashes.PATTERN.write_text(before)


def _set(text: str) -> None:
    try:
        crashes.PATTERN.write_text(text)
    except OSError as error:
        pytest.skip(f"core_pattern cannot be set: {error}")


@pytest.mark.slow
def test_an_absolute_pattern_with_fields(own_pattern: tuple[Crashkit, Path]) -> None:
    crashkit, folder = own_pattern
    cores = folder / "cores"
    cores.mkdir()
    _set(f"{cores}/%e!%p.%s")
    crashkit.python(f"import os\nif os.fork() == 0:\n os.chdir('/')\n {SEGFAULT}\nos.wait()\n{SEGFAULT}")
    found = crashkit.crashes()
    assert len(found) == 2 and all(any(file["kind"] == "core" for file in crash["files"]) for crash in found)
    assert list(cores.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "uses_pid"), [("%e.%p.%s.%t.%h.core", False), ("sub/x%%.%P.%i.%I.%u.%g.%d.%f.%c", False), ("core.%E", True), ("core", True)]
)
def test_a_relative_pattern_as_the_kernel_writes_it(own_pattern: tuple[Crashkit, Path], text: str, uses_pid: bool) -> None:
    crashkit, _ = own_pattern
    switch = Path("/proc/sys/kernel/core_uses_pid")
    before = switch.read_text()
    (crashkit.cwd / "sub").mkdir()
    _set(text)
    switch.write_text("1" if uses_pid else "0")
    try:
        crashkit.python(SEGFAULT, options=("--no-analyze", "--capture", "core"))
    finally:
        switch.write_text(before)
    (crash,) = crashkit.crashes()
    assert any(file["kind"] == "core" for file in crash["files"]), crash["notes"]
    assert [path.name for path in crashkit.cwd.rglob("*")] == ["sub"]


def test_a_pipe_to_a_program_of_the_host_is_said_before(own_pattern: tuple[Crashkit, Path]) -> None:
    crashkit, _ = own_pattern
    _set("|/bin/false")
    result = crashkit.python(f"import sys; sys.stderr.write('begin\\n'); {SEGFAULT}", options=("--no-analyze", "--capture", "core"))
    assert "a program that crashkit does not support: |/bin/false" in result.stderr.splitlines()[0]
    assert result.stderr.splitlines()[1] == "begin"
    (crash,) = crashkit.crashes()
    assert crash["signal"] == 11 and crash["core_pattern"] == "|/bin/false"
    assert not [file for file in crash["files"] if file["kind"] == "core"]


def test_a_core_from_systemd_coredump(own_pattern: tuple[Crashkit, Path]) -> None:
    """A stand-in for systemd-coredump takes the kernel's pipe, one for coredumpctl gives the core back."""
    crashkit, folder = own_pattern
    tools = folder / "bin"
    tools.mkdir()
    handler = tools / "systemd-coredump"
    handler.write_text(f"#!/bin/sh\ncat > {folder}/journal.$1\n")
    query = tools / "coredumpctl"
    # coredumpctl dump ... --output=FILE COREDUMP_PID=PID
    query.write_text(
        f"#!/bin/sh\nfor word; do case $word in --output=*) out=${{word#*=}};; COREDUMP_PID=*) pid=${{word#*=}};; esac; done\n"
        f'[ -s {folder}/journal.$pid ] && cp {folder}/journal.$pid "$out"\n'
    )
    for tool in (handler, query):
        tool.chmod(0o755)
    if len(f"|{handler} %P %u") > 127:
        pytest.skip("the temporary folder's name is too long for core_pattern (127 bytes)")
    _set(f"|{handler} %P %u")
    trial = subprocess.run(["sh", "-c", "ulimit -c unlimited; kill -SEGV $$; sleep 60"], cwd=folder)
    assert trial.returncode == -signal.SIGSEGV
    if not list(folder.glob("journal.*")):
        pytest.skip("the kernel runs the programs of core_pattern in the host's root folder, which is not this one")
    crashkit.environment["PATH"] = f"{tools}:{os.environ['PATH']}"
    result = crashkit.run(sys.executable, "-c", SEGFAULT, options=("--no-analyze", "--capture", "core"))
    (crash,) = crashkit.crashes()
    core = next((file for file in crash["files"] if file["kind"] == "core"), None)
    assert core is not None, (crash["notes"], result.stderr)
    assert core["size"] == core["expected"] and re.match("SIGSEGV", crash["signal_name"])
