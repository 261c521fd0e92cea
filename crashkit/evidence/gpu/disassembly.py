"""Disassembles instructions of a GPU with NVIDIA's nvdisasm, where it is: in PATH, with CUDA, or with Triton.

nvdisasm reads raw code (`--binary SM90`), so it gets the few instructions around a program counter and never an image of the dump.
"""

from __future__ import annotations

import os
import re
import resource
from collections.abc import Callable
from subprocess import SubprocessError
from typing import Optional

from crashkit import isolation
from crashkit.scratch import Scratch

Disassemble = Callable[[str, int, bytes], dict[int, str]]
"""From an architecture such as sm_90, the offset of the code in its function and the code: the instructions by their offsets."""

_PROGRAM = "nvdisasm"
_USUAL = ("/usr/local/cuda/bin/nvdisasm", "/opt/cuda/bin/nvdisasm")
_SECONDS = 10.0
_MEMORY = 4 << 30
_MOST_OUTPUT = 1 << 20
_LONGEST = 300
_ARCHITECTURE = re.compile(r"sm_(\d{2,3}[af]?)")
_LINE = re.compile(r"^ {0,20}/\*([0-9a-f]{4,8})\*/ {1,40}(\S[^\n]{0,1000}?) {0,20};", re.MULTILINE)


def nothing(_architecture: str, _start: int, _code: bytes) -> dict[int, str]:
    """No disassembler."""
    return {}


def disassembler() -> Disassemble:
    """The disassembler of this machine, which is looked for when it is first needed."""
    return _disassembled


def program() -> Optional[str]:
    """The absolute path of nvdisasm; None if it is not here."""
    installed = (f"{folder}/triton/backends/nvidia/bin/{_PROGRAM}" for folder in isolation.module_path())
    return isolation.find_program(_PROGRAM) or next((path for path in (*_USUAL, *installed) if os.access(path, os.X_OK)), None)


def _disassembled(architecture: str, start: int, code: bytes) -> dict[int, str]:
    match, path = _ARCHITECTURE.fullmatch(architecture), program()
    if match is None or path is None or not code:
        return {}
    try:
        with Scratch("nvdisasm") as folder:
            raw, text = folder / "code", folder / "text"
            raw.write_bytes(code)
            with text.open("wb") as out:
                command = [path, "--binary", f"SM{match[1]}", "--base-address", hex(start), str(raw)]
                process = isolation.start(command, folder=folder, stdout=out, prepare=_limited)
                with process:
                    try:
                        process.wait(_SECONDS)
                    finally:
                        process.kill()
            with text.open("rb") as file:
                said = file.read(_MOST_OUTPUT).decode("utf-8", "replace")
    except (OSError, SubprocessError):
        return {}
    return {int(line[1], 16): line[2][:_LONGEST] for line in _LINE.finditer(said)}


def _limited() -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    resource.setrlimit(resource.RLIMIT_FSIZE, (_MOST_OUTPUT, _MOST_OUTPUT))
