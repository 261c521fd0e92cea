"""The line of an assertion that failed in a kernel: the log has it, and the program counter may stand at another one.

Compilers move the call of `__assertfail` to the end of a kernel and give it the line of what stands beside it: for a kernel that
torch.compile wrote, a GPU core showed the kernel's first line.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec.structs import replace

from crashkit.model import Gpu, GpuException, LogLine, PythonFrame
from crashkit.naming.gpu_exceptions import meaning_of


def with_asserted_lines(gpu: Gpu, log: Sequence[LogLine], annotate: Callable[[PythonFrame], PythonFrame]) -> Gpu:
    """The GPU core with the lines of the assertions that its log tells of, where it tells of one line in the kernel's file only."""
    told: dict[str, set[int]] = {}
    for line in log:
        file, _, number = line.fields.get("place", "").rpartition(":") if line.kind == "device-assert-line" else ("", "", "")
        if file and number.isdigit():
            told.setdefault(file.rpartition("/")[2], set()).add(int(number))
    return replace(gpu, exceptions=tuple(_at_its_line(exception, told, annotate) for exception in gpu.exceptions))


def _at_its_line(exception: GpuException, told: dict[str, set[int]], annotate: Callable[[PythonFrame], PythonFrame]) -> GpuException:
    lines = told.get((exception.file or "").rpartition("/")[2], set())
    if meaning_of(exception.name).kind != "assert" or not exception.file or len(lines) != 1 or exception.line in lines:
        return exception
    place = annotate(PythonFrame(file=exception.file, line=next(iter(lines))))
    return replace(exception, line=place.line, source=place.source, context=place.context, context_start=place.context_start)
