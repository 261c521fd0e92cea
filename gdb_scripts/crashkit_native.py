"""Native frames of every thread, with modules loaded when the unwinder first meets them."""

import bisect

import gdb

# A module whose symbols do not let the walk go on is loaded once; the walk of a thread then starts again.
SIGNAL_FRAME = "<signal handler called>"


class Modules:
    """The modules of the process; `load` adds the symbols of the one at an address, once."""

    def __init__(self, rows):
        self.rows = sorted(rows, key=lambda row: row["base"])
        self.bases = [row["base"] for row in self.rows]
        self.done = set()
        self.loaded = []
        self.errors = []

    def at(self, address):
        index = bisect.bisect_right(self.bases, address) - 1
        if index >= 0 and address < self.rows[index]["end"]:
            return self.rows[index]
        return None

    def load(self, address):
        """True where symbols were added: frames seen so far are stale."""
        row = self.at(address)
        if row is None or row["base"] in self.done:
            return False
        self.done.add(row["base"])
        if not row.get("file"):
            return False
        try:
            gdb.execute("add-symbol-file %s -o %d" % (quote(row["file"]), row["bias"]), to_string=True)
        except gdb.error as error:
            self.errors.append("%s: %s" % (row["file"], error))
            return False
        self.loaded.append(row["file"])
        return True


def quote(path):
    return '"%s"' % path.replace("\\", "\\\\").replace('"', '\\"')


def demangle(name):
    try:
        text = gdb.execute("demangle -- " + name, to_string=True).strip()
    except gdb.error:
        return name
    return text if "Can't demangle" not in text else name


def extract(request):
    modules = Modules(request["modules"])
    limits = request["limits"]
    threads = []
    for thread in sorted(gdb.selected_inferior().threads(), key=lambda thread: thread.num):
        lwp = thread.ptid[1] or thread.ptid[0]
        crashed = lwp == request.get("crashed")
        try:
            thread.switch()
            frames, cut = walk(modules, limits["frames"])
            rows = [describe(frame, limits if crashed and index < limits["detailed"] else None) for index, frame in enumerate(frames)]
        except (gdb.error, MemoryError, RuntimeError, ValueError) as error:
            modules.errors.append("thread %d: %s" % (lwp, error))
            rows, cut = [], None
        threads.append({"lwp": lwp, "frames": rows, "cut": cut})
    return {"threads": threads, "loaded": modules.loaded, "errors": modules.errors}


def walk(modules, most):
    """Frames of the selected thread, innermost first, and why the walk ended early, if it did."""
    while True:
        frames = []
        frame = gdb.newest_frame()
        stale = False
        while frame is not None and len(frames) < most:
            if modules.load(frame.pc()):
                stale = True
                break
            # The call that a return address belongs to can be the last instruction of the module or function before it.
            frames.append(frame)
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
            return frames, "limit" if frame is not None else None


def describe(frame, limits):
    kind = frame.type()
    row = {"pc": frame.pc(), "sp": stack_pointer(frame), "level": frame.level() if hasattr(frame, "level") else None}
    if kind == gdb.SIGTRAMP_FRAME:
        row["kind"] = "signal"
        row["function"] = SIGNAL_FRAME
        return row
    row["kind"] = "inline" if kind == gdb.INLINE_FRAME else "normal"
    row["function"] = frame.name()
    sal = frame.find_sal()
    if sal.symtab is not None:
        row["file"] = sal.symtab.filename
        row["line"] = sal.line
    function = frame.function()
    row["debug"] = function is not None
    if limits is not None and function is not None:
        row["args"], row["locals"] = variables(frame, limits)
    return row


def stack_pointer(frame):
    try:
        return int(frame.read_register("sp")) & 0xFFFFFFFFFFFFFFFF
    except (gdb.error, ValueError):
        return None


def variables(frame, limits):
    arguments, local = {}, {}
    try:
        block = frame.block()
    except RuntimeError:
        return arguments, local
    while block is not None:
        for symbol in block:
            if len(arguments) + len(local) >= limits["variables"]:
                return arguments, local
            target = arguments if symbol.is_argument else local if symbol.is_variable else None
            if target is not None and symbol.name not in target:
                target[symbol.name] = text_of(symbol, frame, limits["text"])
        if block.function is not None:
            break
        block = block.superblock
    return arguments, local


def text_of(symbol, frame, most):
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
