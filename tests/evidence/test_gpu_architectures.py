"""GPUs of other architectures: real code of each, made by NVIDIA's assembler and told by its disassembler (fixtures/gpu/sass).

There are no dumps of them. Those here are one of an H200 (sm_90) with another architecture's name, code and registers.
"""

from __future__ import annotations

import gzip
import re
import struct
from pathlib import Path
from typing import NamedTuple

import pytest

from crashkit.evidence.gpu import layout
from crashkit.evidence.gpu.image import of_image
from crashkit.evidence.gpu.sass import SIZE, WAITS, Operation, decode, followers
from crashkit.model import Gpu, GpuException

from ..gpu_cores import changed, data, described

SASS = Path(__file__).parent.parent.parent / "fixtures" / "gpu" / "sass"
NAMES = sorted(path.stem for path in (SASS / "told").iterdir())
BASE = 0x7F0000000000
NAMED = ("BAR", "BPT", "EXIT", "WARPSYNC", "BRA")


class Line(NamedTuple):
    """What nvdisasm says of one instruction."""

    offset: int
    line: int | None
    code: bytes
    text: str

    @property
    def name(self) -> str:
        """Without the predicate."""
        return re.sub(r"^@!?U?PT?\d? ", "", self.text).partition(" ")[0]

    @property
    def operand(self) -> str | None:
        """What stands in brackets, without a descriptor."""
        found = re.search(r"\[((?:R|UR)[^\]]*)\]", re.sub(r"desc\[\w+\]", "", self.text))
        return found[1].replace("+-", "-") if found and re.match(r"(LD|ST|ATOM|RED)[GLS]?(\.|$)", self.name) else None

    def address(self, registers: list[int], uniform: list[int]) -> int:
        """As the text says; a register of global memory is two."""
        wide = "E" in self.name.split(".")
        total = 0
        for sign, register, number, scale, offset in re.findall(
            r"([+-]?)(?:(U?R)(\d+)(?:\.64|\.U32)?(?:\.X(\d+))?|(0x[0-9a-f]+))", self.operand or ""
        ):
            values = uniform if register == "UR" else registers
            value = int(offset, 16) if offset else values[int(number)] | (values[int(number) + 1] << 32 if wide else 0)
            total += (-1 if sign == "-" else 1) * value * int(scale or 1)
        return total & ((1 << (64 if wide else 32)) - 1)


def told(name: str) -> list[Line]:
    rows = (row.split("\t") for row in (SASS / "told" / f"{name}.txt").read_text().splitlines())
    return [
        Line(
            int(offset, 16),
            None if line == "-" else int(line),
            int(code[:16], 16).to_bytes(8, "little") + int(code[16:], 16).to_bytes(8, "little"),
            text,
        )
        for offset, line, code, text in rows
    ]


def architecture(name: str) -> int:
    return int(name.partition("sm_")[2].partition(".")[0])


def cubin(name: str) -> bytes:
    return gzip.decompress((SASS / "cubins" / f"{name}.cubin.gz").read_bytes())


def relocated(name: str) -> bytes:
    """The cubin as a driver loads it: the kernel at BASE, and its line table pointing there."""
    image = bytearray(cubin(name))
    table, count = struct.unpack_from("<Q", image, 40)[0], struct.unpack_from("<H", image, 60)[0]
    rows = [list(struct.unpack_from("<IIQQQQIIQQ", image, table + 64 * number)) for number in range(count)]
    for number, row in enumerate(rows):
        if row[1] == 1 and row[2] & 4:  # code
            struct.pack_into("<Q", image, table + 64 * number + 16, BASE)
    named = {section.name: section for section in of_image(bytes(image)).sections}
    lines = named[".debug_line"]
    for relocation in (section for section_name, section in named.items() if section_name in (".rel.debug_line", ".rela.debug_line")):
        entry = 24 if relocation.name.startswith(".rela") else 16
        for at in range(relocation.offset, relocation.offset + relocation.size, entry):
            place = lines.offset + struct.unpack_from("<Q", image, at)[0]
            struct.pack_into("<Q", image, place, struct.unpack_from("<Q", image, place)[0] + BASE)
    symbols = named[".symtab"]
    for at in range(symbols.offset, symbols.offset + symbols.size, 24):
        kind, section, value = image[at + 4] & 15, *struct.unpack_from("<H", image, at + 6), *struct.unpack_from("<Q", image, at + 8)
        if kind == 2 and section:
            struct.pack_into("<Q", image, at + 8, value + BASE)
    return bytes(image)


@pytest.mark.parametrize("name", NAMES)
def test_every_instruction_is_read_as_nvdisasm_reads_it(name: str) -> None:
    registers = [0x10 + 0x01010100 * number for number in range(256)]
    uniform = [0x20000 + 0x00101010 * number for number in range(64)]
    seen = set()
    for line in told(name):
        found = decode(line.code, architecture(name))
        if line.operand is None:
            if line.name.partition(".")[0] in NAMED:
                assert found is not None and line.name.startswith(found.name.partition(".")[0]), line
            assert found is None or found.access is None, line
            continue
        assert found is not None, line
        assert found.name.partition(".")[0] == line.name.partition(".")[0]
        assert found.text.partition("[")[2].replace(".64", "").replace("+-", "-") == line.operand.replace(".64", "") + "]", line
        assert found.address(registers, uniform) == line.address(registers, uniform), line
        size = {"U8": 1, "S8": 1, "U16": 2, "S16": 2, "64": 8, "128": 16}
        if found.access != "atomic" or found.size is not None:
            assert found.size == next((size[part] for part in line.name.split(".")[1:] if part in size), 4), line
        assert found.size is not None or "F32" in line.name, line
        seen.add((found.space, found.access))
    assert seen >= {("global", "read"), ("global", "write"), ("global", "atomic"), ("shared", "atomic"), ("generic", "write")}


@pytest.mark.parametrize("name", [name for name in NAMES if name.startswith("touches") and "sm_70" not in name])
def test_source_lines_of_relocated_images(name: str) -> None:
    image = of_image(relocated(name))
    lines = [line for line in told(name) if line.line is not None]
    assert len({line.line for line in lines}) > 15
    for line in lines:
        assert image.instruction(BASE + line.offset, SIZE) == line.code
        (place,) = image.places(BASE + line.offset)
        assert (place.file, place.line) == ("/srv/touches.cu", line.line), line


def dumped(name: str, line: Line, registers: list[int], uniform: list[int], instruction_size: int = SIZE) -> Gpu:
    """The recorded dump of an illegal address as of a GPU of this architecture, whose kernel failed at this instruction."""
    number = f"sm_{architecture(name)}".encode()

    def change(kind: int, row: list[int], content: bytes) -> tuple[list[int], bytes]:
        new = bytearray(content)
        if row[1] == 3 and b"sm_90\0" in content:  # the strings: at the end, with room for a longer name
            return row, content + number + b"\0"
        if kind == layout.DEVICES:
            for at in range(0, len(new), row[9]):
                struct.pack_into("<Q", new, at + 16, strings)
                struct.pack_into("<I", new, at + 64, instruction_size)
        elif kind == layout.GRIDS:
            for at in range(0, len(new), row[9]):
                struct.pack_into("<Q", new, at + 24, BASE)
        elif kind == layout.SMS:
            for at in range(0, len(new), row[9]):
                if struct.unpack_from("<I", new, at + 8)[0]:
                    struct.pack_into("<Q", new, at + 16, BASE + line.offset)
        elif kind == layout.WARPS:
            for at in range(0, len(new), row[9]):
                if struct.unpack_from("<I", new, at + 24)[0]:
                    struct.pack_into("<Q", new, at, BASE + line.offset)
        elif kind == layout.LANES:
            for at in range(0, len(new), row[9]):
                struct.pack_into("<Q", new, at, BASE + line.offset + SIZE)
        elif kind == layout.REGISTERS:
            return row, struct.pack("<256I", *registers)
        elif kind == layout.UNIFORM_REGISTERS:
            return row, struct.pack("<64I", *uniform)
        elif kind == layout.RELOCATED_IMAGE:
            return row, relocated(name)
        return row, bytes(new)

    raw = data("null_store")
    strings = next(len(content) for content in _strings(raw))
    return described(changed(raw, change))


def _strings(raw: bytes) -> list[bytes]:
    found = []

    def note(kind: int, row: list[int], content: bytes) -> tuple[list[int], bytes]:
        found.extend([content] if kind == 3 and b"sm_90\0" in content else [])
        return row, content

    changed(raw, note)
    return found


def at(name: str, start: str) -> Line:
    return next(line for line in told(name) if re.match(start, line.text))


@pytest.mark.parametrize("name", [name for name in NAMES if name.startswith("touches")])
def test_dumps_of_other_architectures(name: str) -> None:
    """The address, the instruction, and but for sm_70, whose truth has none, the line: of a store and of a multiplied shared address."""
    registers = [0x10 + 0x01010100 * number for number in range(256)]
    uniform = [0x20000 + 0x00101010 * number for number in range(64)]
    for start, space in ((r"STG\.E\.128", "global"), (r"ATOMG\.E\.ADD", "global"), (r"STS ", "shared"), (r"ST\.E", "generic")):
        line = at(name, start)
        gpu = dumped(name, line, registers, uniform)
        first = gpu.exceptions[0]
        assert [device.sm for device in gpu.devices] == [f"sm_{architecture(name)}"]
        assert (first.name, first.kernel, first.space, first.offset) == ("WARP_ILLEGAL_ADDRESS", "touches", space, line.offset)
        assert line.line is None or (first.file, first.line) == ("/srv/touches.cu", line.line)
        if space == "shared":
            wanted: int | None = line.address(registers, uniform)
            assert wanted == first.address
        assert _address(first) == (line.address(registers, uniform) if "ATOM" not in start else _address(first))


def _address(exception: GpuException) -> int | None:
    return None if exception.address is None else int(exception.address)


def test_an_architecture_with_other_instructions() -> None:
    """Before sm_70 an instruction has eight bytes: what it did is not told, everything else is."""
    name = NAMES[0].replace("atomics", "touches")
    line = at(name, r"STG\.E\.128")
    first = dumped(name, line, [0] * 256, [0] * 64, instruction_size=8).exceptions[0]
    assert (first.kernel, first.instruction, first.address, first.access) == ("touches", None, None, None)


def test_what_a_warp_waits_for_is_known_everywhere() -> None:
    for name in (name for name in NAMES if name.startswith("touches")):
        found = decode(at(name, r"BAR\.").code, architecture(name))
        assert found is not None and WAITS[found.name] == "barrier"


@pytest.mark.parametrize("name", NAMES)
def test_where_a_thread_may_go_on(name: str) -> None:
    """Behind a branch, wherever that leads, and behind no EXIT without a condition."""
    lines = told(name)
    code = range(0, lines[-1].offset + SIZE, SIZE)
    targets = set()
    for line in lines:
        goes_on = {line.offset + SIZE + behind for behind in followers(line.code, architecture(name))}
        if line.name.partition(".")[0] == "BRA":
            # Where the text has a label, the label's place is not told.
            target = re.search(r" (0x[0-9a-f]+)$", line.text)
            (went,) = goes_on - {line.offset + SIZE}
            assert went == int(target[1], 16) if target else went in code, line
            targets.add((went > line.offset) - (went < line.offset))
        else:
            assert goes_on == (set() if line.text == "EXIT" else {line.offset + SIZE}), line
    # All end with a branch to itself.
    assert targets >= {0} and (1 in targets or not name.startswith("atomics"))


@pytest.mark.parametrize("name", NAMES)
def test_what_an_instruction_writes_takes_the_place_of_an_address(name: str) -> None:
    """As nvdisasm names its first operand: nothing that writes an address's register is said to keep it."""
    checked = 0
    for line in told(name):
        first = re.match(r"(?:U?PT?\d?, )*(U?R)(\d+)\b", line.text.removeprefix(line.text.partition(line.name)[0]).partition(" ")[2])
        if first is None or re.match(r"(ST|RED)[GLS]?\.|STS|STL|\w*SETP|PLOP3|R2P", line.name):
            continue
        number = int(first[2])
        address = Operation("x", "write", "global", uniform=number, wide=True) if first[1] == "UR" else Operation("x", register=number)
        checked += 1
        assert not address.keeps_address(line.code, architecture(name)), line
    assert checked > 10
