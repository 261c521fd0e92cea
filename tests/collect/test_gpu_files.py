"""What explains a GPU core is in its crash folder: on another machine, nothing else is.

No GPU is needed: the command writes a recorded dump where `crashkit run --cuda` tells the driver to.
"""

from __future__ import annotations

import gzip
import os
import pickle
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from crashkit.bundling import bundle
from crashkit.collect.gpu_files import LARGEST_SNAPSHOT, MOST_SNAPSHOTS, MOST_SOURCES, Run, copy_files
from crashkit.crashfolder.files import open_owned
from crashkit.crashfolder.manifest import File
from crashkit.crashfolder.work import Work
from crashkit.evidence.gpu.allocator import masked, read_snapshot
from crashkit.model import Crash
from crashkit.pipeline import analyze
from crashkit.secrets.text import MASK
from tests.collect.watched import WATCHED
from tests.gpu_cores import DUMPS, data

from .conftest import Crashkit, private

RUNS = DUMPS.parent / "runs"
CACHE = "/tmp/dumps-k4gdjse0"
"""Of the run in which the dump of the compiled kernel was recorded."""
KERNEL = "7i/c7ig2wocen5goqcyiruwevnrutfvltlzduoyny3gdan55uunv6c3.py"
SECRET = "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"
GRAPH = """\
class <lambda>(torch.nn.Module):
    def forward(self, arg0_1: "f32[16]", arg1_1: "i64[32]"):
        # File: /srv/model.py:3 in pick, code: doubled = table[index] * 2
        index: "f32[32]" = torch.ops.aten.index.Tensor(arg0_1, [arg1_1]);  arg0_1 = arg1_1 = None
        mul: "f32[32]" = torch.ops.aten.mul.Tensor(index, 2);  index = None

        # File: /srv/model.py:4 in pick, code: return torch.relu(doubled + 1)
        add: "f32[32]" = torch.ops.aten.add.Tensor(mul, 1);  mul = None
        relu: "f32[32]" = torch.ops.aten.relu.default(add);  add = None
        return (relu,)
"""
"""As torch 2.13 wrote it with TORCH_COMPILE_DEBUG=1."""
COMMAND = (
    WATCHED
    + """
import os, resource, subprocess, sys, time
# What compiles kernels lives for seconds: of a process that was never seen, nobody knows the working directory. Who has seen a child of
# ours, of which it then holds a descriptor, has seen us.
child = subprocess.Popen(["cat"], stdin=subprocess.PIPE)
while not watched():
    time.sleep(0.01)
child.communicate()
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
dump, graph, snapshot = sys.argv[1:4]
where = os.environ["CUDA_COREDUMP_FILE"].replace("%h", "host").replace("%p", str(os.getpid())).replace("%t", "1")
if graph:
    for pid, text in ((os.getpid(), open(graph).read()), (1, open(graph).read().replace("/srv", "/other"))):
        folder = f"torch_compile_debug/run_2026_11_22_04_03_19_300620-pid_{pid}/torchinductor/model__0_inference_0.0"
        os.makedirs(folder)
        open(f"{folder}/fx_graph_readable.py", "w").write(text)
if snapshot:
    open("dump_snapshot.pickle", "wb").write(open(snapshot, "rb").read())
open(where, "wb").write(open(dump, "rb").read())
os.abort()
"""
)


@pytest.fixture
def cache() -> Iterator[Path]:
    """Inductor's cache of the recorded run, at a path as long as it had, in the files and in the dump."""
    folder = Path(tempfile.mkdtemp(prefix="dumps-", dir="/tmp"))
    assert len(str(folder)) == len(CACHE)
    inductor = folder / "compiled_assert" / "inductor"
    for source in (DUMPS / "inductor").rglob("*.py"):
        place = inductor / source.relative_to(DUMPS / "inductor")
        place.parent.mkdir(parents=True)
        place.write_text(source.read_text().replace(CACHE, str(folder)) + f'\nHF_TOKEN = "{SECRET}"\n')
    yield inductor
    shutil.rmtree(folder, ignore_errors=True)


def compiled(cache: Path) -> bytes:
    return data("compiled_assert").replace(CACHE.encode(), str(cache.parent.parent).encode())


def told(crash: Crash) -> tuple[Any, ...]:
    """What the files explain."""
    exception = crash.gpu[0].exceptions[0]
    memory = exception.memory
    lines = [frame.line for frame in (memory.allocated if memory else ()) if frame.function == "__init__"]
    return (
        exception.source,
        exception.operators,
        [(frame.file, frame.line) for frame in exception.fused_from],
        memory and memory.state,
        lines,
    )


@pytest.mark.slow
def test_a_compiled_kernel_on_another_machine(crashkit: Crashkit, cache: Path, tmp_path: Path) -> None:
    (tmp_path / "dump").write_bytes(compiled(cache))
    (tmp_path / "graph").write_text(GRAPH)
    result = crashkit.run(sys.executable, "-c", COMMAND, tmp_path / "dump", tmp_path / "graph", "", options=("--cuda", "--no-analyze"))
    (manifest,) = crashkit.crashes()
    kept = {file["path"]: file for file in manifest["files"] if file["kind"] == "source"}
    graphs = [name for name in kept if name.endswith("fx_graph_readable.py")]
    assert sorted({*kept} - {*graphs}) == sorted(map(str, cache.rglob("*.py"))), result.stderr
    assert [f"-pid_{manifest['pid']}/" in name for name in graphs] == [True]
    here = told(analyze(manifest["folder"]))
    shutil.rmtree(cache)
    shutil.rmtree(crashkit.cwd / "torch_compile_debug")
    assert private(manifest["folder"])
    moved = shutil.move(manifest["folder"], tmp_path / "moved")
    source = 'tl.device_assert(((0 <= tmp4) & (tmp4 < 16)) | ~(xmask), "index out of bounds: 0 <= tmp4 < 16")'
    operators = ("aten.index", "aten.mul", "aten.add", "aten.relu")
    there = (source, operators, [("/srv/model.py", 3), ("/srv/model.py", 4)], None, [])
    assert here == there == told(analyze(moved))
    assert told(analyze(bundle([Path(moved)], tmp_path / "x.tar.zst").path)) == there
    for file in kept.values():
        path = Path(moved) / file["name"]
        assert (SECRET in path.read_text(), MASK in path.read_text()) == (False, file["path"] not in graphs)


@pytest.mark.slow
def test_a_snapshot_on_another_machine(crashkit: Crashkit, tmp_path: Path) -> None:
    dump = gzip.decompress((RUNS / "cores" / "freed.nvcudmp.gz").read_bytes())
    (tmp_path / "dump").write_bytes(dump)
    old = crashkit.cwd / "of_another_run.pickle"
    shutil.copy(RUNS / "snapshots" / "cached.pickle", old)
    os.utime(old, (1, 1))
    snapshot = RUNS / "snapshots" / "freed.pickle"
    crashkit.run(sys.executable, "-c", COMMAND, tmp_path / "dump", "", snapshot, options=("--cuda", "--no-analyze"))
    (manifest,) = crashkit.crashes()
    kept = [file["path"] for file in manifest["files"] if file["kind"] == "allocator-snapshot"]
    assert kept == [str(crashkit.cwd / "dump_snapshot.pickle")]
    shutil.rmtree(crashkit.cwd)
    found = told(analyze(manifest["folder"]))
    assert found[3:] == (
        "freed",
        [next(n for n, line in enumerate((RUNS / "torch_memory.py").read_text().split("\n"), 1) if "# allocated" in line)],
    )
    assert told(analyze(bundle([manifest["folder"]], tmp_path / "x.tar.zst").path)) == found


def test_a_bundle_of_loose_files(cache: Path, tmp_path: Path) -> None:
    """Without a crash folder, the sources are taken from where they lie, with what torch.compile generated."""
    (tmp_path / "x.nvcudmp").write_bytes(compiled(cache))
    path = bundle([tmp_path / "x.nvcudmp"], tmp_path / "x.tar.zst").path
    shutil.rmtree(cache)
    exception = analyze(path).gpu[0].exceptions[0]
    assert exception.source is not None and exception.operators[:2] == ("aten.index", "aten.mul")
    dump, snapshot = tmp_path / "y.nvcudmp", RUNS / "snapshots" / "freed.pickle"
    dump.write_bytes(gzip.decompress((RUNS / "cores" / "freed.nvcudmp.gz").read_bytes()))
    memory = analyze(bundle([dump, snapshot], tmp_path / "y.tar.zst").path).gpu[0].exceptions[0].memory
    assert memory is not None and memory.state == "freed"


# What is not taken


@pytest.fixture
def work(tmp_path: Path) -> Iterator[Work]:
    folder = tmp_path / "crash"
    folder.mkdir()
    taken = Work(folder, os.open(folder, os.O_RDONLY), -1)
    yield taken
    taken.close()


def copied(work: Work, **changes: Any) -> tuple[list[File], list[str]]:
    run = Run(7, str(work.path.parent), ("python", "train.py"), {}, 0.0, 2e9)._replace(**changes)
    return copy_files(["x.nvcudmp"], run, work, None)


def test_links_to_files_of_others(tmp_path: Path) -> None:
    """Only root's links, and those of the file's owner, lead anywhere."""
    own, foreign = tmp_path / "own.py", tmp_path / "foreign.py"
    for path, uid in ((own, 0), (foreign, 4242)):
        path.write_text("1")
        try:
            os.chown(path, uid, uid)
        except PermissionError:
            pytest.skip("only root can give a file to another user")
    (tmp_path / "planted").mkdir()
    for name, target, uid in (("ours", own, 0), ("theirs", own, 4242), ("same", foreign, 4242)):
        (tmp_path / "planted" / name).symlink_to(target)
        os.chown(tmp_path / "planted" / name, uid, uid, follow_symlinks=False)
    (tmp_path / "by").symlink_to(tmp_path / "planted")
    os.chown(tmp_path / "by", 4242, 4242, follow_symlinks=False)
    (tmp_path / "loop").symlink_to("loop")

    def opened(path: Path, *owners: int) -> bool:
        try:
            open_owned(path, {0, *owners})[0].close()
        except OSError:
            return False
        return True

    planted = tmp_path / "planted"
    assert (opened(own), opened(planted / "ours"), opened(planted / ".." / "own.py")) == (True, True, True)
    assert (opened(planted / "theirs"), opened(tmp_path / "by" / "ours"), opened(tmp_path / "loop")) == (False, False, False)
    assert (opened(foreign), opened(foreign, 4242), opened(planted / "same", 4242), opened(planted / "same")) == (False, True, True, False)
    assert (opened(planted), opened(Path("/dev/null"))) == (False, False)
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "own.py").hardlink_to(own)
    assert opened(tmp_path / "cache" / "own.py"), "a second name in a folder of the file's owner"
    os.chown(tmp_path / "cache", 4242, 4242)
    assert not opened(tmp_path / "cache" / "own.py")


def test_no_more_than_allowed(work: Work, cache: Path) -> None:
    (work.path / "x.nvcudmp").write_bytes(compiled(cache))
    graphs = work.path.parent / "torch_compile_debug" / "run_1-pid_7" / "torchinductor"
    for number in range(MOST_SOURCES + 1):
        (graphs / str(number)).mkdir(parents=True)
        (graphs / str(number) / "fx_graph_readable.py").write_text(GRAPH)
    snapshot = (RUNS / "snapshots" / "freed.pickle").read_bytes()
    for number in range(MOST_SNAPSHOTS + 1):
        path = work.path.parent / f"{number}.pickle"
        path.write_bytes(snapshot)
        os.utime(path, (1000 + number, 1000 + number))
    huge = work.path.parent / "huge.pkl"
    huge.write_bytes(snapshot[:4096])
    os.truncate(huge, LARGEST_SNAPSHOT + 1)
    os.utime(huge, (2000, 2000))
    files, notes = copied(work)
    assert [file["kind"] for file in files].count("source") == MOST_SOURCES
    assert [Path(file["path"]).name for file in files if file["kind"] != "source"] == ["4.pickle", "3.pickle", "2.pickle", "1.pickle"]
    assert [note for note in notes if "older than the crash" not in note] == [
        "only 64 files or 16 MiB of the GPU kernels' sources were kept",
        f"the snapshot {huge} of torch's allocator is larger than 64 MiB and was not kept",
        "more than 4 snapshots of torch's allocator: only the newest were kept",
    ]


def test_snapshots_of_this_process_and_run(work: Work, cache: Path) -> None:
    (work.path / "x.nvcudmp").write_bytes(compiled(cache))
    folder = work.path.parent / "out"
    folder.mkdir()
    for name in ("rank0.pickle", "rank1.pickle", "any.pickle", "pid_7.pickle", "named.bin"):
        shutil.copy(RUNS / "snapshots" / "freed.pickle", folder / name)
        os.utime(folder / name, (1000, 1000))
    (folder / "weights.pickle").write_bytes(pickle.dumps({"weights": [1.0]}))

    def names(**changes: Any) -> set[str]:
        for path in work.path.glob("s*.*"):
            path.unlink()
        return {Path(file["path"]).name for file in copied(work, **changes)[0] if file["kind"] == "allocator-snapshot"}

    argv = ("python", "train.py", f"--snapshot={folder}/named.bin", "out")
    assert names() == set()
    assert names(argv=argv, rank=1) == {"rank1.pickle", "pid_7.pickle"}
    assert names(argv=argv[:3]) == {"named.bin"}
    assert names(environment={"MEMORY": f"{folder}/any.pickle", "OTHER": "\0.pickle"}) == {"any.pickle"}
    assert names(argv=argv, began=1001.0) == names(argv=argv, ended=998.0) == set()


def test_whatever_the_dump_is(work: Work, tmp_path: Path) -> None:
    (work.path / "x.nvcudmp").write_bytes(data("null_store")[:3000])
    assert copied(work) == ([], [])
    (work.path / "x.nvcudmp").write_bytes(b"")
    assert copied(work) == ([], [])
    (work.path / "x.nvcudmp").unlink()
    assert copied(work) == ([], [])


def test_texts_of_a_snapshot_are_masked(tmp_path: Path) -> None:
    """Their places in the pickle have lengths; stacks that several blocks share stay one."""
    frame = {"filename": f"/srv/{SECRET}/model.py", "name": "f", "line": 3}
    stack = [frame]
    deep: Any = []
    for _ in range(40):
        deep = [deep, deep]
    block = {"address": 1 << 40, "size": 512, "requested_size": 512, "state": "active_allocated", "frames": stack}
    raw = {"segments": [{"address": 1 << 40, "segment_type": "large", "blocks": [block, {**block}]}], "device_traces": [], "deep": deep}
    content = masked(pickle.dumps(raw), "x", lambda text: text.replace(SECRET, MASK))
    assert SECRET.encode() not in content and len(content) < 2000
    path = tmp_path / "x.pickle"
    path.write_bytes(content)
    with path.open("rb") as file:
        memory = read_snapshot(file, "x").memory((1 << 40) + 4)
    assert memory is not None and [one.file for one in memory.allocated] == [f"/srv/{MASK}/model.py"]
