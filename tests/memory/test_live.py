"""A live process read through the contract that a core fulfils: what it says of its own memory is what we read."""

from __future__ import annotations

import itertools
import os
import platform
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from crashkit.elf.file import read_build_id
from crashkit.errors import EvidenceError
from crashkit.evidence.core.modules import loaded_modules
from crashkit.memory import Memory, mapping_at, string_at, word_at
from crashkit.memory.live import LiveProcess

CHILD = """
import ctypes, sys, threading
text = ctypes.create_string_buffer(b"who reads this \\xff", 300)
number = ctypes.c_size_t(0x1122334455667788 & (2 ** (8 * ctypes.sizeof(ctypes.c_size_t)) - 1))
threading.Thread(target=threading.Event().wait, daemon=True).start()
print(ctypes.addressof(text), ctypes.addressof(number), number.value, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def child() -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen([sys.executable, "-c", CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield process
        process.kill()


@pytest.fixture
def live(child) -> Iterator[LiveProcess]:
    child.told = tuple(map(int, child.stdout.readline().split()))
    with LiveProcess(child.pid) as process:
        yield process


def test_memory_words_and_strings(child, live):
    memory: Memory = live
    text, number, value = child.told
    assert memory.read(text, 14) == b"who reads this"
    assert string_at(memory, text) == "who reads this \\xff"
    assert word_at(memory, number) == value
    assert memory.read(0, 8) == memory.read(1 << 63, 8) == memory.read(-1, 8) == memory.read(text, 0) == b""


def test_a_read_ends_where_the_mapping_does(child, live):
    mappings = live.mappings()
    last = next(a for a, b in itertools.pairwise(mappings) if a.end < b.start and "r" in a.permissions)
    assert len(live.read(last.end - 16, 4096)) == 16


def test_mappings(child, live):
    mappings = live.mappings()
    mapping = mapping_at(mappings, child.told[0])
    assert mapping.permissions == "rw-"
    executable = Path(sys.executable).resolve()
    first = next(mapping for mapping in mappings if mapping.path == str(executable))
    assert first.offset == 0
    assert live.read(first.start, 4) == b"\x7fELF"
    assert any(mapping.path == "[stack]" and mapping.offset is None for mapping in mappings)
    assert mappings == sorted(mappings, key=lambda mapping: mapping.start)


def test_threads_and_processor(child, live):
    assert live.architecture.name == platform.machine()
    assert live.word.size == struct.calcsize("P")
    tids = [thread.tid for thread in live.threads()]
    assert tids[0] == child.pid
    assert set(tids) == {int(path.name) for path in Path(f"/proc/{child.pid}/task").iterdir()}
    assert len(tids) == 2
    assert not any(thread.registers for thread in live.threads())


def test_what_reads_cores_reads_it_too(live):
    """The modules of a process, by the code that finds those of a core."""
    modules = {module.path: module for module in loaded_modules(live)}
    executable = str(Path(sys.executable).resolve())
    assert modules[executable].build_id == read_build_id(Path(executable))
    assert any("/libc" in path for path in modules)
    assert all(path.startswith("/") for path in modules)


def test_a_process_that_ends_has_nothing_more_to_say(child, live):
    text = child.told[0]
    child.kill()
    child.wait()
    assert live.read(text, 8) == b""
    assert (live.mappings(), live.threads()) == ([], [])


def test_no_such_process(child):
    child.kill()
    child.wait()
    for _ in range(2):
        with pytest.raises(EvidenceError, match=f"^no process {child.pid}$"):
            LiveProcess(child.pid)


def test_nothing_is_left_open(child):
    child.stdout.readline()
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(3):
        with LiveProcess(child.pid) as process:
            assert process.mappings() and process.threads()
    assert len(list(Path("/proc/self/fd").iterdir())) == before


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody who may not")
def test_a_process_that_may_not_be_read(child):
    child.stdout.readline()
    script = f"from crashkit.memory.live import LiveProcess\nimport os\nos.setuid(65534)\nLiveProcess({child.pid})"
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=Path(__file__).parents[2], timeout=60)
    assert "cannot read the memory of process" in run.stderr
