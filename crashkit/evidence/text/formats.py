"""The formats of multi-line text, in the order in which they are tried. To add one, write its module and list it here."""

from __future__ import annotations

from typing import Any

from crashkit.evidence.text import (
    apple,
    backward,
    c10,
    containers,
    coredumpctl,
    faulthandler,
    gdb,
    glibc_backtrace,
    glog,
    julia,
    jvm,
    kubernetes,
    lldb,
    pyspy,
    pytest_timeout,
    rust,
    sanitizer,
    slurm,
    traceback,
    valgrind,
)
from crashkit.evidence.text.listing import Rows
from crashkit.evidence.text.reader import Format

LISTINGS: tuple[Format[Rows], ...] = (*containers.FORMATS, *kubernetes.FORMATS, *slurm.FORMATS)
"""Those that list several processes (`listing.py`)."""
FORMATS: tuple[Format[Any], ...] = (
    faulthandler.FORMAT,
    traceback.FORMAT,
    coredumpctl.FORMAT,
    backward.FORMAT,
    gdb.FORMAT,
    *sanitizer.FORMATS,
    valgrind.FORMAT,
    jvm.FORMAT,
    julia.FORMAT,
    *glog.FORMATS,
    *apple.FORMATS,
    lldb.FORMAT,
    pytest_timeout.FORMAT,
    pyspy.FORMAT,
    rust.FORMAT,
    glibc_backtrace.FORMAT,
    *c10.FORMATS,
    *LISTINGS,
)
