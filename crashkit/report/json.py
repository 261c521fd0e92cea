"""`report.json`: the crash as a document, its reader and its JSON schema."""

from __future__ import annotations

from typing import Any

import msgspec

from crashkit.errors import EvidenceError
from crashkit.model import SCHEMA, Address, Crash, Offset, decode_extension, encode_extension
from crashkit.prepared import prepared
from crashkit.report.renderer import Renderer

_FRAME_KINDS = ("native", "python", "elided")
_HINT = "Pass a report.json written by this or an older version of crashkit."


def encode(crash: Crash) -> bytes:
    """The document: UTF-8, indented, with one newline at the end. What is not Unicode becomes U+FFFD."""
    try:
        packed = msgspec.json.encode(crash, enc_hook=encode_extension)
    except UnicodeEncodeError:
        packed = msgspec.json.encode(_unicode(msgspec.to_builtins(crash, enc_hook=encode_extension)))
    return msgspec.json.format(packed, indent=1) + b"\n"


def decode(document: bytes) -> Crash:
    """The crash that `encode` wrote, by this version or another one of the same schema.

    Fields that are null count as absent; frames of an unknown kind as elided ones. Raises EvidenceError.
    """
    try:
        raw = msgspec.json.decode(document)
        schema = raw.get("schema") if isinstance(raw, dict) else None
        if schema != SCHEMA:
            raise EvidenceError(f"not a document of schema {SCHEMA}", _HINT)
        return msgspec.convert(_known(raw), prepared(Crash), dec_hook=decode_extension)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, ValueError) as error:
        raise EvidenceError(f"not a crashkit report: {error}", _HINT) from error


_NOT_TOLD = ("modules", "mappings", "instructions", "looked_for", "seconds")
"""The fields that make most of a report's bytes, and those that tell nothing of its crash in one row."""
_Outline = msgspec.defstruct(
    "_Outline", [(field.name, field.type, field.default) for field in msgspec.structs.fields(Crash) if field.name not in _NOT_TOLD]
)


def outline(document: bytes) -> Crash:
    """The crash without modules, mappings, instructions and what was looked for: some times faster than `decode`. Raises EvidenceError."""
    try:
        read = msgspec.json.decode(document, type=prepared(_Outline), dec_hook=decode_extension)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, ValueError):
        return decode(document)  # of another version
    told = msgspec.structs.asdict(read)
    if told["schema"] != SCHEMA:
        raise EvidenceError(f"not a document of schema {SCHEMA}", _HINT)
    return Crash(**told)


def schema() -> dict[str, Any]:
    """JSON Schema (2020-12) of the document."""
    return msgspec.json.schema(Crash, schema_hook=_schema_of_extension)


def _schema_of_extension(kind: type) -> dict[str, Any]:
    if kind is Address:
        return {"type": "string", "pattern": "^0x[0-9a-f]{16}$"}
    if kind is Offset:
        return {"type": "string", "pattern": "^0x[0-9a-f]+$"}
    raise NotImplementedError(f"no schema for {kind.__name__}")


def _unicode(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, dict):
        return {_unicode(key): _unicode(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_unicode(item) for item in value]
    return value


def _known(value: Any) -> Any:
    if isinstance(value, list):
        return [_known(item) for item in value if item is not None]
    if not isinstance(value, dict):
        return value
    known = {key: _known(item) for key, item in value.items() if item is not None}
    for key in ("frames", "python_frames"):
        if key in known and isinstance(known[key], list):
            known[key] = [_known_frame(frame) for frame in known[key]]
    return known


def _known_frame(frame: Any) -> Any:
    # Its place is kept: the evidence of findings points at frames by their index.
    if isinstance(frame, dict) and frame.get("kind") not in _FRAME_KINDS:
        return {"kind": "elided", "count": 1}
    return frame


unicode = _unicode
"""For other documents in JSON."""

RENDERER = Renderer("report.json", encode)
