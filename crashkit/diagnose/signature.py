"""The data of a signature: its texts, and the rules that match it."""

from __future__ import annotations

from typing import Optional, Union

import msgspec

CONFIDENCES = ("certain", "likely", "possible")
SEVERITIES = ("critical", "high", "medium", "low", "info")


class _Part(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    pass


class FramePattern(_Part, frozen=True):
    """A native frame: both are regular expressions, `function` for the whole plain name (without arguments and
    templates), `module` for any part of the path."""

    function: Optional[str] = None
    module: Optional[str] = None


class Condition(_Part, frozen=True):
    """One question about a crash. Exactly one of the first group is set; the second group refines it."""

    signal: Optional[tuple[str, ...]] = None
    """Names; "none" where no signal is known. That of a fault (SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGTRAP) only where an instruction
    caused it, unless `sent`."""
    code: Optional[tuple[str, ...]] = None
    """Names of si_code."""
    reason: Optional[tuple[str, ...]] = None
    access: Optional[tuple[str, ...]] = None
    address: Optional[tuple[int, int]] = None
    """First and last fault address."""
    in_mapping: Optional[str] = None
    """Regular expression for the path of the file that is mapped at the fault address."""
    instruction: Optional[str] = None
    """Regular expression for the faulting instruction."""
    frames: Optional[tuple[Union[str, FramePattern], ...]] = None
    """In this order, innermost first, with any others between; on the crashed thread, below a signal handler."""
    threads: Optional[tuple[Union[str, FramePattern], ...]] = None
    """As `frames`, on at least `at_least` threads other than the crashed one."""
    anywhere: Optional[tuple[Union[str, FramePattern], ...]] = None
    """As `frames`, on at least `at_least` threads, the crashed one included."""
    python: Optional[tuple[str, ...]] = None
    """Regular expressions for `file:function`, in order, innermost first, on the crashed thread; on any where none crashed."""
    modules: Optional[str] = None
    """Regular expression for module paths; at least `at_least` different files."""
    log: Optional[str] = None
    """Kind of a log line (evidence/text/log_lines.toml); "*" for any, with `pattern`."""
    exit: Optional[tuple[int, ...]] = None
    """Exit status as a shell sees it."""
    environment: Optional[dict[str, str]] = None
    """Regular expressions by variable."""
    version: Optional[dict[str, str]] = None
    """Such as { python = ">=3.12" }; "<", "<=", ">", ">=", "==", joined by commas."""
    finalizing: Optional[bool] = None
    """Whether the interpreter was shutting down."""
    package: Optional[str] = None
    """A Python package that the process used, such as torch: a module of it is loaded, or a frame is in its code."""
    fact: Optional[str] = None
    """A named predicate of facts.py."""
    gpu: Optional[tuple[str, ...]] = None
    """What the GPU core shows: a kind of exception (naming/gpu_exceptions.py), by the driver's line in the log where there is no GPU core;
    null, shared, local for an address of that kind; hang (no exception, and a kernel was running), barrier, mbarrier, grid-barrier,
    cluster-barrier (one of its warps waits at one while another is at another line, or a block of the grid has ended), cooperative (one of
    these in a kernel whose launch was cooperative)."""
    any: Optional[tuple[Condition, ...]] = None
    all: Optional[tuple[Condition, ...]] = None

    sent: bool = False
    """`signal` also where a process sent it, this one or another."""
    top: bool = False
    """The first of `frames` is where the thread crashed: above it are only abort machinery and the signal handler."""
    within: Optional[int] = None
    """The first of `frames` is among this many innermost frames below the abort machinery."""
    above_handler: bool = False
    """`frames` begin at the innermost frame even where a signal handler runs."""
    at_least: int = 1
    pattern: Optional[str] = None
    """Regular expression for the text of the log line."""
    kernel: Optional[str] = None
    """For `gpu`: regular expression for any part of the kernel's mangled name."""


SUBJECTS = (
    "signal code reason access address in_mapping instruction "
    "frames threads anywhere python modules log exit environment version finalizing package fact gpu any all"
).split()


class Fix(_Part, frozen=True):
    """Something to copy: a command, a patch, a variable."""

    text: str
    needs: Optional[str] = None
    """A package that the fix requires, such as torch: omitted where the process certainly did not have it."""
    when: tuple[Condition, ...] = ()
    """Omitted where a fact of the run contradicts one of these."""
    unless: tuple[Condition, ...] = ()
    """Omitted where one of these holds."""


class Rule(_Part, frozen=True):
    """Matches if all of `all`, at least one of `any` (if given) and none of `none` hold."""

    confidence: str
    all: tuple[Condition, ...] = ()
    any: tuple[Condition, ...] = ()
    none: tuple[Condition, ...] = ()


class Signature(_Part, frozen=True):
    """A known failure: how to recognize it, its cause and its fix. docs/adding-a-signature.md explains every field."""

    id: str
    title: str
    severity: str
    cause: str
    rule: tuple[Rule, ...]
    """The first that matches gives the confidence."""
    summary: tuple[str, ...] = ()
    """Sentences with {names} in them; one with an unknown name is omitted; {name|text} falls back to text."""
    fix: tuple[Union[str, Fix], ...] = ()
    """Each to be copied; a string is a `Fix` that needs nothing."""
    next_steps: tuple[Union[str, Fix], ...] = ()
    """Shown below `certain`."""
    references: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    """Look-alikes and unconfirmed facts; for readers of the catalog."""
    none: tuple[Condition, ...] = ()
    """For every rule."""
    yields_to: tuple[str, ...] = ()
    """Ids (with *) of signatures that, when they match at least as `likely`, make this one a consequence."""
    general: bool = False
    """Names the kind of fault, not its cause: ranks below every other finding."""
    exception: bool = False
    """Python raises it, and a program may catch it and continue: at most `possible` if a fault ended the process."""
    file: str = ""
    """The file it was read from; set on loading."""

    @property
    def fixes(self) -> tuple[Fix, ...]:
        """`fix`, with plain strings as `Fix`."""
        return _fixes(self.fix)

    @property
    def steps(self) -> tuple[Fix, ...]:
        """`next_steps`, with plain strings as `Fix`."""
        return _fixes(self.next_steps)


def _fixes(texts: tuple[Union[str, Fix], ...]) -> tuple[Fix, ...]:
    return tuple(Fix(text=text) if isinstance(text, str) else text for text in texts)
