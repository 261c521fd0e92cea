"""What ran because a library was loaded (its constructors, a module's initialisation), or because Python code named it (C functions through
ctypes). Pure.
"""

from __future__ import annotations

import re
from typing import Optional

from crashkit.diagnose.case import Case, Native
from crashkit.diagnose.outcome import Outcome, no, unknown
from crashkit.model import Evidence
from crashkit.naming.failing import code_in
from crashkit.naming.handed import is_foreign_call

_RUNS = re.compile(
    r"call_init|_dl_init|do_init_fini|"  # glibc's elf/dl-init.c, musl's ldso/dynlink.c
    r".*ImageLoaderMachO::do(?:ModInitFunctions|Initialization|ImageInit).*|.*dyld[34]::.*[rR]un(?:All)?Initializers\w*.*|"  # macOS's dyld
    r"LdrpCallInitRoutine\w*"  # Windows
)
"""What runs the constructors of a library that was loaded."""
_LOADING = {
    "<frozen importlib._bootstrap_external>": ("create_module", "exec_module"),
    "importlib/_bootstrap_external.py": ("create_module", "exec_module"),
    "ctypes/__init__.py": ("__init__", "_load_library"),
}
"""The standard library's functions that call dlopen() and a module's initialisation, by file. What else they call has frames."""
_MODULES = r"[\w.]{1,200}(?: as \w{1,80})?(?:, *[\w.]{1,200}(?: as \w{1,80})?){0,20}"
_IMPORT = rf"(?:import +{_MODULES}|from +[\w.]{{1,200}} +import +(?:\*|\(?{_MODULES}\)?))"
_TYPED_IMPORT = re.compile(
    rf"(?:>>>|In \[\d{{1,6}}\]:) *{_IMPORT} *(?:#.*)?"
    rf"|.{{0,400}}\bpython[\w.]{{0,20}}(?: +-[A-Za-z]\w{{0,30}}(?: +[\w=.]{{1,80}})?){{0,8}}"
    rf" +-c *(?P<quote>[\"']) *{_IMPORT}(?:; *{_IMPORT}){{0,20}} *;? *(?P=quote)"
)
"""A command that only imports, typed at Python's or IPython's prompt, or a shell's."""
_DIED = frozenset({"process-end", "shell"})
_LOADER = re.compile(r"/ld-(?:linux|musl|\d)[^/]*$|/ld\.so\.1$")
_LOADS = re.compile(r"_*dl_?open\w*|dlopen\w*|_dl_catch_(?:error|exception)|_?PyImport_\w+|py_dl_open|_imp_create_dynamic\w*")
_INITIALISES = re.compile(r"PyInit_\w+|__pyx_pymod_exec_\w+|pybind11_init_\w+|nanobind_init_\w+")
"""A module's own function that its import calls; Cython's, pybind11's and nanobind's second part of it."""
_RUNS_PYTHON = re.compile(r"_?PyEval_(?:EvalFrame|Vector|EvalCode)\w*|builtin_exec\w*|_PyFunction_Vectorcall")


def in_constructor(case: Case) -> Outcome:
    """The crashed thread ran a constructor of a library that was just being loaded."""
    if case.crashed is None:
        return unknown("the crashed thread")
    natives = case.crashed.failing
    runs = next((place for place, native in enumerate(natives) if _RUNS.fullmatch(native.name)), None)
    if runs is None:
        runs = _unnamed(natives)
    if not runs:
        return no("no constructor of a library was running")
    outer = natives[runs + 1].name if runs + 1 < len(natives) else ""
    if outer.startswith("__libc_start_main") or (natives[runs].name == "call_init" and outer == "_start"):
        # Since glibc 2.34 a function of the same name, in csu/libc-start.c, runs those of the executable itself. It is inlined into
        # __libc_start_main, and addr2line names the inlined one.
        return no("the constructor is the executable's own")
    inner = natives[runs - 1]
    fields = {"constructor": inner.name or code_in(inner.frame)}
    module = next((native.module for native in reversed(natives[:runs]) if native.module), "")
    if module:
        fields["library"] = module.rpartition("/")[2]
    evidence = Evidence(text=natives[runs].name or code_in(natives[runs].frame), thread=case.crashed.thread.tid, frame=natives[runs].index)
    return Outcome(True, (evidence,), fields)


def in_module_init(case: Case) -> Outcome:
    """The crashed thread ran a module's initialisation, and no Python code that it had called."""
    if case.crashed is None:
        return unknown("the crashed thread")
    for native in case.crashed.failing:
        if _RUNS_PYTHON.fullmatch(native.name):
            break
        if _INITIALISES.fullmatch(native.name):
            fields = {"constructor": native.name, "library": native.module.rpartition("/")[2]}
            evidence = Evidence(text=native.name, thread=case.crashed.thread.tid, frame=native.index)
            return Outcome(True, (evidence,), {name: value for name, value in fields.items() if value})
    return no("no module was being initialised")


def loading_by_python(case: Case) -> Outcome:
    """By its Python frames, the crashed thread was loading a library or an extension module: nothing else was called by them."""
    if case.crashed is None:
        return unknown("the crashed thread")
    frames = [(index, frame) for index, frame in case.crashed.pythons if frame.function != "_call_with_frames_removed"]
    index, frame = next(iter(frames), (None, None))
    if frame is None or not any(frame.function in names and (frame.file or "").endswith(file) for file, names in _LOADING.items()):
        return no("its innermost Python frame loads nothing")
    evidence = Evidence(text=f"{frame.function} in {frame.file}", thread=case.crashed.thread.tid, frame=index)
    return Outcome(True, (evidence,), {"constructor": "Native code"})


def import_typed_last(case: Case) -> Outcome:
    """Somebody typed an import, and the next line says that the process died: nothing else can have run."""
    for at, line in enumerate(case.crash.log):
        typed = line.before[-1].strip() if line.before else ""
        if line.kind in _DIED and _TYPED_IMPORT.fullmatch(typed):
            return Outcome(True, (Evidence(text=typed, log=at),), {"constructor": "Native code"})
    return no("no import was typed right before the end")


def _unnamed(natives: list[Native]) -> Optional[int]:
    """Where the loader, without symbols, called code of a library, and was itself called to load one."""
    for place in range(1, len(natives)):
        loader, inner = natives[place], natives[place - 1]
        if not loader.name and _LOADER.search(loader.module) and inner.module and not _LOADER.search(inner.module):
            return place if any(_LOADS.fullmatch(native.name) for native in natives[place + 1 :]) else None
    return None


def foreign_abort(case: Case) -> Outcome:
    """Python code called abort(), or another function that ends the process, through ctypes or cffi."""
    stack = case.crashed
    if stack is None:
        return unknown("the crashed thread")
    natives = stack.failing
    ended = len(stack.natives) - len(natives)
    if not ended or not natives or not is_foreign_call(natives[0].frame):
        return no("what ends the process was not called through ctypes or cffi")
    way = "cffi" if any("_cffi_backend" in native.module for native in natives) else "ctypes"
    caller = next((frame.function for _, frame in stack.pythons), None)
    last = stack.natives[ended - 1]
    evidence = Evidence(text=f"{last.name}, called through {way}", thread=stack.thread.tid, frame=last.index)
    return Outcome(True, (evidence,), {"function": f"{caller or 'Python code'}, through {way},"})


LOADING_FACTS = {
    "import-typed-last": import_typed_last,
    "in-constructor": in_constructor,
    "in-module-init": in_module_init,
    "foreign-abort": foreign_abort,
    "loading-by-python": loading_by_python,
}
