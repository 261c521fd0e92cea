"""Inputs of at most 10 MB that ask for more than they are worth: each was, or could have been, a report of gigabytes or a hang."""

from __future__ import annotations

import json
import struct
import sys
from collections.abc import Callable
from pathlib import Path

from crashkit.crashfolder.manifest import SCHEMA
from crashkit.evidence.gpu import layout
from tests.evidence.synthetic import EM_X86_64, Load, auxv, core, file_note, header, note, program_header, prpsinfo, prstatus, siginfo

MOST = 10 << 20
STACK = 0x7FFD_0000_0000
REGISTERS = [0x10 * number for number in range(27)]
NOTES = prstatus(4242, REGISTERS) + prpsinfo(4242) + siginfo(11, 1, 0x18)

HOSTILE: dict[str, Callable[[Path], list[str]]] = {}
"""By name: writes the input into this folder, and returns the arguments of `crashkit analyze`."""


def hostile(make: Callable[[Path], bytes | list[str]]) -> Callable[[Path], bytes | list[str]]:
    def arguments(folder: Path) -> list[str]:
        made = make(folder)
        if isinstance(made, list):
            return made
        assert len(made) <= MOST * 1.1 or not made.startswith(b"\x7fELF"), make.__name__
        (folder / "input").write_bytes(made[:MOST])
        return [str(folder / "input")]

    HOSTILE[make.__name__] = arguments
    return make


# --- text


@hostile
def faulthandler_names(_folder):
    name = "f" * 60_000
    return (
        "Fatal Python error: Aborted\n\nCurrent thread 0x01 (most recent call first):\n" + f'  File "{name}", line 1 in x\n' * 170
    ).encode()


@hostile
def faulthandler_frames(_folder):
    name = "f" * 9000
    threads = "".join(
        f"Thread 0x{index:016x} (most recent call first):\n" + f'  File "{name}", line 1 in {name[:5000]}\n' * 7 for index in range(100)
    )
    return f"Fatal Python error: Aborted\n\n{threads}".encode()


@hostile
def faulthandler_threads(_folder):
    thread = "Thread 0x%016x (most recent call first):\n" + '  File "/a.py", line 1 in f\n' * 6 + "\n"
    return ("Fatal Python error: Aborted\n\n" + "".join(thread % index for index in range(48_000))).encode()


@hostile
def gdb_names(_folder):
    arguments = ", ".join(f"a{index}={{{{b = 1" for index in range(500))
    frame = f"#{{0}}  0x000000000040{{0:04x}} in {'n' * 9000} ({arguments}) at {'p' * 2000}.c:1\n"
    return ("Thread 1 (LWP 7):\n" + "".join(frame.format(index) for index in range(600))).encode()


@hostile
def gdb_threads(_folder):
    return "".join(
        f"Thread {index} (LWP {index}):\n#0  0x{index:x} in f ()\n#1  0x{index:x} in g ()\n" for index in range(1, 150_000)
    ).encode()


@hostile
def macos_report(_folder):
    frame = b'{"imageOffset":1,"imageIndex":0,"symbol":"' + b"s" * 400 + b'"}'
    thread = b'{"id":1,"frames":[' + b",".join([frame] * 100) + b"]}"
    head = (
        b'{"bug_type":"309","os_version":"macOS"}\n{"exception":{"type":"EXC_BAD_ACCESS","signal":"SIGSEGV"},"usedImages":[{"name":"n"}],'
    )
    return head + b'"faultingThread":0,"threads":[' + b",".join([thread] * 220) + b"]}"


@hostile
def macos_report_in_pieces(_folder):
    line = b'{"imageOffset":1,"symbol":"{{{' * 500 + b'"frames":[' + b'"imageOffset" {"symbol":"' * 100
    return b'{"bug_type":"309","os_version":"macOS"}\n"exception" : {"type":"EXC_BAD_ACCESS","signal":"SIGSEGV"}\n' + (line + b"\n") * 550


@hostile
def traceback_names(_folder):
    name = "f" * 8000
    trace = "Traceback (most recent call last):\n" + f'  File "{name}", line 1, in {name}\n    {name}\n' * 40 + f"ValueError: {name}\n"
    return (trace * 10).encode()


@hostile
def one_line(_folder):
    return b"Fatal Python error: " + b"a" * (MOST - 20)


@hostile
def one_line_of_escapes(_folder):
    return b"Fatal Python error: x\n" + b"\x1b[" * (MOST // 2 - 22)


@hostile
def lines_of_beginnings(_folder):
    """The beginning of each pattern of log lines, over and over."""
    parts = (b"a:0: a: Assertion `", b"CUDA_a.so: undefined symbol ", b"/x.so.so.so.so: undefined symbol: ", b"ubsan a:1:1: runtime error")
    lines = [(part * (16_000 // len(part)))[:16_000] + b"\n" for part in parts]
    return b"".join(lines) * (MOST // sum(map(len, lines)))


@hostile
def traceback_of_capitals(_folder):
    lines = b"Traceback (most recent call last):\n" + b'  File "a.py", line 1, in f\n' + b"aG" * 8000 + b"\x01\n" + b"-" * 16_000 + b"x\n"
    return lines * (MOST // len(lines))


@hostile
def numbers(_folder):
    digits = "9" * 5000
    lines = (
        f'Traceback (most recent call last):\n  File "a.py", line {digits}, in f\nValueError: x',
        f"Thread {digits} (LWP {digits}):\n#{digits}  0x{digits} in f () at a.c:{digits}\n#0  0x{digits} in f () at a.c:{digits}",
        f'Fatal Python error: x\n\nCurrent thread 0x{digits} (most recent call first):\n  File "a.py", line {digits} in f',
        f"python[{digits}]: segfault at {digits} ip {digits} sp {digits} error {digits}",
        f"Signal {digits} (SIGSEGV) received by PID {digits}",
        f"(exitcode: -{digits}) local_rank: {digits} (pid: {digits})",
        f"=={digits}==ERROR: AddressSanitizer: SEGV on unknown address 0x{digits}\n    #0 0x{digits} in f a.c:{digits}:{digits}",
        f"DataLoader worker (pid(s) {digits}) exited unexpectedly",
        f"Out of memory: Killed process {digits} (a)",
    )
    return "\n".join(lines).encode() + b"\n"


@hostile
def docker_nesting(_folder):
    return b"Fatal Python error: x\n" + (b'{"log":"Fatal Python error: y","a":' + b"[" * 16_000 + b"\n") * 600


# --- crash folders


def manifest(folder: Path, **fields: object) -> list[str]:
    (folder / "crash").mkdir()
    (folder / "crash" / "manifest.json").write_text(json.dumps({"schema": SCHEMA, "signal": 11, "pid": 7, **fields}))
    (folder / "crash" / "stderr.log").write_text("Fatal Python error: Segmentation fault\n")
    return [str(folder / "crash")]


@hostile
def manifest_name(folder):
    return manifest(
        folder, files=[{"name": "n" * 5000, "kind": "core"}, {"name": "a\0b", "kind": "log"}, {"name": "stderr.log", "kind": "log"}]
    )


@hostile
def manifest_values(folder):
    return manifest(folder, argv=["a" * 900_000] * 2, notes=["n" * 1000] * 1000, environment={"e" * 500_000: "v" * 500_000}, pid=10**40)


@hostile
def manifest_nesting(folder):
    arguments = manifest(folder)
    (Path(arguments[0]) / "manifest.json").write_text("[" * 4_000_000)
    return arguments


# --- cores


@hostile
def segments(_folder):
    loads = [Load(0x1000 * (2 * index + 1), b"", 6, 0x1000) for index in range(180_000)]
    return core(EM_X86_64, NOTES, loads, many=True)


@hostile
def mappings(_folder):
    return core(EM_X86_64, NOTES + file_note([(0x1000 * index, 0x1000 * index + 0x1000, 0, b"/") for index in range(1, 390_000)]))


@hostile
def mapping_paths(_folder):
    rows = [(0x1000 * index, 0x1000 * index + 0x1000, 0, b"/%04d" % index + b"/a" * 2000) for index in range(1, 2500)]
    return core(EM_X86_64, NOTES + file_note(rows), [Load(0x1000, b"", 5, 0x1000 * 2500)])


@hostile
def mapping_path_in_sysroot(folder):
    rows = [(0x1000 * index, 0x1000 * index + 0x1000, 0, b"/a" * parts) for index, parts in ((1, 60_000), (2, 2000), (3, 100))]
    (folder / "core").write_bytes(core(EM_X86_64, NOTES + file_note(rows), [Load(0x1000, b"", 5, 0x3000)]))
    root = folder / "root"
    for _ in range(100):
        root.mkdir()
        root /= "a"
    return [str(folder / "core"), "--sysroot", str(folder / "root")]


@hostile
def mapping_paths_in_sysroot(folder):
    rows = [(0x1000 * index, 0x1000 * index + 0x1000, 0, b"/a" * 120 + b"/%d" % index) for index in range(1, 20_000)]
    (folder / "core").write_bytes(core(EM_X86_64, NOTES + file_note(rows), [Load(0x1000, b"", 5, 0x1000 * 20_000)]))
    root = folder / "root"
    for _ in range(122):
        root.mkdir()
        root /= "a"
    return [str(folder / "core"), "--sysroot", str(folder / "root")]


@hostile
def threads(_folder):
    return core(EM_X86_64, NOTES + b"".join(prstatus(index, REGISTERS) for index in range(1, 28_000)))


@hostile
def short_threads(_folder):
    return core(EM_X86_64, NOTES + b"".join(note(b"CORE", 1, struct.pack("<32xi", index)) for index in range(1, 180_000)))


def stack_with(arguments: int, text: bytes) -> bytes:
    """A core whose main stack has this many pointers to one text, as arguments and as environment."""
    vector = {25: STACK + 0x1000, 3: 0x400040, 9: 0x400800, 6: 4096, 33: 1, 16: 2, 17: 3}
    raw = b"".join(struct.pack("<QQ", *pair) for pair in {**vector, 0: 0}.items())
    strings = STACK + 0x20000
    pointers = struct.pack(f"<{arguments + 1}Q", *[strings] * arguments, 0)
    data = bytearray(0x20000 + len(text) + 1)
    data[0x20000:] = text + b"\0"
    block = struct.pack("<Q", arguments) + pointers + pointers + raw
    data[0x1000 : 0x1000 + len(block)] = block
    return core(EM_X86_64, NOTES + auxv(vector), [Load(STACK, bytes(data), 6)])


@hostile
def arguments_to_one_string(_folder):
    return stack_with(4000, b"x=" + b"A" * (127 << 10))


@hostile
def secret_arguments(_folder):
    return stack_with(4000, b"--token=" + b"eyJ-" * (31 << 10))


@hostile
def claimed_headers(_folder):
    data = bytearray(core(EM_X86_64, NOTES, [Load(0x1000, bytes(0x1000), 5)]))
    struct.pack_into("<H", data, 56, 65_000)
    return bytes(data)


@hostile
def filled_headers(_folder):
    loads = [Load(0x1000 * (2 * index + 1), b"", 6, 0x1000) for index in range(65_000)]
    return core(EM_X86_64, NOTES, loads)


def of_python(claimed: int, loads: int) -> bytes:
    """A core of this very interpreter, as far as its notes tell: PyStack is asked, too."""
    program = str(Path(sys.executable).resolve()).encode()
    rows = [(0x400000 + 0x1000 * index, 0x401000 + 0x1000 * index, index, program) for index in range(4)]
    notes = NOTES + auxv({3: 0x400040, 9: 0x400800}) + file_note(rows)
    first = [Load(0x400000, Path(program.decode()).read_bytes()[:0x4000], 5)]
    data = bytearray(core(EM_X86_64, notes, [*first, *(Load(0x1000000 + 0x2000 * index, b"", 6, 0x1000) for index in range(loads))]))
    struct.pack_into("<H", data, 56, claimed)
    return bytes(data)


@hostile
def claimed_headers_of_python(_folder):
    return of_python(65_000, 10)


@hostile
def filled_headers_of_python(_folder):
    return of_python(65_000, 64_998)


@hostile
def overlapping_notes(_folder):
    """Sixty thousand note segments that are all the same part of the file."""
    count, data = 60_000, NOTES + prstatus(1, REGISTERS) * 15_000
    at = 64 + 56 * count
    return header(EM_X86_64, count) + program_header(4, 0, at, 0, len(data), 0) * count + data


@hostile
def far_headers(_folder):
    return header(EM_X86_64, 3, table=1 << 62) + bytes(4096)


@hostile
def wide_sections(folder):
    """A module on disk whose section headers are said to be 65,535 bytes each."""
    elf = bytearray(header(EM_X86_64, 0, kind=3).ljust(MOST, b"\1"))
    struct.pack_into("<Q", elf, 40, 64)
    struct.pack_into("<HHH", elf, 58, 0xFFFF, 0xFFFF, 1)
    (folder / "lib.so").write_bytes(elf)
    rows = [(0x1000 * index, 0x1000 * index + 0x1000, 0, str(folder / "lib.so").encode()) for index in range(1, 400)]
    (folder / "core").write_bytes(core(EM_X86_64, NOTES + file_note(rows), [Load(0x1000, bytes(elf[:0x1000]) * 399, 5)]))
    return [str(folder / "core"), "--exe", str(folder / "lib.so")]


@hostile
def modules_in_memory(_folder):
    """Each page says it is a module with as many note segments as there can be."""
    page = header(EM_X86_64, 60, kind=3).ljust(64, b"\0") + program_header(4, 0, 0, 0, 4096, 4096) * 60
    count = 2400
    rows = [(0x1000 * index, 0x1000 * index + 0x1000, 0, b"/m%d" % index) for index in range(1, count)]
    return core(EM_X86_64, NOTES + file_note(rows), [Load(0x1000, page.ljust(4096, b"\0") * count, 5)])


@hostile
def auxiliary_vectors(_folder):
    entries = struct.pack("<QQ", 25, STACK) * 40_000
    return core(EM_X86_64, NOTES + note(b"CORE", 6, entries) * 15)


# --- GPU cores


def gpu_core(content: bytes, tables: list[tuple[int, int, int, int]]) -> bytes:
    """A GPU core whose tables (type, parent table, row of it, bytes of a row) are all the same part of the file."""
    row = struct.Struct("<IIQQQQIIQQ")
    first = row.pack(0, 0, 0, 0, 0, len(tables) + 1, 0, 0, 0, 0)
    rows = [row.pack(0, kind, 0, 0, 64, len(content), parent, number, 8, stride) for kind, parent, number, stride in tables]
    numbers = (4, layout.MACHINE, 1, 0, 0, 64 + len(content), 0, 64, 0, 0, 64, 0, 0)
    return b"\x7fELF\x02\x01\x01".ljust(16, b"\0") + struct.pack("<HHIQQQIHHHHHH", *numbers) + content + first + b"".join(rows)


@hostile
def gpu_multiprocessors(_folder):
    """Each says that it has an exception."""
    devices = [(layout.DEVICES, 0, 0, 64)]
    return gpu_core(b"\x0e" * 65_536, devices + [(layout.SMS, 1, number, 24) for number in range(150_000)])


@hostile
def gpu_threads(_folder):
    """Each with the exception of an address of its own."""
    lanes = b"".join(struct.pack("<4Q", number, 0, number << 32, 14 << 32) + bytes(8) for number in range(64))
    tables = [(layout.DEVICES, 0, 0, 64), (layout.SMS, 1, 0, 32), (layout.CTAS, 2, 0, 40)]
    tables += [(layout.WARPS, 3, number, 40) for number in range(64)]
    return gpu_core(lanes, tables + [(layout.LANES, 4 + number % 64, number // 64, 40) for number in range(150_000)])
