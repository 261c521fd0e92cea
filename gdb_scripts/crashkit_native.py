"""Native frames of every thread, with modules loaded when the unwinder first reaches them."""

import bisect
import contextlib
import os
import shutil
import struct
from typing import Any, Dict, Iterator, List, Optional, Sequence, Set, Tuple

import gdb
import gdb.unwinder

Row = Dict[str, Any]
Limits = Dict[str, int]
Target = Tuple[int, int, int]
"""pc, sp and bp of a frame."""
Calls = Sequence[Tuple[int, int, int]]
"""Of each kind of call instruction: its size, a mask and the value of the masked bytes."""

SIGNAL_FRAME = "<signal handler called>"
LIMIT = "limit"
NO_TABLES = "no unwind tables"
# Where to look for the outer end of a stack too deep to walk, and how often to try.
# The window holds the environment, too, which lies beyond the main thread's frames.
OUTER_WINDOW = 256 << 10
MOST_TRIES = 400
MOST_MESSAGE = 1000
# Characters of a name, as crashkit/limits.py (LONGEST_TEXT).
LONGEST = 4096
# A dead slot of the stack can look like a return address and lead into the true chain: so many frames are not believed.
UNSURE = 3
BEGINNINGS = ("_start", "clone3", "__clone3", "clone", "__clone", "thread_start")


class Modules:
    """The modules of the process; `load` adds the symbols of the one at an address, once."""

    def __init__(self, rows: List[Row]) -> None:
        self.rows = sorted(rows, key=lambda row: row["base"])
        self.bases = [row["base"] for row in self.rows]
        self.done: Set[int] = set()
        self.loaded: List[str] = []
        self.errors: List[str] = []

    def at(self, address: int) -> Optional[Row]:
        """The module that contains the address, or None."""
        index = bisect.bisect_right(self.bases, address) - 1
        if index >= 0 and address < self.rows[index]["end"]:
            return self.rows[index]
        return None

    def is_end(self, frame: gdb.Frame) -> bool:
        """Whether whatever gdb took for the frame's caller would be a guess: its code has no unwind tables."""
        row = self.at(frame.pc())
        lacks = row is not None and row.get("lacks_tables", False)
        return lacks and frame.type() == gdb.NORMAL_FRAME and (frame.pc(), stack_pointer(frame)) not in STEPS.callers

    def load(self, address: int) -> bool:
        """Load the symbols of the module at the address. True if any were added: frames seen so far are stale."""
        row = self.at(address)
        if row is None or row["base"] in self.done:
            return False
        self.done.add(row["base"])
        if not row.get("file"):
            return False
        try:
            is_new = load_once(row["file"], row["bias"])
        except gdb.error as error:
            self.errors.append("%s: %s" % (row["file"], error))
            return False
        self.loaded.append(row["file"])
        return is_new


LOADED: Set[Tuple[str, int]] = set()
"""Files whose symbols gdb has, with the offset of each."""


def load_ahead(request: Dict[str, Any]) -> Dict[str, Any]:
    """The answer of `-crashkit-ahead`. What cannot be loaded is left for whoever needs it."""
    for file, bias, index in request["files"]:
        try:
            if index:
                gdb.execute("set index-cache directory " + index)
                gdb.execute("set index-cache enabled on", to_string=True)
            load_once(file, bias)
        except gdb.error:
            continue
        finally:
            if index:
                gdb.execute("set index-cache enabled off", to_string=True)
    return {"loaded": len(LOADED)}


def keep(request: Dict[str, Any]) -> Dict[str, Any]:
    """The answer of `-crashkit-keep`: writes the indexes that gdb made of these files, where it looks for them next time.

    A folder is there at once and whole; an empty one tells that there is nothing to keep.
    """
    wanted = dict(request["files"])
    for file, _bias in [one for one in LOADED if one[0] not in wanted]:
        # What else is loaded would be written, too.
        gdb.execute("remove-symbol-file " + quote(file), to_string=True)
    kept = [(file, "%s.%d" % (folder, os.getpid()), folder) for file, folder in wanted.items()]
    try:
        _write_indexes(kept)
    finally:
        # What is left was not finished, or another analysis was faster.
        for _file, unfinished, _folder in kept:
            shutil.rmtree(unfinished, ignore_errors=True)
    return {"kept": len(kept)}


def _write_indexes(kept: List[Tuple[str, str, str]]) -> None:
    """Write those of each file to its unfinished folder, which is then renamed."""
    for _file, unfinished, _folder in kept:
        os.makedirs(unfinished, 0o700)
    everything = kept[0][1]
    gdb.execute("save gdb-index " + everything, to_string=True)
    for objfile in gdb.objfiles():
        path = os.path.join(everything, os.path.basename(objfile.filename or "") + ".gdb-index")
        owner = (objfile.owner or objfile).filename
        for file, unfinished, _folder in kept:
            if os.path.exists(path) and objfile.build_id and owner and os.path.samefile(owner, file):
                # gdb dies of an index of which a power failure left a part.
                with open(path, "rb") as index:
                    os.fsync(index.fileno())
                os.rename(path, os.path.join(unfinished, objfile.build_id + ".gdb-index"))
    for _file, unfinished, folder in kept:
        with contextlib.suppress(OSError):
            os.rename(unfinished, folder)


def load_once(file: str, bias: int) -> bool:
    """Load the symbols of a file that the loader put so far from its own addresses. False if gdb had them. Raises gdb.error."""
    if (file, bias) in LOADED:
        return False
    gdb.execute("add-symbol-file %s -o %d" % (quote(file), bias), to_string=True)
    LOADED.add((file, bias))
    return True


def quote(path: str) -> str:
    """The path as a quoted argument of a gdb command."""
    return '"%s"' % path.replace("\\", "\\\\").replace('"', '\\"')


def demangle(name: str) -> str:
    """The readable form of a C++ name, or the name itself."""
    try:
        text = gdb.execute("demangle -l c++ -- " + name, to_string=True).strip()
    except gdb.error:
        return name
    return text if "Can't demangle" not in text else name


def extract(request: Dict[str, Any]) -> Dict[str, Any]:
    """The answer of `-crashkit-native`."""
    modules = Modules(request["modules"])
    limits = request["limits"]
    STEPS.set(request.get("steps", ()))
    threads: List[Row] = []
    # The first thread of a core is the crashed one. All of its frames are read, and of the others as many as are left.
    room = limits["frames"]
    in_order = sorted(gdb.selected_inferior().threads(), key=lambda thread: thread.num)  # gdb gives them in any order
    for thread in in_order:
        lwp = thread.ptid[1] or thread.ptid[0]
        crashed = lwp == request.get("crashed")
        try:
            thread.switch()
            frames, cut = walk(modules, max(room, limits["least"]))
            room -= len(frames)
            rows = [describe(frame, limits if crashed and index < limits["detailed"] else None) for index, frame in enumerate(frames)]
        except (gdb.error, MemoryError, RuntimeError, ValueError) as error:
            modules.errors.append("thread %d: %s" % (lwp, error))
            rows, cut = [], None
        threads.append({"lwp": lwp, "frames": rows, "cut": cut, "outer": []})
    ends = {row["frames"][-1]["pc"] for row in threads if row["cut"] is None and row["frames"]}
    for thread in in_order:
        for row in threads:
            if row["lwp"] == (thread.ptid[1] or thread.ptid[0]) and row["cut"] == LIMIT:
                try:
                    thread.switch()
                    row["outer"] = outer_end(modules, row["frames"][-1]["sp"], limits["outer"], ends, request)
                except (gdb.error, RuntimeError, ValueError) as error:
                    modules.errors.append("outer end of thread %d: %s" % (row["lwp"], error))
    return {"threads": threads, "loaded": modules.loaded, "abort_message": abort_message(), "errors": modules.errors}


def abort_message() -> Optional[str]:
    """What glibc said when it aborted the process (assert, malloc's checks, fortify): it keeps the text for debuggers.

    `__abort_msg` points to an unsigned size and the text (glibc, sysdeps/posix/libc_fatal.c).
    """
    try:
        pointer = int(gdb.parse_and_eval("*(unsigned long *) &__abort_msg"))
        if pointer == 0:
            return None
        text = gdb.Value(pointer + 4).cast(gdb.lookup_type("char").pointer()).string(errors="replace", length=MOST_MESSAGE)
        return text.split("\0")[0].strip() or None
    except (gdb.error, MemoryError, ValueError, RuntimeError, UnicodeError):
        return None


def walk(modules: Modules, most: int) -> Tuple[List[gdb.Frame], Optional[str]]:
    """Frames of the selected thread, innermost first, and why the walk ended early, if it did."""
    while True:
        frames: List[gdb.Frame] = []
        frame: Optional[gdb.Frame] = gdb.newest_frame()
        stale = False
        while frame is not None and len(frames) < most:
            try:
                pc = frame.pc()
            except gdb.error as error:
                # The registers that would tell where it returns to are lost.
                return frames, str(error)
            if modules.load(pc):
                stale = True
                break
            frames.append(frame)
            if modules.is_end(frame):
                return frames, NO_TABLES
            try:
                older = frame.older()
            except gdb.error as error:
                return frames, str(error)
            if older is None:
                reason = frame.unwind_stop_reason()
                if reason in (gdb.FRAME_UNWIND_NO_REASON, gdb.FRAME_UNWIND_OUTERMOST):
                    return frames, None
                return frames, gdb.frame_stop_reason_string(reason)
            frame = older
        if not stale:
            return frames, LIMIT if frame is not None else None


class FrameId:
    """What an unwinder names its frame by (gdb.unwinder.FrameId exists from gdb 14 on only)."""

    def __init__(self, sp: gdb.Value, pc: gdb.Value) -> None:
        self.sp = sp
        self.pc = pc


class Outward(gdb.unwinder.Unwinder):
    """Makes `target` (pc, sp, bp) the caller of the newest frame, so that the walk continues there."""

    def __init__(self) -> None:
        super().__init__("crashkit-outward")
        self.registers: Sequence[str] = ()
        self.target: Optional[Target] = None
        self.newest: Optional[Tuple[int, Optional[int]]] = None

    def __call__(self, pending_frame: gdb.PendingFrame) -> Optional[gdb.UnwindInfo]:
        """The caller of the newest frame, if a target is set; None for every other frame."""
        if self.target is None:
            return None
        pc, sp = pending_frame.read_register("pc"), pending_frame.read_register("sp")
        if (int(pc), int(sp)) != self.newest:
            return None
        info = pending_frame.create_unwind_info(FrameId(sp, pc))
        kind = gdb.lookup_type("unsigned long")
        for index, register in enumerate(self.registers):
            info.add_saved_register(register, gdb.Value(self.target[index]).cast(kind))
        return info


OUTWARD = Outward()


class Steps(gdb.unwinder.Unwinder):
    """Tells gdb the callers of frames whose code has no unwind tables, by their program counter and stack pointer."""

    def __init__(self) -> None:
        super().__init__("crashkit-steps")
        self.callers: Dict[Tuple[int, Optional[int]], Dict[str, int]] = {}
        self.signals: Set[Tuple[int, Optional[int]]] = set()

    def set(self, steps: Sequence[Tuple[int, int, Dict[str, int], bool]]) -> None:
        """Take the registers of the callers."""
        self.callers = {(pc, sp): registers for pc, sp, registers, _ in steps}
        self.signals = {(pc, sp) for pc, sp, _, is_signal in steps if is_signal}
        if self.callers:
            gdb.unwinder.register_unwinder(None, self, replace=True)
            gdb.invalidate_cached_frames()

    def __call__(self, pending_frame: gdb.PendingFrame) -> Optional[gdb.UnwindInfo]:
        """The caller of a frame that is known; None for every other frame."""
        pc, sp = pending_frame.read_register("pc"), pending_frame.read_register("sp")
        registers = self.callers.get((int(pc), int(sp) & 0xFFFFFFFFFFFFFFFF))
        if registers is None:
            return None
        info = pending_frame.create_unwind_info(FrameId(sp, pc))
        kind = gdb.lookup_type("unsigned long")
        for register, value in registers.items():
            info.add_saved_register(register, gdb.Value(value).cast(kind))
        return info


STEPS = Steps()


def outer_end(modules: Modules, cut_at: Optional[int], most: int, ends: Set[int], request: Dict[str, Any]) -> List[Row]:
    """The outermost frames of the selected thread's stack, found without walking the frames between; [] if they cannot be found.

    A return address near the stack's end is where the walk can be picked up again, if it leads from there to where threads begin:
    where other threads' walks ended (`ends`), or the process's entry point. `request["scan"]` says how to recognise return addresses
    on this processor; without it nothing is searched.
    """
    scan = request.get("scan")
    if scan is None or cut_at is None:
        return []
    newest = gdb.newest_frame()
    start, data = stack_end(cut_at, thread_pointer(newest, request["thread_pointer"]))
    OUTWARD.registers = scan["registers"]
    OUTWARD.newest = (newest.pc(), stack_pointer(newest))
    gdb.unwinder.register_unwinder(None, OUTWARD, replace=True)
    try:
        found = search(modules, list(return_addresses(modules, scan["calls"], start, data)), most, ends, request.get("entry"))
    finally:
        OUTWARD.target = None
        gdb.invalidate_cached_frames()
    return found


def search(modules: Modules, candidates: List[Target], most: int, ends: Set[int], entry: Optional[int]) -> List[Row]:
    """The frames from the return address farthest in from which `most` frames lead to the thread's beginning, by bisection."""
    best: List[Row] = []
    low, high = 0, len(candidates)
    for _ in range(MOST_TRIES):
        if low >= high or len(best) > most // 2:
            break
        middle = (low + high) // 2
        OUTWARD.target = candidates[middle]
        gdb.invalidate_cached_frames()
        try:
            frames, cut = walk(modules, most + 1)
            arrived = cut is None and is_beginning(frames[-1], modules, ends, entry)
            rows = [describe(frame, None) for frame in frames[UNSURE + 1 :]] if arrived else []
        except (gdb.error, RuntimeError, ValueError):
            cut, arrived = "error", False
        if cut == LIMIT:
            low = middle + 1
        elif arrived and all(modules.at(row["pc"]) for row in rows):
            high = middle
            if len(rows) > 1:
                best = rows
        else:
            # No frame's return address, though it looked like one.
            del candidates[middle]
            high -= 1
    if best:
        best[0]["found"] = True
    return best


def is_beginning(frame: gdb.Frame, modules: Modules, ends: Set[int], entry: Optional[int]) -> bool:
    """Whether a thread begins with this frame: nothing called it."""
    pc = frame.pc()
    if pc in ends or (frame.name() or "").replace("__GI_", "") in BEGINNINGS or (entry is not None and 0 <= pc - entry < 64):
        return True
    # A stripped C library names no clone; but its unwind tables say that nothing called it.
    row = modules.at(pc)
    library = row is not None and os.path.basename(row.get("file") or "").startswith(("libc.", "libc-", "ld-musl"))
    return library and frame.unwind_stop_reason() == gdb.FRAME_UNWIND_OUTERMOST


def thread_pointer(frame: gdb.Frame, register: str) -> int:
    """The value of the thread pointer register; 0 where it cannot be read."""
    try:
        return int(frame.read_register(register)) & 0xFFFFFFFFFFFFFFFF
    except (gdb.error, ValueError):
        return 0


def stack_end(address: int, thread: int) -> Tuple[int, bytes]:
    """The last bytes of the stack that holds the address, and where they start.

    A thread's control block (`thread`) lies at the end of its stack, and other memory may follow; the main thread's lies elsewhere.
    """
    low, high = address, address + (1 << 30)
    if low < thread < high:
        high = thread & ~7
    memory = gdb.selected_inferior()

    def readable(at: int) -> bool:
        try:
            memory.read_memory(at, 1)
            return True
        except gdb.error:
            return False

    page = 4096
    low -= low % page
    if readable(high - 8):
        low = high
    # Pages of a stack are all there or, past its end, none: halve the distance.
    while high - low > page:
        middle = (low + high) // 2 // page * page
        if readable(middle):
            low = middle
        else:
            high = middle
    start = max(address, high - OUTER_WINDOW) & ~7
    return start, bytes(memory.read_memory(start, high - start))


def return_addresses(modules: Modules, calls: Calls, start: int, data: bytes) -> Iterator[Target]:
    """Words of the stack that point behind a call instruction, from the inner side on, as (pc, sp, bp) of the caller.

    Code that keeps a frame pointer saves its caller's below the return address; other code does not care what bp holds.
    """
    longest = max(size for size, _mask, _value in calls)
    words = struct.unpack("<%dQ" % (len(data) // 8), data[: len(data) // 8 * 8])
    for index, word in enumerate(words):
        if modules.at(word) is None:
            continue
        modules.load(word)
        try:
            before = bytes(gdb.selected_inferior().read_memory(word - longest, longest))
        except gdb.error:
            continue
        if is_call(before, calls):
            yield word, start + 8 * index + 8, words[index - 1] if index else 0


def is_call(before: bytes, calls: Calls) -> bool:
    """Whether these bytes end with a call instruction: one of its size, with `value` where `mask` has bits."""
    return any(int.from_bytes(before[-size:], "little") & mask == value for size, mask, value in calls)


def describe(frame: gdb.Frame, limits: Optional[Limits]) -> Row:
    """The frame as a row; with arguments and locals where `limits` is given."""
    kind = frame.type()
    row: Row = {"pc": frame.pc(), "sp": stack_pointer(frame)}
    # gdb goes by the names of functions, and a stripped file has none of the one that returns from a handler.
    if kind == gdb.SIGTRAMP_FRAME or (row["pc"], row["sp"]) in STEPS.signals:
        row["kind"] = "signal"
        row["function"] = SIGNAL_FRAME
        return row
    row["kind"] = "inline" if kind == gdb.INLINE_FRAME else "normal"
    row["function"] = cut(frame.name())
    sal = frame.find_sal()
    if sal.symtab is not None:
        row["file"] = cut(sal.symtab.filename)
        row["line"] = sal.line
    function = frame.function()
    row["debug"] = function is not None
    if limits is not None and function is not None:
        row["args"], row["locals"] = variables(frame, limits)
    return row


def cut(name: Optional[str]) -> Optional[str]:
    """The name, no longer than a report shows it: a symbol may have one of megabytes, and be on the stack a thousand times."""
    return name[:LONGEST] if name else name


def stack_pointer(frame: gdb.Frame) -> Optional[int]:
    """The frame's stack pointer, or None."""
    try:
        return int(frame.read_register("sp")) & 0xFFFFFFFFFFFFFFFF
    except (gdb.error, ValueError):
        return None


def variables(frame: gdb.Frame, limits: Limits) -> Tuple[Dict[str, str], Dict[str, str]]:
    """Arguments and locals of the frame's function as text, at most `limits["variables"]` in all."""
    arguments: Dict[str, str] = {}
    local: Dict[str, str] = {}
    try:
        block: Optional[gdb.Block] = frame.block()
    except RuntimeError:
        return arguments, local
    while block is not None:
        for symbol in block:
            if len(arguments) + len(local) >= limits["variables"]:
                return arguments, local
            target = arguments if symbol.is_argument else local if symbol.is_variable else None
            if target is not None and symbol.name not in target:
                target[symbol.name[:LONGEST]] = text_of(symbol, frame, limits["text"])
        if block.function is not None:
            break
        block = block.superblock
    return arguments, local


def text_of(symbol: gdb.Symbol, frame: gdb.Frame, most: int) -> str:
    """The symbol's value as text of at most `most` characters; what went wrong in angle brackets."""
    try:
        value = symbol.value(frame)
        if value.is_optimized_out:
            return "<optimized out>"
        text = value.format_string(
            raw=True, styling=False, max_elements=24, max_depth=2, repeat_threshold=8, static_members=False, symbols=True
        )
    except (gdb.error, MemoryError, ValueError, RuntimeError, UnicodeError) as error:
        return "<%s>" % error
    return text if len(text) <= most else text[:most] + "…"
