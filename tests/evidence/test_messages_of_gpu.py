"""What GPU runtimes, NCCL and the kernel's GPU drivers print as a process dies: each message by the signature that it means, and what only looks like it.

The texts are those of CUDA's, HIP's and HSA's own tables of errors, of NCCL's warnings, of NVIDIA's Xid numbers (nverror.h), and of what the
programs that print them set before them.
"""

# ruff: noqa: E501

from __future__ import annotations

import ctypes
import ctypes.util
import sys
from pathlib import Path
from typing import Optional

import pytest

from crashkit.diagnose import diagnose, load_catalog
from crashkit.errors import EvidenceError
from crashkit.evidence.text.log import crash_of_log, read_log

CUDA = {
    2: ("cuda-oom", "cudaErrorMemoryAllocation", "out of memory"),
    4: ("finalization-cuda-teardown", "cudaErrorCudartUnloading", "driver shutting down"),
    34: ("cuda-driver-mismatch", "cudaErrorStubLibrary", "CUDA driver is a stub library"),
    35: ("cuda-driver-mismatch", "cudaErrorInsufficientDriver", "CUDA driver version is insufficient for CUDA runtime version"),
    36: ("cuda-driver-mismatch", "cudaErrorCallRequiresNewerDriver", "API call is not supported in the installed CUDA driver"),
    53: ("cuda-launch-failure", "cudaErrorPriorLaunchFailure", "unspecified launch failure in prior launch"),
    98: ("cuda-no-kernel-image", "cudaErrorInvalidDeviceFunction", "invalid device function"),
    201: ("cuda-no-context-on-thread", "cudaErrorDeviceUninitialized", "invalid device context"),
    209: ("cuda-no-kernel-image", "cudaErrorNoKernelImageForDevice", "no kernel image is available for execution on the device"),
    214: ("gpu-ecc-error", "cudaErrorECCUncorrectable", "uncorrectable ECC error encountered"),
    220: ("gpu-nvlink-error", "cudaErrorNvlinkUncorrectable", "uncorrectable NVLink error detected during the execution"),
    222: ("cuda-driver-mismatch", "cudaErrorUnsupportedPtxVersion", "the provided PTX was compiled with an unsupported toolchain."),
    226: ("gpu-nvlink-error", "cudaErrorContained", "Invalid access of peer GPU memory over nvlink or a hardware error"),
    700: ("cuda-illegal-access", "cudaErrorIllegalAddress", "an illegal memory access was encountered"),
    701: ("cuda-launch-resources", "cudaErrorLaunchOutOfResources", "too many resources requested for launch"),
    702: ("cuda-launch-failure", "cudaErrorLaunchTimeout", "the launch timed out and was terminated"),
    709: ("finalization-cuda-teardown", "cudaErrorContextIsDestroyed", "context is destroyed"),
    710: ("cuda-device-assert", "cudaErrorAssert", "device-side assert triggered"),
    714: ("cuda-kernel-stack-overflow", "cudaErrorHardwareStackError", "hardware stack error"),
    715: ("cuda-kernel-illegal-instruction", "cudaErrorIllegalInstruction", "an illegal instruction was encountered"),
    716: ("cuda-misaligned-address", "cudaErrorMisalignedAddress", "misaligned address"),
    717: ("cuda-illegal-access", "cudaErrorInvalidAddressSpace", "operation not supported on global/shared address space"),
    718: ("cuda-kernel-illegal-instruction", "cudaErrorInvalidPc", "invalid program counter"),
    719: ("cuda-launch-failure", "cudaErrorLaunchFailure", "unspecified launch failure"),
    721: ("cuda-kernel-tensor-memory", "cudaErrorTensorMemoryLeak", "tensor memory not completely freed"),
    803: ("cuda-driver-mismatch", "cudaErrorSystemDriverMismatch", "system has unsupported display driver / cuda driver combination"),
    804: ("cuda-driver-mismatch", "cudaErrorCompatNotSupportedOnDevice", "forward compatibility was attempted on non supported HW"),
    900: ("cuda-graph-capture", "cudaErrorStreamCaptureUnsupported", "operation not permitted when stream is capturing"),
    901: ("cuda-graph-capture", "cudaErrorStreamCaptureInvalidated", "operation failed due to a previous error during capture"),
    902: ("cuda-graph-capture", "cudaErrorStreamCaptureMerge", "operation would result in a merge of separate capture sequences"),
    903: ("cuda-graph-capture", "cudaErrorStreamCaptureUnmatched", "capture was not ended in the same stream as it began"),
    904: ("cuda-graph-capture", "cudaErrorStreamCaptureUnjoined", "capturing stream has unjoined work"),
    905: ("cuda-graph-capture", "cudaErrorStreamCaptureIsolation", "dependency created on uncaptured work in another stream"),
    906: (
        "cuda-graph-capture",
        "cudaErrorStreamCaptureImplicit",
        "operation would make the legacy stream depend on a capturing blocking stream",
    ),
    907: ("cuda-graph-capture", "cudaErrorCapturedEvent", "operation not permitted on an event last recorded in a capturing stream"),
    908: (
        "cuda-graph-capture",
        "cudaErrorStreamCaptureWrongThread",
        "attempt to terminate a thread-local capture sequence from another thread",
    ),
}
"""Each error whose text says its cause; cudaError_t (driver_types.h)."""
NO_CAUSE = {
    1: "invalid argument",
    9: "invalid configuration argument",
    12: "invalid pitch argument",
    13: "invalid device symbol",
    17: "invalid device pointer",
    46: "CUDA-capable device(s) is/are busy or unavailable",
    100: "no CUDA-capable device is detected",
    101: "invalid device ordinal",
    304: "OS call failed or operation not supported on this OS",
    400: "invalid resource handle",
    500: "named symbol not found",
    600: "device not ready",
    705: "peer access has not been enabled",
    720: "too many blocks in cooperative launch",
    801: "operation not supported",
    810: "the MPS client has been terminated by the server",
    912: "a kernel launch error has occurred due to cluster misconfiguration",
    999: "unknown error",
}
"""Errors that a wrong call gives: none of those above may be claimed of them. 810 is some other client's."""
PRINTERS = {
    "torch": "RuntimeError: CUDA error: {text}\nCUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace below might be incorrect.",
    "torch of 2025": "torch.AcceleratorError: CUDA error: {text}\nSearch for `{name}' in https://docs.nvidia.com/cuda/cuda-runtime-api/group__CUDART__TYPES.html for more information.",
    "torch's terminate": "terminate called after throwing an instance of 'c10::Error'\n  what():  CUDA error: {text}\nException raised from c10_cuda_check_implementation at ../c10/cuda/CUDAException.cpp:43 (most recent call first):\nAborted (core dumped)",
    "torch's driver API": "RuntimeError: CUDA driver error: {text}",
    "CuPy": "cupy_backends.cuda.api.runtime.CUDARuntimeError: {name}: {text}",
    "Triton": "RuntimeError: Triton Error [CUDA]: {text}",
    "ONNX Runtime": "[ONNXRuntimeError] : 6 : RUNTIME_EXCEPTION : Non-zero status code returned while running Conv node. Name:'c' Status Message: CUDA failure {number}: {text} ; GPU=0 ; hostname=h ; file=gpu_data_transfer.cc ; line=73 ; expr=cudaMemcpyAsync(d, s, n)",
    "ggml": "CUDA error: {text}\n  current device: 0, in function ggml_backend_cuda_synchronize at ggml-cuda.cu:2460\n  cudaStreamSynchronize(cuda_ctx->stream())\nggml-cuda.cu:75: CUDA error\nAborted (core dumped)",
    "an older ggml": "CUDA error {number} at ggml-cuda.cu:6951: {text}\ncurrent device: 0",
    "TensorRT": "[05/01/2024-12:00:00] [E] Error[1]: [convolutionRunner.cpp::executeConv::465] Error Code 1: Cuda Runtime ({text})\nAborted (core dumped)",
    "TensorRT's driver API": "[TRT] [E] 1: [resources.cpp::~ScopedCudaStream::47] Error Code 1: Cuda Driver ({text})",
    "PyCUDA": "pycuda._driver.LogicError: cuMemcpyDtoH failed: {text}",
    "DALI": "RuntimeError: Critical error in pipeline:\nCUDA runtime API error {name} ({number}):\n{text}",
    "RMM": "terminate called after throwing an instance of 'rmm::cuda_error'\n  what():  CUDA error at: /usr/include/rmm/cuda_stream_view.hpp:95: {name} {text}\nAborted (core dumped)",
    "Thrust": "terminate called after throwing an instance of 'thrust::system::system_error'\n  what():  for_each: failed to synchronize: {name}: {text}\nAborted (core dumped)",
    "NCCL": "node1:4242:4300 [0] transport/net.cc:777 NCCL WARN Cuda failure {number} '{text}'\nAborted (core dumped)",
    "Caffe": "F0501 12:00:00.123456  4242 math_functions.cu:79] Check failed: error == cudaSuccess ({number} vs. 0)  {text}\n*** Check failure stack trace: ***\nAborted (core dumped)",
    "MXNet": "terminate called after throwing an instance of 'dmlc::Error'\n  what():  [12:00:00] src/engine/./threaded_engine.h:315: Check failed: err == cudaSuccess ({number} vs. 0) Name: MapPlanKernel ErrStr:{text}\nAborted (core dumped)",
    "TVM": "InternalError: Check failed: (e == cudaSuccess || e == cudaErrorCudartUnloading) is false: CUDA: {text}",
    "Faiss": "Faiss assertion 'err__ == cudaSuccess' failed in void f() at gpu/utils/Select.cu:60; details: CUDA error {number} {text}\nAborted (core dumped)",
    "vLLM's all-reduce": "Failed: Cuda error /workspace/csrc/custom_all_reduce.cuh:364 '{text}'",
    "Warp": "Warp CUDA error {number}: {text} (in function free_async, warp.cu:100)",
    "the watchdog of a rank": "terminate called after throwing an instance of 'c10::DistBackendError'\n  what():  [PG ID 0 PG GUID 0(default_pg) Rank 1] Process group watchdog thread terminated with exception: CUDA error: {text}",
}

MESSAGES = [
    # HIP (hip_error.cpp), as torch and ggml print it.
    ("cuda-oom", "ROCm error: out of memory\n  current device: 0, in function alloc at ggml-cuda.cu:2960\nAborted (core dumped)"),
    (
        "finalization-cuda-teardown",
        "torch.AcceleratorError: HIP error: driver shutting down\nSearch for `hipErrorDeinitialized' in https://rocm.docs.amd.com/projects/HIP/en/latest/index.html for more information.",
    ),
    ("cuda-driver-mismatch", "RuntimeError: HIP error: driver version is insufficient for runtime version"),
    ("cuda-no-context-on-thread", "RuntimeError: HIP error: invalid device context"),
    ("cuda-no-kernel-image", "HIP error: 'invalid kernel file'(hipErrorInvalidKernelFile) at main.hip:42\nAborted (core dumped)"),
    ("cuda-no-kernel-image", "ROCm error: invalid device function\n  current device: 0\nAborted (core dumped)"),
    ("cuda-launch-failure", "RuntimeError: HIP error: the launch timed out and was terminated"),
    ("cuda-device-assert", "kernel failed: hipErrorAssert"),
    ("cuda-graph-capture", "main.hip:42: hipErrorStreamCaptureUnmatched"),
    ("gpu-ecc-error", "main.hip:42: hipErrorECCNotCorrectable"),
    (
        "rocm-memory-fault",
        "ROCm error: an illegal memory access was encountered\n  current device: 0, in function f at ggml-cuda.cu:2960\nAborted (core dumped)",
    ),
    # HSA, and amdgpu in the kernel.
    (
        "rocm-queue-abort",
        "Queue at 0x7f0000000000 inactivated due to async error:\n\tHSA_STATUS_ERROR: A generic error has occurred.\nAborted (core dumped)",
    ),
    (
        "rocm-queue-abort",
        "HSA_STATUS_ERROR_OUT_OF_REGISTERS: Kernel has requested more VGPRs than are available on this agent\nAborted (core dumped)",
    ),
    ("rocm-queue-abort", "[drm:amdgpu_job_timedout [amdgpu]] *ERROR* ring gfx_0.0.0 timeout, signaled seq=9412, emitted seq=9414"),
    ("rocm-queue-abort", "amdgpu 0000:03:00.0: amdgpu: ring comp_1.0.0 timeout, signaled seq=9, emitted seq=11"),
    ("gpu-ecc-error", "amdgpu 0000:c3:00.0: amdgpu: uncorrectable hardware errors(ERREVENT_ATHUB_INTERRUPT) detected!"),
    # Numbers alone, and Numba's names.
    ("cuda-launch-failure", "numba.cuda.cudadrv.driver.CudaAPIError: [702] Call to cuMemcpyDtoH results in UNKNOWN_CUDA_ERROR"),
    ("cuda-kernel-illegal-instruction", "numba.cuda.cudadrv.driver.CudaAPIError: [715] Call to cuMemcpyDtoH results in UNKNOWN_CUDA_ERROR"),
    ("cuda-misaligned-address", "CUDA error code: 716"),
    ("gpu-ecc-error", "CUDA error: 214"),
    ("gpu-nvlink-error", "CUDA_ERROR_NVLINK_UNCORRECTABLE: uncorrectable NVLink error detected during the execution"),
    ("cuda-kernel-tensor-memory", "cuLaunchKernelEx returned CUDA_ERROR_TENSOR_MEMORY_LEAK"),
    ("cuda-no-kernel-image", "cupy_backends.cuda.api.driver.CUDADriverError: CUDA_ERROR_INVALID_PTX: a PTX JIT compilation failed"),
    # Xid (nverror.h).
    *[
        ("gpu-needs-reset", f"NVRM: Xid (PCI:0000:3b:00): {number}, pid=4242, name=python, x")
        for number in (62, 119, 120, 143, 158, 167, 169)
    ],
    (
        "gpu-needs-reset",
        "NVRM: Xid (PCI:0000:3b:00): 154, pid=4242, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)",
    ),
    *[
        ("gpu-nvlink-error", f"NVRM: Xid (PCI:0000:3b:00): {number}, pid=4242, name=python, x")
        for number in (74, *range(144, 151), 155, 173)
    ],
    *[
        ("gpu-ecc-error", f"NVRM: Xid (PCI:0000:3b:00): {number}, pid=4242, name=python, x")
        for number in (48, 63, 64, 94, 95, 140, 156, 157, 160, 161, 171, 172)
    ],
    *[("cuda-illegal-access", f"NVRM: Xid (PCI:0000:3b:00): {number}, pid=4242, name=python, x") for number in (13, 31, 137)],
    *[("cuda-launch-failure", f"NVRM: Xid (PCI:0000:3b:00): {number}, pid=4242, name=python, x") for number in (43, 109)],
    ("gpu-lost", "NVRM: Xid (PCI:0000:3b:00): 79, pid=4242, GPU has fallen off the bus."),
    # A GPU that was reset: Vulkan, Direct3D, DirectML, Level Zero, Metal, i915.
    (
        "gpu-device-lost",
        "terminate called after throwing an instance of 'vk::DeviceLostError'\n  what():  vk::Queue::submit: ErrorDeviceLost\nAborted (core dumped)",
    ),
    (
        "gpu-device-lost",
        "libc++abi: terminating due to uncaught exception of type vk::DeviceLostError: vk::Device::waitForFences: ErrorDeviceLost",
    ),
    ("gpu-device-lost", "Error: vk::Queue::submit: ErrorDeviceLost"),
    ("gpu-device-lost", "VkResult = VK_ERROR_DEVICE_LOST, vkQueueSubmit at renderer.cpp:12"),
    ("gpu-device-lost", "D3D11 device removed: DXGI_ERROR_DEVICE_HUNG"),
    (
        "gpu-device-lost",
        "[E:onnxruntime:, sequential_executor.cc:516 ExecuteKernel] Non-zero status code returned while running DmlFusedNode_0_0 node. Status Message: Exception(3) tid(1) 887A0005 The GPU device instance has been suspended. Use GetDeviceRemovedReason to determine the appropriate action.",
    ),
    ("gpu-device-lost", "RuntimeError: level_zero backend failed with error: 20 (UR_RESULT_ERROR_DEVICE_LOST)"),
    (
        "gpu-device-lost",
        "terminate called after throwing an instance of 'sycl::_V1::exception'\n  what():  level_zero backend failed with error: 20 (UR_RESULT_ERROR_DEVICE_LOST)\nAborted (core dumped)",
    ),
    (
        "gpu-device-lost",
        "libc++abi: terminating due to uncaught exception of type std::runtime_error: [METAL] Command buffer execution failed: Caused GPU Timeout Error (00000002:kIOGPUCommandBufferCallbackErrorTimeout)",
    ),
    (
        "gpu-device-lost",
        "error: Caused GPU Hang Error (00000003:kIOGPUCommandBufferCallbackErrorHang)\nggml-metal.m:1: fatal error\nAbort trap: 6",
    ),
    ("gpu-device-lost", "i915 0000:00:02.0: [drm] GPU HANG: ecode 12:1:85dffffb, in python [4242]"),
    (
        "cuda-oom",
        "libc++abi: terminating due to uncaught exception of type std::runtime_error: [METAL] Command buffer execution failed: Insufficient Memory (00000008:kIOGPUCommandBufferCallbackErrorOutOfMemory)",
    ),
    (
        "cuda-oom",
        "error: Insufficient Memory (00000008:kIOGPUCommandBufferCallbackErrorOutOfMemory)\nggml-metal-context.m:235: fatal error\nAbort trap: 6",
    ),
    (
        "cuda-oom",
        "terminate called after throwing an instance of 'vk::OutOfDeviceMemoryError'\n  what():  vk::Device::allocateMemory: ErrorOutOfDeviceMemory\nAborted (core dumped)",
    ),
    ("cuda-oom", "[TRT] [E] 2: [virtualMemoryBuffer.cpp::resizePhysical::145] Error Code 2: OutOfMemory (no further information)"),
    (
        "cuda-oom",
        "jax.errors.JaxRuntimeError: RESOURCE_EXHAUSTED: XLA:TPU compile permanent error. Ran out of memory in memory space hbm. Used 20.93G of 15.48G hbm. Exceeded hbm capacity by 5.45G.",
    ),
    # NCCL's warnings.
    (
        "nccl-remote-error",
        "node1:4242:4300 [0] misc/socket.cc:484 NCCL WARN socketPollConnect: Connect to 10.0.0.2<37021> returned 110(Connection timed out) errno 115(Operation now in progress)",
    ),
    (
        "nccl-remote-error",
        "node1:4242:4300 [0] misc/socket.cc:484 NCCL WARN socketStartConnect: Connect to 10.0.0.2<37021> failed : Software caused connection abort",
    ),
    (
        "nccl-remote-error",
        "node1:4242:4300 [0] proxy.cc:1484 NCCL WARN [Service thread] Could not receive type from localRank 3, res=2, closed=0",
    ),
    ("nccl-error", "node1:4242:4300 [0] bootstrap.cc:77 NCCL WARN Bootstrap : no socket interface found"),
    (
        "nccl-error",
        "node1:4242:4300 [0] init.cc:77 NCCL WARN Mismatched NCCL version detected : rank 0 version 22105 rank 1 version 22104 host node1 remoteHost node2",
    ),
    ("nccl-error", "node1:4242:4300 [0] misc/ibvwrap.cc:112 NCCL WARN Call to ibv_reg_mr failed with error Cannot allocate memory"),
    ("nccl-error", "node1:4242:4300 [0] transport/net_ib.cc:112 NCCL WARN NET/IB : mlx5_0:1 async fatal event: local catastrophic error"),
    ("nccl-error", "node1:4242:4300 [0] transport.cc:77 NCCL WARN No transport found for rank 1[3b000] -> rank 0[5e000]"),
    (
        "collective-mismatch",
        "node1:4242:4300 [0] transport/net_socket.cc:77 NCCL WARN NET/Socket : peer 10.0.0.2<3> message truncated : receiving 1048576 bytes instead of 65536.",
    ),
    ("nccl-error", "RuntimeError: NCCL error in: ../torch/lib/c10d/ProcessGroupNCCL.cpp:911, unhandled system error, NCCL version 2.7.8"),
    # XLA and JAX.
    (
        "collective-missing-rank",
        "F0501 12:00:00.123456    4242 rendezvous.cc:127] [id=0] Termination timeout for `thunk initialization` of 40 seconds exceeded. Exiting to ensure a consistent program state. Expected 8 threads to join the rendezvous, but only 7 of them arrived on time.\nAborted (core dumped)",
    ),
    (
        "job-rank-failed",
        "F0501 12:00:00.123456 4242 client.h:80] Terminating process because the JAX distributed service detected fatal errors. This most likely indicates that another task died; see the other task logs for more details.",
    ),
]
LOOK_ALIKES = [
    'case VK_ERROR_DEVICE_LOST: return "VK_ERROR_DEVICE_LOST";',
    "if (result == VK_ERROR_DEVICE_LOST) recreate_device();",
    "The function returns VK_ERROR_DEVICE_LOST if the device was lost.",
    "vkQueueSubmit returned VK_ERROR_DEVICE_LOST, recreating the device",
    "DXGI_ERROR_DEVICE_REMOVED can be returned when the driver is upgraded.",
    "[E] test_device_lost (VK_ERROR_DEVICE_LOST) ... ok",
    "tests/test_gpu.py::test_error_device_lost PASSED",
    "except vk.ErrorDeviceLost: restart()",
    "[METAL] retrying after kIOGPUCommandBufferCallbackErrorTimeout",
    "i915 0000:00:02.0: [drm] GPU HANG: ecode 12:0:00000000",
    "amdgpu 0000:03:00.0: amdgpu: ring gfx_0.0.0 timeout, but soft recovered",
    "amdgpu 0000:0b:00.0: amdgpu: 1048560 uncorrectable hardware errors detected in umc block",
    "NVRM: Xid (PCI:0000:3b:00): 154, pid=4242, GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)",
    "NVRM: Xid (PCI:0000:3b:00): 45, pid=4242, name=python, Ch 00000008",
    "NVRM: Xid (PCI:0000:3b:00): 92, pid=4242, High single-bit ECC error rate",
    "NVRM: Xid (PCI:0000:3b:00): 1190, pid=4242, x",
    "if err == cudaErrorCudartUnloading: return",
    "Parameter initialization error in cuda config: missing key",
    "CUDA_VERSION=12.4 : initialization error handling improved",
    "Loading CUDA module ... the old context is destroyed at exit",
    "The launch timed out and was tried again",
    "hipErrorAssertHandler registered",
    "cudaGetErrorString(700) is tested",
    "CUDA 701 samples were read",
    "epoch 214: CUDA memory 12 GB, error 0.1",
    "The stub library in /usr/local/cuda/lib64/stubs was ignored: the CUDA driver is loaded",
    "Ran out of memory in memory space vmem while allocating on stack",
    "node1:4242:4300 [0] NCCL INFO Bootstrap : Using eth0:10.0.0.2<0>",
    "node1:4242:4300 [0] NCCL INFO No transport found for rank 1, trying the next one",
    "[id=0] This thread has been waiting for `thunk initialization` for 10 seconds and may be stuck.",
    "[id=0] This thread is unstuck waiting for `thunk initialization` after 12s.",
]
"""None of them says that something died, or why."""
GENERAL = ("cxx-uncaught-exception", "cxx-uncaught-c10-error", "self-abort", "glog-check-failed", "c-assertion-failed", "nccl-error")


def found(text: str, folder: Path) -> list[tuple[str, str]]:
    path = folder / "posted.log"
    path.write_text(text + "\n")
    try:
        return [(finding.id, str(finding.confidence)) for finding in diagnose(crash_of_log(path, read_log(path)), load_catalog()).findings]
    except EvidenceError:
        return []


def first(text: str, folder: Path) -> Optional[str]:
    return next((name for name, _ in found(text, folder)), None)


@pytest.mark.parametrize("printer", PRINTERS)
def test_what_cuda_reports_is_told_whoever_prints_it(printer: str, tmp_path: Path) -> None:
    form = PRINTERS[printer]
    told = {number: first(form.format(number=number, name=name, text=text), tmp_path) for number, (_, name, text) in CUDA.items()}
    assert told == {number: expected for number, (expected, _, _) in CUDA.items()}


@pytest.mark.parametrize("printer", PRINTERS)
def test_nothing_is_made_of_a_wrong_call(printer: str, tmp_path: Path) -> None:
    form = PRINTERS[printer]
    told = {text: first(form.format(number=number, name="cudaErrorInvalidValue", text=text), tmp_path) for number, text in NO_CAUSE.items()}
    assert {text: name for text, name in told.items() if name not in (None, *GENERAL)} == {}


@pytest.mark.parametrize(("expected", "text"), MESSAGES, ids=[f"{number}-{one[0]}" for number, one in enumerate(MESSAGES)])
def test_message(expected: str, text: str, tmp_path: Path) -> None:
    assert first(text, tmp_path) == expected


@pytest.mark.parametrize("text", LOOK_ALIKES)
def test_look_alike(text: str, tmp_path: Path) -> None:
    assert found(text, tmp_path) == []


def test_a_warning_of_nccl_is_quoted_as_the_cause(tmp_path: Path) -> None:
    path = tmp_path / "posted.log"
    path.write_text("node1:4242:4300 [0] bootstrap.cc:77 NCCL WARN Bootstrap : no socket interface found\n")
    summary = diagnose(crash_of_log(path, read_log(path)), load_catalog()).findings[0].summary
    assert "no socket interface found" in summary
    assert "names no cause" not in summary


def _runtime() -> Optional[Path]:
    """This machine's CUDA runtime: an installed toolkit's, or that of NVIDIA's packages for this Python."""
    folders = [Path(one) / "nvidia" for one in sys.path]
    installed = [path for folder in folders if folder.is_dir() for path in folder.glob("*/lib/libcudart.so.*")]
    named = ctypes.util.find_library("cudart")
    return installed[0] if installed else Path(named) if named else None


def test_the_texts_are_those_of_this_machines_cuda_runtime() -> None:
    """A new version brings new errors: each is told above, or is a wrong call's."""
    runtime = _runtime()
    if runtime is None:
        pytest.skip("there is no CUDA runtime here")
    library = ctypes.CDLL(str(runtime))
    library.cudaGetErrorName.restype = library.cudaGetErrorString.restype = ctypes.c_char_p
    texts = {number: (library.cudaGetErrorName(number).decode(), library.cudaGetErrorString(number).decode()) for number in CUDA}
    known = {number: text for number, text in texts.items() if text[0] != "unrecognized error code"}
    assert len(known) > 30
    assert known == {number: CUDA[number][1:] for number in known}
    assert {number: library.cudaGetErrorString(number).decode() for number in NO_CAUSE} == NO_CAUSE
