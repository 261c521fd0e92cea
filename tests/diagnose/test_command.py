"""`crashkit signatures`: list, show, test."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from crashkit.diagnose import load_catalog

from .test_catalog import GOOD

ROOT = Path(__file__).parent.parent.parent
GPU = ROOT / "fixtures" / "gpu"


def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "crashkit", "signatures", *map(str, arguments)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def test_list() -> None:
    done = run("list")
    assert done.returncode == 0
    assert len([line for line in done.stdout.splitlines() if line.startswith("  ")]) == len(load_catalog().signatures)


def test_show() -> None:
    done = run("show", "cuda-concurrent-launch")
    assert done.returncode == 0
    assert "gpu_lock = threading.Lock()" in done.stdout
    assert "fact = 'concurrent-launch'" in done.stdout


def test_show_unknown() -> None:
    done = run("show", "nothing-such")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.splitlines() == ["crashkit: no signature 'nothing-such'", "Run crashkit signatures list to see all ids."]


@pytest.mark.parametrize(
    ("asked", "meant"),
    [
        ("deadlock-lock", "deadlock-locks"),
        ("deadlok-tasks", "deadlock-tasks"),
        ("Double Free", "heap-corruption-double-free"),
        ("cuda_oom", "cuda-oom"),
    ],
)
def test_an_id_that_is_only_remembered(asked: str, meant: str) -> None:
    done = run("show", asked)
    assert done.returncode == 1
    assert done.stderr.splitlines()[1].startswith(f"Did you mean {meant}")


def test_test_explains_a_report() -> None:
    done = run("test", GPU / "reports" / "concurrent-5.json")
    assert done.returncode == 0
    assert done.stdout.startswith("1. cuda-concurrent-launch (possible): ")
    assert "cuda-concurrent-launch: matched (possible)" in done.stdout
    assert "+ all: fact = 'two-threads-launch'" in done.stdout
    assert "- all: fact = 'concurrent-launch'" in done.stdout


def test_test_says_why_not() -> None:
    done = run("test", GPU / "reports" / "concurrent-1.json", "--only", "cuda-concurrent-launch")
    assert "cuda-concurrent-launch: contradicted: " in done.stdout
    assert "the crashed thread is not in a CUDA launch path" in done.stdout


def test_test_of_a_log_with_own_signatures(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(GOOD)
    log = tmp_path / "serve.log"
    log.write_text("loading\narena exhausted: 4096 bytes\n")
    done = run("test", log, "--signatures", tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("1. model-server-oom (certain): The model server ran out of its arena")


@pytest.mark.slow
def test_test_hides_control_characters(tmp_path: Path) -> None:
    log = tmp_path / "serve.log"
    log.write_text("Fatal Python error: PyThreadState_Get: \x1b]0;title\x07 \x9b31m\n")
    done = run("test", log)
    assert done.returncode == 0
    assert not {"\x1b", "\x07", "\x9b"} & set(done.stdout)


@pytest.mark.slow
@pytest.mark.parametrize("content", [None, "", "hello\n", "{}"])
def test_bad_input(content: str | None, tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    if content is not None:
        path.write_text(content)
    done = run("test", path)
    assert (done.returncode, done.stdout) == (1, "")
    assert len(done.stderr.splitlines()) == 2


def test_bad_catalog(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(GOOD.replace('"certain"', '"sure"'))
    done = run("list", "--signatures", tmp_path)
    assert done.returncode == 1
    assert (
        done.stderr.splitlines()[0]
        == f"crashkit: {tmp_path}/mine.toml:9: model-server-oom: confidence must be one of certain, likely, possible"
    )
