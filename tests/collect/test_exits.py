"""A command that ends by itself with an error: reported if the end of its stderr is a known failure, and only then."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from crashkit.collect.keep import end_of
from tests.collect.conftest import ROOT, Crashkit

CUDA_ERROR = ROOT / "fixtures" / "gpu" / "logs" / "illegal-address-torch-plain.log"
"""What torch printed on a GPU; there is none here."""
ANALYZED = ()

RAISES = """\
import sys
def load(name):
    {body}
load("config")
"""


def script(crashkit: Crashkit, body: str) -> list[object]:
    return [sys.executable, crashkit.script("job.py", RAISES.format(body=body))]


@pytest.mark.slow
def test_a_known_failure_leaves_a_report(crashkit: Crashkit) -> None:
    body = f"print('step 1', file=sys.stderr); sys.stderr.write(open({str(CUDA_ERROR)!r}).read()); sys.exit(1)"
    result = crashkit.run(*script(crashkit, body), options=ANALYZED)
    (crash,) = crashkit.crashes()
    assert result.returncode == 1
    assert "exited with status 1 after a known failure in main (kernels.py:104)" in result.stderr
    assert f"{crash['folder']}/report.html" in result.stderr
    assert (crash["exit_status"], crash["analysis"], crash["is_command"]) == (1, "done", True) and "signal" not in crash
    report = json.loads((crash["folder"] / "report.json").read_text())
    assert report["findings"][0]["id"] == "cuda-illegal-access"
    assert "step 1" in (crash["folder"] / "stderr.log").read_text()
    assert crash["id"] in crashkit("list").stdout and "exit 1" in crashkit("list").stdout
    assert "Illegal memory access" in crashkit("show", crash["id"]).stdout


@pytest.mark.slow
def test_a_real_one(crashkit: Crashkit) -> None:
    """An extension that was built for another version of a library."""
    source = crashkit.cwd / "broken.cpp"
    source.write_text('namespace c10 { void moved(); } extern "C" void *PyInit_broken() { c10::moved(); return 0; }')
    subprocess.run(["g++", "-shared", "-fPIC", "-Wl,-z,now", "-o", crashkit.cwd / "broken.so", source], check=True)
    result = crashkit.run(*script(crashkit, "import broken"), options=ANALYZED)
    (crash,) = crashkit.crashes()
    assert result.returncode == 1 and "after a known failure" in result.stderr
    assert json.loads((crash["folder"] / "report.json").read_text())["findings"][0]["id"] == "abi-undefined-symbol"


@pytest.mark.slow
def test_it_may_be_the_cause_of_the_last_exception(crashkit: Crashkit) -> None:
    text = CUDA_ERROR.read_text() + "\nThe above exception was the direct cause of the following exception:\n\n"
    text += 'Traceback (most recent call last):\n  File "/srv/app.py", line 3, in main\nRuntimeError: training failed\n'
    crashkit.run(*script(crashkit, f"sys.stderr.write({text!r}); sys.exit(1)"), options=ANALYZED)
    assert len(crashkit.crashes()) == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("body", "options"),
    [
        ("raise ValueError(name)", ANALYZED),
        ("sys.exit(3)", ANALYZED),
        ("print('no such file: x', file=sys.stderr); sys.exit(2)", ANALYZED),
        (f"sys.stderr.write(open({str(CUDA_ERROR)!r}).read()); raise ValueError('another')", ANALYZED),
        (f"sys.stderr.write(open({str(CUDA_ERROR)!r}).read())", ANALYZED),
        (f"sys.stderr.write(open({str(CUDA_ERROR)!r}).read()); sys.exit(1)", ("--on-exit", "never")),
        (f"sys.stderr.write(open({str(CUDA_ERROR)!r}).read()); sys.exit(1)", ("--no-analyze",)),
    ],
    ids=["exception", "status", "message", "survived", "success", "never", "not-analyzed"],
)
def test_anything_else_leaves_nothing(crashkit: Crashkit, body: str, options: tuple[object, ...]) -> None:
    result = crashkit.run(*script(crashkit, body), options=options)
    assert crashkit.crashes() == [] and crashkit.leftovers() == []
    assert "crashkit:" not in result.stderr


LAST = b'Traceback (most recent call last):\n  File "a.py", line 1, in f\nValueError: x\n'


def test_the_end_of_a_log() -> None:
    assert end_of(b"old\n" + LAST) == LAST
    assert end_of(LAST + b"later\n" + LAST) == LAST
    assert end_of(b"[rank1]: " + LAST) == b"[rank1]: " + LAST
    chained = LAST + b"\nDuring handling of the above exception, another exception occurred:\n\n" + LAST
    assert end_of(LAST + chained) == chained
    assert end_of(b"\n".join(b"%d" % number for number in range(100))) == b"\n".join(b"%d" % number for number in range(60, 100))
    assert end_of(b"") == b""
