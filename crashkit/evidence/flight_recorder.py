"""Reads the dumps of torch's flight recorder (torch 2.2 and newer; torch/csrc/distributed/c10d/FlightRecorder*.hpp): pickle or JSON.

A pickle can run code and exhaust memory. Before one is loaded, its opcodes are looked through: only those that build plain dicts, lists,
tuples, strings, numbers, booleans and None are allowed. The unpickler itself refuses every class as well.
"""

from __future__ import annotations

import io
import pickle
import re
from collections.abc import Mapping
from typing import Any, BinaryIO, NoReturn, Optional

import msgspec

from crashkit.errors import EvidenceError
from crashkit.job.operations import operation
from crashkit.job.recording import Entry, Recording
from crashkit.model import PythonFrame

LARGEST = 256 << 20
"""Bytes of one dump; 2,000 operations with their stacks are about a megabyte."""
MOST_ENTRIES = 100_000
MOST_FRAMES = 64
MOST_SIZES = 64
LONGEST_NAME = 1000
_HEAD = 4096
_HINT = "Pass the files that torch wrote, one a rank (TORCH_FR_DUMP_TEMP_FILE)."

# Opcodes without an argument: MARK STOP POP POP_MARK DUP NONE TRUE FALSE APPEND(S) LIST DICT EMPTY_* SETITEM(S) TUPLE* MEMOIZE.
# Then those with arguments of a fixed length: PROTO BININT* BINFLOAT BINGET BINPUT LONG_BINGET FRAME.
_FIXED = re.compile(
    rb"(?:[(01.2N\x88\x89ael\]d}sut\x85\x86\x87)\x94]|\x80[\x02-\x05]|[Kqh].|M..|J.{4}|j.{4}|G.{8}|\x95.{8})*",
    re.DOTALL,
)
_COUNTED = {b"X": 4, b"\x8c": 1, b"\x8d": 8, b"U": 1, b"T": 4, b"\x8a": 1, b"C": 1, b"B": 4}
"""Bytes of the count before a string, a long integer or bytes."""


class _Plain(pickle.Unpickler):
    """Builds nothing but what pickle itself knows."""

    def find_class(self, module: str, name: str) -> NoReturn:
        raise pickle.UnpicklingError(f"refused to load {module}.{name}")

    def persistent_load(self, _: Any) -> NoReturn:
        raise pickle.UnpicklingError("refused a persistent id")


def is_recording(file: BinaryIO) -> bool:
    """Whether the file looks like a dump, by its first bytes; leaves the position at the start."""
    file.seek(0)
    head = file.read(_HEAD)
    file.seek(0)
    if re.match(rb"\x80[\x02-\x05]", head):
        return any(key in head for key in (b"entries", b"pg_config", b"pg_status", b"comm_lib_version", b"nccl_version", b"profiling_name"))
    return head.lstrip()[:1] == b"{" and any(key in head + _tail(file) for key in (b'"pg_config"', b'"profiling_name"'))


def _tail(file: BinaryIO) -> bytes:
    size = file.seek(0, io.SEEK_END)
    file.seek(max(0, size - _HEAD))
    tail = file.read(_HEAD)
    file.seek(0)
    return tail


def read_recording(file: BinaryIO, path: str) -> Recording:
    """The dump of one rank, which the number at the end of its name gives (torch writes PREFIX and the rank). Raises EvidenceError."""
    file.seek(0)
    content = file.read(LARGEST + 1)
    if len(content) > LARGEST:
        raise EvidenceError(f"{path} is larger than any flight recorder's dump", _HINT)
    number = re.search(r"(\d{1,9})(?:\.(?:json|pkl|pickle))?$", path)
    if number is None:
        raise EvidenceError(f"{path}: its name does not end with a rank", "Keep the name that torch gave it, such as nccl_trace_rank_3.")
    raw = _json(content, path) if content.lstrip()[:1] == b"{" else _pickle(content, path)
    if isinstance(raw, list):
        raw = {"entries": raw}
    if not isinstance(raw, dict):
        raise EvidenceError(f"{path} is not a flight recorder's dump", _HINT)
    return _recording(raw, int(number[1]), path)


def _json(content: bytes, path: str) -> Any:
    try:
        return msgspec.json.decode(content)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise EvidenceError(f"{path}: this JSON is damaged ({error})", "The rank may have been killed while it wrote it.") from error


def _pickle(content: bytes, path: str) -> Any:
    _look_through(content, path)
    try:
        return _Plain(io.BytesIO(content)).load()
    except (pickle.UnpicklingError, EOFError, ValueError, IndexError, KeyError, TypeError, AttributeError, OverflowError, UnicodeError,
            MemoryError, RecursionError) as error:  # fmt: skip
        raise EvidenceError(f"{path}: this pickle is damaged ({error})", "The rank may have been killed while it wrote it.") from error


def _look_through(content: bytes, path: str) -> None:
    """Refuses what is not plain data, and places in the memo beyond what the file can fill: the unpickler would allocate up to there."""
    at = 0
    while at < len(content):
        match = _FIXED.match(content, at)
        at = match.end() if match is not None else at
        opcode = content[at : at + 1]
        if not opcode:
            break
        if opcode == b"r":
            if int.from_bytes(content[at + 1 : at + 5], "little") > len(content):
                raise EvidenceError(f"{path} is a pickle that only wants memory, and was not loaded", _HINT)
            at += 5
        elif opcode in _COUNTED:
            width = _COUNTED[opcode]
            at += 1 + width + int.from_bytes(content[at + 1 : at + 1 + width], "little")
        else:
            message = f"{path} is a pickle with more than plain data in it (opcode {opcode!r} at byte {at}), and was not loaded"
            raise EvidenceError(message, "A dump of the flight recorder has none: where is this file from?")


def _recording(raw: Mapping[Any, Any], rank: int, path: str) -> Recording:
    entries = raw.get("entries")
    several = entries if isinstance(entries, list) else []
    kept = [entry for one in several[-MOST_ENTRIES:] if (entry := _entry(one)) is not None]
    first = next((one.get("record_id", one.get("id")) for one in several[:1] if isinstance(one, dict)), 0)
    return Recording(
        rank=rank,
        path=path,
        version=_text(raw.get("version")) or "",
        groups=_groups(raw.get("pg_config")),
        entries=tuple(kept),
        is_whole=len(kept) == len(several) and not (isinstance(first, int) and first > 0),
    )


def _groups(raw: Any) -> dict[str, tuple[str, tuple[int, ...]]]:
    found = {}
    for name, group in raw.items() if isinstance(raw, dict) else ():
        if isinstance(group, dict):
            ranks = group.get("ranks")
            # A text such as "[0, 1]"; in some versions a list.
            numbers = re.findall(r"\d{1,9}", ranks) if isinstance(ranks, str) else [one for one in _list(ranks) if isinstance(one, int)]
            found[_text(name) or ""] = _text(group.get("desc")) or "", tuple(sorted({int(number) for number in numbers}))
    return found


def _entry(raw: Any) -> Optional[Entry]:
    if not isinstance(raw, dict):
        return None
    name = _text(raw.get("profiling_name")) or ""
    group = raw.get("process_group")
    known = [_text(part) or "" for part in group[:2]] if isinstance(group, (list, tuple)) else [str(_whole(raw.get("pg_id")) or 0), ""]
    # Before version 2.0 of the format it was called seq_id.
    sequence = _whole(raw.get("collective_seq_id", raw.get("seq_id")))
    operation_name = operation(name)
    peers = re.search(r"(\d{1,9})(->|<-)(\d{1,9})$", name)
    one, other = (int(peers[1]), int(peers[3])) if peers else (0, 0)
    return Entry(
        group=known[0] if known else "",
        description=known[1] if len(known) > 1 else "",
        sequence=sequence or 0,
        operation=operation_name,
        is_p2p=bool(raw.get("is_p2p", operation_name in ("send", "recv"))),
        peers=None if not peers else (one, other) if peers[2] == "->" else (other, one),
        sizes=_sizes(raw.get("input_sizes")),
        output_sizes=_sizes(raw.get("output_sizes")),
        dtypes=_texts(raw.get("input_dtypes")),
        output_dtypes=_texts(raw.get("output_dtypes")),
        state=_text(raw.get("state")),
        retired=raw.get("retired") is True,
        frames=tuple(frame for one in _list(raw.get("frames"))[:MOST_FRAMES] if (frame := _frame(one)) is not None),
        created=_whole(raw.get("time_created_ns")),
    )


def _frame(raw: Any) -> Optional[PythonFrame]:
    if not isinstance(raw, dict):
        return None
    return PythonFrame(
        function=_text(raw.get("name")), file=_text(raw.get("filename")), line=_whole(raw.get("line")), origin="flight-recorder"
    )


def _sizes(raw: Any) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(number for number in _list(one)[:MOST_SIZES] if isinstance(number, int)) for one in _list(raw)[:MOST_SIZES])


def _texts(raw: Any) -> tuple[str, ...]:
    return tuple(text for one in _list(raw)[:MOST_SIZES] if (text := _text(one)) is not None)


def _list(raw: Any) -> Any:
    return raw if isinstance(raw, (list, tuple)) else ()


def _text(raw: Any) -> Optional[str]:
    return raw[:LONGEST_NAME] if isinstance(raw, str) else None


def _whole(raw: Any) -> Optional[int]:
    return raw if isinstance(raw, int) and not isinstance(raw, bool) and -(1 << 63) <= raw < 1 << 63 else None
