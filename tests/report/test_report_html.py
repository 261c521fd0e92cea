import re
import threading
from collections import Counter
from html.parser import HTMLParser

import msgspec
import pytest

from crashkit.model import Address, Crash, Finding, Greenlet, Instruction, Process, PythonFrame, Signal, SoftError, Thread
from crashkit.report import html
from tests.report import samples

_VOID = {"meta", "link", "input", "br", "img"}
_BAD = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


class Markup(HTMLParser):
    """Checks that every element is closed where it should be; collects ids, links, headings and text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.tags: Counter[str] = Counter()
        self.labels: list[str] = []
        self.text: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        names = [name for name, _ in attrs]
        assert len(names) == len(set(names)), f"<{tag}> repeats an attribute"
        assert not [name for name in names if name.startswith("on") or name == "style"]
        values = dict(attrs)
        if values.get("id") is not None:
            self.ids.append(str(values["id"]))
        if values.get("href") is not None:
            self.links.append(str(values["href"]))
        for name in ("aria-labelledby", "aria-describedby", "for"):
            if values.get(name) is not None:
                self.labels.append(str(values[name]))
        if tag not in _VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] not in ("style", "script"):
            self.text.append(data)

    @property
    def shown(self) -> str:
        return "".join(self.text)


@pytest.mark.parametrize("name", sorted(samples.ALL))
def test_markup_is_well_formed_and_links_lead_somewhere(name: str) -> None:
    text = html.render(samples.ALL[name]())
    text.encode("utf-8")
    assert not _BAD.search(text)
    page = Markup(text)
    assert len(page.ids) == len(set(page.ids))
    assert [link for link in page.links if link.startswith("#") and link[1:] not in page.ids] == []
    assert [link for link in page.links if not link.startswith(("#", "https://", "http://", "data:,"))] == []
    assert [label for label in page.labels if label not in page.ids] == []
    assert page.tags["h1"] == 1 and page.tags["script"] == 1 and page.tags["main"] == 1 and page.tags["img"] == 0


@pytest.mark.parametrize("name", ["flask_lstm", "empty"])
def test_nothing_is_loaded(name: str) -> None:
    text = html.render(samples.ALL[name]())
    assert not re.search(r"""(src|action|data)\s*=\s*["']?\w+:|@import|url\(""", text)


def test_hostile_strings_are_text() -> None:
    page = Markup(html.render(samples.hostile()))
    assert "<script>alert(1)</script>]]>--></style><img src=x onerror=alert(2)>\\x1b[31mred" in page.shown
    assert "{{ 7*7 }}" in page.shown and "\\u202egnp.exe" in page.shown and "\\udc80" in page.shown
    assert len(page.shown) < 200_000


def test_the_page_holds_every_part() -> None:
    shown = Markup(html.render(samples.flask_lstm())).shown
    for part in (
        "Segmentation fault: a null pointer was read in libcuda.so.1, called by cuLaunchKernel",
        "The facts fit this cause well",
        "with MODEL_LOCK",
        "result = _VF.lstm(",
        "3 threads",
        "waiting for events",
        "mov rax, qword ptr [rax + 0x10]",
        "82ce4e6e4ef08fa58a3535f7437bd3e592db5ac0",
        "file not found here",
        "Fatal Python error: Segmentation fault",
        "give its folder with --sysroot",
        "CUDA_VISIBLE_DEVICES",
        "2.11.0+cu130",
        "Looked for, not found",
    ):
        assert part in shown, part


def test_evidence_points_at_the_frame_also_within_a_group() -> None:
    crash = samples.flask_lstm()
    page = html.Page(crash)
    by_tid = [page.anchor(item) for item in crash.findings[0].evidence]
    assert by_tid == ["t0.3", "t0.14", "t1.0", "log0", "module2"]


def test_evidence_that_points_nowhere_is_no_link() -> None:
    crash = samples.hostile()
    page = html.Page(crash)
    assert [page.anchor(item) for item in crash.findings[0].evidence] == ["t0", None, None, "module0"]


def test_equal_tids_do_not_share_an_anchor() -> None:
    frame = PythonFrame(function="f", file="a.py", line=1)
    other = PythonFrame(function="g", file="a.py", line=2)
    Markup(html.render(Crash(threads=(Thread(tid=1, crashed=True, frames=(frame,)), Thread(tid=1, frames=(other,)), Thread(tid=1)))))


def test_highlighting_keeps_the_text_and_the_lines() -> None:
    lines = ("def f(x):", '    """two', '    lines"""', "    return x < 1  # <b>", "")
    coded = html.highlight(lines)
    assert [Markup(f"<code>{line}</code>").shown for line in coded] == list(lines)
    assert '<span class="k">def</span>' in coded[0] and '<span class="s">    lines' in coded[2]


def test_200_threads_make_a_small_file() -> None:
    assert len(html.render(samples.crowd(200))) < 400_000


def test_a_process_without_a_command_has_a_title() -> None:
    assert "<title>Crash · crashkit</title>" in html.render(Crash(process=Process()))


def test_without_a_finding_the_telling_frames_stand_in() -> None:
    crash = msgspec.structs.replace(samples.flask_lstm(), findings=())
    shown = Markup(html.render(crash)).shown
    assert "No known failure matched. Most significant frames: cuLaunchKernel at::native::lstm recognize" in shown
    assert "Stack overflow stack-overflow contradicted: the reason is null-pointer" in shown
    assert "Fork with threads fork-with-threads not decidable without the process's log" in shown


def test_warming_in_a_thread_is_safe() -> None:
    thread = threading.Thread(target=html.warm)
    thread.start()
    assert html.render(samples.stack_overflow()).startswith("<!DOCTYPE html>")
    thread.join()


def test_the_registers_that_tell_come_first() -> None:
    instruction = Instruction(address=Address(1), text="mov rsi, qword ptr [rax + 8]", faulting=True)
    registers = {name: Address(number) for number, name in enumerate(("rax", "rbx", "rcx", "rsi", "rip", "rsp"))}
    signal = Signal(number=11, name="SIGSEGV", address=Address(2))
    crash = Crash(signal=signal, threads=(Thread(crashed=True, registers=registers),), instructions=(instruction,))
    telling, others = html.Page(crash).registers
    assert [name for name, _ in telling] == ["rax", "rcx", "rsi", "rip", "rsp"] and [name for name, _ in others] == ["rbx"]


def test_the_answer_gives_the_first_line_of_the_fix() -> None:
    finding = Finding(id="x", title="X", confidence="likely", fix=("with lock:\n    run()", "Another."))
    assert html.Page(Crash(findings=(finding,))).fix == "with lock:"
    assert html.Page(Crash()).fix is None


def test_names_in_a_note_keep_their_capital_letters():
    note = SoftError(stage="greenlets", message="stacks of greenlets were not read: Python 3.7's are not known")
    page = html.render(msgspec.structs.replace(samples.flask_lstm(), soft_errors=(note,), greenlets=(Greenlet(),)))
    assert "Stacks of greenlets were not read: Python 3.7&#39;s are not known." in page
