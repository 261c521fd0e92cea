"""ELF files of this machine that the symbol tests read, and what gdb says of them."""

from __future__ import annotations

import importlib.util
import random
import re
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

import pytest

from crashkit.elf.file import open_elf
from tests.crashes import NO_DEBUG_INFO, NO_GDB, NO_TORCH, interpreters

MISSING = {"python": NO_DEBUG_INFO, "torch": NO_TORCH, "debug file": "no separate debug files here: apt-get install libc6-dbg"}


@cache
def libraries() -> dict[str, Path]:
    """By kind: with a symbol table, stripped, hand-written assembly, separate debug info, half a million symbols."""
    found = {"libc": Path("/lib/x86_64-linux-gnu/libc.so.6"), "ld.so": Path("/lib64/ld-linux-x86-64.so.2")}
    for interpreter in interpreters():
        library = interpreter.path.parent.parent / "lib" / f"libpython3.{interpreter.version[1]}.so.1.0"
        found["python" if interpreter.has_debug_info else "stripped python"] = library if library.exists() else interpreter.path
    for debug in Path("/usr/lib/debug/.build-id").glob("*/*.debug"):
        found["debug file"] = max(debug, found.get("debug file", debug), key=lambda path: path.stat().st_size)
    torch = importlib.util.find_spec("torch")
    if torch and torch.origin:
        found["torch"] = Path(torch.origin).parent / "lib" / "libtorch_cpu.so"
    return {kind: path for kind, path in found.items() if path.exists()}


def library(kind: str) -> Path:
    if kind not in libraries():
        pytest.skip(MISSING.get(kind, f"no library of this kind here: {kind}"))
    return libraries()[kind]


def random_code_addresses(path: Path, count: int, seed: int) -> list[int]:
    elf = open_elf(path)
    text = elf.section(".text") if elf else None
    assert text
    return sorted(random.Random(seed).sample(range(text.address, text.address + text.size), count))


def gdb_names(path: Path, addresses: list[int]) -> dict[int, str]:
    """What `info symbol` says, without versions."""
    gdb = shutil.which("gdb")
    if gdb is None:
        pytest.skip(NO_GDB)
    commands = ["set print demangle off", "set print asm-demangle off", "set debug-file-directory /nonexistent"]
    commands += [f"file {path}"] + [f"info symbol {address:#x}" for address in addresses]
    with tempfile.NamedTemporaryFile("w", suffix=".gdb") as script:
        script.write("\n".join(commands))
        script.flush()
        command = [gdb, "-nx", "-batch", "-iex", "set debuginfod enabled off", "-x", script.name]
        run = subprocess.run(command, capture_output=True, text=True, check=True)
    lines = [line for line in run.stdout.splitlines() if " in section " in line or line.startswith("No symbol matches")]
    assert len(lines) == len(addresses)
    named = (
        (address, re.fullmatch(r"(.[^@]*?)(@.*?)?( \+ \d+)? in section .*", line)) for address, line in zip(addresses, lines, strict=True)
    )
    return {address: match[1] for address, match in named if match}
