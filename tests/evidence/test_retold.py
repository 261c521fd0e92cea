"""Messages that somebody retold are known by their words, at most as possible; what only resembles them is not."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from time import process_time

import pytest

from crashkit.diagnose import diagnose, load_catalog
from crashkit.evidence.text.letters import LONG
from crashkit.evidence.text.log import MOST_TYPED, crash_of_log, read_log
from crashkit.evidence.text.log_patterns import kinds
from crashkit.evidence.text.retold import LEAST, _table, messages, retold
from crashkit.pipeline import analyze

LINES = {
    "corrupted size vs. prev_size while consolidating": "heap-overflow",
    "malloc(): unsorted double linked list corrupted": "heap-overflow",
    "double free or corruption (!prev)": "double-free",
    "free(): invalid pointer": "invalid-free",
    "munmap_chunk(): invalid pointer": "invalid-free",
    "*** stack smashing detected ***": "stack-smashing",
    "terminate called after throwing an instance of 'X'": "terminate",
    "terminate called without an active exception": "terminate-bare",
    "pure virtual method called": "pure-virtual",
    "Fatal Python error: oops": "fatal-python-error",
    "Cannot re-initialize CUDA in forked subprocess": "fork-cuda",
    "CUDA error: device-side assert triggered": "device-assert",
    "an illegal memory access was encountered": "cuda-illegal-access",
    "no kernel image is available for execution on the device": "cuda-no-image",
    "Memory access fault by GPU node-1": "rocm-fault",
    "Inconsistency detected by ld.so: dl-lookup.c": "loader-inconsistency",
    "cannot allocate memory in static TLS block": "static-tls",
    "Initializing libiomp5.so, but found libomp.so already initialized: Error #15": "",
    "could not load the Qt platform plugin": "qt-platform",
    "HDF5 library version mismatched error": "hdf5-mismatch",
    "received 0 items of ancdata": "fd-exhausted",
    "main thread is not in main loop": "tk-main-loop",
    "DataLoader worker (pid 7) is killed by signal: Killed.": "worker-killed",
    "DataLoader worker (pid 7) is killed by signal: Bus error.": "worker-bus-error",
    "Memory cgroup out of memory: Killed process 7": "oom-cgroup",
}


def disguised(line: str) -> Iterator[str]:
    yield from (
        line.upper(),
        line.lower(),
        re.sub(r"[^\w\s]", " ", line),
        line.replace(" ", "  "),
        line.replace(" ", "-"),
        f"\u201c{line}\u201d!",
    )
    yield line.replace("called", "was called").replace("detected", "has been detected").replace("corrupted", "corruption")
    for at in (match.start() for match in re.finditer(" ", line)):
        yield f"{line[:at]}\n{line[at + 1 :]}"
    for word in re.findall(rf"[a-z]{{{LONG},}}", line):
        yield line.replace(word, word[:3] + word[4] + word[3] + word[5:])
        yield line.replace(word, word[:4] + word[5:])


@pytest.mark.parametrize("line", [line for line, kind in LINES.items() if kind])
def test_a_message_however_it_is_retold(line: str) -> None:
    assert [text for text in disguised(line) if LINES[line] not in {one.kind for one in retold(f"it says {text}".split("\n"))}] == []


@pytest.mark.parametrize(
    ("text", "signature"),
    [
        ("it stops with corrupt size versus previous size", "heap-corruption-overflow"),
        ("Aborted (core dumped)\nand it says free : invalid ptr", "heap-corruption-invalid-free"),
        ("the message is: terminate was called after throwing instance of X", "cxx-uncaught-exception"),
        ("i get a double-free detected", "heap-corruption-double-free"),
        ("Cant re-initialise cuda in\nforked sub-process", "cuda-after-fork"),
    ],
)
def test_what_is_claimed_is_possible(text: str, signature: str, tmp_path: Path) -> None:
    path = tmp_path / "mail.txt"
    path.write_text(f"{text}\n")
    assert [(finding.id, finding.confidence) for finding in analyze(path).findings][:1] == [(signature, "possible")]


@pytest.mark.parametrize(
    "text",
    [
        "corrupted size of the download, previous size kept",
        "the fatal error is Python's",
        "free pointers to invalid advice",
        "called with an instance of X, then terminated after throwing a ball",
        "memory of GPU 1, access by fault-tolerant node",
        "this avoids a double free or corruption",
        "Fixed: an illegal memory access was encountered",
        "how to prevent a device-side assert triggered by labels",
        "the main thread is not busy. It is in the main event loop",
        "the Qt platform has a plugin, which could be loaded",
        "the kernel image is available",
        "the program was killed by a signal: segmentation fault",
        "c++: Killed signal terminated program cc1plus",
        "the worker killed a signal handler",
    ],
)
def test_what_only_resembles_one(text: str) -> None:
    assert retold([text]) == ()


def test_a_line_of_a_program_counts_more(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_text("pure virtual method called\nsomebody wrote: corrupt size versus previous size\n")
    found = diagnose(crash_of_log(path, read_log(path)), load_catalog()).findings
    assert [finding.id for finding in found][:1] == ["cxx-pure-virtual"] and not any("overwritten" in finding.title for finding in found)


def test_hostile_text_takes_little_time() -> None:
    began = process_time()
    for piece in ("task pid signal ", "srun error task aborted ", "worker killed ", "exit code local rank pid ", "corrupted size vs "):
        retold([piece * (MOST_TYPED // len(piece))])
        retold([piece] * (MOST_TYPED // len(piece)))
    assert process_time() - began < 3


def test_the_table() -> None:
    table = _table()
    assert {other.kind for other in table.other} <= kinds()
    assert {kind for kind in table.left_out if kind not in kinds()} == set()
    assert min(sum(map(len, message.pieces)) for message in messages()) >= LEAST - 8
    assert len(messages()) > 250
