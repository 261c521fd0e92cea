"""Which tests were running when their process died: what pytest, xdist and JUnit files say. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import PurePosixPath
from typing import Optional
from xml.etree import ElementTree

from crashkit.batch.artefact import NodeId
from crashkit.limits import LONGEST_LINE
from crashkit.model import Crash, PythonFrame, Thread

_MARK = "crashed while running"
# pytest-xdist 1 to 3, dsession.py: the worker's name stands before it, in quotes from 1.20 on.
_WORKER = re.compile(r"worker '?(gw\d+)'? crashed while running '?([^'\n]{1,1000})'?")
_DIED = re.compile(
    r"(?i)crashed while running|fatal python error|segmentation fault|\bSIG(?:SEGV|ABRT|BUS|FPE|ILL|KILL)\b|core dumped"
    r"|crashed with signal"
)
# pytest -v: the test that began stands before what its process said last.
_FATAL = " Fatal Python error: "
_RUNS_TEST = "pytest_pyfunc_call"
_MOST_CASES = 100_000


def of_lines(lines: Iterable[str], shown: str) -> list[NodeId]:
    """The tests that xdist says crashed its workers, and those that began last before a fatal error."""
    found: dict[str, NodeId] = {}
    for line in lines:
        line = line[:LONGEST_LINE]
        if _MARK in line and (match := _WORKER.search(line)):
            name = match[2].strip()
            if name.endswith("..."):
                continue  # pytest's short summary is cut at the width of the terminal
            found.setdefault(name, NodeId(name, shown, match[1]))
        elif name := _began(line):
            found.setdefault(name, NodeId(name, shown))
    return list(found.values())


def _began(line: str) -> str:
    """The test before a fatal error; pytest names the file of an inherited one behind it: `test_a.py::test_b <- base.py`."""
    before, fatal, _ = line.partition(_FATAL)
    words = before.split()
    if words[-2:-1] == ["<-"]:
        del words[-2:]
    return words[-1] if fatal and words and "::" in words[-1] else ""


def may_name(line: bytes) -> bool:
    """Whether `of_lines` may find something in this line."""
    return b"crashed while running" in line or (b"::" in line and b"Fatal Python error" in line)


def of_junit(document: bytes, shown: str) -> tuple[list[NodeId], str]:
    """The failed tests of a JUnit file whose text tells of a crash, and their texts. Raises ValueError if it is no such file."""
    try:
        # expat 2.4.1 and newer stops entities that grow (CVE-2013-0340); older ones get no file with entities of its own.
        if b"<!ENTITY" in document:
            raise ValueError("a JUnit file with entities")
        root = ElementTree.fromstring(document)
    except ElementTree.ParseError as error:
        raise ValueError(f"not XML: {error}") from error
    found, texts = [], []
    for case, _ in zip(root.iter("testcase"), range(_MOST_CASES), strict=False):
        said = [f"{part.get('message') or ''}\n{part.text or ''}" for part in case if part.tag in ("failure", "error")]
        if not said:
            continue
        output = [part.text or "" for part in case if part.tag in ("system-out", "system-err")]
        if _DIED.search("\n".join([*said, *output])):
            found.append(NodeId(_name(case), shown))
            texts += [*said, *output]
    return found, "\n".join(texts)


def _name(case: ElementTree.Element) -> str:
    """pytest's node id from what its JUnit file keeps of it: `file` (xunit1) or a dotted class name."""
    name, group = case.get("name") or "", case.get("classname") or ""
    if "::" in name or not group:
        return name  # xdist's own report of a lost worker has the node id as its name
    parts = group.split(".")
    file = case.get("file")
    if file is None:
        # Modules are small letters by custom, test classes are not.
        at = next((index for index, part in enumerate(parts) if part[:1].isupper()), len(parts))
        file, classes = "/".join(parts[:at]) + ".py", parts[at:]
    else:
        classes = parts[len(PurePosixPath(file).with_suffix("").parts) :]
    return "::".join([file, *classes, name])


def of_crash(crash: Crash, nodes: Sequence[NodeId]) -> Optional[str]:
    """The test that this crash ran, by the functions on its crashed thread's stack (any thread's, if that one has none)."""
    thread = crash.thread
    stacks = [thread] if thread is not None and next(thread.pythons(), None) else crash.threads
    frames = {(PurePosixPath(frame.file or "").name, _last(frame.function)) for one in stacks for frame in one.pythons()}
    matches = [node.name for node in nodes if _place(node.name) in frames]
    if not matches:
        return next(filter(None, map(_of_stack, stacks)), None)
    return matches[0] if len(set(matches)) == 1 else _by_parameters(matches, crash)


def _of_stack(thread: Thread) -> Optional[str]:
    """The test function that pytest called, where no text names the test."""
    frames = list(thread.pythons())
    called = next((inner for inner, outer in pairwise(frames) if _last(outer.function) == _RUNS_TEST), None)
    if called is None or not called.file or not called.function:
        return None
    return f"{PurePosixPath(called.file).name}::{called.function.replace('.', '::')}"


def _by_parameters(matches: Sequence[str], crash: Crash) -> Optional[str]:
    """Several parameters of one test: the one whose values the test's frame shows, else none."""
    plain = {match.partition("[")[0] for match in matches}
    if len(plain) != 1:
        return None
    test = _place(matches[0])
    frames = [
        frame
        for thread in crash.threads
        for frame in thread.frames
        if isinstance(frame, PythonFrame) and (PurePosixPath(frame.file or "").name, _last(frame.function)) == test
    ]
    values = {value.strip("'\"") for frame in frames for value in frame.locals.values()}
    shown = [match for match in matches if match.partition("[")[2].removesuffix("]") in values]
    return shown[0] if len(set(shown)) == 1 else plain.pop()


def _place(node: str) -> tuple[str, str]:
    """File name and function."""
    file, _, rest = node.partition("[")[0].partition("::")
    return PurePosixPath(file).name, rest.rpartition("::")[2]


def _last(function: Optional[str]) -> str:
    return (function or "").rpartition(".")[2]
