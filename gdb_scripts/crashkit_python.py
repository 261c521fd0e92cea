"""Python frames of every thread, from CPython's thread states.

Thread state -> current frame -> previous frame is what faulthandler walks, and it works whatever the compiler did to the
interpreter's local variables. Layouts changed with 3.7, 3.11, 3.12, 3.13 and 3.14: the newest is tried first, a missing
field means an older one.
CPython's own libpython.py, handed in by the request, takes objects apart.
"""

import importlib.util
import re
import sys
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Set, Tuple, TypeVar

import crashkit_lines
import crashkit_native
import gdb

Row = Dict[str, Any]
Answer = TypeVar("Answer")

MOST_THREADS = 20000
# What goes wrong when memory does not hold what its type says.
UNREADABLE = (
    gdb.error,
    RuntimeError,
    ValueError,
    KeyError,
    AttributeError,
    TypeError,
    OverflowError,
    UnicodeError,
    MemoryError,
    AssertionError,
    IndexError,
)
MOST_INTERPRETERS = 256
# Characters of a name, as crashkit/limits.py (LONGEST_TEXT).
LONGEST = 4096
MOST_ERRORS = 50
MOST_C_FRAMES = 200
MOST_NAMES = 10000
# A Python frame takes 100 bytes or more.
MOST_FRAMES = 10000000
_POINTER_BITS = ~7
FRAME_OBJECT: Dict[str, Tuple[str, ...]] = {"back": ("f_back",)}
INTERPRETER_FRAME: Dict[str, Tuple[str, ...]] = {
    "executable": ("f_executable", "f_code"),
    "owner": ("owner",),
    "back": ("previous",),
    "instruction": ("instr_ptr", "prev_instr"),
    "is_entry": ("is_entry",),
    "frame_obj": ("frame_obj",),
}


def extract(request: Dict[str, Any]) -> Dict[str, Any]:
    """The answer of `-crashkit-python`."""
    if request.get("file"):
        crashkit_native.load_once(request["file"], request["bias"])
    walker = Walker(load_libpython(request["libpython"]), request["limits"], request.get("crashed"), request.get("idents", ()))
    return walker.result(request.get("names", True))


def load_libpython(path: str) -> Any:
    """CPython's gdb script as a module. Raises gdb.GdbError, and whatever the script raises."""
    spec = importlib.util.spec_from_file_location("libpython", path)
    if spec is None or spec.loader is None:
        raise gdb.GdbError("%s is not a Python file" % path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    read_numbers(module)
    # Native values are formatted raw; the script's printers must not run on anything else either.
    gdb.pretty_printers[:] = []
    return module


def read_numbers(libpython: Any) -> None:
    """Let the script read floats and complex numbers, for which it has no class: it shows their address, also inside containers."""
    of_type = libpython.PyObjectPtr.subclass_from_type

    def number(name: str, convert: Callable[[gdb.Value], Any]) -> type:
        def value(self: Any, visited: Any) -> Any:
            return convert(self._gdbval)

        return type(name, (libpython.PyObjectPtr,), {"_typename": name, "proxyval": value})

    kinds = {
        "float": number("PyFloatObject", lambda value: float(value["ob_fval"])),
        "complex": number("PyComplexObject", lambda value: complex(float(value["cval"]["real"]), float(value["cval"]["imag"]))),
    }

    def with_numbers(kind: Any) -> Any:
        try:
            return kinds[kind.field("tp_name").string()]
        except (KeyError, RuntimeError, UnicodeError, gdb.error):
            return of_type(kind)

    libpython.PyObjectPtr.subclass_from_type = staticmethod(with_numbers)


def field(value: gdb.Value, *names: str) -> gdb.Value:
    """The first of these fields that the structure has; a name may be a dotted path."""
    for name in names:
        found = value
        try:
            for part in name.split("."):
                found = found[part]
            return found
        except (gdb.error, KeyError):
            continue
    raise KeyError(" or ".join(names))


class Fields:
    """Where some fields of a structure are, in bytes. gdb takes a tenth of a millisecond for each field of each value by name."""

    def __init__(self, kind: gdb.Type, names: Dict[str, Tuple[str, ...]]) -> None:
        """`names` are those that a field had in the versions of CPython, newest first; without any of them the field is left out."""
        parts = {part.name: part for part in kind.fields()}
        self.kind = kind.pointer()
        self.places: Dict[str, Tuple[int, int]] = {}
        for wanted, known in names.items():
            part = next((parts[name] for name in known if name in parts), None)
            if part is not None and part.type is not None and part.bitpos is not None:
                self.places[wanted] = part.bitpos // 8, part.type.sizeof
        self.size = max([offset + size for offset, size in self.places.values()], default=0)

    def of(self, address: int) -> Callable[[str], int]:
        """Gives the fields of the structure at this address as unsigned numbers. Raises gdb.MemoryError, or KeyError for one left out."""
        memory = gdb.selected_inferior()
        try:
            data = bytes(memory.read_memory(address, self.size))
        except gdb.MemoryError:
            # Some of them may be there: a damaged core ends somewhere.
            data = b""

        def number(name: str) -> int:
            offset, size = self.places[name]
            return int.from_bytes(data[offset : offset + size] or bytes(memory.read_memory(address + offset, size)), sys.byteorder)

        return number

    def value(self, address: int) -> gdb.Value:
        """A pointer to the structure at this address, for what has to be asked of gdb."""
        return gdb.Value(address).cast(self.kind)


def address_of(value: gdb.Value) -> gdb.Value:
    """The value's address. Raises ValueError where it is not in memory."""
    if value.address is None:
        raise ValueError("a value that is not in memory")
    return value.address


def integer(value: gdb.Value) -> int:
    """The value as an integer: some systems' `pthread_t` is a pointer."""
    return int(value.cast(gdb.lookup_type("unsigned long"))) if value.type.strip_typedefs().code == gdb.TYPE_CODE_PTR else int(value)


class Walker:
    """One walk over all thread states of the crashed interpreter."""

    def __init__(self, libpython: Any, limits: Dict[str, int], crashed: Optional[int], idents: Sequence[Tuple[int, int]] = ()) -> None:
        self.libpython = libpython
        self.limits = limits
        self.crashed = crashed
        # Pthread idents by LWP.
        self.idents = dict(idents)
        self.threads_with_locals = self.threads_without = 0
        self.wants_locals = True
        self.codes: Dict[int, Code] = {}
        self.fields: Optional[Fields] = None
        # Thread states seen so far, of all interpreters: their lists may lead into each other.
        self.states: Set[int] = set()
        # Text of an object, by its address: `self` is the same in frame after frame.
        self.texts_of: Dict[int, str] = {}
        self.errors: List[str] = []

    def result(self, with_names: bool = True) -> Dict[str, Any]:
        """The whole answer, errors included. The names of threads are half of the work, and may be known."""
        found: Dict[str, Any] = {"version": version(), "gil": None, "threads": [], "finalizing": None}
        for interpreter in self.guarded("interpreters", self.interpreters) or []:
            found["gil"] = found["gil"] or self.guarded("GIL holder", self.gil_holder, interpreter)
            names = self.guarded("thread names", self.thread_names, interpreter) if with_names else None
            for state in self.thread_states(interpreter):
                self.add_thread(state, names or {}, found["threads"])
        if not found["threads"]:
            for state in self.stray_states():
                self.add_thread(state, {}, found["threads"])
        found["finalizing"] = self.guarded("finalization", self.finalizing)
        found["threads_without_locals"] = self.threads_without
        found["errors"] = self.errors
        return found

    def guarded(self, what: str, function: Callable[..., Answer], *arguments: Any) -> Optional[Answer]:
        """What the function returns; None, and an entry in `errors`, where memory cannot be read."""
        try:
            return function(*arguments)
        except UNREADABLE as error:
            if len(self.errors) < MOST_ERRORS:
                self.errors.append("%s: %s: %s" % (what, type(error).__name__, error))
            return None

    def interpreters(self) -> List[gdb.Value]:
        """Every interpreter state, main and subinterpreters."""
        try:
            interpreter = gdb.parse_and_eval("_PyRuntime")["interpreters"]["head"]
        except (gdb.error, KeyError):
            interpreter = gdb.parse_and_eval("interp_head")
        found: List[gdb.Value] = []
        seen: Set[int] = set()
        while int(interpreter) != 0 and int(interpreter) not in seen and len(found) < MOST_INTERPRETERS:
            seen.add(int(interpreter))
            found.append(interpreter)
            interpreter = interpreter["next"]
        return found

    def stray_states(self) -> Iterator[gdb.Value]:
        """Thread states that the interpreter's C frames point to, for a core that lost _PyRuntime (it lies late in the file)."""
        for thread in sorted(gdb.selected_inferior().threads(), key=lambda thread: thread.num):  # gdb gives them in any order
            thread.switch()
            state = self.guarded("thread state on the stack", self.state_on_stack, self.idents.get(thread.ptid[1] or thread.ptid[0]))
            if state is not None:
                yield state

    def state_on_stack(self, ident: Optional[int]) -> Optional[gdb.Value]:
        """The thread state in a local variable `tstate` of the selected thread's C frames, or None."""
        frame: Optional[gdb.Frame] = gdb.newest_frame()
        seen = 0
        while frame is not None and seen < MOST_C_FRAMES:
            try:
                state = frame.read_var("tstate")
                if not state.is_optimized_out and integer(state["thread_id"]) == ident:
                    return state
            except (gdb.error, ValueError):
                pass
            frame = frame.older()
            seen += 1
        return None

    def thread_states(self, interpreter: gdb.Value) -> Iterator[gdb.Value]:
        """The interpreter's thread states, for as long as the list can be followed."""
        seen = self.states
        try:
            state = field(interpreter, "threads.head", "tstate_head")
            while int(state) != 0 and int(state) not in seen and len(seen) < MOST_THREADS:
                seen.add(int(state))
                yield state
                state = state["next"]
        except (gdb.error, KeyError) as error:
            self.errors.append("thread states: %s" % error)

    def add_thread(self, state: gdb.Value, names: Dict[int, str], threads: List[Row]) -> None:
        """Add the thread's row to `threads`, where its state can be read."""
        thread = self.guarded("thread state", self.thread, state)
        if thread is not None:
            thread["name"] = names.get(thread["ident"])
            threads.append(thread)

    def thread(self, state: gdb.Value) -> Row:
        """A thread state as a row with its frames."""
        row: Row = {"ident": integer(state["thread_id"]), "lwp": None, "frames": [], "outer": [], "total": None, "cut": True}
        try:
            row["lwp"] = int(state["native_thread_id"])
        except (gdb.error, KeyError):
            pass
        # Reading them is what takes time, a millisecond a frame.
        self.wants_locals = row["ident"] == self.crashed or self.threads_with_locals < self.limits["threads_with_locals"]
        self.threads_with_locals += self.wants_locals
        self.threads_without += not self.wants_locals
        self.guarded("frames of thread 0x%x" % row["ident"], self.frames, state, row)
        return row

    def frames(self, state: gdb.Value, row: Row) -> None:
        """The inner end of the stack and, where it is deep, the outer end and how many frames there are."""
        try:
            frame, names, read = field(state, "current_frame", "cframe.current_frame"), INTERPRETER_FRAME, self.interpreter_frame
        except KeyError:
            frame, names, read = state["frame"], FRAME_OBJECT, self.frame_object
        if self.fields is None:
            self.fields = Fields(frame.type.target(), names)
        address, seen, rows = int(frame), set(), row["frames"]
        while address and address not in seen:
            if len(rows) >= self.limits["python_frames"]:
                self.outer_frames(address, self.fields, read, row)
                break
            seen.add(address)
            address = read(address, self.fields, rows)
        row["cut"] = False

    def outer_frames(self, address: int, fields: Fields, read: Callable[[int, Fields, List[Row]], int], row: Row) -> None:
        """Follow the links without reading the frames, then read the last ones."""
        offset, size = fields.places["back"]
        memory = gdb.selected_inferior()
        addresses, seen = [], 0
        keep = self.limits["outer"]
        while address and seen < MOST_FRAMES:
            addresses.append(address)
            if len(addresses) > 4 * keep:
                del addresses[: 3 * keep]
            seen += 1
            address = int.from_bytes(bytes(memory.read_memory(address + offset, size)), sys.byteorder)
        row["total"] = len(row["frames"]) + seen
        for address in addresses[-keep:]:
            read(address, fields, row["outer"])

    def frame_object(self, address: int, fields: Fields, rows: List[Row]) -> int:
        """3.10 and older: PyFrameObject. Each was run by an interpreter call of its own. Returns the next one's address."""
        row = {"function": None, "file": None, "line": None, "entry": True}
        rows.append(row)
        self.guarded("code of a frame", self.read_frame_object, fields.value(address), row)
        return fields.of(address)("back")

    def read_frame_object(self, frame: gdb.Value, row: Row) -> None:
        """Fill the row from a PyFrameObject."""
        code = self.code(frame["f_code"])
        line = int(frame["f_lineno"]) if code.decode == code.line_310 else 0
        row.update(function=code.name, file=code.file, line=line if line > 0 else code.line(int(frame["f_lasti"])))
        self.guarded("locals of %s" % code.name, self.read_locals, row, code, frame["f_localsplus"])

    def interpreter_frame(self, address: int, fields: Fields, rows: List[Row]) -> int:
        """3.11 and newer: _PyInterpreterFrame, and a shim frame (3.12 and newer) where an interpreter call begins.

        Returns the next one's address.
        """
        number = fields.of(address)
        pointer = number("executable") & _POINTER_BITS
        if number("owner") >= 3:
            if rows:
                rows[-1]["entry"] = True
            return number("back")
        row = {"function": None, "file": None, "line": None, "entry": False}
        try:
            row["entry"] = bool(number("is_entry"))
        except (gdb.error, KeyError):
            pass
        rows.append(row)
        # In a damaged core the code may be lost and the frames further out not.
        self.guarded("code of a frame", self.read_interpreter_frame, fields.value(address), number, pointer, row)
        return number("back")

    def read_interpreter_frame(self, frame: gdb.Value, number: Callable[[str], int], pointer: int, row: Row) -> None:
        """Fill the row from a _PyInterpreterFrame; `pointer` is its code object's address, `number` gives its fields."""
        code = self.code(gdb.Value(pointer).cast(gdb.lookup_type("PyCodeObject").pointer()))
        line = self.set_line(frame, number) or code.line(self.instruction(frame, number("instruction"), code))
        row.update(function=code.name, file=code.file, line=line)
        if self.wants_locals:
            self.guarded("locals of %s" % code.name, self.read_locals, row, code, frame["localsplus"])

    def set_line(self, frame: gdb.Value, number: Callable[[str], int]) -> int:
        """The line that somebody set, which counts before the instruction's (PyFrame_GetLineNumber): Nuitka's code has no instructions."""
        try:
            if number("frame_obj"):
                whole = frame["frame_obj"]
                if int(whole["f_frame"]) == int(frame):
                    return max(int(whole["f_lineno"]), 0)
        except (gdb.error, KeyError):
            pass
        return 0

    def instruction(self, frame: gdb.Value, pointer: int, code: "Code") -> int:
        """Index of the current instruction, in code units; `pointer` is its address."""
        index = (pointer - code.first_unit) // 2
        if -1 <= index < code.units:
            return index
        return self.thread_local_instruction(frame, pointer, code)

    def thread_local_instruction(self, frame: gdb.Value, pointer: int, code: "Code") -> int:
        """Free-threaded 3.14: each thread runs a copy of the bytecode of its own (co_tlbc)."""
        try:
            copies = code.value["co_tlbc"]
        except gdb.error as error:
            raise gdb.error("the frame's instruction is not in its code: that memory is damaged") from error
        start = int(copies["entries"][int(frame["tlbc_index"])])
        return (pointer - start) // 2

    def code(self, pointer: gdb.Value) -> "Code":
        """The code object at the pointer; each is read once."""
        address = int(pointer)
        if address not in self.codes:
            self.codes[address] = Code(self, pointer)
        return self.codes[address]

    def object_at(self, pointer: gdb.Value) -> Any:
        """libpython.py's wrapper of the object."""
        return self.libpython.PyObjectPtr.from_pyobject_ptr(pointer)

    def text(self, pointer: gdb.Value) -> str:
        """A str object's value. Its type is known: a damaged core may have lost the type object."""
        kind = self.libpython.PyUnicodeObjectPtr
        return str(kind(pointer, kind.get_gdb_type()).proxyval(set()))

    def texts(self, pointer: gdb.Value) -> List[str]:
        """A tuple of str objects."""
        value = pointer.cast(gdb.lookup_type("PyTupleObject").pointer())
        size = int(value["ob_base"]["ob_size"])
        if not 0 <= size <= MOST_NAMES:
            raise ValueError("a tuple of %d names" % size)
        return [self.text(value["ob_item"][index]) for index in range(size)]

    def bytes_of(self, pointer: gdb.Value) -> bytes:
        """A bytes object's value. Raises ValueError where its size is not plausible."""
        value = pointer.cast(gdb.lookup_type("PyBytesObject").pointer())
        size = int(value["ob_base"]["ob_size"])
        if not 0 <= size <= 1 << 24:
            raise ValueError("a bytes object of %d bytes" % size)
        return self.memory(int(address_of(value["ob_sval"])), size)

    def memory(self, address: int, size: int) -> bytes:
        """`size` bytes of the process's memory. Raises gdb.MemoryError."""
        return bytes(gdb.selected_inferior().read_memory(address, size)) if size else b""

    def read_locals(self, row: Row, code: "Code", slots: gdb.Value) -> None:
        """Fill the row's locals and argument names. Tagged references (3.14 and newer) are untagged."""
        if not self.wants_locals:
            return
        local: Dict[str, str] = {}
        start = address_of(slots[0])
        if slots[0].type.strip_typedefs().code != gdb.TYPE_CODE_PTR:
            tagged = True
            start = start.cast(gdb.lookup_type("unsigned long").pointer())
        else:
            tagged = False
        pointer_type = gdb.lookup_type("PyObject").pointer()
        for index, name in enumerate(code.local_names[: self.limits["variables"]]):
            value = start[index]
            address = int(value)
            if tagged:
                address &= _POINTER_BITS if address & 3 != 3 else 0
                value = gdb.Value(address).cast(pointer_type)
            if address == 0 or name in local or name.startswith("."):
                continue
            local[name[:LONGEST]] = self.represent(value)
        row["locals"] = local
        row["args"] = [name[:LONGEST] for name in code.local_names[: code.argument_count] if name[:LONGEST] in local]

    def represent(self, value: gdb.Value) -> str:
        """The object's repr, bounded; what went wrong in angle brackets."""
        address = int(value)
        if address not in self.texts_of:
            try:
                self.texts_of[address] = str(self.object_at(value).get_truncated_repr(self.limits["text"]))
            except UNREADABLE as error:
                self.texts_of[address] = "<unreadable: %s>" % error
        return self.texts_of[address]

    def gil_holder(self, interpreter: gdb.Value) -> Optional[int]:
        """Ident of the thread that holds the GIL; 0 where none does, None where it was not made yet: 3.6 makes it with the first thread."""
        try:
            gil = interpreter["ceval"]["gil"]
            gil["locked"]
            holder = gil["last_holder"]
        except (gdb.error, KeyError):
            try:
                runtime = gdb.parse_and_eval("_PyRuntime")
                gil = runtime["ceval"]["gil"]
                # PyThreadState_Swap() changes the current state, not `last_holder`.
                holder = runtime["gilstate"]["tstate_current"]
            except (gdb.error, KeyError):
                locked = atomic(gdb.parse_and_eval("gil_locked"))
                if locked < 0:
                    return None
                return self.ident(atomic(gdb.parse_and_eval("gil_last_holder"))) if locked == 1 else 0
        if atomic(gil["locked"]) != 1:
            return 0
        return self.ident(atomic(holder))

    def ident(self, address: int) -> int:
        """Pthread ident of the thread state at this address; 0 for a null pointer."""
        if address == 0:
            return 0
        return integer(gdb.Value(address).cast(gdb.lookup_type("PyThreadState").pointer())["thread_id"])

    def finalizing(self) -> bool:
        """Whether the interpreter was shutting down."""
        try:
            return atomic(field(gdb.parse_and_eval("_PyRuntime"), "_finalizing", "finalizing")) != 0
        except gdb.error:
            return int(gdb.parse_and_eval("_Py_Finalizing")) != 0

    def thread_names(self, interpreter: gdb.Value) -> Dict[int, str]:
        """Ident to name, from `threading._active`."""
        modules = self.object_at(field(interpreter, "imports.modules", "modules"))
        threading = self.item(modules, "threading")
        if threading is None:
            return {}
        module = threading._gdbval.cast(gdb.lookup_type("PyModuleObject").pointer())
        active = self.item(self.object_at(module["md_dict"]), "_active")
        names: Dict[int, str] = {}
        if active is None:
            return names
        for key, thread in self.items(active):
            name = self.attribute(thread, "_name")
            if name is not None:
                names[int(key.proxyval(set()))] = str(name.proxyval(set()))[: self.limits["text"]]
        return names

    def items(self, dictionary: Any) -> Iterator[Tuple[Any, Any]]:
        """A dict's items, at most MOST_THREADS; none of anything else, such as the modules that the interpreter set to None at its end."""
        if not hasattr(dictionary, "iteritems"):
            return
        for index, pair in enumerate(dictionary.iteritems()):
            if index >= MOST_THREADS:
                return
            yield pair

    def item(self, dictionary: Any, wanted: str) -> Any:
        """The dict's value for this str key, or None."""
        for key, value in self.items(dictionary):
            # Not by the type's name: that lies in read-only memory, which cores leave out.
            if isinstance(key, self.libpython.PyUnicodeObjectPtr) and key.proxyval(set()) == wanted:
                return value
        return None

    def attribute(self, instance: Any, wanted: str) -> Any:
        """The instance's attribute, from its `__dict__` or inline values, or None."""
        dictionary = instance.get_attr_dict()
        if hasattr(dictionary, "iteritems"):
            return self.item(dictionary, wanted)
        if hasattr(instance, "get_keys_values"):
            pairs = instance.get_keys_values()
            if pairs is not None:
                for key, value in pairs.iteritems() if hasattr(pairs, "iteritems") else pairs:
                    if key.proxyval(set()) == wanted:
                        return value
        return None


class Code:
    """A code object, read once."""

    def __init__(self, walker: Walker, pointer: gdb.Value) -> None:
        self.value = pointer
        self.name = walker.text(pointer["co_name"])[:LONGEST]
        self.file = walker.text(pointer["co_filename"])[:LONGEST]
        self.first_line = int(pointer["co_firstlineno"])
        self.first_unit = self.units = 0
        try:
            self.first_unit = int(address_of(pointer["co_code_adaptive"]))
            self.units = int(pointer["ob_base"]["ob_size"])
            table, self.decode = pointer["co_linetable"], crashkit_lines.locations
        except (gdb.error, KeyError):
            try:
                table, self.decode = pointer["co_linetable"], self.line_310
            except (gdb.error, KeyError):
                table, self.decode = pointer["co_lnotab"], crashkit_lines.lnotab
        self.table = walker.bytes_of(table)
        self.lines: Dict[int, int] = {}
        self.local_names = walker.guarded("names of locals of %s" % self.name, self.read_names, walker) or []
        flags = int(pointer["co_flags"])
        self.argument_count = int(pointer["co_argcount"]) + int(pointer["co_kwonlyargcount"]) + bool(flags & 4) + bool(flags & 8)

    def line_310(self, table: bytes, first: int, instruction: int) -> int:
        """As `crashkit_lines.linetable_310`, with `instruction` in code units of two bytes."""
        return crashkit_lines.linetable_310(table, first, instruction * 2)

    def line(self, instruction: int) -> int:
        """The line of an instruction, by the decoder of this version."""
        if instruction not in self.lines:
            self.lines[instruction] = self.decode(self.table, self.first_line, instruction)
        return self.lines[instruction]

    def read_names(self, walker: Walker) -> List[str]:
        """Names of arguments, locals, cells and free variables, in the order of their slots."""
        try:
            kinds = [self.value["co_localsplusnames"]]
        except (gdb.error, KeyError):
            kinds = [self.value[kind] for kind in ("co_varnames", "co_cellvars", "co_freevars")]
        return [name for kind in kinds for name in walker.texts(kind)]


def atomic(value: gdb.Value) -> int:
    """The number in an atomic variable: a structure with `_value` up to 3.12, plain from 3.13 on."""
    try:
        value = value["_value"]
    except (gdb.error, KeyError):
        pass
    return int(value)


def version() -> Optional[str]:
    """Of the crashed interpreter, such as 3.11.7."""
    try:
        number = int(gdb.parse_and_eval("(unsigned long)Py_Version"))
        # Read-only data is not in the core; from a separate debug file it reads as zero.
        return "%d.%d.%d" % (number >> 24 & 255, number >> 16 & 255, number >> 8 & 255) if number else None
    except (gdb.error, MemoryError):
        pass
    try:
        text = gdb.parse_and_eval("Py_GetVersion::version").string(errors="replace")
        found = re.match(r"\d+\.\d+\.\d+\S*", text)
        return found.group() if found else None
    except (gdb.error, UnicodeError, MemoryError):
        return None
