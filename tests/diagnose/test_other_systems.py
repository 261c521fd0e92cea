"""Texts of macOS and Windows: what to do names nothing that those do not have, and is written as they take it."""

# ruff: noqa: E501

from __future__ import annotations

from pathlib import Path

import pytest

from crashkit.diagnose.fixes import _for_windows
from crashkit.pipeline import analyze

WINDOWS = (
    'Windows fatal exception: {what}\n\nCurrent thread 0x00001a2c (most recent call first):\n  File "C:\\srv\\app.py", line 3 in run\n'
)
MACOS = (
    "Exception Type:        EXC_CRASH (SIGABRT)\n\nApplication Specific Information:\n"
    "*** error for object 0x600003a1c010: incorrect checksum for freed object - object was probably modified after being freed.\n\n"
    "Thread 0 Crashed:\n0   libsystem_kernel.dylib 0x0000000190000000 __pthread_kill + 8\n1   libsystem_c.dylib 0x0000000190000010 abort + 8\n"
    "2   decode.so 0x0000000110000010 decode + 8\n"
)
NOT_THERE = ("crashkit run", "LD_", "valgrind", "coredumpctl", "dmesg", "/proc/", "/sys/", "ulimit")


@pytest.mark.parametrize(
    ("text", "system"),
    [
        (WINDOWS.format(what="access violation"), "windows"),
        (WINDOWS.format(what="code 0xc0000374"), "windows"),
        (MACOS, "macos"),
        ("* thread #1, stop reason = EXC_BAD_ACCESS (code=1, address=0x10)\n  * frame #0: 0x00000001 libz.dylib`inflate + 24\n", "macos"),
    ],
    ids=["Windows", "Windows' heap", "macOS' heap", "lldb"],
)
def test_what_to_do_there(text: str, system: str, tmp_path: Path) -> None:
    (log := tmp_path / "err.log").write_text(text)
    crash = analyze(log)
    said = "\n".join((*crash.next_steps, *(fix for finding in crash.findings for fix in (*finding.fix, *finding.next_steps))))
    assert said and not any(word in said for word in NOT_THERE), said
    assert system == "macos" or "CFLAGS='" not in said


@pytest.mark.parametrize(
    "text",
    [
        "Program received signal SIGSEGV, Segmentation fault.\n#0  0x00007f0011223344 in decode (p=0x10) from /usr/share/dotnet/System.Private.CoreLib.dll\n"
        "#1  0x00007f0011223344 in main () from /usr/lib/libcoreclr.so\n",
        "Unhandled exception. System.AccessViolationException: Attempted to read or write protected memory.\nAborted (core dumped)\n",
    ],
    ids=["a library of .NET", ".NET's exception"],
)
def test_dotnet_on_linux_is_linux(text: str, tmp_path: Path) -> None:
    (log := tmp_path / "err.log").write_text(text)
    crash = analyze(log)
    said = "\n".join((*crash.next_steps, *(fix for finding in crash.findings for fix in finding.fix)))
    assert 'set "' not in said and ("crashkit run" in said or "DOTNET_" in said)


@pytest.mark.parametrize(
    ("text", "there"),
    [
        ("PYTHONMALLOC=debug   # stops where", 'set "PYTHONMALLOC=debug"   & rem stops where'),
        ("A=1 B=2 python x.py   # both", 'set "A=1" && set "B=2" && python x.py   & rem both'),
        ("unset A   # it is not needed", 'set "A="   & rem it is not needed'),
        ("pip install x   # newer", "pip install x   # newer"),
    ],
)
def test_variables_of_windows(text: str, there: str) -> None:
    """A space before `&&` would belong to the value."""
    assert _for_windows(text) == there
