"""The decoders of notes on any bytes; what real notes say is compared with others in test_core.py."""

from __future__ import annotations

import struct

from hypothesis import given
from hypothesis import strategies as st

from crashkit.arch import named
from crashkit.elf import notes
from crashkit.elf.headers import Word
from tests.evidence import synthetic

WIDE, NARROW = Word(8, "<"), Word(4, "<")
words = st.sampled_from([WIDE, NARROW, Word(8, ">"), Word(4, ">")])


def payload(note: bytes) -> bytes:
    ((_name, _kind, data),) = notes.split(note, "<")
    return data


@given(st.binary(max_size=400), words, st.sampled_from(["x86_64", "i386", "aarch64", "riscv", ""]))
def test_any_bytes_give_something_or_nothing(data, word, architecture):
    names = named(architecture).registers
    found = notes.status(data, word, names)
    assert found is None or found.registers.keys() <= set(names)
    notes.process_info(data, word)
    notes.signal_info(data, word)
    notes.auxiliary_vector(data, word)
    assert len(notes.file_mappings(data, word)) * 3 * word.size <= len(data)
    assert sum(len(part) for _name, _kind, part in notes.split(data, word.order)) <= len(data)


@given(st.lists(st.tuples(st.text("abcXYZ", max_size=9), st.integers(0, 2**32 - 1), st.binary(max_size=50))))
def test_notes_are_split_as_they_were_joined(rows):
    data = b"".join(synthetic.note(name.encode(), kind, part) for name, kind, part in rows)
    assert list(notes.split(data, "<")) == rows


@given(st.integers(0, 400))
def test_a_status_that_was_cut_keeps_the_registers_there_are(length):
    names = named("x86_64").registers
    whole = payload(synthetic.prstatus(7, range(100, 127)))
    found = notes.status(whole[:length], WIDE, names)
    if length < 36:
        assert found is None
    else:
        assert found.tid == 7
        count = min(27, max(0, (length - 112) // 8))
        assert found.registers == dict(zip(names[:count], range(100, 100 + count), strict=True))


def test_process_info_is_text_of_any_bytes():
    found = notes.process_info(payload(synthetic.prpsinfo(5, b"\x1b\xff<b>", b"a b \0 rest")), WIDE)
    assert (found.pid, found.ppid, found.uid, found.name, found.arguments) == (5, 1, 1000, b"\x1b\xff<b>", b"a b")


@given(st.integers(1, 80))
def test_file_mappings_whose_paths_were_cut(missing):
    """The rows come first in the note: they stay, nameless."""
    rows = [(0x1000, 0x2000, 0, b"/lib/one.so"), (0x2000, 0x3000, 2, b"/lib/two.so")]
    whole = struct.pack("<QQ", 2, 4096) + b"".join(struct.pack("<QQQ", *row[:3]) for row in rows) + b"/lib/one.so\0/lib/two.so\0"
    found = notes.file_mappings(whole[:-missing], WIDE)
    for mapping, (start, end, page, path) in zip(found, rows, strict=False):
        assert (mapping.start, mapping.end, mapping.offset) == (start, end, page * 4096)
        assert mapping.path in ("", path.decode()), "the beginning of a path is another one"
    assert len(found) == 2 if missing <= 24 else len(found) < 3


def test_paths_that_are_not_utf8():
    whole = struct.pack("<QQQQQ", 1, 4096, 0x1000, 0x2000, 0) + b"/lib/\xff\n\x1b.so\0"
    assert notes.file_mappings(whole, WIDE)[0].path == "/lib/\\xff\n\x1b.so"
