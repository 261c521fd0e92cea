"""Crashes that people reported in public, told in our own words: the expected signature stands first, nothing forbidden stands anywhere.

Each case names the report that it comes from.
"""

# ruff: noqa: E501

from __future__ import annotations

from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple, Optional

import pytest

from crashkit.diagnose import diagnose, load_catalog
from crashkit.evidence.text.log import crash_of_log, read_log

from .synthetic import crash, lines

WORKER = "py /srv/ocr/recognizer.py:65 recognize | matrix = self.model(image) > py /usr/lib/python3.12/threading.py:1012 run > py /usr/lib/python3.12/threading.py:1032 _bootstrap"
RNN = "py /venv/lib/python3.12/site-packages/torch/nn/modules/rnn.py:1124 forward > " + WORKER
EVAL = "_PyEval_EvalFrameDefault > PyEval_EvalCode"


class Case(NamedTuple):
    report: str
    expect: Optional[str]
    crash: dict[str, Any] = {}
    log: str = ""
    forbid: tuple[str, ...] = ()


CASES = {
    "culaunchkernel-threads-cudnnrnn": Case(
        "https://github.com/pytorch/pytorch/issues/19913",
        "cuda-concurrent-launch",
        {
            "signal": "SIGSEGV",
            "code": "SEGV_MAPERR",
            "address": 0x18,
            "reason": "null-pointer",
            "frames": "?? [libcuda.so.1] > cuVDPAUCtxCreate [libcuda.so.1] > cuLaunchKernel [libcuda.so.1] > "
            "cudart::cudaApiLaunchCommon(void const*, bool) [libcaffe2_gpu.so] > cudaLaunch [libcaffe2_gpu.so] > "
            "cublasStatus_t cublasGemv<float, float, float, 128, 4, 16, 4, 4>(cublasContext*) [libcaffe2_gpu.so] > "
            "cublasSgemmRecursiveEntry [libcaffe2_gpu.so] > at::native::_cudnn_rnn(at::Tensor const&) [libcaffe2_gpu.so] > " + RNN,
            "others": [
                "__lll_lock_wait > pthread_mutex_lock > at::native::(anonymous namespace)::_cudnn_impl [libtorch_cuda.so] > " + RNN,
                "__lll_lock_wait > pthread_mutex_lock > ?? [libcuda.so.1] > cuLaunchKernelEx [libcuda.so.1] > cudnnRNNForward > " + RNN,
                "futex_wait > take_gil > PyEval_RestoreThread > " + RNN,
                "poll [libc.so.6] > ?? [libcuda.so.1] > start_thread [libc.so.6]",
            ],
        },
    ),
    "culaunchkernel-threads-all-waiting": Case(
        "https://github.com/pytorch/pytorch/issues/19913",
        "cuda-concurrent-launch",
        {
            "signal": "SIGSEGV",
            "frames": "?? [libcuda.so.1] > cuLaunchKernelExC [libcuda.so.1] > cudaLaunchKernelExC > cudnnRNNForward > " + RNN,
            "others": ["futex_wait > take_gil > PyEval_RestoreThread > " + RNN] * 4,
        },
    ),
    "cublas-handle-map-race-2025": Case(
        "https://github.com/pytorch/pytorch/pull/167722",
        "cuda-concurrent-launch",
        {
            "signal": "SIGSEGV",
            "reason": "non-canonical",
            "frames": "std::_Hashtable<int, int>::find > at::cuda::getCUDABlasLtWorkspace() [libtorch_cuda.so] > at::cuda::blas::gemm [libtorch_cuda.so] > "
            + WORKER,
            "others": [
                "at::cuda::getCurrentCUDABlasHandle() [libtorch_cuda.so] > " + WORKER,
                "cublasLtMatmul [libcublasLt.so.12] > " + WORKER,
            ],
        },
    ),
    "cublas-setstream-race": Case(
        "https://github.com/pytorch/pytorch/issues/6962",
        "cuda-concurrent-launch",
        {
            "signal": "SIGSEGV",
            "frames": "?? [libcublas.so.9.0] > cublasSetStream_v2 [libcublas.so.9.0] > THCudaBlas_Sgemm > " + WORKER,
            "others": ["cublasSgemm_v2 [libcublas.so.9.0] > " + WORKER] * 2,
        },
    ),
    "cudnn-v8-backendexecute-race": Case(
        "https://github.com/pytorch/pytorch/issues/103793",
        "cuda-concurrent-launch",
        {
            "signal": "SIGSEGV",
            "frames": "?? [libcudnn_cnn_infer.so.8] > cudnnBackendExecute [libcudnn.so.8] > at::native::run_conv_plan [libtorch_cuda.so] > "
            + WORKER,
            "others": ["cudnnBackendExecute [libcudnn.so.8] > " + WORKER, "cudaLaunchKernel > at::native::gpu_kernel_impl > " + WORKER],
        },
    ),
    "neg-culaunchkernel-concurrent-unload": Case(
        "https://github.com/NVIDIA/cuda-tile/issues/23",
        None,
        {
            "signal": "SIGSEGV",
            "frames": "?? [libcuda.so.1] > cuLaunchKernel [libcuda.so.1] > launch > " + WORKER,
            "others": [
                "?? [libcuda.so.1] > cuModuleUnload [libcuda.so.1] > " + WORKER,
                "cuLaunchKernel [libcuda.so.1] > " + WORKER,
                "cuLaunchKernel [libcuda.so.1] > " + WORKER,
            ],
        },
        forbid=("cuda-concurrent-launch",),
    ),
    "neg-culaunchkernel-single-thread": Case(
        "https://github.com/AccelerateHS/accelerate/issues/267",
        None,
        {
            "signal": "SIGSEGV",
            "frames": "cuMemGetAttribute_v2 [libcuda.so.1] > cuVDPAUCtxCreate [libcuda.so.1] > cuLaunchKernel [libcuda.so.1] > launchKernel_info",
            "others": ["poll > ?? [libcuda.so.1] > start_thread", "epoll_wait > ghc_worker"],
        },
        forbid=("cuda-concurrent-launch",),
    ),
    "neg-cuda-gdb-attach": Case(
        "https://github.com/k2-fsa/snowfall/pull/71",
        None,
        {
            "signal": "SIGSEGV",
            "frames": "cudbgReportDriverInternalError [libcuda.so.1] > <function called from gdb> > cuLaunchKernel [libcuda.so.1] > " + RNN,
            "others": ["cuLaunchKernel [libcuda.so.1] > " + RNN] * 2,
        },
        forbid=("cuda-*",),
    ),
    "cpu-threads-conv2d-segv": Case(
        "https://github.com/pytorch/pytorch/issues/16828",
        None,
        {
            "signal": "SIGSEGV",
            "frames": "mkldnn::impl::cpu::_jit_avx512_common_convolution_fwd_t > at::native::mkldnn_convolution [libcaffe2.so] > "
            "py /venv/lib/python3.7/site-packages/torch/nn/modules/conv.py:320 forward > " + WORKER,
            "others": ["mkldnn_primitive > py /venv/lib/python3.7/site-packages/torch/nn/modules/conv.py:320 forward > " + WORKER] * 3,
        },
        forbid=("cuda-*",),
    ),
    "dl-shm-posix-fallocate": Case(
        "https://github.com/pytorch/pytorch/pull/161910",
        "dataloader-shm-exhausted",
        log="RuntimeError: unable to allocate shared memory(shm) for file </torch_123_456_0>: No space left on device (28)\n",
    ),
    "neg-dl-bus-with-heap-corruption": Case(
        "https://github.com/THU-DA-6D-Pose-Group/GDR-Net/issues/16",
        "heap-corruption-overflow",
        log="malloc(): memory corruption\nERROR: Unexpected bus error encountered in worker. This might be caused by insufficient shared memory (shm).\n",
        forbid=("dataloader-worker-sigbus",),
    ),
    "neg-dl-bus-num-workers-0": Case(
        "https://github.com/greatlog/UnpairedSR/issues/17",
        "mmap-file-truncated-sigbus",
        {
            "signal": "SIGBUS",
            "code": "BUS_ADRERR",
            "frames": "__memmove_avx_unaligned > mdb_get > py /venv/lib/python3.8/site-packages/lmdb/cffi.py:10 get",
        },
        forbid=("dataloader-shm-exhausted", "dataloader-worker-sigbus"),
    ),
    "sigbus-safetensors-lustre": Case(
        "https://github.com/NVIDIA/TensorRT-LLM/pull/17368",
        "mmap-file-truncated-sigbus",
        {
            "signal": "SIGBUS",
            "code": "BUS_ADRERR",
            "address": 0x7F0000001000,
            "mapped": "/lustre/models/model-00017-of-00030.safetensors",
            "frames": "__memcpy_avx512_unaligned_erms > at::native::copy_kernel > GOMP_parallel > start_thread",
        },
    ),
    "sigbus-mapped-storage-disk-full": Case(
        "https://github.com/pytorch/pytorch/issues/42155",
        "mmap-file-truncated-sigbus",
        {
            "signal": "SIGBUS",
            "reason": "bus-truncated-file",
            "address": 0x7F0000001000,
            "mapped": "/data/huge.bin",
            "frames": "at::native::fill_kernel > py /x.py:3 <module>",
        },
    ),
    "dl-emfile-ancdata": Case(
        "https://github.com/pytorch/pytorch/issues/973", "dataloader-too-many-open-files", log="RuntimeError: received 0 items of ancdata\n"
    ),
    "dl-emfile-new-text": Case(
        "https://github.com/pytorch/pytorch/pull/34768",
        "dataloader-too-many-open-files",
        log="RuntimeError: Too many open files. Communication with the workers is no longer possible. Please increase the limit.\n",
    ),
    "dup-openmp-llvm-then-segv": Case(
        "https://github.com/pytorch/pytorch/issues/78490",
        "duplicate-openmp-runtime",
        log="OMP: Error #15: Initializing libiomp5.so, but found libomp.so already initialized.\nAborted (core dumped)\n",
    ),
    "dup-openmp-sklearn-libiomp": Case(
        "https://github.com/scikit-learn/scikit-learn/issues/21302",
        "duplicate-openmp-runtime",
        {
            "signal": "SIGSEGV",
            "frames": "__kmp_suspend_initialize_thread [libiomp5.so] > __kmp_fork_barrier [libiomp5.so] > start_thread",
            "modules": ["/venv/lib/libiomp5.so", "/venv/sklearn/.libs/libomp.so"],
        },
    ),
    "neg-two-libgomp-only-slow": Case(
        "https://github.com/pytorch/pytorch/issues/98836",
        None,
        {
            "signal": "SIGSEGV",
            "frames": "gomp_team_start [libgomp-a34b3233.so.1] > my_kernel [ext.so] > py /x.py:1 <module>",
            "modules": ["/venv/torch/lib/libgomp-a34b3233.so.1", "/venv/sklearn.libs/libgomp-d22c30c5.so.1.0.0", "/usr/lib/libgomp.so.1"],
        },
        forbid=("duplicate-openmp-runtime",),
    ),
    "mkl-threading-layer": Case(
        "https://github.com/InternLM/xtuner/issues/350",
        "mkl-threading-layer",
        log="Error: mkl-service + Intel(R) MKL: MKL_THREADING_LAYER=INTEL is incompatible with libgomp-a34b3233.so.1 library.\n",
    ),
    "recursion-limit-raised": Case(
        "https://github.com/python/cpython/issues/96222",
        "stack-overflow",
        {"signal": "SIGSEGV", "frames": " > ".join(["_PyEval_EvalFrameDefault", "_PyFunction_Vectorcall", "function_code_fastcall"] * 300)},
    ),
    "heap-libstdcxx-locale-cv2": Case(
        "https://github.com/pytorch/pytorch/issues/2473",
        "import-order-libstdcxx",
        {
            "signal": "SIGABRT",
            "frames": "raise > abort > __libc_message > malloc_printerr > _int_free > cfree > std::locale::_Impl::_M_install_facet(std::locale::id const*) [libshm.so] > "
            "std::locale::_S_initialize_once() > std::ios_base::Init::Init() > _GLOBAL__sub_I_compiler_depend.cc > call_init > _dl_init > dlopen",
        },
        log="*** Error in `python': free(): invalid pointer: 0x00007f ***\n",
        forbid=("heap-corruption-invalid-free",),
    ),
    "heap-exit-rocm": Case(
        "https://github.com/ROCm/TheRock/issues/1059",
        "heap-corruption-double-free",
        {"signal": "SIGABRT", "frames": "raise > abort > __libc_message > malloc_printerr > _int_free > free > __run_exit_handlers > exit"},
        log="double free or corruption (!prev)\n",
    ),
    "heap-pil-dealloc": Case(
        "https://github.com/pytorch/pytorch/issues/6578",
        "heap-corruption-double-free",
        {
            "signal": "SIGABRT",
            "frames": "raise > abort > __libc_message > malloc_printerr > _int_free > cfree > ?? [_imaging.so] > subtype_dealloc",
        },
    ),
    "heap-libcuda-cuinit": Case(
        "https://github.com/junyanz/pytorch-CycleGAN-and-pix2pix/issues/251",
        "heap-corruption-double-free",
        log="*** Error in `python': double free or corruption (fasttop): 0x0000 ***\n",
    ),
    "c10-error-terminate-libtorch": Case(
        "https://github.com/hku-mars/GS-SDF/issues/1",
        "cxx-uncaught-c10-error",
        {
            "signal": "SIGABRT",
            "code": "SI_TKILL",
            "frames": "raise > abort > __gnu_cxx::__verbose_terminate_handler() > std::terminate() > __cxa_throw > c10::detail::torchCheckFail(char const*) > load_config",
        },
        log="terminate called after throwing an instance of 'c10::Error'\n  what():  isInt() INTERNAL ASSERT FAILED\n",
    ),
    "pure-virtual-safepyobject-exit": Case(
        "https://github.com/pytorch/pytorch/issues/101185",
        "finalization-static-dtor",
        {
            "signal": "SIGABRT",
            "frames": "raise > abort > std::terminate() > __cxa_pure_virtual > c10::SafePyObject::~SafePyObject() > "
            "torch::impl::dispatch::PythonKernelHolder::~PythonKernelHolder() > c10::intrusive_ptr<c10::OperatorKernel>::reset_() > __run_exit_handlers > exit",
        },
        log="pure virtual method called\nterminate called without an active exception\n",
        forbid=("use-after-free",),
    ),
    "daemon-thread-forced-unwind": Case(
        "https://github.com/pytorch/pytorch/issues/38228",
        "cxx-forced-unwind",
        {
            "signal": "SIGABRT",
            "frames": "raise > abort > std::terminate() > __gxx_personality_v0 > _Unwind_ForcedUnwind_Phase2 > _Unwind_ForcedUnwind > __pthread_unwind > pthread_exit > "
            "PyThread_exit_thread > take_gil > PyEval_RestoreThread > pybind11::gil_scoped_release::~gil_scoped_release() > start_thread",
            "others": ["futex > Py_FinalizeEx > Py_RunMain"],
        },
        log="terminate called without an active exception\n",
    ),
    "tls-safepyobject-decref-exit": Case(
        "https://github.com/pytorch/pytorch/issues/117762",
        "cxx-forced-unwind",
        {
            "signal": "SIGABRT",
            "frames": "raise > abort > std::terminate() > _Unwind_ForcedUnwind > PyThread_exit_thread > PyEval_AcquireThread > pybind11::gil_scoped_acquire::gil_scoped_acquire() > "
            "c10::SafePyObject::~SafePyObject() > __call_tls_dtors > start_thread",
            "others": ["PyGC_Collect > Py_FinalizeEx > Py_RunMain"],
        },
    ),
    "nccl-watchdog-timeout": Case(
        "https://github.com/sgl-project/sglang/issues/1693",
        "nccl-watchdog-timeout",
        {
            "signal": "SIGABRT",
            "frames": "raise > abort > std::terminate() > __cxa_throw > c10d::ProcessGroupNCCL::WorkNCCL::checkTimeout > c10d::ProcessGroupNCCL::watchdogHandler() > c10d::ProcessGroupNCCL::ncclCommWatchdog() > start_thread",
        },
        log="[rank3]:[E1009 12:00:00.1 ProcessGroupNCCL.cpp:607] [Rank 3] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=808, OpType=_ALLGATHER_BASE, NumelIn=1, NumelOut=8, Timeout(ms)=600000) ran for 600004 milliseconds before timing out.\n"
        "terminate called after throwing an instance of 'c10::DistBackendError'\n",
    ),
    "nccl-watchdog-seqnum": Case(
        "https://github.com/XPixelGroup/BasicSR/issues/737",
        "nccl-watchdog-timeout",
        log="[Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=808, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600031 milliseconds before timing out.\n"
        "[PG ID 0 PG GUID 0 Rank 0] Exception (either an error or timeout) detected by watchdog at work: 808, last enqueued NCCL work: 811, last completed NCCL work: 807.\n",
    ),
    "nccl-heartbeat": Case(
        "https://github.com/Intellindust-AI-Lab/DEIM/issues/105",
        "nccl-heartbeat-monitor",
        log="[PG 0 Rank 0] Heartbeat monitor timed out! Process will be terminated after dumping debug info. workMetaList_.size()=1\n"
        "ProcessGroupNCCL's watchdog got stuck for 600 seconds without making progress in monitoring enqueued collectives.\n",
        forbid=("nccl-watchdog-timeout",),
    ),
    "nccl-commabort-deadlock": Case(
        "https://github.com/NVIDIA/nccl/issues/829",
        "nccl-hang",
        {
            "frames": "?? [libcuda.so.1] > cudaStreamSynchronize > ncclStrongStreamSynchronize > commDestroySync > commReclaim > ncclCommAbort > abort_all"
        },
    ),
    "nccl-reversed-collectives": Case(
        "https://github.com/NVIDIA/nccl/issues/899",
        "nccl-hang",
        {
            "frames": "sched_yield > ?? [libcuda.so.1] > cuStreamSynchronize [libcuda.so.1] > cudaStreamSynchronize > py /x.py:3 main",
            "others": ["pthread_cond_timedwait > c10d::ProcessGroupNCCL::ncclCommWatchdog() [libtorch_cuda.so] > start_thread"],
        },
    ),
    "gil-memray-tsget": Case(
        "https://github.com/bloomberg/memray/issues/227",
        "gil-not-held",
        {
            "signal": "SIGABRT",
            "frames": "raise > abort > fatal_error_exit > fatal_error > _Py_FatalErrorFunc > PyThreadState_Get > memray::Tracker > start_thread",
        },
    ),
    "gil-ics-savethread": Case(
        "https://github.com/intrepidcs/python_ics/issues/175",
        "gil-not-held",
        log="Fatal Python error: PyEval_SaveThread: the function must be called with the GIL held, but the GIL is released\nPython runtime state: initialized\n",
    ),
    "gil-ray-release-not-current": Case(
        "https://github.com/ray-project/ray/issues/53341",
        "gil-not-held",
        log="Fatal Python error: PyGILState_Release: thread state 0x7f0 must be current when releasing\nPython runtime state: initialized\n\nThread 0x00007f00 (most recent call first):\n  <no Python frame>\n",
    ),
    "gil-finalizing-not-closed": Case(
        "https://github.com/dbzero-software/dbzero/issues/316",
        "finalization-static-dtor",
        log="Fatal Python error: PyThreadState_Get: the function must be called with the GIL held\nPython runtime state: finalizing (tstate=0x0000000000000000)\n\n",
        forbid=("gil-not-held",),
    ),
    "gil-future-lock-inversion": Case(
        "https://github.com/pytorch/pytorch/issues/58239",
        "deadlock-gil-native-lock",
        {
            "frames": "__lll_lock_wait > __gthread_mutex_lock > std::mutex::lock > c10::ivalue::Future::completed > cfunction_call > "
            + EVAL
            + " > py /x.py:9 wait_all",
            "others": [
                "do_futex_wait > take_gil > PyEval_RestoreThread > pybind11::gil_scoped_acquire > c10::ivalue::Future::markCompleted > start_thread"
            ],
        },
    ),
    "gil-gloo-destructor-deadlock": Case(
        "https://github.com/pytorch/pytorch/issues/56297",
        "deadlock-gil-native-lock",
        {
            "frames": "futex_wait > pthread_cond_wait > std::condition_variable::wait > c10d::ProcessGroupGloo::~ProcessGroupGloo() > subtype_dealloc > "
            + EVAL
            + " > py /x.py:9 destroy",
            "others": [
                "futex_wait > take_gil > PyEval_RestoreThread > torch::ConcretePythonHooks::py_decref > c10::TensorImpl::~TensorImpl() > c10d::ProcessGroupGloo::runLoop > start_thread"
            ],
        },
    ),
    "exit-handler-gil-deadlock": Case(
        "https://github.com/pytorch/pytorch/issues/42132",
        "deadlock-finalization",
        {
            "frames": "sem_wait > PyGILState_Ensure > pybind11::gil_scoped_acquire > torch::autograd::PyNode::release_variables() > Py_Exit > handle_system_exit"
        },
    ),
    "abi-flash-attn-cxx11": Case(
        "https://github.com/Dao-AILab/flash-attention/issues/1644",
        "abi-undefined-symbol",
        log="ImportError: /venv/lib/python3.10/site-packages/flash_attn_2_cuda.cpython-310-x86_64-linux-gnu.so: undefined symbol: _ZN3c105ErrorC2ENS_14SourceLocationESs\n",
    ),
    "protobuf-duplicate-file": Case(
        "https://github.com/protocolbuffers/protobuf/issues/15194",
        "protobuf-duplicate-registration",
        log="[libprotobuf ERROR descriptor_database.cc:642] File already exists in database: onnx/onnx-ml.proto\nterminate called after throwing an instance of 'google::protobuf::FatalException'\n",
        forbid=("cxx-uncaught-exception",),
    ),
    "protobuf-file-registered-xla": Case(
        "https://github.com/yisol/IDM-VTON/issues/95",
        "protobuf-duplicate-registration",
        log="F0000 descriptor.cc:4120] File is already registered: xla/xla_data.proto\n*** SIGABRT received at time=1 on cpu 3 ***\n",
    ),
    "numpy2-abi": Case(
        "https://github.com/pytorch/pytorch/issues/135013",
        "abi-numpy",
        log="A module that was compiled using NumPy 1.x cannot be run in\nNumPy 2.1.0 as it may crash.\n_ARRAY_API not found\n",
    ),
    "sigill-avx2-static-init": Case(
        "https://github.com/pytorch/pytorch/issues/37577",
        "sigill-unsupported-cpu",
        {
            "signal": "SIGILL",
            "code": "ILL_ILLOPN",
            "frames": "_GLOBAL__sub_I_BinaryOpsKernel.cpp.AVX2.cpp [libtorch_cpu.so] > call_init > _dl_init > dl_open_worker",
        },
    ),
    "sigill-sse41": Case(
        "https://github.com/pytorch/pytorch/issues/116623",
        "sigill-unsupported-cpu",
        {
            "signal": "SIGILL",
            "frames": "std::vector<dnnl_post_ops::entry_t>::_M_realloc_insert [libtorch_cpu.so] > ideep",
            "instruction": "pinsrq xmm0, rax, 1",
        },
    ),
    "sigill-kvm-cpu-model": Case(
        "https://github.com/pytorch/pytorch/issues/22338",
        "sigill-unsupported-cpu",
        {"signal": "SIGILL", "frames": "THFloatVector_normal_fill_AVX2 > at::native::normal_"},
    ),
    "sigfpe-int-tensor-div-old": Case(
        "https://github.com/pytorch/pytorch/issues/26536",
        "sigfpe-integer-divide",
        {"signal": "SIGFPE", "code": "FPE_INTDIV", "frames": "at::native::(anonymous namespace)::div_kernel > " + WORKER},
    ),
    "neg-sigfpe-cublaslt": Case(
        "https://github.com/wzzheng/StreamVGGT/issues/10",
        "sigfpe-library-heuristic",
        {
            "signal": "SIGFPE",
            "code": "FPE_INTDIV",
            "reason": "integer-divide",
            "frames": "?? [libcublasLt.so.12] > cublasLtMatmulAlgoGetHeuristic [libcublasLt.so.12] > cublasLtMatmulAlgoCheck > at::cuda::blas::gemm_and_bias > "
            + WORKER,
        },
        forbid=("sigfpe-integer-divide",),
    ),
    "neg-sigfpe-static-init": Case(
        "https://github.com/pytorch/pytorch/issues/16183",
        "library-init-crash",
        {
            "signal": "SIGFPE",
            "code": "FPE_INTDIV",
            "frames": "_GLOBAL__sub_I_jit_avx512_common_conv_kernel.cpp [libmkldnn.so.0] > call_init > _dl_init",
        },
        forbid=("sigfpe-integer-divide",),
    ),
    "import-order-pyarrow-once": Case(
        "https://github.com/pytorch/pytorch/issues/22447",
        "import-order-libstdcxx",
        {
            "signal": "SIGSEGV",
            "frames": "std::_Sp_counted_base<2>::_M_release() [libarrow.so.14] > std::vector<std::shared_ptr<arrow::Buffer>>::~vector() [libarrow.so.14]",
        },
    ),
    "import-order-static-libstdcxx": Case(
        "https://github.com/pytorch/pytorch/issues/109923",
        "import-order-libstdcxx",
        {
            "signal": "SIGSEGV",
            "frames": "?? [libstdc++.so.6] > std::codecvt<char16_t, char, __mbstate_t>::do_in > std::ostream& std::ostream::_M_insert<unsigned long>(unsigned long) > "
            "c10::detail::_str_wrapper<char const*>::call > torch::Library::_fallback",
        },
    ),
    "import-order-jemalloc-bgthread": Case(
        "https://github.com/ray-project/ray/pull/60478",
        "allocator-mix",
        {"signal": "SIGSEGV", "frames": "background_thread_entry [libarrow.so.2100] > start_thread"},
    ),
    "import-cv2-libz": Case(
        "https://github.com/pytorch/pytorch/issues/43834",
        "import-order-libstdcxx",
        {
            "signal": "SIGSEGV",
            "frames": "?? > py /usr/lib/python3.6/json/encoder.py:199 encode > py /x.py:1 <module>",
            "modules": ["/venv/cv2/.libs/libz-a147dcb0.so.1.2.3", "/venv/cv2/cv2.so", "/venv/torch/lib/libtorch.so"],
        },
    ),
    "static-tls-xgboost-arm": Case(
        "https://github.com/dmlc/xgboost/issues/8488",
        "static-tls-exhausted",
        log="OSError: /venv/xgboost.libs/libgomp-d22c30c5.so.1.0.0: cannot allocate memory in static TLS block\n",
    ),
    "cuda-ipc-exit-invalid-pointer": Case(
        "https://github.com/pytorch/pytorch/pull/185148",
        "finalization-cuda-teardown",
        {
            "signal": "SIGABRT",
            "frames": "raise > abort > std::terminate() > torch::CudaIPCSentData::~CudaIPCSentData() > torch::(anonymous namespace)::CudaIPCGlobalEntities::~CudaIPCGlobalEntities() > __run_exit_handlers > exit",
        },
    ),
    "cuda-driver-shutting-down": Case(
        "https://github.com/pytorch/pytorch/pull/97142",
        "finalization-cuda-teardown",
        log="terminate called after throwing an instance of 'c10::Error'\n  what():  CUDA error: driver shutting down\n",
    ),
    "neg-oom-ram-fine": Case(
        "https://github.com/pytorch/pytorch/issues/8976",
        "dataloader-worker-killed-sigkill",
        log="RuntimeError: DataLoader worker (pid 17) is killed by signal: Killed.\n",
        forbid=("host-oom-cgroup",),
    ),
    "neg-dl-sigterm": Case(
        "https://github.com/open-mmlab/mmsegmentation/issues/2085",
        "killed-by-sigterm",
        log="RuntimeError: DataLoader worker (pid 17) is killed by signal: Terminated.\n",
        forbid=("host-oom*", "dataloader-worker-killed-sigkill"),
    ),
    "neg-absl-sigterm-banner": Case(
        "https://github.com/pytorch/xla/issues/8234",
        "killed-by-sigterm",
        log="*** SIGTERM received by PID 811 (TID 811) on cpu 3 from PID 1; stack trace: ***\nPC: @ 0x7f do_futex_wait\n"
        "concurrent.futures.process.BrokenProcessPool: A process in the process pool was terminated abruptly while the future was running\n",
        forbid=("inductor-worker-crash", "null-deref"),
    ),
    "rocm-memory-access-fault": Case(
        "https://github.com/ROCm/legacy-rocm-build/issues/1535",
        "rocm-memory-fault",
        log="Memory access fault by GPU node-1 (Agent handle: 0x55) on address 0x7f. Reason: Page not present or supervisor privilege.\nAborted (core dumped)\n",
    ),
    "inductor-worker-death-hang": Case(
        "https://github.com/pytorch/pytorch/pull/189290",
        "inductor-worker-crash",
        {
            "frames": "read > os_read > py /venv/lib/python3.12/site-packages/torch/_inductor/compile_worker/subprocess_pool.py:60 _recv_msg > py /x.py:1 f"
        },
    ),
    "inductor-brokenpool-message": Case(
        "https://github.com/pytorch/pytorch/pull/135120",
        "inductor-worker-crash",
        log="SubprocException: A compilation subprocess exited unexpectedly.\n",
    ),
    "triton-axisinfo-segv": Case(
        "https://github.com/triton-lang/triton/issues/5122",
        "triton-compile-crash",
        {
            "signal": "SIGSEGV",
            "frames": "llvm::sys::PrintStackTrace [libtriton.so] > mlir::triton::ModuleAxisInfoAnalysis::initialize [libtriton.so] > coalesce [libtriton.so]",
        },
        log="PLEASE submit a bug report to https://github.com/llvm/llvm-project/issues/ and include the crash backtrace.\n",
    ),
    "nvrtc-pch-race": Case(
        "https://github.com/NVIDIA/warp/issues/1284",
        "jit-cache-race",
        {"signal": "SIGSEGV", "frames": "?? [warp.so] > nvrtcCompileProgram [warp.so] > wp_cuda_compile"},
    ),
    "freethreaded-alloc-segv": Case(
        "https://github.com/pytorch/pytorch/issues/171992",
        "free-threaded-race",
        {"signal": "SIGSEGV", "frames": "PyType_GenericAlloc > THPVariable_NewWithVar"},
        log='Fatal Python error: Segmentation fault\n\n<Cannot show all threads while the GIL is disabled>\nStack (most recent call first):\n  File "/x.py", line 3 in f\n',
    ),
    "jit-unpickler-malformed": Case(
        "https://github.com/pytorch/pytorch/issues/77573",
        "torch-jit-load-malformed",
        {
            "signal": "SIGSEGV",
            "frames": "torch::jit::Unpickler::readList(c10::IValue) [libtorch_cpu.so] > torch::jit::Unpickler::readInstruction() > torch::jit::load",
        },
    ),
    "neg-faulthandler-itself": Case(
        "https://github.com/python/cpython/issues/116008",
        "faulthandler-secondary-crash",
        {
            "signal": "SIGSEGV",
            "reason": "null-pointer",
            "address": 0x30,
            "frames": "dump_frame > dump_traceback > _Py_DumpTracebackThreads > faulthandler_dump_traceback > faulthandler_user > <signal handler called> > do_futex_wait",
        },
        forbid=("null-deref",),
    ),
    "neg-rtx5090-faulthandler": Case(
        "https://github.com/pytorch/pytorch/issues/182279",
        None,
        log='Fatal Python error: Segmentation fault\n\nThread 0x00007f01 (most recent call first):\n  <no Python frame>\n\nThread 0x00007f02 (most recent call first):\n  File "/x.py", line 3 in f\n',
    ),
    "csan-race": Case(
        "https://docs.pytorch.org/docs/stable/_sources/cuda._sanitizer.rst.txt",
        "csan-data-race",
        log="============================\nCSAN detected a possible data race on tensor with data pointer 139719969079296\nAccess by stream 94646435460352 during kernel:\n"
        "aten::mul.out(Tensor self, Tensor other, *, Tensor(a!) out) -> Tensor(a!)\nwriting to argument(s) self, out, and to the output\nWith stack trace:\n"
        '  File "example_error.py", line 6, in <module>\n    torch.mul(a, 5, out=a)\n\nPrevious access by stream 0 during kernel:\naten::rand(int[] size) -> Tensor\nwriting to the output\n',
    ),
    "cupy-context-not-current": Case(
        "https://github.com/cupy/cupy/issues/72",
        "cuda-no-context-on-thread",
        log="cupy.cuda.driver.CUDADriverError: CUDA_ERROR_INVALID_CONTEXT: invalid device context\n",
    ),
    "device-assert-nllloss": Case(
        "https://github.com/milesial/Pytorch-UNet/issues/375",
        "cuda-device-assert",
        log="/pytorch/aten/src/ATen/native/cuda/NLLLoss2d.cu:103: nll_loss2d_forward_kernel: block: [0,0,0], thread: [64,0,0] Assertion `t >= 0 && t < n_classes` failed.\n"
        "RuntimeError: CUDA error: device-side assert triggered\n",
    ),
    "device-assert-terminate": Case(
        "https://github.com/OpenGVLab/InternImage/issues/134",
        "cuda-device-assert",
        log="../aten/src/ATen/native/cuda/Loss.cu:242: nll_loss_forward_reduce_cuda_kernel_2d: block: [0,0,0], thread: [7,0,0] Assertion `t >= 0 && t < n_classes` failed.\n"
        "terminate called after throwing an instance of 'c10::CUDAError'\n  what():  CUDA error: device-side assert triggered\n",
        forbid=("cxx-*",),
    ),
    "device-assert-abort-in-event": Case(
        "https://github.com/arrival-ltd/catalyst-rl-tutorial/issues/3",
        "cuda-device-assert",
        {
            "signal": "SIGABRT",
            "frames": "raise > abort > std::terminate() > __cxa_throw > at::cuda::CUDAEvent::createEvent > c10::TensorImpl::release_resources() > THPVariable_dealloc",
        },
        log="CUDA error: device-side assert triggered\nterminate called after throwing an instance of 'c10::Error'\n",
        forbid=("cxx-*",),
    ),
    "neg-index-assert-is-stream-uaf": Case(
        "https://wenscarl.github.io/",
        "cuda-stream-use-after-free",
        {
            "frames": "cudaStreamSynchronize > py /srv/sglang/eagle_worker.py:88 draft",
            "others": [
                "cudaLaunchKernel > py /venv/lib/python3.12/site-packages/torch/cuda/streams.py:70 wait_stream > py /srv/sglang/overlap.py:10 forward_thread"
            ],
        },
        log='../aten/src/ATen/native/cuda/IndexKernel.cu:93: operator(): block: [3,0,0], thread: [7,0,0] Assertion `-sizes[i] <= index && index < sizes[i] && "index out of bounds"` failed.\n'
        "RuntimeError: CUDA error: device-side assert triggered\n",
        forbid=("cuda-device-assert",),
    ),
    "illegal-access-custom-kernel": Case(
        "https://github.com/pytorch/pytorch/issues/42077",
        "cuda-illegal-access",
        log="RuntimeError: CUDA error: an illegal memory access was encountered\n",
    ),
    "misaligned-address": Case(
        "https://github.com/zhoubolei/TRN-pytorch/issues/88",
        "cuda-misaligned-address",
        log="RuntimeError: CUDA error: misaligned address\nterminate called after throwing an instance of 'c10::Error'\n",
    ),
    "cublas-exec-failed": Case(
        "https://github.com/NVIDIA/TransformerEngine/issues/295",
        "cuda-cublas-status",
        log="RuntimeError: CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasGemmStridedBatchedEx`\n",
    ),
    "no-kernel-image-arch": Case(
        "https://github.com/Comfy-Org/ComfyUI/pull/16438",
        "cuda-no-kernel-image",
        log="NVIDIA GeForce GTX 1080 with CUDA capability sm_61 is not compatible with the current PyTorch installation.\nRuntimeError: CUDA error: no kernel image is available for execution on the device\n",
    ),
    "fork-cuda-reinit": Case(
        "https://github.com/pytorch/pytorch/issues/40403",
        "cuda-after-fork",
        log="RuntimeError: Cannot re-initialize CUDA in forked subprocess. To use CUDA with multiprocessing, you must use the 'spawn' start method\n",
    ),
    "fork-cuda-gc-destructor-abort": Case(
        "https://github.com/CompVis/latent-diffusion/issues/17",
        "cuda-after-fork",
        {
            "signal": "SIGABRT",
            "frames": "raise > abort > std::terminate() > __cxa_throw > c10::cuda::CUDACachingAllocator::DeviceCachingAllocator::insert_events > "
            "c10::cuda::CUDACachingAllocator::raw_delete(void*) > c10::TensorImpl::release_resources() > subtype_dealloc > _PyObject_GC_Alloc",
        },
        log="terminate called after throwing an instance of 'c10::CUDAError'\n  what():  CUDA error: initialization error\n",
        forbid=("cxx-uncaught-c10-error",),
    ),
    "fork-cuda-undetected-cuinit": Case(
        "https://github.com/vllm-project/vllm/issues/32611",
        "cuda-after-fork",
        log='Traceback (most recent call last):\n  File "/usr/lib/python3.12/multiprocessing/popen_fork.py", line 19, in __init__\n    self._launch(process_obj)\n'
        '  File "/srv/engine.py", line 3, in run\n    torch.zeros(1, device="cuda")\nRuntimeError: CUDA error: initialization error\n',
    ),
    "fork-grpc-mutex-abort": Case(
        "https://github.com/grpc/grpc/issues/32992",
        "fork-grpc",
        log="F0000 mutex.cc:2317] Check failed: Mutex::Fer while waiting on Condition\nRuntimeError: DataLoader worker (pid 44) is killed by signal: Aborted.\n",
    ),
    "fork-grpc-pollset-segv": Case(
        "https://github.com/grpc/grpc/issues/25861",
        "fork-grpc",
        {
            "signal": "SIGSEGV",
            "frames": "grpc_core::LockfreeEvent::SetReady() [cygrpc.so] > pollset_work [cygrpc.so] > cq_next [cygrpc.so] > start_thread",
        },
    ),
    "dl-bus-error-sparse-shm": Case(
        "https://github.com/pytorch/pytorch/issues/5247",
        "dataloader-worker-sigbus",
        {"signal": "SIGBUS", "code": "BUS_ADRERR", "frames": "THFloatTensor_rawCopy > THFloatTensor_copy > py /x.py:1 collate"},
    ),
    "nccl-segment-without-space": Case(
        "",
        "shared-memory-sigbus",
        {
            "signal": "SIGBUS",
            "code": "BUS_ADRERR",
            "address": 0x7F0000001000,
            "mapped": "/dev/shm/nccl-shm-send-1f0ab",
            "frames": "memset > shmOpen [libnccl.so.2] > " + WORKER,
        },
        forbid=("dataloader-*", "mmap-file-truncated-sigbus"),
    ),
    "memory-file-made-smaller": Case(
        "",
        "shared-memory-sigbus",
        {
            "signal": "SIGBUS",
            "code": "BUS_ADRERR",
            "address": 0x7F0000001000,
            "mapped": "/memfd:arrow (deleted)",
            "frames": "memcpy > " + WORKER,
        },
        forbid=("dataloader-*", "mmap-file-truncated-sigbus"),
    ),
    "fh-314-c-stack": Case(
        "https://docs.python.org/3.15/library/faulthandler.html",
        "null-deref",
        {
            "signal": "SIGSEGV",
            "code": "SEGV_MAPERR",
            "address": 0,
            "frames": "strlen > z_get > py /usr/lib/python3.14/ctypes/__init__.py:5 string_at",
        },
        log='Fatal Python error: Segmentation fault\n\nCurrent thread 0x00007f01 [MainThread] (most recent call first):\n  File "/x.py", line 3 in f\n\n'
        'Current thread\'s C stack trace (most recent call first):\n  Binary file "/usr/bin/python3.14", at _Py_DumpStack+0x3f [0x5d]\n'
        "  Binary file '<unknown>' [0x7f]\n  <truncated rest of calls>\n",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_public_case(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    told = lines(case.log, tmp_path) if case.log else ()
    if case.crash:
        subject = crash(**{**case.crash, "log": told})
    else:
        subject = crash_of_log(tmp_path / "stderr.log", read_log(tmp_path / "stderr.log"))
    found = diagnose(subject, load_catalog())
    ids = [finding.id for finding in found.findings]
    assert not found.soft_errors
    assert not [(identity, pattern) for identity in ids for pattern in case.forbid if fnmatchcase(identity, pattern)], ids
    if case.expect is None:
        assert all(load_catalog().find(identity).general for identity in ids), ids
    else:
        assert ids[:1] == [case.expect], ids
