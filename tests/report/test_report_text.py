import re
from pathlib import Path

import pytest

from crashkit.model import Crash, Finding, NativeFrame, PythonFrame, Thread
from crashkit.report import markdown, safe, text
from tests.report import samples

WRITTEN = Path("/var/lib/crashkit/20261120/report.html")
BAD = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
COLOR = re.compile(r"\x1b\[[0-9;]+m")


def shown(name: str, color: bool = False, width: int = 80) -> list[str]:
    return list(text.summary(samples.ALL[name](), WRITTEN, color, width))


@pytest.mark.parametrize("width", [40, 80, 200])
@pytest.mark.parametrize("name", sorted(samples.ALL))
def test_lines_hold_no_control_character_and_fit(name: str, width: int) -> None:
    rows = shown(name, width=width)
    assert not [row for row in rows if BAD.search(row) or "\n" in row]
    assert not [row for row in rows if safe.cells(row) > min(width, 120) and str(WRITTEN) not in row]


@pytest.mark.parametrize("name", sorted(samples.ALL))
def test_color_adds_only_colors(name: str) -> None:
    assert [COLOR.sub("", row) for row in shown(name, color=True)] == shown(name)


def test_the_first_screen_answers() -> None:
    screen = "\n".join(shown("flask_lstm")[:24])
    for answer in (
        "SIGSEGV",
        "null pointer",
        "rax, which should hold a pointer",
        "Thread-4 (5883)",
        "torch/nn/modules/rnn.py:1124",
        "/srv/ocr/crnn.py:41",
        "out, _ = self.rnn(sequence)",
        "cuLaunchKernel",
        "likely",
        "Several threads launch CUDA kernels",
        "with MODEL_LOCK",
        "libcuda.so.1 is not on this machine",
        str(WRITTEN),
    ):
        assert answer in screen


@pytest.mark.parametrize("name", sorted(samples.ALL))
def test_the_report_is_named_on_the_first_screen(name: str) -> None:
    assert str(WRITTEN) in "\n".join(shown(name)[:24])


def test_a_full_first_screen_still_holds_every_answer() -> None:
    screen = "\n".join(shown("full")[:24])
    for answer in ("detail", "truncated", "title", "summary", "MODEL_LOCK", "missing", "8 more", "crnn.py:41"):
        assert answer in screen


def test_elided_frames_show_their_count_and_cycle() -> None:
    assert any("113,834 frames omitted (repeating)" in row and "visit <- map_next <- min_max" in row for row in shown("stack_overflow"))


def test_unmerged_stacks_are_both_shown() -> None:
    rows = "\n".join(shown("unmerged"))
    assert "string_at" in rows and "strlen" in rows and "could not be merged" in rows


def test_long_stacks_and_many_threads_are_bounded() -> None:
    crash = samples.crowd(500)
    assert len(list(text.summary(crash, None, False, 80))) < 120


@pytest.mark.parametrize("name", sorted(samples.ALL))
def test_the_first_answer_is_one_or_two_clean_lines(name: str) -> None:
    answer = text.first_answer(samples.ALL[name]())
    assert 1 <= len(answer.split("\n")) <= 2 and not BAD.search(answer)


def test_the_first_answer_tells_signal_reason_and_thread() -> None:
    answer = text.first_answer(samples.flask_lstm())
    assert "SIGSEGV" in answer and "null pointer was read" in answer and "Thread-4 (5883)" in answer


@pytest.mark.parametrize("name", sorted(samples.ALL))
def test_markdown_is_short_and_inert(name: str) -> None:
    made = markdown.summary(samples.ALL[name]())
    assert made.endswith("\n") and not BAD.search(made.replace("\t", ""))
    outside = re.sub(r"^(`{3,})\n.*?\n\1$", "", made, flags=re.DOTALL | re.MULTILINE)
    assert not re.search(r"(?<!\\)<", outside)
    assert len(made) < 40_000


def test_markdown_holds_the_answer() -> None:
    made = markdown.summary(samples.flask_lstm())
    assert "cuLaunchKernel" in made and "pip install --upgrade torch" in made and "python  forward  /srv/ocr/crnn.py:41" in made


def test_a_fence_cannot_be_closed_by_its_content() -> None:
    assert markdown._fenced("a\n```\nb").startswith("````\n")


@pytest.mark.parametrize(
    ("text_", "width", "clipped"),
    [("abcdef", 6, "abcdef"), ("abcdef", 4, "abc…"), ("中文字", 4, "中…"), ("e\u0301e\u0301", 2, "e\u0301e\u0301")],
)
def test_clipping_counts_cells(text_: str, width: int, clipped: str) -> None:
    assert safe.clip(text_, width) == clipped


def test_a_path_is_clipped_from_its_front() -> None:
    assert safe.clip_front("/usr/lib/torch/rnn.py", 10) == "…ch/rnn.py"


@pytest.mark.parametrize("character", ["\u0378", "\ue000", "\U000f0000", "\u2003", "\xa0"])
def test_no_character_without_a_shape(character: str) -> None:
    """Unassigned, private or odd blanks: a terminal may do anything with them."""
    assert safe.line(f"a{character}b").isprintable()
    assert safe.block(f"a\n\tb{character}").replace("\n\t", "").isprintable()


@pytest.mark.slow
@pytest.mark.parametrize("width", range(20, 40))
@pytest.mark.parametrize("name", sorted(samples.ALL))
def test_a_terminal_may_be_very_narrow(name: str, width: int) -> None:
    assert not [row for row in shown(name, width=width) if safe.cells(row) > width and str(WRITTEN) not in row]


def test_a_narrow_terminal_gets_more_lines_instead_of_cut_ones() -> None:
    rows = shown("flask_lstm", width=40)
    said = " ".join(" ".join(rows).split())
    for answer in (
        "a null pointer was read, at 0x0000000000000010",
        "Thread-4 (5883), one of 5 threads, without the GIL",
        "forward torch/nn/modules/rnn.py:1124",
        "forward /srv/ocr/crnn.py:41 out, _ = self.rnn(sequence)",
        "cuLaunchKernel libcuda.so.1+0x290f40",
        "python3 server.py --port 8080 (pid 5876), python 3.11.7, torch 2.11.0+cu130",
        "Several threads launch CUDA kernels of one model at once",
        "libcuda.so.1 is not on this machine: its frames have no names",
        "Stack of Thread-4 (5883), innermost first",
        "at::native::lstm RNN.cpp:1477 in libtorch_cpu.so",
    ):
        assert answer in said
    assert "                logits = model(batch)" in rows, "code keeps its shape"


def test_wide_characters_are_wrapped_by_their_cells() -> None:
    finding = Finding(id="x", title="题" * 30, confidence="likely", summary="总结 " * 30)
    rows = list(text.summary(Crash(findings=(finding,)), None, False, 40))
    titles = [row.strip() for row in rows if "likely" in row or row.startswith(" " * 12)]
    assert "".join(titles).count("题") == 30 and "".join(titles).count("总结") == 30
    assert max(map(safe.cells, rows)) <= 40


@pytest.mark.parametrize("width", [-1, 0, 1, 2])
def test_clipping_to_nearly_nothing(width: int) -> None:
    assert safe.clip("中文字", width) == safe.clip_front("中文字", width) == "…"


def test_the_caller_decides_on_color(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "dumb")
    assert COLOR.search(shown("flask_lstm", color=True)[0])


def test_a_recursion_is_shown_once_with_its_count() -> None:
    rounds = [PythonFrame(file="/srv/app.py", line=line, function=name) for _ in range(500) for name, line in (("even", 3), ("odd", 7))]
    frames = (NativeFrame(function="boom"), *rounds, PythonFrame(file="/srv/app.py", line=20, function="main"))
    crash = Crash(threads=(Thread(tid=1, crashed=True, frames=frames),))
    stack = [row.split() for row in text.summary(crash, None, color=False, width=100) if row[:4].strip().isdigit() or "..." in row]
    assert [row[2] if row[0].isdigit() else " ".join(row) for row in stack] == [
        "boom",
        "even",
        "odd",
        "... the 2 frames above occur 500 times in a row",
        "main",
    ]
    assert [row[0] for row in stack if row[0].isdigit()] == ["0", "1", "2", "1001"]


def test_frames_of_the_signal_handler_are_folded() -> None:
    frames = (
        NativeFrame(function="raise", module="/lib/libc.so.6"),
        NativeFrame(function="faulthandler_fatal_error", module="/usr/bin/python3"),
        NativeFrame(function="<signal handler called>"),
        NativeFrame(function="decode", module="/srv/decoder.so"),
    )
    shown = "\n".join(text.summary(Crash(threads=(Thread(tid=1, crashed=True, frames=frames),)), None, color=False, width=100))
    assert "... 3 frames of the signal handler" in shown and "   3 C  decode" in shown
    assert "faulthandler_fatal_error" not in shown and "signal handler called" not in shown


def test_the_expression_is_marked_below_its_line_everywhere() -> None:
    source = "return libc.strlen(pointer)"
    frame = PythonFrame(
        function="lookup", file="/srv/app.py", line=7, source=source, context=(f"    {source}",), context_start=7, columns=(11, 30)
    )
    shown = list(text.summary(Crash(threads=(Thread(tid=1, crashed=True, frames=(frame,)),)), None, color=False, width=100))
    rows = [at for at, row in enumerate(shown) if source in row]
    assert len(rows) == 2
    for at in rows:
        assert shown[at + 1].index("^") == shown[at].index("libc.strlen") and shown[at + 1].count("^") == 19
