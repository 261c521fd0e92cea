"""Which source files a GPU core names, by its line tables. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from crashkit.model import Gpu, NativeFrame, PythonFrame


def source_files(gpu: Gpu) -> Iterator[str]:
    """Files of what failed, the failing line's first, then of the kernels that ran; some more than once."""
    for exception in gpu.exceptions:
        frames = (frame.file for frame in exception.frames if isinstance(frame, (NativeFrame, PythonFrame)))
        yield from filter(None, (exception.file, *frames))
    for kernel in gpu.kernels:
        yield from filter(None, (kernel.file, *(place.file for place in kernel.places)))
