"""Reports of CSAN (torch.cuda._sanitizer), of ASan, TSan, MSan and UBSan (compiler-rt, libsanitizer), and of compute-sanitizer."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Optional

from msgspec.structs import replace

from crashkit.evidence.text.reader import Account, Format, Note, Reader, Telling
from crashkit.model import Address, NativeFrame, Offset, PythonFrame, Thread
from crashkit.naming.functions import printed_name, short_function
from crashkit.naming.handed import is_foreign_call
from crashkit.naming.machinery import is_machinery
from crashkit.naming.own_code import is_own

MOST_FRAMES = 400

_CSAN = re.compile(r"CSAN detected a possible data race on tensor with data pointer (?P<pointer>\d+)")
_ACCESS = re.compile(r"^(?P<previous>Access|Previous access) by stream (?P<stream>\d+) during kernel:$")
_ALLOCATED = "Tensor was allocated with stack trace:"
_PYTHON = re.compile(r'^\s*File "(?P<file>.*)", line (?P<line>\d+), in (?P<function>.*)$')
_EFFECT = re.compile(r"^(?:reading from|writing to) .*$")

_ASAN = re.compile(
    r"==(?P<pid>\d+)==\s?ERROR: (?:Address|Leak|HWAddress)Sanitizer: (?P<problem>[\w-]+)"
    r"(?:.*? on (?:unknown )?address (?P<address>0x[0-9a-f]+))?"
)
# A fault that one of them caught: sanitizer_common/sanitizer_symbolizer_report.cpp.
_FAULT = re.compile(
    r"==(?P<pid>\d+)==\s?ERROR: (?P<sanitizer>\w+Sanitizer): (?P<problem>(?P<signal>SEGV|BUS|FPE|ILL|ABRT|TRAP)) on unknown address"
    r"(?: (?P<address>0x[0-9a-f]+))?"
)
_CAUSED = re.compile(r"^==\d+==The signal is caused by a (?P<access>READ|WRITE) memory access\.")
HIGH_ADDRESS = "this fault was caused by a dereference of a high value address"
"""Its hint for a pointer that can be no address, which the kernel does not report: it prints 0 in its place."""
_HINTS = {"address points to the zero page": "in the zero page: the pointer was null", HIGH_ADDRESS: "no address of this machine"}
_MSAN = re.compile(r"==(?P<pid>\d+)==\s?WARNING: MemorySanitizer: (?P<problem>[\w-]+)")
# The first exception of a library that was loaded later than AddressSanitizer: asan/asan_interceptors.cpp.
_EXCEPTION = re.compile(r"AddressSanitizer: (?P<problem>CHECK failed): .{0,100}real___cxa_throw")
_TSAN = re.compile(r"WARNING: ThreadSanitizer: (?!missed expected)(?P<problem>[\w -]+?)(?: \(|$)")
_NATIVE = re.compile(r"^\s*#(?P<level>\d{1,9}) (?:0x(?P<pc>[0-9a-f]{1,16})(?: in |(?= )))?(?P<rest>.*\S)\s*$")
# ThreadSanitizer's frames have both, and `<null>` for a file that is not known.
_PLACE = re.compile(
    r"^(?P<function>.*?)(?= (?:[^\s()]+:\d|<null> \(|\([^()+]+\+0x))"
    r"(?: (?:(?P<file>[^\s()]+?):(?P<line>\d{1,9})(?::\d+)?|<null>))?(?: \((?P<module>[^()+]+)\+0x(?P<offset>[0-9a-f]{1,16})\).*)?$"
)
_OPERATION = re.compile(r"^\s*(?P<operation>READ|WRITE|Write|Read|Atomic write|Atomic read) of size (?P<size>\d+)")
# Before LLVM 16 and GCC 13: "to the left of" and "to the right of".
_LOCATED = re.compile(
    r"is located (?P<distance>\d{1,20}) bytes? (?P<side>before|after|inside of|to the (?:left|right) of) (?P<size>\d{1,20})-byte region"
)
_SIDE = {"to the left of": "before", "to the right of": "after", "inside of": "into"}
# Where that is which stands in the place of malloc() and memset(): since GCC 14 it has their names.
_SANITIZER = re.compile(r"/lib(?:asan|clang_rt\.asan)|/libsanitizer/|/compiler-rt/")
_BLOCK = re.compile(
    r"^(?:previously )?(?P<what>allocated|freed) by thread|^ *Uninitialized value was (?P<unset>created) by (?:a heap|an) allocation"
)
_OPERATOR = re.compile(r"operator (?:new|delete).*")
_SUMMARY = re.compile(r"^SUMMARY: \w+Sanitizer: (?P<problem>[A-Za-z]+(?:-[\w-]+))")
_END = re.compile(r"^(?:SUMMARY: \w+Sanitizer|==\d+==ABORTING|={60,}$)")

_DEVICE = re.compile(r"^=+ (?P<problem>(?:Invalid|Misaligned|Uninitialized|Leaked|Race reported|Potential|Barrier error|Program hit).*)$")
_DEVICE_AT = re.compile(r"^=+ +at (?P<kernel>.+?)(?:\+0x[0-9a-f]+)?(?: in (?P<place>\S+:\d+))?$")
_DEVICE_BY = re.compile(r"^=+ +by thread \((?P<thread>\d+,\d+,\d+)\) in block \((?P<block>\d+,\d+,\d+)\)")
_DEVICE_ADDRESS = re.compile(r"^=+ +(?:Address|Access at|Access to) (?P<address>0x[0-9a-f]+) (?P<detail>.*)$")


class StreamRace(Reader):
    """A CSAN report: `fields` has stream, operator, effect and place of both accesses, and the place of the tensor's allocation."""

    def __init__(self, match: re.Match[str]) -> None:
        self.fields = {"pointer": match["pointer"]}
        self._headline = match.string
        self._part = ""
        self._expects_operator = False

    def finish(self) -> tuple[Note, ...]:
        """One note of kind `csan`."""
        return (Note(self._headline, "csan", self.fields),)

    def feed(self, text: str) -> bool:
        """Take the next line; see `Reader.feed`."""
        text = text.strip()
        if match := _ACCESS.match(text):
            self._part = "previous_" if match["previous"].startswith("Previous") else ""
            self._expects_operator = True
            self.fields[self._part + "stream"] = match["stream"]
        elif text == _ALLOCATED:
            self._part = "allocation_"
        elif self._expects_operator and "(" in text:
            self._expects_operator = False
            self.fields[self._part + "operator"] = text
        elif _EFFECT.match(text):
            self.fields[self._part + "effect"] = text
        elif match := _PYTHON.match(text):
            self._place(match)
        else:
            return "possible data race" not in text and not text.startswith("Traceback")
        return True

    def _place(self, match: re.Match[str]) -> None:
        """The innermost frame of the user's own code: the last such line, as stacks are printed outermost first.

        CSAN's own frames end each stack, even if torch runs from a checkout.
        """
        if is_own(PythonFrame(file=match["file"], function=match["function"])) and "/torch/" not in match["file"]:
            self.fields[self._part + "place"] = f"{match['file']}:{match['line']} in {match['function']}"


class NativeReport(Reader):
    """An ASan, LSan or TSan report; its frames are those of its first stack.

    `fields` has problem and operation, where in a block of the heap that was, and the functions that allocated and freed the block.
    """

    def __init__(self, kind: str, match: re.Match[str]) -> None:
        self.kind = kind
        self.fields = {name: value for name, value in match.groupdict().items() if value}
        self._headline = match.string
        self._frames: list[NativeFrame] = []
        self._stack = 0
        self._owners: dict[str, list[NativeFrame]] = {}
        self._owner: list[NativeFrame] = []

    def finish(self) -> tuple[Note, ...]:
        """One note of kind `asan`, `asan-order`, `tsan`, `msan`, or `process-end` for a fault that another sanitizer caught."""
        if "freed" in self._owners and "where" in self.fields:
            self.fields["where"] = self.fields["where"].replace(" a block", " a freed block")
        self.fields |= {what: name for what, frames in self._owners.items() if (name := _owner(frames)) is not None}
        return (Note(self._headline, self.kind, self.fields),)

    def feed(self, text: str) -> bool:
        """Take the next line; see `Reader.feed`."""
        if self.ended:
            return False
        if match := _NATIVE.match(text):
            self._stack += match["level"] == "0"
            frame = _with_old_name(printed_frame(match["pc"], match["rest"]))
            if self._stack == 1 and len(self._frames) < MOST_FRAMES:
                self._frames.append(frame)
            if len(self._owner) < MOST_FRAMES:
                self._owner.append(frame)
            return True
        if match := _BLOCK.match(text):
            self._owner = self._owners.setdefault(match["what"] or match["unset"], [])
        elif match := _CAUSED.match(text):
            self.fields["operation"] = match["access"].lower()
        elif hint := next((where for words, where in _HINTS.items() if words in text), None):
            self.fields["where"] = hint
            if hint == _HINTS[HIGH_ADDRESS]:
                self.fields |= {"reason": HIGH_ADDRESS}
                self.fields.pop("address", None)
        elif match := _OPERATION.match(text):
            self.fields.setdefault("operation", f"{match['operation'].lower()} of {_bytes(int(match['size']))}")
        elif match := _LOCATED.search(text):
            self.fields.setdefault("where", _where(int(match["distance"]), match["side"], int(match["size"])))
        elif match := _SUMMARY.match(text):
            # Its name for it, where the first line has a sentence: "attempting free on address which was not malloc()-ed".
            self.fields["problem"] = match["problem"]
        self.ended = bool(_END.match(text))
        return True

    def thread(self) -> Thread:
        """The thread of the report, with the frames that are printed."""
        return Thread(crashed=True, frames=tuple(self._frames))


def _with_old_name(frame: NativeFrame) -> NativeFrame:
    """`__interceptor_memset` for what the sanitizer puts in the place of memset()."""
    of_sanitizer = _SANITIZER.search(frame.module or "") or _SANITIZER.search(frame.file or "")
    known = not frame.function or is_machinery(frame.function) or _OPERATOR.fullmatch(frame.function)
    return frame if known or not of_sanitizer else replace(frame, function=f"__interceptor_{frame.function}")


def _owner(frames: Sequence[NativeFrame]) -> Optional[str]:
    """The function that had a block allocated or freed; None where Python code did, of which such a stack has no line."""
    for frame in frames:
        if is_foreign_call(frame):
            return None
        if frame.function and not is_machinery(frame.function) and not _OPERATOR.fullmatch(frame.function):
            return short_function(frame.function)
    return None


def _where(distance: int, side: str, size: int) -> str:
    side = _SIDE.get(side, side)
    place = f"{_bytes(distance)} {side}" if distance else "at the start of" if side == "into" else f"right {side}"
    return f"{place} a block of {_bytes(size)}"


def _bytes(count: int) -> str:
    return "1 byte" if count == 1 else f"{count} bytes"


class DeviceReport(Reader):
    """One error of compute-sanitizer: `fields` has problem, kernel, place, thread, block and address."""

    def __init__(self, match: re.Match[str]) -> None:
        self.fields = {"problem": match["problem"]}

    def finish(self) -> tuple[Note, ...]:
        """One note of kind `compute-sanitizer`."""
        # With what was wrong about the address: "is misaligned", "is out of bounds".
        headline = ", ".join(self.fields[name] for name in ("problem", "detail") if name in self.fields)
        return (Note(headline, "compute-sanitizer", self.fields),)

    def feed(self, text: str) -> bool:
        """Take the next line; see `Reader.feed`."""
        if not text.startswith("====") or _DEVICE.match(text) or text.strip("= ") == "":
            return False
        for pattern in (_DEVICE_AT, _DEVICE_BY, _DEVICE_ADDRESS):
            if match := pattern.match(text):
                for name, value in match.groupdict().items():
                    if value:
                        self.fields.setdefault(name, value)
        return True


def _opens_race(text: str) -> Optional[StreamRace]:
    match = _CSAN.search(text)
    return StreamRace(match) if match else None


def _opens_native(text: str) -> Optional[NativeReport]:
    if match := _FAULT.search(text):
        return NativeReport("asan" if match["sanitizer"].endswith("AddressSanitizer") else "process-end", match)
    if match := _ASAN.search(text):
        return NativeReport("asan", match)
    if match := _MSAN.search(text):
        return NativeReport("msan", match)
    if match := _TSAN.search(text):
        return NativeReport("tsan", match)
    if match := _EXCEPTION.search(text):
        return NativeReport("asan-order", match)
    return None


def _opens_device(text: str) -> Optional[DeviceReport]:
    match = _DEVICE.match(text)
    return DeviceReport(match) if match else None


def _tells(reports: Sequence[tuple[str, NativeReport]]) -> Account:
    """Use the first report: later ones may be its consequence."""
    if not reports:
        return Account()
    return Account(telling=Telling.REPORT, threads=(reports[0][1].thread(),))


def printed_frame(pc: Optional[str], rest: str) -> NativeFrame:
    """A frame of a sanitizer's stack: `main /src/a.c:3`, `fill (/lib/b.so+0x10)`, from its address in hexadecimal and what follows it."""
    address = Address(int(pc, 16)) if pc else None
    match = _PLACE.match(rest)
    if match is None:
        return NativeFrame(function=printed_name(rest), pc=address, trust="text")
    return NativeFrame(
        function=printed_name(match["function"].strip()),
        file=match["file"],
        line=int(match["line"]) if match["line"] else None,
        module=match["module"],
        offset=Offset(int(match["offset"], 16)) if match["offset"] else None,
        pc=address,
        trust="text",
    )


FORMATS: tuple[Format[Any], ...] = (
    Format(openers=("CSAN detected a possible data race",), opens=_opens_race),
    Format(openers=("Sanitizer: ",), opens=_opens_native, tells=_tells),
    Format(openers=("========= ",), opens=_opens_device),
)
"""The kinds of their notes are those in the table of log lines, whose patterns also match the first lines."""
