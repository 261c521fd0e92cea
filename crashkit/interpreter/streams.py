"""What Python code had printed and nobody had written: it was still in the buffers of sys.stdout and sys.stderr.

`print` leaves text to a TextIOWrapper, which collects it (`pending_bytes`) before it hands it on to a BufferedWriter, which has a buffer of
its own: `textio` in Modules/_io/textio.c, `buffered` in Modules/_io/bufferedio.c.
"""

from __future__ import annotations

from contextlib import suppress

from crashkit.interpreter.objects import BYTES, LIST, TEXT, Objects
from crashkit.interpreter.threads import module_contents
from crashkit.interpreter.values import Values
from crashkit.interpreter.view import Unreadable

_STREAMS = ("stdout", "__stdout__", "stderr", "__stderr__")
_MOST = 16 * 1024
"""Bytes of one stream, of the end."""
_MOST_PARTS = 4096
_LARGEST = 1 << 24


def unwritten(objects: Objects, values: Values, interpreter: int) -> list[bytes]:
    """The end of what is in each of the streams, of those that are not empty."""
    found: dict[int, bytes] = {}
    with suppress(Unreadable):
        contents = module_contents(objects, interpreter, "sys")
        for name in _STREAMS if contents else ():
            with suppress(Unreadable):
                stream = objects.item(contents or 0, name) or 0
                if stream and stream not in found:
                    found[stream] = _of_stream(objects, values, stream)[-_MOST:]
    return [data for data in found.values() if data]


def _of_stream(objects: Objects, values: Values, stream: int) -> bytes:
    """Raises Unreadable."""
    text = objects.layout.textio
    if text is None or values.type_name(objects.type_of(stream)) != "_io.TextIOWrapper":
        return b""
    view = objects.view
    # Where the object's head is larger, so are these offsets: the tables of such builds have none.
    older = _of_buffer(objects, values, view.word(stream + text.buffer))
    return older + _pending(objects, view.word(stream + text.pending))


def _of_buffer(objects: Objects, values: Values, buffer: int) -> bytes:
    layout, view = objects.layout.buffered, objects.view
    if layout is None or values.type_name(objects.type_of(buffer)) != "_io.BufferedWriter":
        return b""
    data, start, end = (view.word(buffer + place) for place in (layout.data, layout.write_start, layout.write_end))
    # `write_end` is -1 where there is nothing.
    if not start < end <= view.word(buffer + layout.size) <= _LARGEST:
        return b""
    return view.data(data + max(start, end - _MOST), min(_MOST, end - start))


def _pending(objects: Objects, pending: int) -> bytes:
    """One text or one object of bytes, or a list of them."""
    if not pending:
        return b""
    flags = objects.flags(objects.type_of(pending))
    if flags & TEXT:
        return objects.text(pending, _MOST).encode()
    if flags & BYTES:
        return objects.bytes(pending, _MOST)
    if flags & LIST:
        parts, _ = objects.items(pending, _MOST_PARTS)
        return b"".join(_pending(objects, part) for part in parts if not objects.flags(objects.type_of(part)) & LIST)
    return b""
