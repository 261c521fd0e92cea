"""`crashkit analyze` on inputs of every kind gives the report of the plain core, leaves nothing behind and changes nothing."""

from __future__ import annotations

import gzip
import json
import lzma
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Optional

import lz4.frame
import pytest
import zstandard

from tests.crashes import Folder, an_interpreter, c_crash, python_crash

COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": lambda data: gzip.compress(data, 1),
    "xz": lambda data: lzma.compress(data, preset=0),
    "zstd": lambda data: zstandard.ZstdCompressor(level=1).compress(data),
    "lz4": lz4.frame.compress,
}


@pytest.fixture(scope="module", params=["python", "c"])
def made(request: pytest.FixtureRequest) -> Folder:
    return c_crash("no_python.c") if request.param == "c" else python_crash("threads.py", python=an_interpreter())


def analyze(path: Path, temporary: Path, stdin: Any = subprocess.DEVNULL, feed: Optional[bytes] = None) -> dict[str, Any]:
    """The report; nothing may be left in the temporary folder, which the command's own is set to."""
    temporary.mkdir()
    command = [sys.executable, "-m", "crashkit", "analyze", str(path), "--json"]
    options: dict[str, Any] = {"input": feed} if feed is not None else {"stdin": stdin}
    done = subprocess.run(command, capture_output=True, env={**os.environ, "TMPDIR": str(temporary)}, timeout=120, **options)
    assert done.returncode == 0, done.stderr.decode()
    assert list(temporary.iterdir()) == []
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def told(report: dict[str, Any]) -> dict[str, Any]:
    """What must not depend on how the core was handed over."""
    return {
        name: report.get(name)
        for name in ("process", "signal", "python", "crashed_thread", "threads", "modules", "fingerprint", "findings")
    }


@pytest.fixture(scope="module")
def plain(made: Folder, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    report = analyze(made.core, tmp_path_factory.mktemp("plain") / "tmp")
    assert len(report["threads"]) > 1 and all(thread["frames"] for thread in report["threads"])
    return told(report)


@pytest.mark.slow
@pytest.mark.parametrize("compression", COMPRESS)
def test_compressed(made: Folder, plain: dict[str, Any], compression: str, tmp_path: Path) -> None:
    packed = tmp_path / "core.packed"
    packed.write_bytes(COMPRESS[compression](made.core.read_bytes()))
    packed.chmod(0o400)
    before = packed.stat()

    report = analyze(packed, tmp_path / "tmp")
    assert told(report) == plain
    assert report["source"]["compression"] == compression and report["source"]["size"] == before.st_size
    assert (packed.stat().st_mtime_ns, packed.stat().st_mode) == (before.st_mtime_ns, before.st_mode)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["core.packed", "tmp"]


@pytest.mark.slow
@pytest.mark.parametrize("packed", [False, True])
def test_standard_input(made: Folder, plain: dict[str, Any], packed: bool, tmp_path: Path) -> None:
    data = made.core.read_bytes()
    report = analyze(Path("/dev/stdin"), tmp_path / "tmp", feed=COMPRESS["zstd"](data) if packed else data)
    assert told(report) == plain


@pytest.mark.slow
@pytest.mark.parametrize("name", ["/dev/stdin", "-"])
def test_standard_input_from_a_file(made: Folder, plain: dict[str, Any], name: str, tmp_path: Path) -> None:
    with made.core.open("rb") as file:
        assert told(analyze(Path(name), tmp_path / "tmp", stdin=file)) == plain


@pytest.mark.slow
def test_fifo(made: Folder, plain: dict[str, Any], tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    writer = threading.Thread(target=fifo.write_bytes, args=(made.core.read_bytes(),))
    writer.start()
    assert told(analyze(fifo, tmp_path / "tmp")) == plain
    writer.join()


@pytest.mark.slow
def test_sparse_and_read_only(made: Folder, plain: dict[str, Any], tmp_path: Path) -> None:
    sparse = tmp_path / "sparse core"
    subprocess.run(["cp", "--sparse=always", made.core, sparse], check=True)
    sparse.chmod(0o400)
    before = sparse.stat()
    assert told(analyze(sparse, tmp_path / "tmp")) == plain
    after = sparse.stat()
    assert (after.st_mtime_ns, after.st_mode, after.st_blocks) == (before.st_mtime_ns, before.st_mode, before.st_blocks)


@pytest.mark.slow
def test_cut_compressed_core_is_said_and_used(made: Folder, tmp_path: Path) -> None:
    packed = COMPRESS["gzip"](made.core.read_bytes())
    cut = tmp_path / "core.gz"
    cut.write_bytes(packed[: len(packed) * 6 // 10])
    report = analyze(cut, tmp_path / "tmp")
    assert any("truncated" in error["message"] for error in report["soft_errors"])
    assert report["source"]["truncated"] is True
    assert report["signal"]["name"] == "SIGSEGV" and report["threads"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "does not exist"),
        (b"", "is empty"),
        (b"just text\n" * 100, "no "),
        (gzip.compress(b"", mtime=0), "nothing"),
        (b"\x7fELF" + bytes(60), ""),
    ],
)
def test_what_is_no_core_is_one_line_what_and_one_line_what_to_try(content: Optional[bytes], message: str, tmp_path: Path) -> None:
    path = tmp_path / "core"
    if content is not None:
        path.write_bytes(content)
    done = subprocess.run(
        [sys.executable, "-m", "crashkit", "analyze", str(path)], capture_output=True, text=True, timeout=60, cwd=tmp_path
    )
    assert done.returncode == 1 and done.stdout == ""
    *progress, what, hint = done.stderr.strip().splitlines()
    assert all(line.endswith(" …") for line in progress)  # on a busy machine
    assert message in what and what.startswith("crashkit: ") and hint
