"""GPU cores through the whole of `crashkit analyze`: alone, packed, cut, several, in a crash folder, beside a core."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from crashkit.crashfolder.manifest import SCHEMA, Manifest, write_manifest
from crashkit.diagnose import diagnose, load_catalog
from crashkit.diagnose.fingerprint import fingerprint
from crashkit.evidence.gpu.layout import CONTEXTS
from crashkit.model import Crash, LogLine
from crashkit.pipeline import Options, analyze
from crashkit.report import markdown, wording
from crashkit.report.first_answer import first_answer
from crashkit.report.html import render
from crashkit.report.json import decode, encode
from crashkit.report.text import summary
from crashkit.stacks.launch import launched_from

from .crashes import an_interpreter, python_crash
from .gpu_cores import CORES, DUMPS, changed, data, gpu, side


def joined(name: str, core: str | None = None) -> Crash:
    """Both sides of a case, as the pipeline joins them."""
    crash, dump = side(name), gpu(core or name)
    assert crash.process is not None
    dump = replace(dump, launched_from=launched_from(dump, crash.threads, crash.process.environment))
    crash = replace(crash, gpu=(dump,))
    return diagnose(replace(crash, fingerprint=fingerprint(crash)), load_catalog())


def screen(crash: Crash) -> list[str]:
    """The first screen: 24 lines of 80 cells."""
    rows = list(summary(crash, Path("/store/report.html"), color=False, width=80))
    assert all(len(row) <= 80 for row in rows)
    return rows[:24]


def test_alone(tmp_path: Path) -> None:
    path = tmp_path / "gpu.host.537.1795285374.nvcudmp"
    path.write_bytes(data("null_store"))
    crash = analyze(path)
    assert crash.source is not None
    assert (crash.source.kind, crash.source.path, crash.signal, crash.threads) == ("gpu-core", str(path), None, ())
    assert (crash.id, crash.time) == ("20261121T182255-537-gpu", "2026-11-21T18:22:55Z")
    assert crash.process is not None
    assert crash.process.pid == 537
    assert wording.sentence(crash) == "Illegal address in GPU kernel null_store (kernels.cu:9)."
    assert [finding.id for finding in crash.findings] == ["cuda-illegal-access"]
    assert crash.soft_errors == ()
    assert decode(encode(crash)) == crash


def test_by_content_whatever_the_name_and_packing(tmp_path: Path) -> None:
    plain = analyze(_written(tmp_path / "core", data("misaligned")))
    packed = analyze(_written(tmp_path / "x.log", gzip.compress(data("misaligned"))))
    assert plain.gpu[0].exceptions == packed.gpu[0].exceptions
    assert packed.gpu[0].exceptions[0].name == "WARP_MISALIGNED_ADDRESS"
    assert packed.source is not None
    assert packed.source.compression == "gzip"


def test_cut_off_dump_says_so(tmp_path: Path) -> None:
    """The section table is at the end: nothing is left but that it was a GPU core."""
    raw = data("null_store")
    crash = analyze(_written(tmp_path / "x.nvcudmp", raw[: len(raw) // 2]))
    assert crash.gpu[0].truncated
    assert [error.stage for error in crash.soft_errors] == ["gpu"]
    packed = analyze(_written(tmp_path / "x.gz", gzip.compress(raw)[:4000]))
    assert {error.stage for error in packed.soft_errors} == {"input", "gpu"}


def test_source_lines_of_kernels(tmp_path: Path) -> None:
    """Where the files are at hand: CUDA C++ and Triton."""
    options = Options(path_maps=(("/tmp/dumps", DUMPS),))
    native = analyze(_written(tmp_path / "x.nvcudmp", data("null_store")), options=options).gpu[0].exceptions[0]
    assert native.source == "__global__ void null_store(float *data) { data[threadIdx.x + 4] = 1.0f; }"
    triton = analyze(_written(tmp_path / "y.nvcudmp", data("triton_beyond")), options=options)
    assert triton.gpu[0].exceptions[0].source == "tl.store(places, values * 2)"
    assert "tl.store(places, values * 2)" in "\n".join(screen(triton))


def test_several_dumps_of_one_process(tmp_path: Path) -> None:
    paths = [_written(tmp_path / f"{name}.nvcudmp", data(name)) for name in ("native_hang", "two_processes-2", "two_processes-1")]
    crash = analyze(paths)
    assert [[one.name for one in core.exceptions] for core in crash.gpu] == [["WARP_ILLEGAL_ADDRESS"], ["WARP_MISALIGNED_ADDRESS"], []]


def test_in_a_crash_folder(tmp_path: Path) -> None:
    name = "gpu.host.983.1795285379.nvcudmp"
    _written(tmp_path / name, data("asserts"))
    (tmp_path / "stderr.log").write_text("kernels.cu:26: asserts: block: [0,0,0], thread: [2,0,0] Assertion `index < size` failed.\n")
    files = [{"name": name, "kind": "gpu-core"}, {"name": "stderr.log", "kind": "log"}]
    manifest: Manifest = {"schema": SCHEMA, "id": "x-983-python", "pid": 983, "signal": 6, "signal_name": "SIGABRT", "files": files}  # type: ignore[typeddict-item]
    write_manifest(tmp_path, manifest)
    crash = analyze(tmp_path)
    assert crash.id == "x-983-python"
    assert crash.gpu[0].exceptions[0].kernel == "asserts"
    finding = crash.findings[0]
    assert (finding.id, finding.confidence) == ("cuda-device-assert", "certain")
    assert "asserted `index < size`" in (finding.summary or "")
    assert crash.failed_gpu is not None


@pytest.mark.slow
def test_beside_a_core_of_another_process(tmp_path: Path) -> None:
    """The core's own answer stays; that the two do not belong together is said."""
    core = python_crash("threads.py", python=an_interpreter()).core
    crash = analyze([core, _written(tmp_path / "x.nvcudmp", data("null_store"))])
    assert crash.threads
    assert crash.signal is not None
    assert crash.failed_gpu is None
    assert [error.message for error in crash.soft_errors if error.stage == "gpu"] == [
        "the GPU core x.nvcudmp is of a different process and was left out"
    ]
    assert crash.gpu == ()


@pytest.mark.slow
def test_beside_a_core_that_aborted_by_itself(tmp_path: Path) -> None:
    """SIGABRT alone does not make another process's dump the answer."""
    core = python_crash("faults.py", "abort", python=an_interpreter()).core
    crash = analyze([core, _written(tmp_path / "x.nvcudmp", data("null_store"))])
    assert crash.signal is not None
    assert crash.signal.name == "SIGABRT"
    assert "GPU" not in wording.sentence(crash)


def test_a_log_of_another_exception(tmp_path: Path) -> None:
    """Two sources agree, or the report says so."""
    dump, log = _written(tmp_path / "x.nvcudmp", data("misaligned")), tmp_path / "stderr.log"
    said = "[01:02:08.656447] coredump: Detected an exception of type CUDBG_EXCEPTION_WARP_{} ({})\n"
    log.write_text(said.format("MISALIGNED_ADDRESS", 6))
    assert analyze([log, dump]).soft_errors == ()
    log.write_text(said.format("ILLEGAL_ADDRESS", 14))
    assert [error.message for error in analyze([log, dump]).soft_errors] == [
        "the log reports WARP_ILLEGAL_ADDRESS, the GPU core WARP_MISALIGNED_ADDRESS"
    ]


def test_beside_a_dump_of_faulthandler(tmp_path: Path) -> None:
    """It names threads by their pthread, which no GPU core does."""
    log = tmp_path / "stderr.log"
    log.write_text(
        "Fatal Python error: Aborted\n\n"
        "Thread 0x00007f70b781a140 (most recent call first):\n"
        '  File "/srv/app/kernels.py", line 107 in main\n'
        '  File "/srv/app/kernels.py", line 110 in <module>\n'
    )
    crash = analyze([log, _written(tmp_path / "x.nvcudmp", data("misaligned"))])
    assert [error for error in crash.soft_errors if error.stage == "gpu"] == []
    assert crash.gpu[0].launched_from is not None
    assert (
        wording.sentence(crash) == "Misaligned address in GPU kernel misaligned (kernels.cu:17), noticed in main (/srv/app/kernels.py:107)."
    )


def test_the_first_answer_is_of_the_gpu(tmp_path: Path) -> None:
    """Before a debugger has started."""
    made = python_crash("faults.py", "abort", python=an_interpreter())
    raw = changed(data("null_store"), lambda kind, row, content: (row, _with_tid(content, made.pid) if kind == CONTEXTS else content))
    answers: list[str] = []
    stages = [made.core, _written(tmp_path / "x.nvcudmp", raw)]
    analyze(stages, progress=lambda stage, so_far: answers.append(first_answer(so_far())) if stage == "gdb" else None)
    assert answers == ["Illegal address in GPU kernel null_store (kernels.cu:9)."]


def test_beside_its_core(tmp_path: Path) -> None:
    """Joined by the driver's thread, which is in both: here the dump's is renamed to a thread of a core of this machine."""
    made = python_crash("faults.py", "abort", python=an_interpreter())
    raw = changed(data("null_store"), lambda kind, row, content: (row, _with_tid(content, made.pid) if kind == CONTEXTS else content))
    crash = analyze([_written(tmp_path / "x.nvcudmp", raw), made.core])
    assert [error for error in crash.soft_errors if error.stage == "gpu"] == []
    assert crash.gpu[0].context_threads == (made.pid,)
    assert crash.source is not None
    assert crash.source.kind == "core"
    assert crash.failed_gpu is crash.gpu[0]
    assert wording.sentence(crash).startswith("Illegal address in GPU kernel null_store (kernels.cu:9)")
    assert "gpu" in crash.seconds


@pytest.mark.slow
def test_command_line(tmp_path: Path) -> None:
    path = _written(tmp_path / "x.nvcudmp", data("torch_hang"))
    done = subprocess.run(
        [sys.executable, "-m", "crashkit", "analyze", str(path)], capture_output=True, text=True, cwd=tmp_path, check=True
    )
    assert done.stdout.startswith("GPU  kernel waits_at_barrier was still running (kernels.cu:44)\n")
    assert "4 warps wait at a barrier in waits_at_barrier, kernels.cu:44" in done.stdout
    assert "A kernel that does not end" in done.stdout
    document = json.loads((tmp_path / "x.nvcudmp-report" / "report.json").read_bytes())
    assert document["gpu"][0]["kernels"][0]["warps"] == 6


# The first screen


def test_exact_line_on_the_first_screen() -> None:
    rows = screen(joined("triton_beyond-blocking"))
    assert rows[0] == "GPU  illegal address in kernel scatter_rows (triton_kernels.py:17)"
    text = "\n".join(rows)
    assert "launched  triton_beyond  /tmp/dumps/dump_cases.py:192" in text
    assert "launches were blocking" in text
    assert "block (0,0,0), thread (0,0,0), first of 128 (by the warp that is" in text
    assert "certain   Illegal memory access on the GPU" in text
    assert "CUDA_LAUNCH_BLOCKING=1" not in text
    assert "report    /store/report.html" in text


def test_probable_line_on_the_first_screen() -> None:
    text = "\n".join(" ".join(row.split()) for row in screen(joined("triton_beyond")))
    assert "noticed triton_beyond /tmp/dumps/dump_cases.py:193" in text
    assert "probably launched by line 192:" in text
    assert "\ntriton_kernels.scatter_rows[(4,)](rows, out, 1 << 36, BLOCK=128)" in text
    assert "fix CUDA_LAUNCH_BLOCKING=1" in text and "SCRIPT" not in text


def test_assert_of_torch_in_words() -> None:
    crash = joined("torch_embedding-blocking")
    text = "\n".join(screen(crash))
    assert "kernel    indexSelectSmallIndex  (torch: index_select (embedding))" in text
    assert "launched  torch_embedding  /tmp/dumps/dump_cases.py:75" in text
    assert "checks that each index is within the size" in (crash.findings[0].summary or "")
    assert crash.findings[0].fix[0].startswith("assert index.min() >= 0 and index.max() < table.size(0)")
    assert "each label is between 0 and the number of classes" in (joined("torch_cross_entropy").findings[0].summary or "")


def test_sentences() -> None:
    assert wording.sentence(joined("torch_backward-blocking")) == (
        "Assertion failed in GPU kernel indexSelectSmallIndex, launched from backward (/tmp/dumps/dump_cases.py:105)."
    )
    assert wording.sentence(joined("torch_hang")) == (
        "GPU kernel waits_at_barrier was still running (kernels.cu:44), while the CPU was in torch_hang (/tmp/dumps/dump_cases.py:255)."
    )


@pytest.mark.parametrize("name", [name for name in CORES if (DUMPS / "sides" / f"{name}.json.gz").exists()])
def test_every_format_shows_both_sides(name: str) -> None:
    crash = joined(name)
    assert decode(encode(crash)) == crash
    core = crash.gpu[0]
    kernel = (core.exceptions[0].kernel if core.exceptions else core.kernels[0].name) or ""
    side_of = crash.gpu[0].launched_from
    assert side_of is not None
    for text in ("\n".join(screen(crash)), render(crash), markdown.summary(crash).replace("\\", "")):
        assert kernel.rpartition("::")[2] in text
        assert "dump_cases.py" in text
    assert '<section id="gpu"' in render(crash)


# Findings


FOUND = {
    "asserts": ("cuda-device-assert", "certain"),
    "beyond": ("cuda-illegal-access", "certain"),
    "misaligned": ("cuda-misaligned-address", "certain"),
    "native_hang": ("cuda-kernel-hang", "likely"),
    "null_store": ("cuda-illegal-access", "certain"),
    "overflows": ("cuda-kernel-stack-overflow", "likely"),
    "shared_beyond": ("cuda-kernel-shared-out-of-range", "certain"),
    "traps": ("cuda-kernel-trap", "certain"),
    "triton_assert": ("cuda-device-assert", "certain"),
}


@pytest.mark.parametrize("name", FOUND)
def test_findings_from_the_dump_alone(name: str) -> None:
    crash = diagnose(Crash(gpu=(gpu(name),)), load_catalog())
    assert [(finding.id, finding.confidence) for finding in crash.findings][:1] == [FOUND[name]]
    assert "{" not in (crash.findings[0].summary or "")


def test_a_dump_beside_a_fault_of_the_cpu_finds_nothing() -> None:
    crash = joined("null_store")
    assert crash.signal is not None
    fault = replace(crash, signal=replace(crash.signal, name="SIGSEGV", number=11))
    assert fault.failed_gpu is None
    assert "cuda-illegal-access" not in [finding.id for finding in diagnose(fault, load_catalog()).findings]


def test_the_log_gives_the_assertions_text_and_the_dump_the_rest() -> None:
    crash = joined("torch_cross_entropy")
    text = (
        "Loss.cu:245: nll_loss_forward_reduce_cuda_kernel_2d: block: [0,0,0], thread: [3,0,0] Assertion `t >= 0 && t < n_classes` failed."
    )
    fields = {"kernel": "nll_loss_forward_reduce_cuda_kernel_2d", "assertion": "t >= 0 && t < n_classes"}
    line = LogLine(text=text, kind="device-assert-line", fields=fields)
    found = diagnose(replace(crash, log=(line,)), load_catalog()).findings
    assert [finding.id for finding in found] == ["cuda-device-assert"]
    assert "asserted `t >= 0 && t < n_classes`" in (found[0].summary or "")
    assert "checks that each label is between 0" in (found[0].summary or "")


def test_the_dump_knows_the_kernel_that_triton_calls_unknown() -> None:
    fields = {"kernel": "unknown", "assertion": "index out of bounds: 0 <= tmp4 < 16"}
    line = LogLine(
        text="c.py:29: unknown: block: [0,0,0], thread: [3,0,0] Assertion `...` failed.", kind="device-assert-line", fields=fields
    )
    found = diagnose(replace(joined("compiled_assert"), log=(line,)), load_catalog()).findings[0]
    assert "unknown" not in (found.summary or "")
    assert "Kernel triton_poi_fused_add_index_mul_relu_0 asserted `index out of bounds" in (found.summary or "")
    assert "It checks that each index is within" in (found.summary or "")


def test_fingerprint_is_of_the_kernel_not_of_the_drivers_thread() -> None:
    assert fingerprint(joined("triton_beyond")).hash == fingerprint(joined("triton_beyond-blocking")).hash
    assert fingerprint(joined("null_store")).frames == ("GPU", "WARP_ILLEGAL_ADDRESS", "null_store")
    assert len({fingerprint(joined(name)).hash for name in ("null_store", "cupy_beyond", "torch_hang", "graph_replay")}) == 4


def _with_tid(content: bytes, tid: int) -> bytes:
    return content[:36] + tid.to_bytes(4, "little") + content[40:]


def _written(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    os.utime(path, (1_800_000_000, 1_800_000_000))
    return path
