"""The catalog is whole, its files are checked, its page is fresh, and what is not sure is not called certain."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from crashkit.diagnose import diagnose, load_catalog
from crashkit.diagnose.catalog import Catalog, checked, conditions, configured, line_of, problems
from crashkit.diagnose.page import of_catalog
from crashkit.diagnose.signature import Condition, Rule, Signature
from crashkit.diagnose.texts import fill
from crashkit.diagnose.versions import parse_requirement, satisfies
from crashkit.errors import CatalogError
from crashkit.evidence.text.log_patterns import kinds, line_patterns
from crashkit.model import Crash, LogLine, Module, NativeFrame, PythonFrame, Signal, Thread
from crashkit.naming.functions import plain
from crashkit.report import html, markdown
from crashkit.report.wording import is_prose

from .synthetic import crash

DOCS = Path(__file__).parent.parent.parent / "docs"

# Marked as candidates, unconfirmed or untested where they were gathered.
NEVER_CERTAIN = {
    "use-after-free",
    "sigill-unsupported-cpu",
    "sigfpe-library-heuristic",
    "allocator-mix",
    "free-threaded-race",
    "cuda-concurrent-launch",
    "cuda-stream-use-after-free",
    "cuda-cublas-status",
    "jit-cache-race",
    "nccl-hang",
    "killed-by-signal-9-unknown",
    "tsan-report",
    "import-order-libstdcxx",
    "deadlock-gil-native-lock",
    "torch-jit-load-malformed",
    "triton-compile-crash",
    "fork-grpc",
    "cuda-launch-failure",
}

GOOD = """
[[signature]]
id = "model-server-oom"
title = "The model server ran out of its arena"
severity = "high"
cause = "The arena is too small."
fix = ["ARENA=2G serve"]
[[signature.rule]]
confidence = "certain"
all = [{ log = "*", pattern = 'arena exhausted: (?P<wanted>\\d+) bytes' }]
"""


def test_identities_are_unique() -> None:
    identities = [signature.id for signature in load_catalog().signatures]
    assert len(identities) == len(set(identities)) >= 130


def test_what_comes_with_crashkit_has_no_problem() -> None:
    """No run checks it: a user's signatures are checked as they are read."""
    signatures = load_catalog().signatures
    assert [(signature.id, *problem) for signature in signatures for problem in problems(signature)] == []
    assert checked(signatures) == signatures


def test_what_is_not_confirmed_is_never_certain() -> None:
    for signature in load_catalog().signatures:
        confidences = {rule.confidence for rule in signature.rule}
        assert signature.id not in NEVER_CERTAIN or "certain" not in confidences, signature.id


def test_every_signature_helps() -> None:
    for signature in load_catalog().signatures:
        assert signature.fix, signature.id
        assert signature.summary, signature.id
        assert all(reference.startswith("https://") for reference in signature.references)


def test_every_kind_of_line_that_a_signature_asks_for_exists() -> None:
    asked = {condition.log for condition in conditions(load_catalog().signatures) if condition.log not in (None, "*")}
    assert asked <= kinds()
    assert {pattern.kind for pattern in line_patterns()} <= kinds()


def test_no_name_takes_the_place_of_a_space() -> None:
    """`{line| }` would be a space only where the line is not known."""
    texts = [text for signature in load_catalog().signatures for text in (*signature.summary, *(fix.text for fix in signature.fixes))]
    assert not [text for text in texts if re.search(r"\| +\}", text)]


def test_page_is_fresh() -> None:
    """Made by `python -m crashkit.diagnose.page docs/signatures.md`."""
    assert (DOCS / "signatures.md").read_text() == of_catalog(load_catalog())


def test_documented_example_is_valid(tmp_path: Path) -> None:
    text = (DOCS / "adding-a-signature.md").read_text()
    example = text.split("```toml\n")[1].split("```")[0]
    (tmp_path / "mine.toml").write_text(example)
    assert len(load_catalog([tmp_path]).signatures) == len(load_catalog().signatures) + 1


def test_own_signatures(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(GOOD)
    catalog = load_catalog([tmp_path])
    assert catalog.find("model-server-oom").file == str(tmp_path / "mine.toml")
    assert catalog.log_patterns == (r"arena exhausted: (?P<wanted>\d+) bytes",)
    assert load_catalog().log_patterns == ()


def test_configured_folder(tmp_path: Path) -> None:
    assert configured({}) == ()
    assert configured({"XDG_CONFIG_HOME": str(tmp_path)}) == ()
    folder = tmp_path / "crashkit" / "signatures"
    folder.mkdir(parents=True)
    assert configured({"XDG_CONFIG_HOME": str(tmp_path)}) == ()
    (folder / "mine.toml").write_text(GOOD)
    assert configured({"XDG_CONFIG_HOME": str(tmp_path)}) == (folder,)
    (tmp_path / ".config").symlink_to(tmp_path)
    assert configured({"HOME": str(tmp_path)}) == (tmp_path / ".config" / "crashkit" / "signatures",)


@pytest.mark.parametrize(
    ("old", "new", "line", "problem"),
    [
        ('severity = "high"', 'severity = "huge"', 5, "severity must be one of"),
        ('confidence = "certain"', 'confidence = "sure"', 9, "confidence must be one of"),
        ('confidence = "certain"', "confidence = 3", 9, "Expected `str`, got `int`"),
        ("title =", "titel =", 2, "unknown field `titel`"),
        ("log =", "signal = ['SIGSEGV'], log =", 10, "must ask exactly one thing"),
        ('log = "*"', 'log = "no-such-kind"', 10, "unknown kind of log line"),
        (r"(?P<wanted>\d+)", r"(?P<wanted>\d+", 10, "missing )"),
        (r"arena exhausted: (?P<wanted>\d+) bytes", r"\d+", 10, "needs fixed text of 4 or more characters"),
        ("all = [{ log", 'all = [{ fact = "magic" }, { log', 10, "unknown fact 'magic'"),
        ("[[signature.rule]]", "[[signature.rule", 8, "Expected"),
        ('id = "model-server-oom"', 'id = "Model Server"', 3, "lower-case"),
        ('id = "model-server-oom"', 'id = "null-deref"', None, "duplicate id"),
        ('cause = "The', 'yields_to = ["nothing-such"]\ncause = "The', None, "which is not a signature"),
        ('all = [{ log = "*", pattern =', "all = [{ version = { python = '3.x' } }, { log = \"*\", pattern =", 10, "not of the form"),
    ],
)
def test_what_is_wrong_is_told_with_file_and_line(old: str, new: str, line: int | None, problem: str, tmp_path: Path) -> None:
    assert old in GOOD
    (tmp_path / "mine.toml").write_text(GOOD.replace(old, new))
    with pytest.raises(CatalogError) as caught:
        load_catalog([tmp_path])
    assert problem in str(caught.value)
    place = f"{tmp_path / 'mine.toml'}:" + ("" if line is None else f"{line}:")
    assert str(caught.value).startswith(place), str(caught.value)


@pytest.mark.parametrize("content", [None, b"\xff\xfe"])
def test_unreadable_places(content: bytes | None, tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(CatalogError):
        load_catalog([path])
    with pytest.raises(CatalogError, match="no signature files"):
        empty = tmp_path / "empty"
        empty.mkdir()
        load_catalog([empty])


def test_line_of_nested_tables() -> None:
    text = GOOD + GOOD
    assert line_of(text, ".signature[0].rule[0].all[0].log") == 10
    assert line_of(text, ".signature[1].rule[0].confidence") == 19
    assert line_of(text, ".signature[1].id") == 13


def test_rule_that_breaks_is_a_soft_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """One bad signature does not cost the others."""
    broken = Signature(id="broken", title="", severity="low", cause="", rule=(Rule(confidence="likely", all=(Condition(modules="("),)),))
    catalog = Catalog((broken, *load_catalog().signatures))
    found = diagnose(crash(signal="SIGSEGV", code="SI_KERNEL", frames="f", modules=["/x.so"]), catalog)
    assert [finding.id for finding in found.findings] == ["wild-pointer"]
    assert [error.stage for error in found.soft_errors] == ["diagnose"]
    assert "broken" in found.soft_errors[0].message


def test_looked_for_when_nothing_matched() -> None:
    found = diagnose(crash(signal="SIGSEGV", frames="cuLaunchKernel [libcuda.so.1] > nvrtcCompile > main"), load_catalog())
    assert not found.findings
    assert diagnose(crash(signal="SIGABRT", frames="abort > __cxa_throw > main"), load_catalog()).ruled_out
    nothing = diagnose(crash(signal="SIGSEGV", frames="f > main"), load_catalog())
    assert "null-deref" in {one.id for one in nothing.looked_for}, "looked for at every fault"
    close = diagnose(crash(signal="SIGSEGV", frames="f > main", modules=["/a/libiomp5.so", "/b/libiomp5.so"]), load_catalog()).looked_for
    assert close[0].id == "duplicate-openmp-runtime", "what came closest stands first"


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        ("cublasStatus_t cublasGemv<float, float, 128>(cublasContext*, int)", "cublasGemv"),
        ("at::native::(anonymous namespace)::_cudnn_impl(at::Tensor const&)", "at::native::(anonymous namespace)::_cudnn_impl"),
        ("std::ostream& std::ostream::_M_insert<unsigned long>(unsigned long)", "std::ostream::_M_insert"),
        ("c10::SafePyObject::~SafePyObject()", "c10::SafePyObject::~SafePyObject"),
        ("f.constprop.0.isra.1", "f"),
        ("f(int) [clone .cold]", "f"),
        ("__GI_raise", "raise"),
        ("memcpy@@GLIBC_2.14", "memcpy"),
        ("<signal handler called>", "<signal handler called>"),
        ("Foo::operator()(int) const", "Foo::operator()"),
        ("std::operator<< <char>(std::ostream&)", "std::operator<<"),
        ("", ""),
    ],
)
def test_plain_names(function: str, expected: str) -> None:
    assert plain(function) == expected


NAMELESS = "?? [own.so] > cfunction_call [libpython3.11.so.1.0] > py /srv/app.py:6 fail"


@pytest.mark.parametrize(
    ("frames", "told"),
    [
        (NAMELESS, "Code in own.so, called by cfunction_call, used a null pointer"),
        ("__strlen_evex [libc.so.6] > cout [own.so]", "strlen used a null pointer"),
        ("?? [own.so] > entry [own.so] > cfunction_call [libpython3.11.so.1.0]", "Code in own.so, called by entry, used a null pointer"),
    ],
)
def test_a_caller_in_another_module_is_not_blamed(frames: str, told: str) -> None:
    subject = crash(signal="SIGSEGV", reason="null-pointer", address=0x20, frames=frames)
    (finding,) = diagnose(subject, load_catalog()).findings
    assert finding.summary is not None and finding.summary.startswith(told)


def test_nothing_is_blamed_where_the_stack_broke_off_within_a_handler() -> None:
    subject = crash(signal="SIGSEGV", reason="null-pointer", address=0x20, frames="?? [libc.so.6] > ?? [libfault.so]")
    assert subject.signal is not None
    recovered = msgspec.structs.replace(subject, signal=msgspec.structs.replace(subject.signal, recovered=True))
    (finding,) = diagnose(recovered, load_catalog()).findings
    assert finding.summary is not None and finding.summary.startswith("Native code used a null pointer")


def test_python_frames_of_which_nothing_is_known_are_not_named() -> None:
    """A truncated core may have lost their code objects."""
    subject = crash(signal="SIGSEGV", reason="null-pointer", address=0x20, frames="strlen [libc.so.6]")
    thread = msgspec.structs.replace(subject.threads[0], frames=(*subject.threads[0].frames, PythonFrame(), PythonFrame()))
    (finding,) = diagnose(msgspec.structs.replace(subject, threads=(thread,)), load_catalog()).findings
    assert finding.summary == "strlen used a null pointer (fault address 0x0000000000000020)."


def test_texts_are_filled() -> None:
    assert fill("{a} and {b|c}", {"a": "1"}) == "1 and c"
    assert fill("{a}", {}) is None
    assert fill("{a|{b|c}}", {"b": "2"}) == "2"
    assert (fill("at {a|{b}}", {"a": "1"}), fill("at {a|{b}}", {"b": "2"}), fill("at {a|{b}}", {})) == ("at 1", "at 2", None)
    assert fill("worker {a|} had {b|}, and {a|}{c}s.", {"c": "x"}) == "worker had, and xs."
    assert fill("thread {a|} {b|}failed: {a|}", {}) == "thread failed:"
    assert fill("f() { return {a}; }", {"a": "{b}"}) == "f() { return {b}; }"
    assert fill("It said: {a}. Then {b}.", {"a": "Could not connect.", "b": "x ..."}) == "It said: Could not connect. Then x ..."


@pytest.mark.parametrize(
    ("version", "requirement", "expected"),
    [
        ("3.12.1", ">=3.12", True),
        ("3.12.1", ">3.12", False),
        ("2.11.0+cu130", "<2.12,>=2.1", True),
        ("3.9", ">=3.10", False),
        ("x", ">=1", False),
        ("", ">=0", False),
        ("3.12.1", "<=3.12", True),
        ("3.12.1", "==3.12", True),
        ("3", ">=3.0,<3.0.1", True),
        ("3.9.25", "<3.10", True),
        ("1!2.0", "==2.0", True),
        ("v570.86.15", ">=570", True),
        # CPython's own, of a working tree; a pre-release; a distribution's; a vendor's; none of them a later release.
        ("3.15.0a1+", ">=3.15", True),
        ("2.12.0a0+gitdeadbeef", ">=2.12", True),
        ("3.14.0rc1", "<3.14", False),
        ("12.4.127-1~exp2ubuntu3", ">12.4,<13", False),
        ("24.04-py3", "==24.4", True),
        ("2.1.0.post1", ">2.1.0", False),
        ("9" * 10_000, ">=3.12", True),
    ],
)
def test_versions(version: str, requirement: str, expected: bool) -> None:
    assert satisfies(version, requirement) is expected


@pytest.mark.parametrize("requirement", ["3.x", "", "3.12", ">=3.x", ">=", "==3.*", "===3.12", ">=3.13rc1", ">=3.12+local", ">=3.12 <3.14"])
def test_requirements_that_are_none(requirement: str) -> None:
    with pytest.raises(ValueError, match="not of the form"):
        parse_requirement(requirement)


@pytest.mark.parametrize(("module", "torch"), [("/usr/lib/libtorch_cpu.so", True), ("/usr/lib/libm.so.6", False)])
def test_fixes_for_torch_are_for_processes_that_have_it(module: str, torch: bool) -> None:
    died = Crash(
        signal=Signal(number=8, name="SIGFPE", code=1, code_name="FPE_INTDIV", reason="integer-divide"),
        threads=(Thread(tid=1, crashed=True, frames=(NativeFrame(function="divide", module="/srv/ext.so"),)),),
        modules=(Module(path=module),),
    )
    (finding,) = [finding for finding in diagnose(died, load_catalog()).findings if finding.id == "sigfpe-integer-divide"]
    assert any("torch" in fix for fix in finding.fix) == torch
    assert finding.fix


def test_a_fix_is_a_sentence_or_something_to_paste() -> None:
    """Reports show them differently; a mixture of both could be neither read nor pasted."""
    fixes = [fix.text for signature in load_catalog().signatures for fix in signature.fixes]
    assert not [fix for fix in fixes if is_prose(fix) != fix.endswith(".")]


def test_a_fix_that_uses_torch_says_so() -> None:
    uses = re.compile(r"\btorch\.\w+\(|import torch|(?:install|--upgrade) torch")
    unsaid = [
        (signature.id, fix.text)
        for signature in load_catalog().signatures
        for fix in signature.fixes
        if uses.search(fix.text) and fix.needs != "torch"
    ]
    assert unsaid == []


def test_no_summary_repeats_the_title() -> None:
    """Where nothing is known that the summary could say, the cause stands in its place."""
    told = Crash(log=(LogLine(text="An NCCL dump signal due to a collective timeout", kind="tells-nccl-watchdog-timeout"),))
    (finding,) = diagnose(told, load_catalog()).findings
    assert finding.summary == finding.cause != finding.title
    assert html.render(replace(told, findings=(finding,))).partition('<section id="findings"')[2].count("or the network failed.") == 1
    assert markdown.summary(replace(told, findings=(finding,))).count("or the network failed") == 1
