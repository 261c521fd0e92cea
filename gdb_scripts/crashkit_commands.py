"""MI commands that read stacks from a core; README.md documents the contract."""

import json
import os
import sys
from typing import Any, Callable, Dict, List

import gdb

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

# Compiling our scripts and libpython.py takes as long as reading all Python frames: where a folder for bytecode is given, it is kept there.
if os.environ.get("CRASHKIT_BYTECODE"):
    sys.pycache_prefix = os.environ["CRASHKIT_BYTECODE"]
    sys.dont_write_bytecode = False

import crashkit_native
import crashkit_python


class Command(gdb.MICommand):
    """An MI command that reads a JSON request and writes a JSON result."""

    def __init__(self, name: str, function: Callable[[Dict[str, Any]], Dict[str, Any]]) -> None:
        super().__init__(name)
        self.function = function

    def invoke(self, arguments: List[str]) -> Dict[str, object]:
        """Run the command. `arguments` are the paths of request and result. Raises gdb.GdbError."""
        if len(arguments) != 2:
            raise gdb.GdbError("usage: REQUEST RESULT")
        with open(arguments[0], encoding="utf-8") as file:
            request = json.load(file)
        result = self.function(request)
        text = json.dumps(result)
        if "\\ud" in text:
            text = json.dumps(readable(result))
        with open(arguments[1], "x", encoding="ascii") as file:
            file.write(text)
        return {"result": "written"}


def end_with_parent() -> None:
    """Let the kernel kill us when the process that started us dies (PR_SET_PDEATHSIG): in the middle of a command we would not notice."""
    try:
        import ctypes

        ctypes.CDLL(None).prctl(1, 9, 0, 0, 0)
    except (ImportError, OSError, AttributeError):
        pass


def readable(value: Any) -> Any:
    """The value with lone surrogates escaped: Python strings may hold them, JSON may not."""
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-8", "backslashreplace").decode("utf-8")
    if isinstance(value, dict):
        return {readable(key): readable(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [readable(item) for item in value]
    return value


def demangle(request: Dict[str, Any]) -> Dict[str, Any]:
    """The answer of `-crashkit-demangle`."""
    names = {}
    for name in request["names"]:
        names[name] = crashkit_native.demangle(name)
    return {"names": names}


end_with_parent()
Command("-crashkit-ahead", crashkit_native.load_ahead)
Command("-crashkit-keep", crashkit_native.keep)
Command("-crashkit-native", crashkit_native.extract)
Command("-crashkit-python", crashkit_python.extract)
Command("-crashkit-demangle", demangle)
