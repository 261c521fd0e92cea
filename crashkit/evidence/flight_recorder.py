"""Reads the dumps of torch's flight recorder (torch 2.2 and newer; torch/csrc/distributed/c10d/FlightRecorder*.hpp): pickle or JSON.

`plain_pickle` loads the pickles.
"""

from __future__ import annotations

import io
import re
from collections.abc import Mapping
from typing import Any, BinaryIO, Optional

import msgspec

from crashkit.errors import EvidenceError
from crashkit.evidence import plain_pickle
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
_DAMAGED = "The rank may have been killed while it wrote it."
_HINT = "Pass the files that torch wrote, one per rank (TORCH_FR_DUMP_TEMP_FILE)."


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
        raise EvidenceError(f"{path} is too large for a flight recorder dump", _HINT)
    number = re.search(r"(\d{1,9})(?:\.(?:json|pkl|pickle))?$", path)
    if number is None:
        raise EvidenceError(f"{path}: its name does not end with a rank", "Keep the name that torch gave it, such as nccl_trace_rank_3.")
    is_json = content.lstrip()[:1] == b"{"
    raw = _json(content, path) if is_json else plain_pickle.load(content, path, "A flight recorder dump", _DAMAGED)
    if isinstance(raw, list):
        raw = {"entries": raw}
    if not isinstance(raw, dict):
        raise EvidenceError(f"{path} is not a flight recorder dump", _HINT)
    return _recording(raw, int(number[1]), path)


def _json(content: bytes, path: str) -> Any:
    try:
        return msgspec.json.decode(content)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise EvidenceError(f"{path}: this JSON is damaged ({error})", _DAMAGED) from error


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
