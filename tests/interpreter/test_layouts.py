"""The tables of layouts against the debug info of the interpreters at hand, and against what a process carries itself."""

from __future__ import annotations

import json
import struct
import subprocess

import msgspec
import pytest

from crashkit.elf.headers import Word
from crashkit.interpreter.layouts import COOKIE, Layout, Version, layout_of, version_of, versions, with_debug_offsets
from tests.crashes import Interpreter, every_interpreter, needs_gdb
from tests.interpreter.process import SCRIPT, library

WORD = Word(8, "<")


def test_every_supported_version_has_a_table() -> None:
    usual = [Version(3, minor) for minor in range(6, 15)]
    assert versions() == sorted([*usual, *(Version(3, minor, free_threaded=True) for minor in (13, 14))])
    assert all(isinstance(layout_of(version), Layout) for version in versions())
    assert layout_of(Version(3, 5)) is None


@pytest.mark.slow
@needs_gdb
@pytest.mark.parametrize("python", every_interpreter(debuggable=True))
def test_table_is_what_the_debug_info_says(python: Interpreter) -> None:
    command = ["gdb", "-nx", "-batch", "-iex", "set auto-load no", "-iex", "set debuginfod enabled off", "-x", SCRIPT, library(python)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=True)
    layout = layout_of(Version(*python.version[:2], python.free_threaded))
    ours = {name: fields for name, fields in json.loads(msgspec.json.encode(layout)).items() if fields}
    theirs = json.loads(done.stdout)
    assert {name: {field: place for field, place in fields.items() if place is not None} for name, fields in ours.items()} == theirs


def test_versions_are_told_by_the_first_bytes() -> None:
    assert version_of(COOKIE + struct.pack("<QQ", 0x030D00F0, 0), WORD) == Version(3, 13)
    assert version_of(COOKIE + struct.pack("<QQ", 0x030E02F0, 1), WORD) == Version(3, 14, free_threaded=True)
    for damaged in (b"", COOKIE, COOKIE[:-1] + bytes(17), COOKIE + b"\xff" * 16):
        assert version_of(damaged, WORD) is None


def test_offsets_of_the_process_count() -> None:
    layout = layout_of(Version(3, 13))
    assert layout is not None
    size = layout.debug_offsets["size"]
    table = bytearray(size)
    struct.pack_into("<Q", table, layout.debug_offsets["thread.frame"], 4096)
    struct.pack_into("<Q", table, layout.debug_offsets["code.name"], 1 << 40)
    changed = with_debug_offsets(layout, bytes(table), WORD)
    assert (changed.thread.frame, changed.code.name, changed.code.flags) == (4096, layout.code.name, layout.code.flags)
    assert with_debug_offsets(layout, b"", WORD) == layout
