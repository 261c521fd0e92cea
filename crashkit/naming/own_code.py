"""Decides which Python frames are the user's own code: for "your code", `{python}` and fingerprints.

Decided from the frame alone, never from files on this machine, so every host gives the same answer.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

from crashkit.model import Frame, NativeFrame, PythonFrame, Thread
from crashkit.naming.cython import cython_frame
from crashkit.naming.machinery import handler_end

# Code without a file that a person wrote: `python -c`, exec, `python -`, the prompts of python, code.interact and PyCharm, cells of
# IPython and Databricks, doctests. IPython's tracebacks name a cell `Cell In[3]` or `Input In [3]`.
_TYPED = re.compile(
    r"<(?:string|stdin|console|input|(?:ipython|python)-input-\d.*|stdin-\d+|command-\d.*|doctest .*)>|(?:Cell |Input )?In ?\[\d+\]"
)

# Paths with `/` between their parts. Whatever matches nothing here is the user's own.
_NOT_OWN = re.compile(
    "|".join(
        (
            # Installed packages, also inside a zip, a wheel or an egg.
            r"(?:^|/)(?:site|dist)-packages/",
            r"\.(?:egg|whl)/",
            # The standard library: /usr, virtual environments, conda, pyenv, macOS frameworks, PyPy, its zip.
            r"(?:^|/)lib(?:32|64)?/(?:python|pypy)-?\d[\d.]*t?/",
            r"/lib-python/\d|/lib_pypy/",
            r"/python\d+\.zip/",
            # The same on Windows, where it is called Lib, below an installation of python.org, the Store, conda or uv.
            r"^(?i:[a-z]:/(?:.*/)?(?:c?python[^/]*|PythonSoftwareFoundation\.[^/]*|(?:ana|mini)conda\d*|mini(?:forge|mamba)\d*|mambaforge"
            r"|envs/[^/]+|versions/[\d.]+)/lib/)",
            # Bootstraps of zip applications (zipapp, shiv, pex, console scripts on Windows) and of frozen programs (PyInstaller).
            r"\.(?:pyzw?|zip|pex|par|xar|exe)/__main__\.py$",
            r"\.(?:pyzw?|pex)/(?:_bootstrap|\.bootstrap)/|/\.bootstrap/",
            r"(?:^|/)PyInstaller/|(?:^|/)(?:pyi_rth_|pyimod\d|pyiboot\d)\w*\.py$",
            # Programs of the system, and entry scripts of packages on Windows.
            r"^/(?:usr/)?s?bin/[^/]+$",
            r"/Scripts/[^/]+(?:-script\.pyw?|\.exe)$",
            # Debuggers of editors, Spark's workers, AWS Lambda's runtime, code that torch.compile and TensorFlow write.
            r"/helpers/pydev/|/ms-python\.|/(?:pyspark|py4j)[^/]*\.zip/|^/var/runtime/|/torchinductor_[^/]*/|/__autograph_generated_file",
        )
    ),
)

_INSTALLED = re.compile(r"/(?:site|dist)-packages/([A-Za-z][\w-]*)")

# A package's entry script has no suffix and nothing but a module body; older ones load their entry point through a function.
_ENTRY_SCRIPT = re.compile(r"/(?:bin|Scripts)/[^/.]+(?:\.\d+)*$")
_ENTRY_FUNCTIONS = ("<module>", "importlib_load_entry_point")

# A traceback names a Cython module's source as it was named where the package was built: `cupy/_core/core.pyx`. Nothing tells where it is
# installed; nearly all such packages are libraries, and one's own program is on the stack as well.
_CYTHON_OF_PACKAGE = re.compile(r"[^/]+/.*\.(?:pyx|pxd|pxi)$")

# PyInstaller and CPython's own frozen modules name files of the standard library by relative paths.
_STANDARD_LIBRARY = frozenset(
    """
    abc aifc argparse array ast asynchat asyncio asyncore base64 bdb bisect bz2 cProfile calendar cgi cgitb chunk cmd codecs codeop
    collections colorsys compileall concurrent configparser contextlib contextvars copy copyreg csv ctypes curses dataclasses datetime dbm
    decimal difflib dis distutils doctest email encodings ensurepip enum filecmp fileinput fnmatch fractions ftplib functools genericpath
    getopt getpass gettext glob graphlib gzip hashlib heapq hmac html http idlelib imaplib imghdr imp importlib inspect io ipaddress json
    keyword lib2to3 linecache locale logging lzma mailbox mailcap mimetypes modulefinder multiprocessing netrc nntplib ntpath nturl2path
    numbers opcode operator optparse os pathlib pdb pickle pickletools pipes pkgutil platform plistlib poplib posixpath pprint profile
    pstats pty py_compile pyclbr pydoc pydoc_data queue quopri random re reprlib rlcompleter runpy sched secrets selectors shelve shlex
    shutil signal site smtpd smtplib sndhdr socket socketserver sqlite3 sre_compile sre_constants sre_parse ssl stat statistics string
    stringprep struct subprocess sunau symtable sysconfig tabnanny tarfile telnetlib tempfile textwrap threading timeit tkinter token
    tokenize tomllib trace traceback tracemalloc tty turtle types typing unittest urllib uu uuid venv warnings wave weakref webbrowser
    wsgiref xdrlib xml xmlrpc zipapp zipfile zipimport zoneinfo
    """.split()
)


def is_own(frame: PythonFrame) -> bool:
    """Whether the frame's code belongs to the user's program; False if its file is unknown."""
    path, function = (frame.file or "").replace("\\", "/"), frame.function or ""
    if _TYPED.fullmatch(path):
        # dataclasses and namedtuple compile their methods from a string, too.
        return not function.rpartition(".")[2].startswith("__")
    if not path or path.startswith("<") or _is_not_own(path):
        return False
    if frame.origin == "traceback" and _CYTHON_OF_PACKAGE.match(path):
        return False
    if _ENTRY_SCRIPT.search(path) and function in _ENTRY_FUNCTIONS:
        return False
    return re.split(r"[/.]", path)[0] not in _STANDARD_LIBRARY


def installed_as(path: str) -> str | None:
    """The folder or module of an installed package that a file is part of: `torch`; None for other files."""
    match = _INSTALLED.search(path)
    return match[1] if match is not None else None


def python_frames(thread: Thread) -> list[PythonFrame]:
    """The thread's Python frames below a signal handler, innermost first; all of them if there are none below. The user's own Cython
    functions are among them."""
    if thread.python_frames:
        return list(thread.python_frames)
    below = [found for frame in thread.frames[handler_end(thread.frames) :] if (found := _as_python(frame)) is not None]
    # A Cython function without a line and its wrapper are one.
    apart = [frame for index, frame in enumerate(below) if frame.line is not None or not index or frame != below[index - 1]]
    return apart or list(thread.pythons())


def _as_python(frame: Frame) -> PythonFrame | None:
    if isinstance(frame, NativeFrame):
        # Whose code it is, the module's place tells: the source was wherever the wheel was built.
        return None if _is_not_own(frame.module or "/lib/python3/") else cython_frame(frame)
    return frame if isinstance(frame, PythonFrame) else None


@lru_cache(maxsize=4096)
def _is_not_own(path: str) -> bool:
    return _NOT_OWN.search(path) is not None


def own_line(frames: Iterable[PythonFrame]) -> PythonFrame | None:
    """The innermost frame of the user's own code; None if there is none."""
    return next(filter(is_own, frames), None)
