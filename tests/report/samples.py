"""Crash objects such as the stages before the report make, for reports that need no core."""

from __future__ import annotations

import msgspec

from crashkit.model import (
    Address,
    Crash,
    ElidedFrames,
    Evidence,
    Finding,
    Fingerprint,
    Gpu,
    GpuDevice,
    GpuException,
    GpuKernel,
    GpuPlace,
    Instruction,
    LaunchedFrom,
    LogLine,
    LookedFor,
    Mapping,
    Module,
    NativeFrame,
    Offset,
    Process,
    PythonFrame,
    PythonRuntime,
    Signal,
    SoftError,
    Source,
    Thread,
)

PYTHON = "/opt/py/bin/python3.11"
LIBC = "/usr/lib/x86_64-linux-gnu/libc.so.6"
TORCH_CPU = "/srv/ocr/venv/lib/python3.11/site-packages/torch/lib/libtorch_cpu.so"
TORCH_CUDA = "/srv/ocr/venv/lib/python3.11/site-packages/torch/lib/libtorch_cuda.so"
TORCH_PYTHON = "/srv/ocr/venv/lib/python3.11/site-packages/torch/lib/libtorch_python.so"
LIBCUDA = "/usr/lib/x86_64-linux-gnu/libcuda.so.1"
SITE = "/srv/ocr/venv/lib/python3.11/site-packages"
STDLIB = "/opt/py/lib/python3.11"

SERVER = (
    "",
    '@app.post("/recognize")',
    "def recognize():",
    "    batch = preprocess(request.files)  # one page",
    "    with torch.no_grad():",
    "        logits = model(batch)",
    "    text = decode(logits, charset=CHARSET)",
    '    return jsonify({"text": text, "n": len(batch)})',
    "",
)
CRNN = (
    "    def forward(self, x: torch.Tensor) -> torch.Tensor:",
    "        features = self.cnn(x)",
    "        # T x N x C",
    "        sequence = features.squeeze(2).permute(2, 0, 1)",
    "        out, _ = self.rnn(sequence)",
    "        return self.head(out)",
)


def native(
    function: str | None, module: str, offset: int, file: str | None = None, line: int | None = None, trust: str = "cfi"
) -> NativeFrame:
    base = {LIBC: 0x7FC212989000, LIBCUDA: 0x7FFFD7000000, TORCH_CPU: 0x7FC0A0000000, PYTHON: 0x400000}.get(module, 0x7FC000000000)
    return NativeFrame(
        function=function, module=module, offset=Offset(offset), pc=Address(base + offset), file=file, line=line, trust=trust
    )


def evaluation(offset: int) -> NativeFrame:
    return native("_PyEval_EvalFrameDefault", PYTHON, offset, "Python/ceval.c", 5381)


def server_frames(line: int = 6) -> tuple[PythonFrame | NativeFrame, ...]:
    return (
        native("torch::autograd::THPVariable_lstm(_object*, _object*, _object*)", TORCH_PYTHON, 0x63F0AA),
        native("cfunction_call", PYTHON, 0x1A44E2, "Objects/methodobject.c", 542),
        PythonFrame(
            function="forward",
            file=f"{SITE}/torch/nn/modules/rnn.py",
            line=1124,
            source="result = _VF.lstm(",
            context=(
                "",
                "        if batch_sizes is None:",
                "            result = _VF.lstm(",
                "                input,",
                "                hx,",
            ),
            context_start=1122,
            args=("self", "input", "hx"),
            locals={
                "self": "<LSTM at remote 0x7fc1f40b3d10>",
                "input": "<Tensor at remote 0x7fc1f40b3e50>",
                "hx": "None",
                "batch_sizes": "None",
            },
            origin="libpython",
        ),
        evaluation(0x1BB1F0),
        native("_PyObject_Call_Prepend", PYTHON, 0x1690A0, "Objects/call.c", 482),
        native("slot_tp_call", PYTHON, 0x1C9B11, "Objects/typeobject.c", 7624),
        PythonFrame(
            function="forward",
            file="/srv/ocr/crnn.py",
            line=41,
            source="out, _ = self.rnn(sequence)",
            context=CRNN,
            context_start=37,
            args=("self", "x"),
            locals={"self": "<CRNN at remote 0x7fc1f4022a50>", "x": "<Tensor at remote 0x7fc1f4077d30>"},
            origin="libpython",
            entry=True,
        ),
        evaluation(0x1BB1F0),
        PythonFrame(
            function="recognize",
            file="/srv/ocr/server.py",
            line=80 + line,
            source=SERVER[line - 1].strip(),
            context=SERVER,
            context_start=81,
            locals={"batch": "<Tensor at remote 0x7fc1f4077d30>"},
            origin="libpython",
        ),
        PythonFrame(
            function="dispatch_request",
            file=f"{SITE}/flask/app.py",
            line=1814,
            source="return self.ensure_sync(self.view_functions[rule.endpoint])(**view_args)",
            origin="libpython",
        ),
        PythonFrame(
            function="full_dispatch_request",
            file=f"{SITE}/flask/app.py",
            line=1484,
            source="rv = self.dispatch_request()",
            origin="libpython",
        ),
        PythonFrame(
            function="wsgi_app",
            file=f"{SITE}/flask/app.py",
            line=2190,
            source="response = self.full_dispatch_request()",
            origin="libpython",
        ),
        PythonFrame(
            function="run", file=f"{STDLIB}/threading.py", line=982, source="self._target(*self._args, **self._kwargs)", origin="libpython"
        ),
        PythonFrame(function="_bootstrap_inner", file=f"{STDLIB}/threading.py", line=1045, source="self.run()", origin="libpython"),
        PythonFrame(
            function="_bootstrap",
            file=f"{STDLIB}/threading.py",
            line=1002,
            source="self._bootstrap_inner()",
            origin="libpython",
            entry=True,
        ),
        native("thread_run", PYTHON, 0x2A0F41, "Modules/_threadmodule.c", 1092),
        native("pythread_wrapper", PYTHON, 0x29F1D7, "Python/thread_pthread.h", 241),
        native("start_thread", LIBC, 0x89134, "pthread_create.c", 442),
        native("clone3", LIBC, 0x1097DC, "clone3.S", 81),
    )


LAUNCH = (
    native(None, LIBCUDA, 0x21EC4B, trust="context"),
    native(None, LIBCUDA, 0x34ED06),
    native(None, LIBCUDA, 0x138A46),
    native("cuLaunchKernel", LIBCUDA, 0x290F40),
    native("cudart::cudaApiLaunchCommon(void const*, bool)", TORCH_CUDA, 0x2DCB),
    native(
        "cublasStatus_t cublasGemv<float, float, float, 128, 4, 16, 4, 4>(cublasContext*, cublasOperation_t, int, float const*)",
        TORCH_CUDA,
        0x70B1,
    ),
    native(
        "at::native::(anonymous namespace)::_cudnn_impl<at::native::(anonymous namespace)::RNNParams>(at::Tensor const&, bool)",
        TORCH_CUDA,
        0x1A2B3C,
    ),
    native(
        "at::native::lstm(at::Tensor const&, c10::ArrayRef<at::Tensor>, bool, long, double, bool, bool, bool)",
        TORCH_CPU,
        0x1B90011,
        "RNN.cpp",
        1477,
    ),
)


def flask_lstm() -> Crash:
    """Five threads of an OCR server in one LSTM on the GPU; one dies in the driver."""
    crashed = Thread(
        tid=5883,
        name="Thread-4",
        crashed=True,
        holds_gil=False,
        frames=LAUNCH + server_frames(),
        registers={name: Address(value) for name, value in REGISTERS.items()},
    )
    launching = tuple(Thread(tid=tid, name=f"Thread-{tid - 5879}", frames=LAUNCH[3:] + server_frames()) for tid in (5880, 5881, 5882))
    waiting = Thread(
        tid=5876,
        name="python3",
        holds_gil=True,
        frames=(
            native("__poll", LIBC, 0xFF3AF, "../sysdeps/unix/sysv/linux/poll.c", 29),
            native("select_poll_poll_impl", f"{STDLIB}/lib-dynload/select.cpython-311-x86_64-linux-gnu.so", 0x5511),
            PythonFrame(function="select", file=f"{STDLIB}/selectors.py", line=415, source="fd_event_list = self._selector.poll(timeout)"),
            PythonFrame(
                function="serve_forever", file=f"{STDLIB}/socketserver.py", line=233, source="ready = selector.select(poll_interval)"
            ),
            PythonFrame(function="<module>", file="/srv/ocr/server.py", line=131, source='app.run(host="0.0.0.0", threaded=True)'),
            native("Py_RunMain", PYTHON, 0x2B11AA),
            native("__libc_start_main_impl", LIBC, 0x27305),
            native("_start", PYTHON, 0x1121),
        ),
    )
    return Crash(
        crashkit="0.1.0",
        id="20261120T231200-5876-python3.11",
        time="2026-11-20T23:12:00Z",
        source=Source(path="/var/crash/core.5876", kind="core", size=4_509_715_660, truncated=False),
        process=Process(
            pid=5876,
            ppid=1,
            uid=1001,
            name="python3",
            executable=PYTHON,
            argv=("python3", "server.py", "--port", "8080"),
            architecture="x86_64",
            exit_status=139,
            environment={"CUDA_VISIBLE_DEVICES": "0", "OMP_NUM_THREADS": "4"},
            versions={"python": "3.11.7", "torch": "2.11.0+cu130", "cuda": "13.0", "driver": "580.82"},
        ),
        signal=Signal(
            number=11,
            name="SIGSEGV",
            code=1,
            code_name="SEGV_MAPERR",
            address=Address(0x10),
            access="read",
            reason="null-pointer",
            detail="The instruction read 8 bytes at null + 0x10: rax, which should hold a pointer, is 0.",
        ),
        python=PythonRuntime(version="3.11.7", debug_info=True, executable=PYTHON, script="/opt/py/bin/python3.11-gdb.py"),
        crashed_thread=5883,
        threads=(crashed, *launching, waiting),
        modules=(
            Module(
                path=PYTHON, build_id="a1b2c3d4e5f60718293a4b5c6d7e8f9001122334", base=Address(0x400000), size=7_000_000, symbols="full"
            ),
            Module(
                path=LIBC,
                build_id="82ce4e6e4ef08fa58a3535f7437bd3e592db5ac0",
                base=Address(0x7FC212989000),
                size=2_000_000,
                symbols="table",
            ),
            Module(
                path=LIBCUDA,
                build_id="0ca3f5d0c4b6d2f0a0a5ed56dd1ef3d3f2a1b0c9",
                base=Address(0x7FFFD7000000),
                size=90_000_000,
                symbols="missing",
            ),
            Module(
                path=TORCH_CPU,
                build_id="f00dfeed00112233445566778899aabbccddeeff",
                base=Address(0x7FC0A0000000),
                size=434_000_000,
                symbols="table",
            ),
            Module(path=TORCH_CUDA, base=Address(0x7FC000000000), size=900_000_000, symbols="exports"),
            Module(path="/usr/lib/x86_64-linux-gnu/libm.so.6", build_id="17c1", base=Address(0x7FC213000000), symbols="not-needed"),
        ),
        mappings=(
            Mapping(start=Address(0x400000), end=Address(0xB00000), permissions="r-x", path=PYTHON, offset=Offset(0)),
            Mapping(start=Address(0x7FC1F4000000), end=Address(0x7FC1F8000000), permissions="rw-"),
            Mapping(start=Address(0x7FC212989000), end=Address(0x7FC212B89000), permissions="r-x", path=LIBC, offset=Offset(0)),
            Mapping(start=Address(0x7FFFD7000000), end=Address(0x7FFFDC000000), permissions="r-x", path=LIBCUDA, offset=Offset(0)),
        ),
        instructions=tuple(
            Instruction(address=Address(0x7FFFD721EC3C + 4 * index), text=text, bytes=code, function="cuLaunchKernel", faulting=index == 3)
            for index, (code, text) in enumerate(
                (
                    ("4889e5", "mov rbp, rsp"),
                    ("4156", "push r14"),
                    ("488b07", "mov rax, qword ptr [rdi]"),
                    ("488b4010", "mov rax, qword ptr [rax + 0x10]"),
                    ("4885c0", "test rax, rax"),
                    ("7407", "je 0x7fffd721ec55"),
                )
            )
        ),
        log=(
            LogLine(text="Fatal Python error: Segmentation fault", kind="fatal-python-error", path="stderr.log", line=8812),
            LogLine(text="Segmentation fault (core dumped)", kind="signal", path="stderr.log", line=8899),
        ),
        findings=(
            Finding(
                id="cuda-concurrent-launch",
                title="Several threads launch CUDA kernels of one model at once",
                confidence="likely",
                severity="high",
                summary="Thread 5883 died in cuLaunchKernel while 5880, 5881 and 5882 were on the same launch path, all from one line.",
                cause="Each request runs in a thread of its own, all share one model, and its cuDNN state is not safe against that.",
                fix=(
                    "MODEL_LOCK = threading.Lock()\n\nwith MODEL_LOCK, torch.no_grad():\n    logits = model(batch)",
                    "pip install --upgrade torch",
                ),
                next_steps=("Run again with `crashkit run --blocking -- python3 server.py` to see the exact kernel.",),
                evidence=(
                    Evidence(text="cuLaunchKernel", thread=5883, frame=3),
                    Evidence(text="forward (crnn.py:41)", thread=5883, frame=14),
                    Evidence(text="the same launch path in thread 5881", thread=5881, frame=0),
                    Evidence(text="Fatal Python error: Segmentation fault", log=0),
                    Evidence(text="libcuda.so.1 has no symbols here", module=LIBCUDA),
                ),
                references=("https://github.com/pytorch/pytorch/issues/15210",),
            ),
            Finding(
                id="null-deref",
                title="Null (or near-null) pointer dereference",
                confidence="possible",
                summary="A member of a null object was read.",
                cause="Member access through a null pointer.",
            ),
        ),
        ruled_out=("stack-overflow",),
        looked_for=(
            LookedFor(id="stack-overflow", title="Stack overflow", verdict="contradicted", by="the reason is null-pointer"),
            LookedFor(id="fork-with-threads", title="Fork with threads", verdict="undecided", by="the process's log"),
        ),
        fingerprint=Fingerprint(hash="9f31c07ab2e4", frames=("cuLaunchKernel", "at::native::lstm", "recognize")),
        soft_errors=(
            SoftError(
                stage="modules",
                message="libcuda.so.1 is not on this machine: its frames have no names",
                hint="Copy it from the crashed machine and give its folder with --sysroot.",
            ),
        ),
        debugger="GNU gdb (Debian 13.1-3) 13.1",
        seconds={"notes": 0.021, "debugger": 0.412, "python": 0.233, "report": 0.048},
    )


REGISTERS = {
    "rax": 0,
    "rbx": 0x7FC1F40B3D10,
    "rcx": 0x7FC212A99134,
    "rdx": 0x80,
    "rsi": 0x7FC1F4077D30,
    "rdi": 0,
    "rbp": 0x7FC1F7FFE4A0,
    "rsp": 0x7FC1F7FFE450,
    "rip": 0x7FFFD721EC4B,
    "eflags": 0x10246,
}


def stack_overflow() -> Crash:
    """Recursion without end through a C function; the middle of the stack is left out."""
    turn = (
        PythonFrame(function="visit", file="/srv/app/tree.py", line=12, source="return max(map(visit, node.children))", origin="pystack"),
        native("map_next", PYTHON, 0x1F00AA, "Python/bltinmodule.c", 1393),
        native("min_max", PYTHON, 0x1F11AA, "Python/bltinmodule.c", 1792),
    )
    frames = (
        native("_PyEval_EvalFrameDefault", PYTHON, 0x1BB1F0, "Python/ceval.c", 1741, trust="context"),
        *turn,
        *turn,
        ElidedFrames(count=113_834, cycle=("visit", "map_next", "min_max")),
        *turn,
        PythonFrame(function="<module>", file="/srv/app/tree.py", line=20, source="print(visit(root))", origin="pystack"),
        native("_start", PYTHON, 0x1121),
    )
    return Crash(
        crashkit="0.1.0",
        source=Source(path="core", kind="core", size=81_000_000),
        process=Process(pid=77, executable=PYTHON, argv=("python3", "tree.py")),
        signal=Signal(
            number=11,
            name="SIGSEGV",
            code=2,
            code_name="SEGV_ACCERR",
            address=Address(0x7FFDCA1FFFF8),
            access="write",
            reason="stack-overflow",
            detail="The stack pointer stands in the guard page below the 8 MiB stack.",
        ),
        crashed_thread=77,
        threads=(Thread(tid=77, name="python3", crashed=True, frames=frames),),
    )


def unmerged() -> Crash:
    """Native and Python stacks that could not be merged stand side by side."""
    thread = Thread(
        tid=90,
        name="worker",
        crashed=True,
        frames=(
            native("strlen", LIBC, 0x178C5C, trust="context"),
            native(None, PYTHON, 0x1BB1F0),
            native(None, PYTHON, 0x2BB1F0),
            native("_start", PYTHON, 0x1121),
        ),
        python_frames=(
            PythonFrame(
                function="string_at",
                file=f"{STDLIB}/ctypes/__init__.py",
                line=519,
                source="return _string_at(ptr, size)",
                origin="pystack",
                locals={"ptr": "16"},
            ),
            PythonFrame(function="main", file="/srv/app/main.py", line=4, source="print(ctypes.string_at(16))", origin="pystack"),
        ),
    )
    return Crash(
        signal=Signal(number=11, name="SIGSEGV", reason="null-pointer", access="read", address=Address(16)),
        crashed_thread=90,
        threads=(thread,),
        soft_errors=(
            SoftError(
                stage="merge", message="the interpreter has no debug info and its frames no names", hint="apt install python3.11-dbg"
            ),
        ),
    )


def logs_only() -> Crash:
    """A log told of a device-side assert; there is no core."""
    return Crash(
        source=Source(path="train.log", kind="log", size=120_331),
        process=Process(exit_status=134, argv=("python3", "train.py")),
        log=(
            LogLine(
                text="Indexing.cu:1236: block: [0,0,0], thread: [31,0,0] Assertion `srcIndex < srcSelectDimSize` failed.",
                kind="device-assert",
                path="train.log",
                line=211,
                process="rank 0",
            ),
            LogLine(text="RuntimeError: CUDA error: device-side assert triggered", kind="cuda-error", path="train.log", line=260),
        ),
        findings=(
            Finding(
                id="device-assert-index",
                title="An index is out of range of an embedding table",
                confidence="certain",
                summary="indexSelectSmallIndex asserted srcIndex < srcSelectDimSize.",
                fix=("assert ids.max() < embedding.num_embeddings",),
                evidence=(Evidence(text="Assertion `srcIndex < srcSelectDimSize` failed", log=0),),
            ),
        ),
        soft_errors=(SoftError(stage="evidence", message="there is no core: stacks are missing", hint="Run again under `crashkit run`."),),
    )


def crowd(count: int = 200) -> Crash:
    """Many threads: one crashed, most waiting for work, each tenth somewhere of its own."""

    def thread(index: int) -> Thread:
        place = (
            native("futex_wait", LIBC, 0x86F56),
            native("pthread_cond_wait@@GLIBC_2.3.2", LIBC, 0x89558),
            native("PyThread_acquire_lock_timed", PYTHON, 0x29F511),
        )
        line = 88 if index % 10 else 100 + index
        frames = (
            *place,
            PythonFrame(function="get", file="/srv/app/worker.py", line=line, source="job = queue.get()"),
            *server_frames()[6:],
        )
        return Thread(
            tid=1000 + index, name=f"worker-{index}", crashed=index == 7, frames=LAUNCH + server_frames() if index == 7 else frames
        )

    sample = flask_lstm()
    return Crash(
        signal=sample.signal, process=sample.process, modules=sample.modules, crashed_thread=1007, threads=tuple(map(thread, range(count)))
    )


HOSTILE = (
    "<script>alert(1)</script>]]>--></style><img src=x onerror=alert(2)>\x1b[31mred\x1b]0;title\x07"
    "\r\n\u202egnp.exe\u2028\udc80\x00'\"&{{ 7*7 }}"
)


def hostile() -> Crash:
    """Every string of the evidence is an attack."""
    bad, long = HOSTILE, "A" * 100_000
    python = PythonFrame(
        function=bad,
        file=bad,
        line=3,
        source=bad,
        context=(bad, bad, "x = '''" + long, bad),
        context_start=1,
        args=(bad,),
        locals={bad: bad, "long": long, "ü": "\udcff"},
        origin=bad,
    )
    frames = (
        NativeFrame(
            function=bad, file=bad, module=bad, pc=Address(2**64 - 1), offset=Offset(5), args={bad: long}, locals={bad: bad}, trust=bad
        ),
        python,
        ElidedFrames(count=9, cycle=(bad, long)),
        NativeFrame(function=long),
        NativeFrame(),
    )
    return Crash(
        crashkit=bad,
        id=bad,
        time=bad,
        source=Source(path=bad, kind=bad, truncated=True, missing=10),
        process=Process(pid=1, name=bad, executable=bad, argv=(bad, long), environment={bad: bad}, versions={bad: bad}),
        signal=Signal(number=11, name=bad, code_name=bad, reason=bad, detail=bad + long, address=Address(2**64 - 1), access=bad),
        python=PythonRuntime(version=bad, executable=bad),
        crashed_thread=2,
        threads=(
            Thread(tid=2, name=bad, crashed=True, exception=bad, frames=frames, registers={bad: Address(1)}),
            Thread(tid=3, name=bad + "2", frames=(python,), python_frames=(python,)),
            Thread(tid=None, name=long, frames=()),
        ),
        modules=(Module(path=bad, build_id=bad, symbols=bad, found=bad), Module(path="javascript:alert(3)")),
        mappings=(Mapping(start=Address(0), end=Address(2**64 - 1), permissions=bad, path=bad),),
        instructions=(Instruction(address=Address(1), text=bad, bytes=bad, function=bad, faulting=True),),
        log=(LogLine(text=bad, kind=bad, path=bad, line=1, process=bad, fields={bad: bad}),),
        findings=(
            Finding(
                id=bad,
                title=bad,
                confidence=bad,
                severity=bad,
                summary=bad,
                cause=bad,
                fix=(bad, long),
                next_steps=(bad,),
                evidence=(
                    Evidence(text=bad, thread=2, frame=99),
                    Evidence(text=bad, thread=77, frame=0),
                    Evidence(text=bad, log=-1),
                    Evidence(text=bad, module=bad),
                ),
                references=("javascript:alert(4)", bad),
            ),
        ),
        ruled_out=(bad,),
        looked_for=(LookedFor(id=bad, title=bad, verdict=bad, by=bad), LookedFor(id=bad, title=bad, verdict="contradicted", by=bad)),
        fingerprint=Fingerprint(hash=bad, frames=(bad,), notes=(bad,)),
        soft_errors=(SoftError(stage=bad, message=bad, hint=bad), SoftError(stage="x", message=long)),
        debugger=bad,
        seconds={bad: 1.0},
    )


def gpu(word: str = "scatter_rows", long: str = "") -> Crash:
    """Both sides of a GPU crash; `word` and `long` stand in every text."""
    exception = GpuException(
        name="WARP_ILLEGAL_ADDRESS",
        code=14,
        device=0,
        sm=124,
        kernel=word,
        demangled=f"{word}{long}",
        mangled=word,
        known_as=f"torch: {word}{long}",
        grid=(4, 1, 1),
        block=(128, 1, 1),
        cluster=(2, 1, 1),
        block_index=(0, 0, 0),
        thread_index=(64, 0, 0),
        inferred=True,
        lanes=32,
        pc=Address(0x7F35D37A1010),
        offset=Offset(0x110),
        exact_pc=True,
        file=f"/srv/app/{word}{long}.py",
        line=17,
        source=f"tl.store(places, {word}{long})",
        frames=(
            NativeFrame(function=f"inner_{word}", file=f"{word}.py", line=9, trust="inline"),
            NativeFrame(function=f"{word}{long}", file=f"{word}{long}.py", line=17, offset=Offset(0x110)),
        ),
        instruction=f"STG.E [R4.64] {long}",
        bytes="86790004",
        access="write",
        space="global",
        size=4,
        address=Address(0x10),
        lowest=Address(0x10),
        highest=Address(0x8C),
        detail=f"a null pointer plus 16 bytes {word}{long}",
        registers={f"R{number}": f"0x{number:08x}" for number in range(20)} | {word: long},
    )
    place = GpuPlace(warps=4, function=f"{word}{long}", file=f"{word}{long}", line=3, offset=Offset(16), waits=long or "barrier")
    kernel = GpuKernel(
        name=word, demangled=long or word, known_as=long or None, grid=(4, 1, 1), block=(128, 1, 1), warps=12, places=(place,) * 5
    )
    launch = LaunchedFrom(thread=100, frame=1, function=f"cuLaunchKernel{long}", line=190, source=f"{word}[grid](rows){long}")
    core = Gpu(
        path=f"/srv/{word}{long}.nvcudmp",
        pid=99,
        truncated=True,
        driver=long or "580.159",
        cuda="13.0",
        left_out=("global memory", word),
        devices=(GpuDevice(index=0, name=f"NVIDIA {word}", sm="sm_90"),),
        exceptions=(exception, msgspec.structs.replace(exception, name=f"{word}{long}", kernel=None)),
        kernels=(kernel,),
        context_threads=(107,),
        launched_from=launch,
    )
    driver = Thread(tid=107, crashed=True, frames=(native("abort", LIBC, 1), native("__clone", LIBC, 2)))
    line = PythonFrame(function=f"step_{word}{long}", file="/srv/app/train.py", line=193, source=f"loss.item(){long}")
    caller = Thread(tid=100, frames=(native("cuCtxSynchronize_v2", LIBCUDA, 3), line))
    return Crash(
        source=Source(path="core", kind="core", truncated=bool(long)),
        process=Process(pid=99, executable=PYTHON, argv=("python", "train.py", word)),
        signal=Signal(number=6, name="SIGABRT", reason="abort", detail="the process aborted itself"),
        crashed_thread=107,
        threads=(driver, caller),
        gpu=(core,),
    )


def gpu_hang() -> Crash:
    """A dump on request: nothing failed."""
    sample = gpu()
    core = msgspec.structs.replace(sample.gpu[0], exceptions=())
    return msgspec.structs.replace(sample, gpu=(core,))


def gpu_hostile() -> Crash:
    """Every text of a GPU core is hostile."""
    return gpu(HOSTILE, "long " * 500)


def gpu_full() -> Crash:
    """A GPU crash with all that a first screen can hold."""
    return msgspec.structs.replace(gpu("name" * 20, "x" * 300), findings=full().findings, soft_errors=full().soft_errors)


def full() -> Crash:
    """All that a first screen can hold, each longer than its line."""
    sample = flask_lstm()
    assert sample.signal and sample.source and sample.thread
    finding = msgspec.structs.replace(sample.findings[0], title="title " * 40, summary="summary " * 90)
    errors = tuple(SoftError(stage="modules", message=f"{index} " + "missing " * 40, hint="hint " * 40) for index in range(9))
    return msgspec.structs.replace(
        sample,
        source=msgspec.structs.replace(sample.source, truncated=True),
        signal=msgspec.structs.replace(sample.signal, detail="detail " * 90),
        findings=(finding, *sample.findings[1:]),
        soft_errors=errors,
    )


ALL = {
    sample.__name__: sample
    for sample in (flask_lstm, stack_overflow, unmerged, logs_only, crowd, full, hostile, gpu, gpu_hang, gpu_hostile, gpu_full)
} | {"empty": lambda: Crash()}
