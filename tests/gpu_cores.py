"""Real GPU cores (fixtures/gpu/dumps), and what the driver, cuda-gdb and the program itself said about each."""

from __future__ import annotations

import gzip
import re
import struct
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import NamedTuple, Optional

from crashkit.elf.headers import of_bytes
from crashkit.evidence.gpu.describe import describe_dump
from crashkit.evidence.gpu.dump import open_dump
from crashkit.model import Crash, Gpu
from crashkit.report.json import decode

DUMPS = Path(__file__).parent.parent / "fixtures" / "gpu" / "dumps"
CORES = sorted(path.name.removesuffix(".nvcudmp.gz") for path in (DUMPS / "cores").iterdir())


class Told(NamedTuple):
    """What cuda-gdb and the driver say; None where they say nothing."""

    exception: Optional[str]
    pc: Optional[int]
    block: Optional[tuple[int, ...]]
    thread: Optional[tuple[int, ...]]
    place: Optional[tuple[str, int]]
    """Base name and line of the faulting instruction."""
    instruction: Optional[str]
    kernel: Optional[str]
    grid: tuple[int, ...]
    size: tuple[int, ...]
    facts: dict[str, str]


def data(name: str) -> bytes:
    """The dump, unpacked."""
    return gzip.decompress((DUMPS / "cores" / f"{name}.nvcudmp.gz").read_bytes())


@cache
def gpu(name: str) -> Gpu:
    """The dump as crashkit describes it."""
    return described(data(name), f"{name}.nvcudmp")


def described(raw: bytes, name: str = "x.nvcudmp") -> Gpu:
    dump = open_dump(of_bytes(raw), len(raw))
    assert dump is not None
    return describe_dump(dump, Path(name))


Change = Callable[[int, list[int], bytes], tuple[list[int], bytes]]


def changed(raw: bytes, change: Change) -> bytes:
    """The dump with every table section passed through `change(kind, header, content)`."""
    out = bytearray(raw[:64])
    table, count = struct.unpack_from("<Q", raw, 40)[0], struct.unpack_from("<H", raw, 60)[0]
    headers = []
    for number in range(count):
        row = list(struct.unpack_from("<IIQQQQIIQQ", raw, table + 64 * number))
        row, content = change(row[1], row, raw[row[4] : row[4] + row[5]] if row[1] != 8 else b"")
        out += bytes(-len(out) % 8)
        row[4], row[5] = len(out), len(content) if row[1] != 8 else row[5]
        out += content
        headers.append(struct.pack("<IIQQQQIIQQ", *row))
    out += bytes(-len(out) % 8)
    struct.pack_into("<Q", out, 40, len(out))
    return bytes(out) + b"".join(headers)


def side(name: str) -> Crash:
    """The CPU side of a case."""
    return decode(gzip.decompress((DUMPS / "sides" / f"{name}.json.gz").read_bytes()))


def told(name: str) -> Told:
    case, _, number = name.partition("-") if name.startswith("two_processes") else (name, "", "")
    head, *asked = (DUMPS / "told" / f"{case}.txt").read_text().split("\n=== cuda-gdb ")
    text = asked[int(number) - 1] if number else asked[0]
    log = [match[1] for match in re.finditer(r"exception of type CUDBG_EXCEPTION_(\w+)", head)]
    if not log and "\nAssertion failed.\n" in text:  # without the driver's progress messages
        log = ["WARP_ASSERT"]
    pc = re.search(r"triggered at PC (0x[0-9a-f]+)", text)
    focus = re.search(r"block \(([\d,]+)\), thread \(([\d,]+)\)", text)
    place = re.search(r"triggered at PC .*\(([^():]+):(\d+)(?: in [^()]*)?\)", text)
    stood = re.search(r"^#0 .* at (\S+):(\d+)$", text, re.MULTILINE)
    instruction = re.search(r"^\*> .*>:\s+(.*)$", text, re.MULTILINE)
    kernel = re.search(r"^\*\s+0 +- .* \(([\d,]+)\) +\(([\d,]+)\) +(\S.*)$", text, re.MULTILINE)
    where = (place[1], int(place[2])) if place else (Path(stood[1]).name, int(stood[2])) if stood and not pc else None
    return Told(
        exception=(log[int(number) - 1] if number else log[0]) if log else None,
        pc=int(pc[1], 16) if pc else None,
        block=_numbers(focus[1]) if focus else None,
        thread=_numbers(focus[2]) if focus else None,
        place=where,
        instruction=instruction[1].strip() if instruction else None,
        kernel=re.split(r"<|\((?!anonymous)", kernel[3])[0].strip() if kernel else None,
        grid=_numbers(kernel[1]) if kernel else (),
        size=_numbers(kernel[2]) if kernel else (),
        facts=dict(re.findall(r"'(\w+)': '?([^',}]+)'?", "".join(re.findall(r"^FACT (.*)$", head, re.MULTILINE)[:1]))),
    )


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(",")))
