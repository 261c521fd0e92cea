"""`make fuzz`: coverage-guided fuzzing of each reader with Atheris, or random changes of the seeds where Atheris does not install.

    python -m tests.fuzzing [--runs N] [READER...]

A find (an exception, over ten seconds, over 2 GB) is cut down and kept in fixtures/fuzz/READER-HASH, which tests/test_fuzz.py runs
from then on. Expected errors (CrashkitError) are no finds; soft errors of the net are.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import importlib.util
import io
import os
import random
import re
import struct
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from crashkit.crashfolder.bundle import read_bundle_manifest
from crashkit.crashfolder.manifest import read_manifest
from crashkit.debugger.gdb import rows as gdb_rows
from crashkit.debugger.gdb.process import _parsed
from crashkit.debugger.gdb.session import NativeResult, PythonResult, decoded
from crashkit.debugger.pystack import rows as pystack_rows
from crashkit.diagnose import diagnose, load_catalog
from crashkit.diagnose.fingerprint import fingerprint
from crashkit.elf import notes
from crashkit.elf.core_head import read_head
from crashkit.elf.file import read_elf
from crashkit.elf.headers import SHT_NOBITS, of_bytes, read_header, read_sections
from crashkit.elf.symbols import SymbolTable
from crashkit.elf.unwind_table import UnwindTable
from crashkit.errors import CrashkitError
from crashkit.evidence.archive import Budget, unpack
from crashkit.evidence.archive_kind import archive_kind
from crashkit.evidence.core.core import open_core
from crashkit.evidence.core.describe import describe
from crashkit.evidence.flight_recorder import is_recording, read_recording
from crashkit.evidence.gpu.allocator import is_snapshot, read_snapshot
from crashkit.evidence.gpu.describe import describe_dump
from crashkit.evidence.gpu.dump import open_dump
from crashkit.evidence.input import Input, Limits, open_input
from crashkit.evidence.module_files import Finder
from crashkit.evidence.pieces import add_manifest
from crashkit.evidence.text import formats
from crashkit.evidence.text.log import crash_of_log, read_log_input
from crashkit.job.join import join
from crashkit.model import (
    Address,
    Crash,
    Gpu,
    GpuException,
    LogLine,
    Module,
    NativeFrame,
    Process,
    PythonFrame,
    Signal,
    SoftError,
    Source,
    Thread,
)
from crashkit.report import json as report_json
from crashkit.report import safe, text
from crashkit.report.renderer import renderer
from crashkit.shorten import shortened

ROOT = Path(__file__).parent.parent
FINDS = ROOT / "fixtures" / "fuzz"
SECONDS, MEGABYTES, LONGEST = 10, 2048, 8192

READERS: dict[str, Callable[[bytes], object]] = {}


def reader(function: Callable[[bytes], object]) -> Callable[[bytes], object]:
    READERS[function.__name__] = function
    return function


def finished(crash: Crash, diagnosed: bool = True) -> Crash:
    """What the pipeline does after a reader, without its net."""
    crash = shortened(crash)
    if diagnosed:
        crash = diagnose(replace(crash, fingerprint=fingerprint(crash)), load_catalog())
    assert not [error for error in crash.soft_errors if " failed: " in error.message], crash.soft_errors
    document = report_json.encode(crash)
    report_json.decode(document)
    return crash


def memory_file(data: bytes) -> int:
    descriptor = os.memfd_create("fuzz")
    os.write(descriptor, data)
    return descriptor


@reader
def core_head(data: bytes) -> object:
    descriptor = memory_file(data)
    try:
        return read_head(descriptor)
    finally:
        os.close(descriptor)


@reader
def core_notes(data: bytes) -> object:
    from crashkit.elf.headers import Word

    word = Word(8 if data[:1] < b"\x80" else 4, "<" if data[1:2] < b"\x80" else ">")
    parts = list(notes.split(data[2:], word.order))
    for _, _, payload in [*parts, ("", 0, data[2:])]:
        notes.status(payload, word, tuple(map(str, range(27))))
        notes.process_info(payload, word)
        notes.signal_info(payload, word)
        notes.auxiliary_vector(payload, word)
        notes.file_mappings(payload, word)
    return notes.build_id(data[2:], word.order)


@reader
def core(data: bytes) -> object:
    """Described without a debugger."""
    place = Path("/proc/self/core-that-is-not-there")
    with suppress(CrashkitError):
        opened = open_core(io.BytesIO(data), place, len(data))
        if opened is not None:
            source = Input(file=io.BytesIO(data), path=place, size=len(data), original=place, original_size=len(data))
            return finished(describe(opened, source, Finder()).crash)
    return None


GPU_CORES = ("asserts", "cupy_misaligned", "compiled_beyond", "native_hang")


@cache
def gpu_core_parts(name: str) -> tuple[bytes, list[tuple[int, int]]]:
    """A real GPU core, and where its headers and tables lie: offset and size."""
    raw = gzip.decompress((ROOT / "fixtures" / "gpu" / "dumps" / "cores" / f"{name}.nvcudmp.gz").read_bytes())
    header = read_header(of_bytes(raw))
    assert header is not None
    table = header.sections
    sections = read_sections(of_bytes(raw), header)
    contents = [(section.offset, section.size) for section in sections if section.size > 0 and section.kind != SHT_NOBITS]
    return raw, [(0, 64), (table.offset, 64 * table.entries), *contents]


@reader
def gpu_core(data: bytes) -> object:
    """A real GPU core with eight bytes changed in some places: the first byte chooses it, each 12 bytes one place."""
    raw, parts = gpu_core_parts(GPU_CORES[data[0] % len(GPU_CORES) if data else 0])
    changed = bytearray(raw)
    for part, offset, value in struct.iter_unpack("<HHQ", data[1 : 1 + (len(data) - 1) // 12 * 12] if data else b""):
        begin, size = parts[part % len(parts)]
        at = begin + offset % max(1, size - 7)
        changed[at : at + 8] = value.to_bytes(8, "little")
    del changed[len(raw) :]
    dump = open_dump(of_bytes(bytes(changed)), len(raw))
    if dump is None:
        return None
    source = Source(path="x.nvcudmp", kind="gpu-core", size=len(raw))
    return finished(Crash(source=source, gpu=(describe_dump(dump, Path("x.nvcudmp")),)), diagnosed=len(data) % 8 == 0)


@reader
def elf_file(data: bytes) -> object:
    elf = read_elf(of_bytes(data))
    if elf is None:
        return None
    unwind = UnwindTable(data, elf)
    table = SymbolTable(data, elf.sections, unwind)
    table.find("main")
    return table.names([0, 0x1000, 0x400000, *(section.address for section in elf.sections[:9])]), unwind.function(0x1000)


def of_text(data: bytes) -> object:
    place = Path("log")
    source = Input(file=io.BytesIO(data), path=place, size=len(data), original=place, original_size=len(data))
    with suppress(CrashkitError):
        # Signatures take ten times as long as the reader: one input in eight is enough for them.
        return finished(crash_of_log(place, read_log_input(source, ["marker [a-z]+ text"])), diagnosed=len(data) % 8 == 0)
    return None


def add_texts() -> None:
    """One reader for each format: they differ in their seeds and in the first line that opens the format."""
    openers = {
        "faulthandler": b"Fatal Python error: Segmentation fault\n\n",
        "traceback": b"Traceback (most recent call last):\n",
        "gdb_text": b"Thread 1 (LWP 7):\n",
        "csan": b"CSAN detected a possible data race on tensor with data pointer 140\n",
        "asan": b"==7==ERROR: AddressSanitizer: SEGV on unknown address 0x000000000000\n",
        "compute_sanitizer": b"========= Invalid __global__ read of size 4 bytes\n",
        "log_lines": b"",
    }
    for format in formats.FORMATS:
        if not any(text.encode() in line for text in format.openers for line in openers.values()):
            openers[opening_name(format)] = f"7 {format.openers[0]} 7\n".encode()
    for name, opener in openers.items():
        READERS[name] = lambda data, opener=opener: of_text(opener + data)  # type: ignore[misc]


def opening_name(format: formats.Format[Any]) -> str:
    """What the reader of a format is called that has no name above: after the text that opens it."""
    return "opens_" + re.sub(r"\W+", "_", format.openers[0]).strip("_").lower()[:40]


add_texts()


@reader
def manifest(data: bytes) -> object:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        Path(folder, "manifest.json").write_bytes(data)
        found = read_manifest(Path(folder))
        with suppress(CrashkitError):
            from contextlib import ExitStack

            from crashkit.evidence.pieces import sort_out

            with ExitStack() as stack:
                sort_out([Path(folder)], stack)
        return None if found is None else finished(add_manifest(Crash(source=Source(path=folder, kind="folder")), found))


@reader
def signatures(data: bytes) -> object:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        Path(folder, "mine.toml").write_bytes(data)
        with suppress(CrashkitError):
            return load_catalog([Path(folder)])
    return None


@reader
def gdb_records(data: bytes) -> object:
    with suppress(CrashkitError):
        return _parsed(data)
    return None


@reader
def gdb_rows_(data: bytes) -> object:
    """What our scripts inside gdb wrote, as the session reads it."""
    threads = (Thread(tid=1, pthread=Address(16)), Thread(tid=2))
    with suppress(CrashkitError):
        native = gdb_rows.native_stacks(decoded(data, NativeResult))
        finished(Crash(threads=tuple(Thread(tid=tid, frames=(*stack.frames, *stack.outer)) for tid, stack in native.items())))
    with suppress(CrashkitError):
        python = gdb_rows.python_stacks(decoded(data, PythonResult), threads)
        finished(Crash(threads=tuple(Thread(tid=tid, name=stack.name, frames=stack.frames) for tid, stack in python.items())))
    return None


@reader
def pystack_rows_(data: bytes) -> object:
    """Rows of the worker's form with any strings and numbers."""
    words = data.decode("utf-8", "surrogateescape").split("\0") * 9
    numbers = [int.from_bytes(data[index : index + 9], "little", signed=True) for index in range(0, 60, 4)]
    frame = {"function": words[0], "file": words[1], "line": numbers[0], "entry": True, "args": words[2:5], "locals": {words[5]: words[6]}}
    native = {"pc": numbers[1], "function": words[7], "file": words[8], "line": numbers[2], "module": words[0]}
    row: dict[str, Any] = {
        "tid": numbers[3],
        "gil": numbers[4],
        "version": [3, 11],
        "total": abs(numbers[5]),
        "inner": [frame],
        "outer": [],
    }
    row |= {"native_total": 1, "native_inner": [native], "native_outer": []}
    stacks = pystack_rows.python_stacks([row]), pystack_rows.native_stacks([row])
    return finished(Crash(threads=tuple(Thread(tid=tid, frames=stack.frames) for one in stacks for tid, stack in one.items())))


_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


@reader
def reports(data: bytes) -> object:
    """Every renderer, with hostile names everywhere."""
    words = data.decode("utf-8", "surrogateescape").split("\0") * 9
    number = int.from_bytes(data[:7], "little")
    frames = (
        NativeFrame(function=words[0], file=words[1], line=number, module=words[2], pc=Address(number), args={words[3]: words[4]}),
        PythonFrame(
            function=words[5], file=words[6], line=1, source=words[7], context=(words[8],), context_start=1, locals={words[0]: words[1]}
        ),
    )
    crash = Crash(
        id=words[0],
        source=Source(path=words[1], kind="core"),
        process=Process(pid=number, executable=words[2], argv=tuple(words[:4]), environment={words[3]: words[4]}),
        signal=Signal(number=11, name="SIGSEGV", detail=words[4]),
        threads=(Thread(tid=1, name=words[5], crashed=True, frames=frames), Thread(tid=2, name=words[6], frames=frames)),
        modules=(Module(path=words[7], base=Address(0)),),
        log=(LogLine(text=words[8], kind="terminate", fields={"type": words[0]}),),
        soft_errors=(SoftError(stage="log", message=words[1], hint=words[2]),),
    )
    crash = finished(crash)
    page = renderer("html").render(crash).decode("utf-8", "replace")
    assert page.count("<script") == PAGE.count("<script") and page.count("<style") == PAGE.count("<style")
    renderer("markdown").render(crash)
    rows = list(text.summary(crash, Path("report.html"), color=False, width=80))
    assert not [row for row in rows if _CONTROL.search(row)]
    return [safe.line(word) for word in words[:9]]


PAGE = renderer("html").render(Crash(threads=(Thread(tid=1, crashed=True),), log=(LogLine(text="x"),))).decode()


@reader
def report_documents(data: bytes) -> object:
    with suppress(CrashkitError):
        return report_json.encode(shortened(report_json.decode(data)))
    return None


@reader
def compressed(data: bytes) -> object:
    limits = Limits(memory=4 << 20, size=16 << 20, folder=Path("/dev/shm"), disk_reserve=1 << 60)
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        place = Path(folder, "input")
        place.write_bytes(data)
        with suppress(CrashkitError), open_input(place, limits) as opened:
            return opened.size
    return None


@reader
def flight_recorder(data: bytes) -> object:
    """A flight recorder's dump: a pickle from which nothing may be loaded, or JSON; and the job that it tells of."""
    file = io.BytesIO(data)
    is_recording(file)
    with suppress(CrashkitError):
        recording = read_recording(file, "fr_1")
        found = join((), (recording,))
        return finished(Crash(job=found.job if found else None), diagnosed=len(data) % 8 == 0)
    return None


@reader
def allocator(data: bytes) -> object:
    """A snapshot of torch's allocator: a pickle from which nothing may be loaded; and what it says of an address."""
    file = io.BytesIO(data)
    is_snapshot(file)
    with suppress(CrashkitError):
        snapshot = read_snapshot(file, "snapshot.pickle")
        places = [one.address for one in (*snapshot.blocks[:4], *snapshot.events[:4])]
        exceptions = tuple(GpuException(name="x", memory=snapshot.memory(place + 1)) for place in (0, *places))
        return finished(Crash(gpu=(Gpu(exceptions=exceptions),)), diagnosed=len(data) % 8 == 0)
    return None


@reader
def archive(data: bytes) -> object:
    """A tar or zip archive; nothing may come out of the folder."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as place:
        (Path(place) / "x").write_bytes(data)
        folder = Path(place) / "folder"
        folder.mkdir()
        if archive_kind(Path(place) / "x") is not None:
            unpack(Path(place) / "x", folder, Budget(1 << 20, 100))
        assert sorted(path.name for path in Path(place).iterdir()) == ["folder", "x"]
        return read_bundle_manifest(folder)


# --- seeds


def seeds(name: str) -> Iterator[bytes]:
    """Inputs to begin with: real ones where there are any."""
    from tests.evidence import synthetic

    logs = [path.read_bytes()[:LONGEST] for path in sorted((ROOT / "fixtures").glob("*logs/*"))[:20] if path.is_file()]
    logs += [path.read_bytes()[:LONGEST] for path in sorted((ROOT / "fixtures" / "gpu" / "logs").glob("*.log"))]
    core_bytes = small_core()
    document = report_json.encode(Crash(threads=(Thread(tid=1, frames=(NativeFrame(function="f", pc=Address(1)),)),)))
    known: dict[str, list[bytes]] = {
        "core": [core_bytes, synthetic.aarch64()[:LONGEST]],
        "core_head": [core_bytes],
        "core_notes": [b"\0\0" + core_bytes[64 + 56 * 3 :]],
        "gpu_core": [bytes([number]) + random.Random(number).randbytes(36) for number in range(len(GPU_CORES))],
        "flight_recorder": [path.read_bytes() for path in sorted((ROOT / "fixtures" / "jobs" / "nccl").glob("fr-*/fr_*"))],
        "allocator": [path.read_bytes() for path in sorted((ROOT / "fixtures" / "gpu" / "runs" / "snapshots").iterdir())],
        "archive": list(small_archives()),
        "elf_file": [small_library()],
        "manifest": [
            b'{"schema":"crashkit.manifest/1","pid":7,"signal":9,"killed":{"by":"oom","evidence":["oom_kill 1"]},"argv":["a"],'
            b'"files":[{"name":"core","kind":"core"}],"notes":["n"],"environment":{"A":"b"}}'
        ],
        "signatures": [
            b'[[signature]]\nid = "a-b"\ntitle = "t"\nseverity = "low"\nsummary = ["s"]\ncause = "c"\nfix = ["f"]\n'
            b'[[signature.rule]]\nconfidence = "likely"\nall = [{ log = "*", pattern = "some text" }, { frames = ["f.*"] }]\n'
        ],
        "gdb_records": [b'1^done,features=["python",{a="b"}]', b'^error,msg="x\\"y"'],
        "gdb_rows_": [
            b'{"threads":[{"lwp":1,"frames":[{"pc":1,"kind":"normal","function":"f","sp":16,"args":{"a":"b"}}]}],"errors":["e"]}',
            b'{"gil":16,"threads":[{"ident":16,"lwp":1,"name":"n","frames":[{"function":"f","file":"a.py","line":3}]}]}',
        ],
        "reports": [b"<script>\0\x1b[31m\0</style>\0\xe2\x80\xae\0a::b<c>(d)\0/usr/lib/python3.11/x.py"],
        "report_documents": [document],
        "compressed": [__import__("gzip").compress(b"Fatal Python error: x\n"), __import__("lzma").compress(b"x" * 100)],
    }
    yield from known.get(name, logs)
    yield from (path.read_bytes() for path in sorted(FINDS.glob(f"{name}-*")))


def small_archives() -> Iterator[bytes]:
    for mode in ("w", "w:gz", "w:xz"):
        with io.BytesIO() as file, tarfile.open(fileobj=file, mode=mode, format=tarfile.PAX_FORMAT) as tar:
            for name in ("manifest.json", "évidence/" + "n" * 120, "evidence/core"):
                info = tarfile.TarInfo(name)
                info.size = 20
                tar.addfile(info, io.BytesIO(b'{"schema":"crashkit.'))
            link = tarfile.TarInfo("link")
            link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
            tar.addfile(link)
            tar.close()
            yield file.getvalue()
    with io.BytesIO() as file:
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as packed:
            packed.writestr("evidence/core", b"x" * 300)
            packed.writestr("../out", b"x")
        yield file.getvalue()


def small_core() -> bytes:
    from tests.evidence import synthetic

    registers = [0x400010] * 27
    all_notes = synthetic.prstatus(7, registers) + synthetic.prpsinfo(7) + synthetic.siginfo(11, 1, 0x18)
    all_notes += synthetic.auxv({3: 0x400040, 9: 0x400800, 25: 0x7FFD00000010}) + synthetic.file_note(
        [(0x400000, 0x401000, 0, b"/usr/bin/a")]
    )
    page = synthetic.header(62, 0, kind=3) + bytes(256)
    loads = [synthetic.Load(0x400000, page, 5), synthetic.Load(0x7FFD00000000, bytes(512), 6)]
    return synthetic.core(synthetic.EM_X86_64, all_notes, loads)


def small_library() -> bytes:
    """Headers, sections with names and symbols: the smallest ELF file with a table of functions."""
    import struct

    names = b"\0.symtab\0.strtab\0.text\0.shstrtab\0.gnu_debugdata\0"
    strings = b"\0main\0helper\0"
    symbols = bytes(24) + struct.pack("<IBBHQQ", 1, 0x12, 0, 3, 0x1000, 16) + struct.pack("<IBBHQQ", 6, 2, 0, 3, 0x1010, 0)
    parts = [(1, 2, 0, symbols, 2), (9, 3, 0, strings, 0), (17, 1, 6, bytes(64), 0), (23, 3, 0, names, 0)]
    at, body, table = 64, b"", bytes(64)
    for name, kind, flags, data, link in parts:
        address = 0x1000 if flags else 0
        table += struct.pack("<IIQQQQIIQQ", name, kind, flags, address, at + len(body), len(data), link, 0, 1, 24 if kind == 2 else 0)
        body += data
    head = b"\x7fELF\2\1\1" + bytes(9) + struct.pack("<HHIQQQIHHHHHH", 3, 62, 1, 0, 0, at + len(body), 0, 64, 56, 0, 64, 5, 4)
    return head + body + table


# --- running


def fails(name: str, data: bytes) -> bool:
    """Whether this input is a find."""
    began = time.process_time()
    try:
        READERS[name](data)
    except Exception:
        return True
    return time.process_time() - began > SECONDS


def smallest(name: str, data: bytes) -> bytes:
    """A find, with every part cut out that it does not need."""
    size = max(1, len(data) // 2)
    while size:
        at = 0
        while at < len(data):
            shorter = data[:at] + data[at + size :]
            if fails(name, shorter):
                data = shorter
            else:
                at += size
        size //= 2
    return data


def keep(name: str, data: bytes) -> Path:
    small = smallest(name, data)
    FINDS.mkdir(exist_ok=True)
    path = FINDS / f"{name}-{hashlib.sha256(small).hexdigest()[:10]}"
    path.write_bytes(small)
    return path


def with_atheris(name: str, runs: int, folder: Path) -> tuple[int, list[Path]]:
    """How many inputs were run, and what was found."""
    corpus, found = folder / "corpus", folder / "found"
    corpus.mkdir()
    found.mkdir()
    for index, seed in enumerate(seeds(name)):
        (corpus / str(index)).write_bytes(seed[:LONGEST])
    command = [sys.executable, "-m", "tests.fuzzing_child", name, f"-runs={runs}", f"-timeout={SECONDS}", f"-rss_limit_mb={MEGABYTES}"]
    command += [f"-max_len={LONGEST}", f"-artifact_prefix={found}/", "-print_final_stats=1", str(corpus)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, errors="replace")
    if done.returncode and not any(found.iterdir()):
        raise SystemExit(f"{name}: {done.stderr[-3000:]}")
    count = re.search(r"stat::number_of_executed_units: (\d+)", done.stderr)
    return int(count[1]) if count else runs, [keep(name, path.read_bytes()) for path in found.iterdir()]


def with_changes(name: str, runs: int) -> tuple[int, list[Path]]:
    """Random changes of the seeds."""
    chance = random.Random(runs)
    several = list(seeds(name))
    for number in range(runs):
        data = bytearray(chance.choice(several)[:LONGEST])
        for _ in range(chance.randrange(1, 6)):
            at = chance.randrange(len(data) + 1)
            change = chance.randrange(4)
            if change == 0:
                data[at : at + 1] = chance.randbytes(1)
            elif change == 1:
                data[at:at] = chance.choice((b"\0", b"\xff" * 8, b'"', b"(", b"9" * 40, b"\n", bytes(data[at : at + 32])))
            elif change == 2:
                del data[at : at + chance.randrange(1, 64)]
            else:
                data[at:at] = bytes(data[: chance.randrange(1, 256)])
        if fails(name, bytes(data)):
            return number + 1, [keep(name, bytes(data))]
    return runs, []


def main() -> int:
    parser = argparse.ArgumentParser(description="Fuzz the readers.")
    parser.add_argument("--runs", type=int, default=10_000, help="inputs for each reader")
    parser.add_argument("readers", nargs="*", metavar="READER", help=", ".join(READERS))
    options = parser.parse_args()
    guided = importlib.util.find_spec("atheris") is not None
    print(f"{'Atheris' if guided else 'random changes (no Atheris here)'}, Python {sys.version.split()[0]}", flush=True)
    total = []
    for name in options.readers or READERS:
        began = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            count, found = with_atheris(name, options.runs, Path(folder)) if guided else with_changes(name, options.runs)
        total += found
        print(f"{name:18} {count:>7,} inputs {time.monotonic() - began:6.0f} s  {len(found)} finds {' '.join(map(str, found))}", flush=True)
    return bool(total)


if __name__ == "__main__":
    sys.exit(main())
