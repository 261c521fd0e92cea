"""Which Python lines torch.compile fused into a kernel, from what inductor itself writes.

The code that inductor generates names for each kernel the nodes of the graph that it was made from (torch/_inductor/utils.py,
get_kernel_metadata); it lies in inductor's cache, beside the kernel's own file. The graph, in a log made with
TORCH_LOGS=aot_graphs,graph_code, has the Python line above each node (torch/fx/graph.py).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import BinaryIO, NamedTuple, Optional

from msgspec.structs import replace

from crashkit.evidence.input import Input
from crashkit.limits import LONGEST_LINE
from crashkit.model import Gpu, GpuException, PythonFrame

MOST_FILES = 4096
"""Of a cache: a large model leaves some hundred."""
MOST_BYTES = 64 << 20
"""Of one text, and of the files of a cache together."""
MOST_PLACES = 16
_MOST_GRAPHS = 4096
_LONGEST_NUMBER = 9
_LETTERS = 2
_KERNEL_PATH = "# kernel path: "

_FUSED = re.compile(r"triton_\w{1,2000}")
_NODES = re.compile(r"# (?:Topologically Sorted |Unsorted )?Source Nodes: \[([\w, .]{0,8000})\], Original ATen: \[([\w:, .]{0,8000})\]")
_MAPPED = re.compile(r"#   (\w{1,200}) => (\w{1,200}(?:, \w{1,200}){0,100})\s*$")
_MADE = re.compile(r"(?:^|\W)(triton_\w{1,2000})(?: = async_compile\.triton\(|\.run\()")
_FILE = "# File: "
_NODE = re.compile(r"(?:^|\s)(\w{1,200})(?:: \"[^\"]{0,500}\")? = ")
_GRAPH = re.compile(r"class (?:GraphModule|<lambda>|\w{1,100})\(torch\.nn\.Module\)")

Locate = Callable[[str], Optional[Path]]
Read = Callable[[Path], Optional[str]]
"""The text of a source file; None if it is none or cannot be read."""


class Fused(NamedTuple):
    """What one kernel was made from."""

    nodes: frozenset[str]
    """Names in the graph that torch.compile captured."""
    lowered: frozenset[str]
    """Their names in the graph of operators."""
    operators: tuple[str, ...]
    """aten.index, aten.mul."""


class Known(NamedTuple):
    """What one text tells."""

    kernels: dict[str, Fused]
    graphs: tuple[dict[str, PythonFrame], ...]
    """Of each graph the Python line of each node."""


def with_lines(gpu: Gpu, locate: Locate, read: Read, texts: Sequence[Input], kept: Sequence[Path] = ()) -> Gpu:
    """The GPU core with the Python lines that its failed kernels were fused from, where a cache or a log tells.

    `kept`: sources that came with the crash.
    """
    wanted = {one.kernel for one in gpu.exceptions if one.kernel and _FUSED.fullmatch(one.kernel)}
    if not wanted:
        return gpu
    found = [look_through(_lines(text.file)) for text in texts]

    def told(exception: GpuException) -> GpuException:
        if exception.kernel not in wanted:
            return exception
        path = locate(exception.file) if exception.file else None
        roots = (cache_of(path),) if path is not None else ()
        cached = [text for _, text in generated(exception.file or "", roots, read)]
        kernel = f"{_KERNEL_PATH}{exception.file}\n"
        beside = [text for text in map(read, kept) if text is not None and (kernel in text or _KERNEL_PATH not in text)]
        known = [*(look_through(text.split("\n")) for text in (*cached, *beside)), *found]
        made = next((one.kernels[exception.kernel] for one in known if exception.kernel in one.kernels), None)
        if made is None:
            return exception
        return replace(exception, operators=made.operators, fused_from=lines_of(made, [graph for one in known for graph in one.graphs]))

    return replace(gpu, exceptions=tuple(map(told, gpu.exceptions)))


def look_through(lines: Iterable[str]) -> Known:
    """The kernels and graphs that a text tells of: generated code, or a log with such code or with graphs."""
    kernels: dict[str, Fused] = {}
    graphs: list[dict[str, PythonFrame]] = [{}]
    nodes: frozenset[str] = frozenset()
    lowered: set[str] = set()
    operators: tuple[str, ...] = ()
    place: Optional[PythonFrame] = None
    for line in lines:
        if (match := _NODES.search(line)) is not None:
            nodes, operators, lowered = frozenset(_names(match[1])), tuple(_names(match[2])), set()
        elif (match := _MAPPED.search(line)) is not None:
            lowered.update(_names(match[2]))
        elif nodes and (match := _MADE.search(line)) is not None:
            kernels.setdefault(match[1], Fused(nodes, frozenset(lowered), operators))
            # A kernel without such a comment has none.
            nodes, lowered, operators = frozenset(), set(), ()
        elif _GRAPH.search(line) is not None:
            place = None
            if graphs[-1] and len(graphs) < _MOST_GRAPHS:
                graphs.append({})
        elif _FILE in line:
            place = _place(line.partition(_FILE)[2])
        elif place is not None and (match := _NODE.search(line)) is not None:
            graphs[-1].setdefault(match[1], place)
    return Known(kernels, tuple(filter(None, graphs)))


def lines_of(fused: Fused, graphs: Sequence[Mapping[str, PythonFrame]]) -> tuple[PythonFrame, ...]:
    """The Python lines of a kernel's nodes, each once; empty if several graphs have such nodes and tell of other lines."""
    found: dict[tuple[tuple[str, int], ...], tuple[PythonFrame, ...]] = {}
    for names in (fused.nodes, fused.lowered):
        for graph in graphs:
            if names and names <= graph.keys():
                places = {(graph[name].file or "", graph[name].line or 0): graph[name] for name in names}
                at = tuple(sorted(places))[:MOST_PLACES]
                found.setdefault(at, tuple(places[one] for one in at))
    return next(iter(found.values())) if len(found) == 1 else ()


def _place(text: str) -> Optional[PythonFrame]:
    """`/srv/model.py:4 in forward, code: y = x * 2`; None if it is something else."""
    at, _, code = text.partition(", code: ")
    place, _, function = at.rpartition(" in ")
    file, _, line = place.rpartition(":")
    if not file or not line.isdecimal() or len(line) > _LONGEST_NUMBER:
        return None
    return PythonFrame(function=function, file=file, line=int(line), source=code.strip(), origin="inductor")


def cache_of(kernel_file: Path) -> Optional[Path]:
    """The cache of inductor's that a kernel's file lies in: in a folder of two letters."""
    return kernel_file.parent.parent if len(kernel_file.parent.name) == _LETTERS else None


def generated(kernel_file: str, caches: Iterable[Optional[Path]], read: Read) -> Iterator[tuple[Path, str]]:
    """The generated code that the kernel of this file belongs to, as these caches have it."""
    left = MOST_BYTES
    for cache in dict.fromkeys(filter(None, caches)):
        for other in islice(sorted(cache.glob(f"{'?' * _LETTERS}/c*.py")), MOST_FILES):
            text = read(other) if left > 0 else None
            left -= len(text or "")
            if text is not None and f"{_KERNEL_PATH}{kernel_file}\n" in text:
                yield other, text


def _lines(file: BinaryIO) -> Iterator[str]:
    file.seek(0)
    left = MOST_BYTES
    while left > 0 and (line := file.readline(LONGEST_LINE)):
        left -= len(line)
        yield line.decode("utf-8", "replace").rstrip()
    file.seek(0)


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]
