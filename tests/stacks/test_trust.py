"""What each frame of a Python stack says of the other sources that read it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from crashkit.debugger.contract import PythonStack
from crashkit.model import Crash, PythonFrame
from crashkit.pipeline import Options, analyze
from crashkit.report import wording
from crashkit.report.renderer import renderer
from crashkit.stacks.choose import Chosen, choose
from tests.crashes import Folder, a_debuggable_interpreter, python_crash

MARKS = {"confirmed": "+", "contradicted": "X", "alone": "."}


def stack(names: str, origin: str = "crashkit", cut: bool = False, outer: str = "", total: int | None = None) -> PythonStack:
    """A letter a frame, innermost first; of `?` nothing could be read."""

    def frames(names: str) -> tuple[PythonFrame, ...]:
        known = PythonFrame(file="f.py", origin=origin)
        return tuple(known if name == "?" else replace(known, function=name, line=ord(name)) for name in names)

    return PythonStack(frames(names), None, None, outer=frames(outer), total=total, cut=cut)


def chosen(*stacks: PythonStack) -> Chosen:
    return choose([{7: one} for one in stacks])


def told(*stacks: PythonStack) -> str:
    """A mark a frame of the chosen stack, both its ends."""
    best = chosen(*stacks).stacks[7]
    frames = (*best.frames, *best.outer)
    for frame in frames:
        assert frame.trust == ("contradicted" if frame.contradicted_by else "confirmed" if frame.confirmed_by else "alone")
    return "".join(MARKS[frame.trust or ""] for frame in frames)


def test_one_source_is_alone() -> None:
    assert told(stack("abc")) == "..."
    assert told(stack("abc"), stack("", "pystack")) == "..."


def test_sources_that_agree_are_named() -> None:
    (frame,) = chosen(stack("a", "libpython"), stack("a"), stack("a", "pystack")).stacks[7].frames
    assert (frame.trust, frame.confirmed_by, frame.contradicted_by) == ("confirmed", ("crashkit", "pystack"), {})
    assert wording.python_trust(frame) == "crashkit and pystack read the same"


def test_a_source_does_not_confirm_itself() -> None:
    """A log can hold several dumps."""
    dump = stack("ab", "faulthandler")
    assert told(dump, dump._replace(name="main")) == ".."
    (frame, _) = chosen(stack("ab"), dump, dump._replace(name="main")).stacks[7].frames
    assert frame.confirmed_by == ("faulthandler",)


def test_what_another_source_reads_instead_is_told() -> None:
    frames = chosen(stack("abc", "libpython"), stack("axc"), stack("abc", "pystack")).stacks[7].frames
    assert [frame.trust for frame in frames] == ["confirmed", "contradicted", "confirmed"]
    assert (frames[1].confirmed_by, frames[1].contradicted_by) == (("pystack",), {"crashkit": "x (f.py:120)"})
    assert wording.python_trust(frames[1]) == "crashkit reads x (f.py:120); pystack reads the same"


def test_what_could_not_be_read_neither_confirms_nor_contradicts() -> None:
    assert told(stack("abc"), stack("a?c", "pystack")) == "+.+"
    assert told(stack("a??"), stack("??", "pystack", cut=True)) == "..."
    half = stack("a")._replace(frames=(PythonFrame(function="a", file="f.py", origin="pystack"),))
    assert told(stack("a"), half) == "."
    elsewhere = stack("a")._replace(frames=(PythonFrame(function="a", file="g.py", line=ord("a"), origin="pystack"),))
    assert told(stack("a"), elsewhere) == "."


@pytest.mark.parametrize(
    ("one", "other", "expected", "said"),
    [
        ("abcd", "abd", "++X+", "c (f.py:99) against no frame;"),
        ("abcd", "bcd", "X+++", "a (f.py:97) against no frame;"),
        ("abcd", "abc", "+++X", "d (f.py:100) against no frame;"),
        ("abcd", "xd", "XXX+", "a (f.py:97) against x (f.py:120) and 2 more frames;"),
        ("aaab", "aab", "++X+", "a (f.py:97) against no frame;"),
        ("abcd", "x", "XXXX", "a (f.py:97) against x (f.py:120) and 3 more frames;"),
    ],
)
def test_a_missing_frame_makes_only_itself_doubtful(one: str, other: str, expected: str, said: str) -> None:
    assert told(stack(one), stack(other, "pystack")) == expected
    (error,) = chosen(stack(one), stack(other, "pystack")).soft_errors
    assert f"disagree: {said}" in error.message


def test_a_frame_that_only_the_other_source_has_is_told() -> None:
    """One that could not be named makes the shorter stack the better one."""
    other = stack("abx?c", "pystack")
    (error,) = chosen(stack("abc"), other).soft_errors
    assert "disagree: no frame against x (f.py:120) and one more frame; crashkit is shown: it alone knows the function" in error.message
    assert told(stack("abc"), other) == "+++"


def test_of_deep_stacks_both_ends_are_compared() -> None:
    deep = stack("abc", outer="yz", total=900)
    assert told(deep, stack("abc", "libpython", outer="yz", total=900)) == "+++++"
    assert told(deep, stack("ab", "libpython", outer="xz", total=900)) == "++.X+"
    assert told(deep, stack("abcd", "libpython", outer="z", total=900)) == "+++.+"


def test_of_stacks_that_are_not_whole_the_inner_end_is_compared() -> None:
    deep = stack("abc", outer="yz", total=900)
    assert told(deep, stack("abc", "libpython", outer="yz", total=899)) == "+++.."
    assert told(deep, stack("ab", "libpython", cut=True)) == "++..."
    assert told(deep, stack("ab", "libpython")) == "++..."
    assert told(stack("abc"), stack("xb", "libpython", cut=True)) == "X+."
    assert told(stack("abc", cut=True), stack("ab", "libpython", cut=True)) == "++."


def test_a_stack_that_may_lack_inner_frames_is_compared_from_its_outer_end() -> None:
    """And doubts no frame of another one: which of them it lacks is not known."""
    found = stack("yz", cut=True)._replace(gap=True)
    assert told(stack("abxyz", "libpython"), found) == "...++"
    assert told(found, stack("z", "libpython", cut=True)) == ".+"
    assert told(stack("abc", "libpython"), found) == "..."
    # With a gap in between, the inner ends are compared.
    assert told(stack("ab", cut=True, outer="yz")._replace(gap=True), stack("xb", "libpython", cut=True)) == "X+.."


def test_a_dump_confirms_and_never_contradicts() -> None:
    """It may be of a forked sibling, or of an earlier time. faulthandler ends it after 100 frames."""
    assert told(stack("abc"), stack("abc", "faulthandler")) == "+++"
    assert told(stack("abc"), stack("ab", "faulthandler")) == "++."
    assert told(stack("abc"), stack("xbc", "faulthandler")) == "..."
    assert told(stack("abc", "faulthandler"), stack("x??")) == "..."


@pytest.mark.parametrize(
    ("one", "other", "why"),
    [
        (stack("ab"), stack("a?x", "pystack"), "it alone knows the function and the line of every frame"),
        (stack("abc"), stack("ax", "pystack"), "it read more frames (3 against 2)"),
        (stack("a", total=900), stack("b", "pystack", total=800), "it counted more frames (900 against 800)"),
        (stack("ab?"), stack("x??", "pystack"), "it knows more functions and lines (4 against 2)"),
        (stack("a")._replace(frames=(PythonFrame(function="a", line=1, locals={"x": "1"}),)), stack("x"), "it alone read variables"),
    ],
)
def test_the_report_says_why_one_source_is_believed(one: PythonStack, other: PythonStack, why: str) -> None:
    for order in ((one, other), (other, one)):
        (error,) = chosen(*order).soft_errors
        assert error.message.endswith(f" is shown: {why}")


def test_of_equals_the_first_is_believed() -> None:
    (error,) = chosen(stack("a"), stack("x", "pystack")).soft_errors
    assert error.message.endswith("; crashkit is shown: neither knows more, and it is preferred")


@given(st.integers(1, 20), st.data())
def test_whatever_part_is_missing_nothing_else_is_doubted(length: int, data: st.DataObject) -> None:
    names = "abcdefghijklmnopqrst"[:length]
    start = data.draw(st.integers(0, length))
    end = data.draw(st.integers(start, length))
    rest = names[:start] + names[end:]
    if rest:
        assert told(stack(names), stack(rest, "pystack")) == "+" * start + "X" * (end - start) + "+" * (length - end)


# Real crashes.


def by_function(crash: Crash) -> dict[str | None, PythonFrame]:
    return {frame.function: frame for frame in crash.thread.pythons()} if crash.thread is not None else {}


@pytest.fixture(scope="module")
def made() -> Folder:
    return python_crash("threads.py", python=a_debuggable_interpreter())


@pytest.mark.slow
def test_the_core_alone_and_its_dump(made: Folder, tmp_path: Path) -> None:
    """faulthandler confirms the same frames as they were read out of the core."""
    core = tmp_path / "core"
    shutil.copy(made.core, core)
    options = Options(gdb=None, sysroot=tmp_path / "nothing")
    frames = by_function(analyze(core, options=options))
    assert {frame.trust for frame in frames.values()} == {"alone"} and "read" in frames
    frames = by_function(analyze([core, made.path / "stderr.txt"], options=options))
    assert {(frame.trust, frame.origin, frame.confirmed_by) for frame in frames.values()} == {("confirmed", "crashkit", ("faulthandler",))}


MISREAD = """
_real = PyUnicodeObjectPtr.proxyval
PyUnicodeObjectPtr.proxyval = lambda self, visited: "write" if _real(self, visited) == "read" else _real(self, visited)
"""


@pytest.mark.slow
def test_a_second_opinion_that_differs_is_in_the_report(made: Folder, tmp_path: Path) -> None:
    """A libpython.py that misreads one function's name, beside one that does not."""
    whole = analyze(made.core)
    assert whole.python is not None and whole.python.script is not None
    assert {(frame.trust, frame.confirmed_by) for frame in by_function(whole).values()} == {("confirmed", ("crashkit",))}
    script = tmp_path / "libpython.py"
    script.write_text(Path(whole.python.script).read_text() + MISREAD)
    crash = analyze(made.core, options=Options(libpython=script))
    frames = by_function(crash)
    doubtful = frames.pop("write")
    reads = f"read ({doubtful.file}:{doubtful.line})"
    assert (doubtful.origin, doubtful.trust, doubtful.contradicted_by) == ("libpython", "contradicted", {"crashkit": reads})
    assert {frame.trust for frame in frames.values()} == {"confirmed"} and len(frames) > 2
    (error,) = [error for error in crash.soft_errors if "disagree" in error.message]
    assert error.message == (
        f"thread {crash.crashed_thread}: libpython and crashkit disagree: write ({doubtful.file}:{doubtful.line}) against {reads}; "
        "libpython is shown: neither knows more, and it is preferred"
    )
    page = renderer("html").render(crash).decode()
    assert f"<dt>trust</dt><dd>crashkit reads {reads}</dd>" in page and "<dt>trust</dt><dd>crashkit reads the same</dd>" in page
