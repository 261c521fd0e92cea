"""Whatever a reader raises becomes a soft error with its name: never a traceback, never a lost report."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

import crashkit.cli
from crashkit.debugger.contract import Answer
from crashkit.errors import EvidenceError
from crashkit.evidence.text import faulthandler, traceback
from crashkit.pipeline import Options, analyze
from tests import gpu_cores
from tests.evidence import synthetic
from tests.hostile_inputs import NOTES, manifest

RAISED = (
    ValueError("Exceeds the limit (4300 digits)"),
    MemoryError(),
    RecursionError("maximum recursion depth exceeded"),
    OverflowError("Python int too large to convert to C int"),
    UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"),
    struct.error("unpack requires a buffer of 8 bytes"),
    OSError(36, "File name too long"),
    KeyError("threads"),
)
NO_GDB = Options(gdb=None)
LOG = 'Fatal Python error: Aborted\n\nCurrent thread 0x01 (most recent call first):\n  File "/a.py", line 1 in f\n'


@pytest.fixture(params=RAISED, ids=lambda error: type(error).__name__)
def explode(request):
    def explode(*_arguments, **_names):
        raise request.param

    return explode


@pytest.fixture
def core(tmp_path: Path) -> Path:
    (tmp_path / "core").write_bytes(synthetic.core(synthetic.EM_X86_64, NOTES, [synthetic.Load(0x1000, bytes(0x1000), 5)]))
    return tmp_path / "core"


@pytest.fixture
def log(tmp_path: Path) -> Path:
    (tmp_path / "stderr.log").write_text(LOG)
    return tmp_path / "stderr.log"


def problem(crash, words):
    found = [error for error in crash.soft_errors if error.message.startswith(words)]
    assert found, [error.message for error in crash.soft_errors]
    assert "failed" in found[0].message and ".py:" in found[0].message and len(found[0].message) < 400
    assert "bug" in (found[0].hint or "")


@pytest.mark.parametrize(
    ("place", "words"),
    [
        ("crashkit.pipeline.describe", "the reader of cores"),
        ("crashkit.debugger.direct.DirectReader", "the reader of Python's memory"),
        ("crashkit.stacks.assemble.assemble", "the assembly of stacks"),
        ("crashkit.diagnose.fingerprint.fingerprint", "the fingerprint"),
        ("crashkit.diagnose.diagnose", "the search for known failures"),
    ],
)
def test_a_stage_of_a_core(place, words, explode, core, monkeypatch):
    monkeypatch.setattr(place, explode)
    crash = analyze(core, options=NO_GDB)
    problem(crash, words)
    assert crash.source is not None and crash.source.kind == "core"


def test_a_manifest(explode, tmp_path, monkeypatch):
    monkeypatch.setattr("crashkit.pipeline.add_manifest", explode)
    crash = analyze(manifest(tmp_path, files=[{"name": "stderr.log", "kind": "log"}])[0])
    problem(crash, "the reader of manifests")
    assert crash.log


@pytest.mark.parametrize(
    ("place", "words"),
    [
        ("crashkit.evidence.gpu.describe.describe_dump", "the reader of GPU cores"),
        ("crashkit.stacks.launch.belongs", "the join with GPU cores"),
    ],
)
def test_a_gpu_core(place, words, explode, core, tmp_path, monkeypatch):
    monkeypatch.setattr(place, explode)
    (tmp_path / "gpu.nvcudmp").write_bytes(gpu_cores.data("traps"))
    crash = analyze([core, tmp_path / "gpu.nvcudmp"], options=NO_GDB)
    problem(crash, words)
    assert crash.signal is not None and [Path(gpu.path).name for gpu in crash.gpu] == ["gpu.nvcudmp"]


@pytest.mark.parametrize("method", ["feed", "finish", "threads"])
def test_a_format(method, explode, log, monkeypatch):
    """The lines that are found without it are still there."""
    monkeypatch.setattr(faulthandler.FaultDump, method, explode)
    crash = analyze(log)
    problem(crash, "the ")
    assert [line.kind for line in crash.log] == ["fatal-python-error"]


def test_the_other_formats_go_on(explode, log, monkeypatch):
    log.write_text(LOG + 'Traceback (most recent call last):\n  File "/b.py", line 2, in g\nValueError: x\n')
    monkeypatch.setattr(traceback.Traceback, "feed", explode)
    crash = analyze(log)
    problem(crash, "the reader of Traceback")
    assert crash.threads


def test_a_whole_text(explode, core, log, monkeypatch):
    monkeypatch.setattr("crashkit.evidence.text.log.read_log_input", explode)
    crash = analyze([core, log], options=NO_GDB)
    problem(crash, f"the reader of {log}"[:40])
    assert crash.signal is not None


def test_one_file_of_several(explode, core, log, monkeypatch):
    monkeypatch.setattr("crashkit.evidence.pieces.open_core", lambda *a: explode() if str(a[1]).endswith("core") else None)
    crash = analyze([log, core])
    problem(crash, f"the reader of {core}"[:40])
    assert crash.threads
    with pytest.raises(EvidenceError, match="failed"):
        analyze(core)


@pytest.mark.parametrize("method", ["start", "examine"])
def test_a_debugger(method, explode, core, monkeypatch):
    class Broken:
        name = "gdb"
        start = close = lambda self: None
        reads_python = lambda self, scene: True  # noqa: E731
        examine = lambda self, *_: Answer()  # noqa: E731

    monkeypatch.setattr(Broken, method, explode)
    crash = analyze(core, debuggers=[Broken()])
    problem(crash, "gdb" if method == "start" else "the reader of gdb's answers")


def test_the_page(explode, log, tmp_path, monkeypatch, capfd):
    """The JSON is written all the same, and tells."""
    monkeypatch.setattr("crashkit.report.html.render", explode)
    assert crashkit.cli._status(["analyze", str(log), "--out", str(tmp_path / "out")]) == 0
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["report.json"]
    assert "the writer of report.html failed" in (tmp_path / "out" / "report.json").read_text()
    assert "the writer of report.html failed" in capfd.readouterr().err
