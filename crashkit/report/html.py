"""`report.html`: one file that needs nothing else.

Every value goes through `safe.block` and autoescape; a content security policy allows the file's
own style and script by hash and nothing else (W3C Content Security Policy Level 3).
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from textwrap import dedent
from threading import Lock
from typing import TYPE_CHECKING, Any

import msgspec
from markupsafe import Markup, escape
from msgspec.structs import replace

from crashkit.model import Crash, Evidence, Frame, GpuException, NativeFrame, PythonFrame, Thread
from crashkit.naming.machinery import handler_end
from crashkit.naming.standing import standing
from crashkit.report import answer, gpu_picture, gpu_wording, job_wording, markdown, safe, wording
from crashkit.report.address_space import AddressSpace, Cell, stack_pointer
from crashkit.report.python_source import spans
from crashkit.report.renderer import Renderer

if TYPE_CHECKING:
    from jinja2 import Environment

_TEMPLATES = Path(__file__).parent / "templates"
_TEMPLATE = "report.html"
_WARMING = Lock()
_VALUE = 2000
_SOURCE = 400
_ROWS = 4000
_MOST_ROWS = 2000
"""Frames shown of a stretch that repeats nothing."""
_MOST_REPEATED = 400
"""Frames of a cycle's later rounds that are on the page; of more, only their number is."""
_NAMES = 60
_NEAR = 2
_ALWAYS = frozenset({"rip", "rsp", "pc", "sp", "eip", "esp"})


def render(crash: Crash) -> str:
    """The report of `crash` as one HTML document. It can be written as UTF-8."""
    warm()
    return _environment().get_template(_TEMPLATE).render(page=Page(crash))


def document(template: str, styles: Sequence[str], scripts: Sequence[str], **values: Any) -> str:
    """Another page of crashkit's: a template with its styles and its scripts, and the same safety."""
    style, code = "".join(map(_asset, styles)), "".join(map(_asset, scripts))
    given = {"style": Markup(style), "script": Markup(code), "policy": "; ".join(_policy(style, code)), **values}
    return _environment().get_template(template).render(given)


def warm() -> None:
    """Load and compile what `render` needs, once. A caller that waits for a debugger can call this in another thread meanwhile."""
    with _WARMING:
        _environment().get_template(_TEMPLATE)


# Rows


class Line(msgspec.Struct, frozen=True):
    """One line of Python source, highlighted; `current` is the line that was executing."""

    number: int | None
    code: Markup
    current: bool


class Mark(msgspec.Struct, frozen=True):
    """The expression that was running: the line's index among those shown, and the characters in it."""

    row: int
    start: int
    end: int


class Row(msgspec.Struct, frozen=True):
    """One frame as the page shows it."""

    anchor: str
    index: int
    kind: str
    function: str
    place: str
    runtime: bool
    cited: bool
    open: bool
    facts: tuple[tuple[str, str], ...] = ()
    values: tuple[tuple[str, str, bool], ...] = ()
    """Name, value, and whether it is an argument."""
    source: tuple[Line, ...] = ()
    """Shown while the frame is folded."""
    context: tuple[Line, ...] = ()
    """Shown instead once the frame is unfolded."""
    cycle: tuple[str, ...] = ()
    own: bool = False
    """Whether it is the user's own code."""


class Rows(msgspec.Struct, frozen=True):
    """Rows that stand together; `repeated` are the same frames again, or those of a signal handler, which are shown folded."""

    first: tuple[Row, ...]
    repeated: tuple[Row, ...] = ()
    """None where there are very many."""
    rounds: int = 1
    said: str = ""
    """How often they occur in a row, if more than once."""
    left_out: int = 0
    """Frames after these that the page does not show."""


class Stack(msgspec.Struct, frozen=True):
    """A thread's rows; `python` only where the two stacks are shown side by side."""

    rows: tuple[Rows, ...]
    python: tuple[Rows, ...]


class Page:
    """The crash, prepared for the template."""

    def __init__(self, crash: Crash) -> None:
        self.crash = crash
        self.signal = crash.signal
        self.process = crash.process
        self.thread = crash.thread
        self.gpu = crash.failed_gpu
        self.gpu_count = sum(len(gpu.exceptions) for gpu in crash.gpu)
        self.launch = gpu_wording.launch(crash)
        self.forward = wording.forward_line(self.launch.thread if self.launch else self.thread)
        self.sentence = wording.sentence(crash)
        self.job = crash.job
        self.bands = job_wording.bands(crash.job.processes) if crash.job else []
        self.pictures = job_wording.pictures(crash.job) if crash.job else []
        self.answer = answer.answer(crash)
        shown = self.answer.chosen.thread if self.answer else self.thread
        self.python = wording.python_at(shown)
        self.own = wording.own_at(shown)
        self.native = wording.native_at(self.thread, crash.signal)
        self.called_by = wording.called_by(self.thread, crash)
        self.finding = wording.best_finding(crash)
        groups = wording.groups(thread for thread in crash.threads if thread is not self.thread)
        # The thread that launched a GPU's kernel says more than the one that died, which is the driver's.
        self.groups = sorted(groups, key=lambda group: not self.opens(group))
        self.space = AddressSpace(crash.mappings, crash.modules, stack_pointer(self.thread))
        self.modules = wording.ordered_modules(crash.modules)
        self.markdown = markdown.summary(crash)
        positions = {id(thread): index for index, thread in enumerate(crash.threads)}
        self._prefixes: dict[int, str] = {}
        self._by_tid: dict[int, Thread] = {}
        stacks = [*([(self.thread,)] if self.thread else []), *(group.threads for group in self.groups)]
        for members in stacks:
            for thread in members:
                self._prefixes[id(thread)] = f"t{positions[id(members[0])]}"
                if thread.tid is not None:
                    self._by_tid.setdefault(thread.tid, thread)
        self._cited = {anchor for finding in crash.findings for item in finding.evidence if (anchor := self.anchor(item))}

    @property
    def title(self) -> str:
        """The document's title, such as `SIGSEGV in python3.11`."""
        name = "GPU failure" if self.gpu else self.crash.signal.name if self.crash.signal else wording.ended(self.crash)
        executable = self.process.executable if self.process else None
        return f"{name} in {wording.base_name(executable)}" if executable else name

    @property
    def line(self) -> str | None:
        """The user's own line, with the values that matter there; else that the program was ending, or what a live process waits for."""
        if self.answer:
            return answer.line(self.answer, self.signal)
        if (ended := answer.at_the_end(self.crash)) is not None:
            return ended
        stands = standing(self.crash) if self.signal is None else None
        return stands.text if stands is not None else None

    @property
    def source(self) -> tuple[Line, ...]:
        """The source of that line."""
        frame = self.answer.frame if self.answer else None
        whole = wording.statement(frame) if frame is not None else None
        if frame is None or whole is None or whole == wording.source_line(frame):
            return _source(frame, _highlighted) if frame is not None else ()
        return (Line(frame.line, highlight((_shown(whole),))[0], True),)

    @property
    def program(self) -> str:
        """The command line, else the executable or the process's name; '' where nothing is known."""
        if not self.process:
            return ""
        return " ".join(self.process.argv) or self.process.executable or self.process.name or ""

    @property
    def mappings(self) -> list[tuple[Any, bool]]:
        """The first mappings, each with whether it contains the fault address."""
        fault = self.signal.address if self.signal else None
        return [(mapping, fault is not None and mapping.start <= fault < mapping.end) for mapping in self.crash.mappings[:_ROWS]]

    @property
    def fix(self) -> str | None:
        """The first line of the best finding's first fix."""
        return self.finding.fix[0].split("\n")[0] if self.finding and self.finding.fix else None

    @property
    def more_to_fix(self) -> bool:
        """Whether that is not all that the finding says to do."""
        return self.finding is not None and (len(self.finding.fix) > 1 or self.fix != self.finding.fix[0] or bool(self.finding.next_steps))

    @property
    def neighbourhood(self) -> list[Cell]:
        """Where the fault address lies between its neighbours."""
        return self.space.around(self.signal.address) if self.signal and self.signal.address is not None else []

    @property
    def registers(self) -> tuple[list[tuple[str, int]], list[tuple[str, int]]]:
        """The registers that tell of the fault (those of its instruction, the fault address, pc and stack), and the others."""
        if not self.thread:
            return [], []
        fault = self.signal.address if self.signal else None
        instruction = next((item.text for item in self.crash.instructions if item.faulting), "")
        named = set(re.findall(r"\w+", instruction.lower()))
        telling = {name for name, value in self.thread.registers.items() if name in named or name in _ALWAYS or value == fault}
        rows = list(self.thread.registers.items())
        return [row for row in rows if row[0] in telling], [row for row in rows if row[0] not in telling]

    def opens(self, group: wording.Group) -> bool:
        """Whether the group's stack is shown at once."""
        return self.launch is not None and any(thread is self.launch.thread for thread in group.threads)

    def prefix(self, thread: Thread) -> str:
        """The id of the element that shows this thread, and the prefix of its frames' ids."""
        return self._prefixes[id(thread)]

    def anchor(self, evidence: Evidence) -> str | None:
        """The id of the element that shows `evidence`."""
        if evidence.thread is not None:
            thread = self._by_tid.get(evidence.thread)
            if thread is None:
                return None
            known = evidence.frame is not None and 0 <= evidence.frame < len(thread.frames)
            return f"{self.prefix(thread)}.{evidence.frame}" if known else self.prefix(thread)
        if evidence.log is not None:
            return f"log{evidence.log}" if 0 <= evidence.log < len(self.crash.log) else None
        if evidence.module is not None:
            return next((f"module{index}" for index, module in enumerate(self.crash.modules) if module.path == evidence.module), None)
        return None

    def stack(self, thread: Thread) -> Stack:
        """The thread's frames as rows."""
        interpreter = self.crash.python.executable if self.crash.python else None
        runtime = wording.runtime_frames(thread, interpreter)
        return Stack(
            _folded(thread.frames, lambda index: self._row(thread, index, thread.frames[index], index in runtime)),
            _folded(thread.python_frames, lambda index: self._row(thread, index, thread.python_frames[index], False, "p")),
        )

    def _row(self, thread: Thread, index: int, frame: Frame, runtime: bool, column: str = "") -> Row:
        anchor = f"{self.prefix(thread)}.{column}{index}"
        cited = anchor in self._cited
        if isinstance(frame, PythonFrame):
            place = wording.python_place(frame)
            opened = thread is self.thread and frame is self.own and bool(frame.locals)
            # Other threads are folded: their source is not worth the time that highlighting takes.
            source, context = _excerpts(frame) if thread is self.thread else (_source(frame, _plain), ())
            return Row(
                anchor,
                index,
                "python",
                frame.function or "(no name)",
                place,
                False,
                cited,
                opened,
                _python_facts(frame),
                _values(frame),
                source,
                context,
                own=wording.is_own(frame),
            )
        if isinstance(frame, NativeFrame):
            facts = _native_facts(frame) if thread is self.thread or not frame.function else ()
            return Row(
                anchor,
                index,
                "native",
                wording.native_function(frame),
                wording.native_place(frame),
                runtime,
                cited,
                False,
                facts,
                _values(frame),
            )
        return Row(anchor, index, "elided", wording.elided_text(frame), "", False, cited, False, cycle=frame.cycle)


def _folded(frames: Sequence[Frame], row: Callable[[int], Row]) -> tuple[Rows, ...]:
    """Of a deep stack that repeats nothing, both ends; of a cycle, the rounds after the first only where they are few.

    The frames of a handler that raised the signal again are folded: the fault is below them.
    """
    handled = handler_end(frames)
    handled = handled if handled > 1 else 0
    found = [Rows((), tuple(map(row, range(handled))))] if handled else []
    for one in wording.stretches(frames[handled:]):
        part = replace(one, start=one.start + handled, end=one.end if one.end is None else one.end + handled)
        end = part.start + part.length
        if part.length > _MOST_ROWS:
            half = _MOST_ROWS // 2
            found.append(Rows(tuple(map(row, range(part.start, part.start + half))), left_out=part.length - 2 * half))
            found.append(Rows(tuple(map(row, range(end - half, end)))))
            continue
        repeated = part.repeated if len(part.repeated) <= _MOST_REPEATED else ()
        found.append(Rows(tuple(map(row, range(part.start, end))), tuple(map(row, repeated)), part.rounds, wording.rounds(part)))
    return tuple(found)


def _python_facts(frame: PythonFrame) -> tuple[tuple[str, str], ...]:
    file = frame.file if frame.file and not wording.python_place(frame).startswith(frame.file) else None
    return _present(("file", file), ("found by", frame.origin), ("trust", wording.python_trust(frame)))


def _native_facts(frame: NativeFrame) -> tuple[tuple[str, str], ...]:
    place = f"{frame.file}:{frame.line}" if frame.file and frame.line else frame.file
    module = f"{frame.module} + {frame.offset}" if frame.module and frame.offset is not None else frame.module
    trust = wording.TRUST.get(frame.trust, frame.trust) if frame.trust else None
    return _present(
        ("function", frame.function),
        ("source", place),
        ("module", module),
        ("pc", str(frame.pc) if frame.pc is not None else None),
        ("found", trust),
    )


def _present(*facts: tuple[str, str | None]) -> tuple[tuple[str, str], ...]:
    return tuple((label, value) for label, value in facts if value)


def _values(frame: NativeFrame | PythonFrame) -> tuple[tuple[str, str, bool], ...]:
    if isinstance(frame, NativeFrame):
        return (
            *((name, value, True) for name, value in frame.args.items()),
            *((name, value, False) for name, value in frame.locals.items()),
        )
    arguments = [name for name in frame.args if name in frame.locals]
    ordered = {**{name: frame.locals[name] for name in arguments}, **frame.locals}
    return tuple((name, value, name in arguments) for name, value in ordered.items())


# Python source


def _excerpts(frame: PythonFrame) -> tuple[tuple[Line, ...], tuple[Line, ...]]:
    """The lines seen at once, and all of them: a few for the user's own code, the current one for other code."""
    if not frame.context or frame.context_start is None or frame.line is None:
        return _source(frame, _highlighted), ()
    shown = tuple(dedent("\n".join(map(_shown, frame.context))).split("\n"))
    coded = highlight(shown, _mark(frame, shown))
    lines = tuple(Line(number, code, number == frame.line) for number, code in enumerate(coded, frame.context_start))
    if not wording.is_own(frame):
        return _source(frame, _highlighted), lines
    near = tuple(line for line in lines if abs((line.number or 0) - frame.line) <= _NEAR)
    return near, lines if len(near) < len(lines) else ()


def _kernel_source(exception: GpuException) -> tuple[Line, ...]:
    """The lines around the faulting one; those of CUDA C++ without colours."""
    if not exception.context or exception.context_start is None:
        return ()
    shown = tuple(dedent("\n".join(map(_shown, exception.context))).split("\n"))
    coded = highlight(shown) if (exception.file or "").endswith(".py") else tuple(map(escape, shown))
    return tuple(Line(number, code, number == exception.line) for number, code in enumerate(coded, exception.context_start))


def _mark(frame: PythonFrame, shown: Sequence[str]) -> Mark | None:
    """Where in these lines the expression is that was running. Tabs and control characters are longer there than in the source."""
    marked, source = wording.expression(frame), wording.source_line(frame)
    index = (frame.line or 0) - (frame.context_start or 0) if len(shown) > 1 else 0
    if marked is None or source is None:
        return None
    row = shown[index]
    start, end = (len(row) - len(row.lstrip()) + len(safe.line(source[:column].expandtabs(4))) for column in marked)
    return Mark(index, start, end) if end <= len(row) else None


def _source(frame: PythonFrame, code: Callable[[PythonFrame, str], Markup]) -> tuple[Line, ...]:
    source = wording.source_line(frame)
    return (Line(frame.line, code(frame, _shown(source)), True),) if source else ()


def _highlighted(frame: PythonFrame, line: str) -> Markup:
    return highlight((line,), _mark(frame, (line,)))[0]


def _plain(_frame: PythonFrame, line: str) -> Markup:
    return escape(line)


@lru_cache(maxsize=512)
def highlight(lines: tuple[str, ...], mark: Mark | None = None) -> tuple[Markup, ...]:
    """Python source as HTML, one result per line."""
    text = "\n".join(safe.line(line) for line in lines)
    rows: list[list[str]] = [[]]
    column = 0
    for style, value in spans(text):
        for number, part in enumerate(value.split("\n")):
            if number:
                rows.append([])
                column = 0
            ends = (mark.start, mark.end) if mark is not None and mark.row == len(rows) - 1 else ()
            cuts = [0, *(end - column for end in ends if 0 < end - column < len(part)), len(part)]
            for start, end in pairwise(cuts):
                # A mark begins and ends between spans.
                opening = "<mark>" if ends and column + start == ends[0] and end > start else ""
                closing = "</mark>" if ends and column + end == ends[1] and end > start else ""
                rows[-1].append(f"{opening}{_span(style, str(escape(part[start:end])))}{closing}")
            column += len(part)
    return tuple(Markup("".join(row)) for row in rows)


def _shown(line: str) -> str:
    return safe.line(safe.bounded(line.rstrip().expandtabs(4), _SOURCE))


def _span(style: str, escaped: str) -> str:
    return f'<span class="{style}">{escaped}</span>' if style and escaped.strip() else escaped


# Text


def _shown_value(value: object) -> object:
    """Jinja's `finalize`: no string reaches the page unbounded or with control characters."""
    if isinstance(value, str) and not isinstance(value, Markup):
        return safe.block(value if len(value) <= _VALUE else safe.bounded(value, _VALUE))
    return value


def _prose(text: str) -> Markup:
    """Escaped text in which `backticks` mark code."""
    parts = str(_shown_value(text)).split("`")
    if len(parts) % 2 == 0:
        return escape("`".join(parts))
    return Markup("").join(Markup("<code>{}</code>").format(part) if index % 2 else escape(part) for index, part in enumerate(parts))


def _is_link(reference: str) -> bool:
    return reference.startswith(("https://", "http://")) and reference.isascii() and reference.isprintable() and " " not in reference


def _size(count: int) -> str:
    """Bytes in readable form: `4.2 GiB`."""
    size = float(count)
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "bytes" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def _names(threads: Sequence[Thread]) -> Iterator[str]:
    for thread in threads[:_NAMES]:
        yield wording.thread_label(thread)
    if len(threads) > _NAMES:
        yield f"and {len(threads) - _NAMES} more"


# The template


@lru_cache(maxsize=1)
def _environment() -> Environment:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    from crashkit.report.compiled_templates import CompiledTemplates

    environment = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        undefined=StrictUndefined,
        finalize=_shown_value,
        auto_reload=False,
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        optimized=False,
        bytecode_cache=CompiledTemplates(_TEMPLATES),
    )
    environment.globals.update(_names_of_template())
    return environment


def _names_of_template() -> Mapping[str, Any]:
    style, script = _asset("report.css"), _asset("page.js") + _asset("report.js")
    return {
        "style": Markup(style),
        "script": Markup(script),
        "policy": "; ".join(_policy(style, script)),
        "wording": wording,
        "gpu": gpu_wording,
        "pictures": gpu_picture,
        "kernel_source": _kernel_source,
        "jobs": job_wording,
        "prose": _prose,
        "is_link": _is_link,
        "size": _size,
        "names": _names,
    }


def _asset(name: str) -> str:
    return (_TEMPLATES / name).read_text(encoding="utf-8")


def _policy(style: str, script: str) -> Iterable[str]:
    return (
        "default-src 'none'",
        f"style-src 'sha256-{_digest(style)}'",
        f"script-src 'sha256-{_digest(script)}'",
        "img-src data:",
        "base-uri 'none'",
        "form-action 'none'",
    )


def _digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


RENDERER = Renderer("report.html", lambda crash: render(crash).encode("utf-8", "replace"), warm)
