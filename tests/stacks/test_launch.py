"""The CPU side of a GPU crash, from real cores of the same processes: which line launched, and whether that is certain."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from crashkit.model import Crash, Gpu, GpuException, LaunchedFrom, NativeFrame, PythonFrame, Thread
from crashkit.naming.cuda import cuda_call
from crashkit.report.gpu_wording import launch
from crashkit.stacks.launch import belongs, launched_from

from ..gpu_cores import gpu, side

EXACT = {
    "triton_beyond-blocking": ("triton_beyond", "triton_kernels.scatter_rows[(4,)](rows, out, 1 << 36, BLOCK=128)", "cuLaunchKernelEx"),
    "torch_embedding-blocking": ("torch_embedding", 'vectors = words(torch.tensor([3, 10, 2], device="cuda"))', "cuLaunchKernel"),
    # Autograd's own thread runs the backward.
    "torch_backward-blocking": ("backward", "return gradient.index_select(0, wrong)[:4] * 2", "cuLaunchKernel"),
}
NOTICED = {
    "null_store": ("native", 'print("status", library.synchronize())', "cuCtxSynchronize_v2"),
    "cupy_beyond": ("cupy_raw", "cupy.cuda.Device().synchronize()", "cuCtxSynchronize_v2"),
    "triton_beyond": ("triton_beyond", "print(out.sum().item(), triton.__version__)", "cuLaunchKernel"),
    "torch_cross_entropy": ("torch_cross_entropy", "print((loss / 4).item())", "cuLaunchKernel"),
    "threads_launch": ("faulty", "print(picked.item())", "cuStreamSynchronize"),
    "graph_replay": ("graph_replay", "torch.cuda.synchronize()", "cuCtxSynchronize_v2"),
    "torch_hang": ("torch_hang", "torch.cuda.synchronize()", "cuCtxSynchronize_v2"),
    "compiled_assert": ("compiled_assert", "print(pick(table, bad).sum().item())", "cuLaunchKernel"),
}
PROBABLE = {
    "cupy_beyond": 'module.get_function("histogram")((2,), (128,), (values, bins, cupy.int32(256)))',
    "triton_beyond": "triton_kernels.scatter_rows[(4,)](rows, out, 1 << 36, BLOCK=128)",
}


def joined(name: str, core: str | None = None, **environment: str) -> tuple[Crash, LaunchedFrom | None]:
    crash = side(name)
    assert crash.process is not None
    return crash, launched_from(gpu(core or name), crash.threads, {**crash.process.environment, **environment})


def line(crash: Crash, found: LaunchedFrom) -> PythonFrame:
    thread = next(thread for thread in crash.threads if thread.tid == found.thread)
    assert found.frame is not None
    frame = thread.frames[found.frame]
    assert isinstance(frame, PythonFrame)
    return frame


@pytest.mark.parametrize("name", EXACT)
def test_blocking_launches_give_the_line(name: str) -> None:
    crash, found = joined(name)
    assert found is not None
    frame = line(crash, found)
    function, source, call = EXACT[name]
    assert (found.exact, found.function, frame.function) == (True, call, function)
    assert (frame.source or "").startswith(source)


@pytest.mark.parametrize("name", NOTICED)
def test_other_launches_give_where_it_was_noticed(name: str) -> None:
    crash, found = joined(name)
    assert found is not None
    frame = line(crash, found)
    function, source, call = NOTICED[name]
    assert (found.exact, found.function, frame.function) == (False, call, function)
    assert (frame.source or "").startswith(source)
    assert (found.source or "").startswith(PROBABLE.get(name, ""))
    assert (found.line is None) == (name not in PROBABLE)


def test_the_line_below_what_torch_compile_wrote() -> None:
    """Neither `<string>` nor a generated file in a cache of another name is the user's own."""
    crash, found = joined("compiled_assert-blocking", "compiled_assert")
    assert found is not None
    assert found.exact
    assert line(crash, found).function == "pick"


def test_a_hang_is_never_exact() -> None:
    _, found = joined("torch_hang", CUDA_LAUNCH_BLOCKING="1")
    assert found is not None
    assert not found.exact


def test_two_launching_threads_are_never_exact() -> None:
    crash, found = joined("triton_beyond-blocking")
    assert found is not None
    one = next(thread for thread in crash.threads if thread.tid == found.thread)
    twice = (*crash.threads, replace(one, tid=99))
    again = launched_from(gpu("triton_beyond-blocking"), twice, {"CUDA_LAUNCH_BLOCKING": "1"})
    assert again is not None
    assert not again.exact
    assert again.candidates == (99,)
    told = launch(replace(crash, threads=twice, gpu=(replace(gpu("triton_beyond-blocking"), launched_from=again),)))
    assert told is not None
    assert told.text.endswith("as was 99: one of them launched it")


KERNEL = "shifted"
LAUNCHES = (
    # The lines of a function, and which of them launches.
    (("kernel = cupy.ElementwiseKernel('raw float32 x', 'float32 y', 'y = x[i]', 'shifted')", "x = zeros(9)", "y = kernel(x, 5)"), 2),
    (("kernel = module.get_function('shifted')", "kernel((4,), (32,), ())"), 1),
    (("from kernels import shifted", "shifted[2, 128](data, 1)"), 1),
    (("result = shifted[2, 128](data, 1)",), 0),
    (("def shifted(data, by):", "    data[0] = by", "shifted[grid](data, 1)"), 2),
    (("module.get_function('shifted')((4,), (32,), ())",), 0),
    (("library.run('shifted')",), 0),
    (("kernel = compile('shifted')", "kernel(1)", "kernel(2)"), None),
    (("shifted[1](a)", "shifted[1](b)"), None),
    (("# shifted(a)", "kernel == 'shifted'"), 1),
    (("compute(1)",), None),
)


@pytest.mark.parametrize(("lines", "expected"), LAUNCHES, ids=[lines[-1] for lines, _ in LAUNCHES])
def test_which_line_before_it_was_noticed_launched_the_kernel(lines: tuple[str, ...], expected: int | None) -> None:
    context = (*lines, "print(total)")
    frame = PythonFrame(function="work", file="/srv/app.py", line=10 + len(lines), context=context, context_start=10)
    call = NativeFrame(function="cuStreamSynchronize", module="/usr/lib/libcuda.so.1")
    core = Gpu(exceptions=(GpuException(name="WARP_ILLEGAL_ADDRESS", kernel=KERNEL),))
    found = launched_from(core, (Thread(tid=5, frames=(call, frame)),), {})
    assert found is not None
    assert (found.line, found.source) == ((None, None) if expected is None else (10 + expected, lines[expected]))


@pytest.mark.parametrize("value", ["", "0"])
def test_blocking_that_is_off(value: str) -> None:
    _, found = joined("triton_beyond-blocking", CUDA_LAUNCH_BLOCKING=value)
    assert found is not None
    assert not found.exact


def test_a_dump_belongs_to_the_process_with_its_contexts_thread() -> None:
    """The dump has no pid: the driver's thread, which aborts the process, is in both."""
    crash = side("null_store")
    assert crash.process is not None
    assert gpu("null_store").context_threads == (crash.crashed_thread,)
    assert belongs(gpu("null_store"), crash.threads, crash.process.pid) is True
    assert belongs(gpu("misaligned"), crash.threads, crash.process.pid) is False
    assert belongs(Gpu(pid=7), (), 7) is True
    assert belongs(Gpu(), (), 7) is None


def test_without_native_stacks_the_only_python_thread() -> None:
    crash = side("null_store")
    bare = [replace(thread, frames=tuple(frame for frame in thread.frames if isinstance(frame, PythonFrame))) for thread in crash.threads]
    found = launched_from(gpu("null_store"), bare, {})
    assert found is not None
    assert (found.thread, found.frame, found.exact, found.function) == (537, 0, False, None)
    told = launch(replace(crash, threads=tuple(bare), gpu=(replace(gpu("null_store"), launched_from=found),)))
    assert told is not None
    assert told.text.startswith("thread 537: this line or an earlier one launched it")
    both = [*bare, replace(next(thread for thread in bare if thread.tid == 537), tid=1)]
    assert launched_from(gpu("null_store"), both, {}) is None


def test_names_of_calls() -> None:
    kinds = {"cuLaunchKernel": "launch", "cudaLaunchKernelExC": "launch", "cuGraphLaunch": "launch", "cuCtxSynchronize_v2": "wait"}
    kinds |= {"cudaStreamSynchronize": "wait", "cuMemcpyDtoH_v2": "wait", "cudaMemcpy": "wait", "cuKernelGetFunction": "other"}
    assert {name: cuda_call(name) for name in kinds} == kinds
    assert cuda_call("curl_easy_perform") is None
    assert cuda_call("customSynchronize") is None
