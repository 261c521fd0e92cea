"""Real crash folders of a GPU whose programs are gone (fixtures/gpu/explained), and exceptions that only newer GPUs have."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path

import pytest

from crashkit.crashfolder.manifest import SCHEMA, File, Manifest, write_manifest
from crashkit.diagnose import diagnose, load_catalog
from crashkit.evidence.gpu import layout
from crashkit.model import Crash, NativeFrame
from crashkit.pipeline import analyze

from .gpu_cores import DUMPS, changed, described

EXPLAINED = DUMPS.parent / "explained"
RUN = "/tmp/runs-toq5b1yy/compiled-debug"
"""Where the program's files were."""


def core(name: str) -> bytes:
    return gzip.decompress((EXPLAINED / "cores" / f"{name}.nvcudmp.gz").read_bytes())


def line(text: str) -> int:
    return next(number for number, one in enumerate((EXPLAINED / "newer.cu").read_text().split("\n"), 1) if text in one)


@pytest.mark.parametrize(
    ("name", "exception", "code", "at", "finding"),
    [
        ("recursion", "WARP_OUT_OF_RANGE_ADDRESS", 5, "int recurse(", ("cuda-kernel-stack-overflow", "likely")),
        ("cluster_beyond", "WARP_OUT_OF_RANGE_ADDRESS", 5, "other[threadIdx.x + step]", ("cuda-illegal-access", "certain")),
        ("cluster_ended", "CLUSTER_BLOCK_NOT_PRESENT", 18, "&other[threadIdx.x]", ("cuda-kernel-cluster", "certain")),
    ],
)
def test_exceptions_of_newer_gpus(name: str, exception: str, code: int, at: str, finding: tuple[str, str]) -> None:
    gpu = described(core(name))
    first = gpu.exceptions[0]
    assert (first.name, first.code, first.kernel, first.line) == (exception, code, name, line(at))
    assert (first.block_index, first.cluster) == ((0, 0, 0), () if name == "recursion" else (2, 1, 1))
    found = diagnose(Crash(gpu=(gpu,)), load_catalog()).findings[0]
    assert (found.id, found.confidence) == finding


def test_which_block_was_asked() -> None:
    """A newer driver or GPU tells; the H200's dump says that it does not know."""

    def change(kind: int, row: list[int], content: bytes) -> tuple[list[int], bytes]:
        new = bytearray(content)
        for start in range(0, len(content), row[9]) if kind == layout.SMS else ():
            if struct.unpack_from("<I", content, start + 8)[0]:
                struct.pack_into("<4I", new, start + 24, 1, 1, 0, 0)
        return row, bytes(new)

    raw = core("cluster_ended")
    assert described(raw).exceptions[0].detail is None
    gpu = described(changed(raw, change))
    assert gpu.exceptions[0].detail == "in block (1,0,0)"
    assert "The address is in block (1,0,0)." in (diagnose(Crash(gpu=(gpu,)), load_catalog()).findings[0].summary or "")


def test_callers_of_a_function_that_was_not_inlined() -> None:
    frames = [frame.function for frame in described(core("recursion")).exceptions[0].frames if isinstance(frame, NativeFrame)]
    assert len(frames) > 4 and set(frames[:-1]) == {"recurse"}


def test_a_compiled_kernel_whose_files_are_gone(tmp_path: Path) -> None:
    """The folder as `crashkit run --cuda` left it on the GPU machine, without the process's core."""
    kernel, code, graph = sorted(path.name for path in (EXPLAINED / "kept").iterdir())
    places = {
        kernel: f"{RUN}/cache/wd/{kernel.removeprefix('source.1.')}",
        code: f"{RUN}/cache/tx/{code.removeprefix('source.2.')}",
        graph: f"{RUN}/torch_compile_debug/run_2026-pid_524/torchinductor/model__0_inference_0.0/fx_graph_readable.py",
    }
    files: list[File] = [{"name": "gpu.vm.524.1795321176.nvcudmp", "kind": "gpu-core"}]
    (tmp_path / files[0]["name"]).write_bytes(core("compiled-debug"))
    for name, place in places.items():
        (tmp_path / name).write_bytes((EXPLAINED / "kept" / name).read_bytes())
        files.append({"name": name, "kind": "source", "path": place})
    manifest: Manifest = {"schema": SCHEMA, "pid": 524, "signal": 6, "signal_name": "SIGABRT", "files": files}
    write_manifest(tmp_path, manifest)
    first = analyze(tmp_path).gpu[0].exceptions[0]
    assert first.source == "tmp5 = tl.load(in_ptr1 + (tmp4), xmask, eviction_policy='evict_last')"
    assert first.operators == ("aten.index", "aten.mul", "aten.add", "aten.relu")
    assert [(Path(frame.file or "").name, frame.line, frame.source) for frame in first.fused_from] == [
        ("explained.py", 16, "doubled = table[index] * 2"),
        ("explained.py", 17, "return torch.relu(doubled + 1)"),
    ]
    assert first.detail is not None and "that of thread (3,0,0)" in first.detail
