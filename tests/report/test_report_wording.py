import pytest

from crashkit.model import Address, Crash, LogLine, Mapping, Module, NativeFrame, Process, PythonFrame, Signal, Thread
from crashkit.report import wording
from crashkit.report.address_space import AddressSpace
from tests.report import samples


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("strlen", "strlen"),
        ("at::native::lstm(at::Tensor const&, bool)", "at::native::lstm"),
        ("cublasStatus_t cublasGemv<float, 128>(cublasContext*, int)", "cublasGemv<…>"),
        ("at::(anonymous namespace)::run<A<B> >(int)", "at::(anonymous)::run<…>"),
        ("std::vector<int>::operator[](unsigned long)", "std::vector<…>::operator[]"),
        ("c10::operator<<(std::ostream&, c10::Device)", "c10::operator<<"),
        ("Widget::operator()(int) const", "Widget::operator()"),
        ("Widget::operator<(Widget const&) const", "Widget::operator<"),
        ("std::function<void (int)>::operator()(int) const", "std::function<…>::operator()"),
        ("<lambda>", "<lambda>"),
        ("((((", "(((("),
    ],
)
def test_short_names_of_functions(name: str, short: str) -> None:
    assert wording.short_function(name) == short


@pytest.mark.parametrize(
    ("path", "short"),
    [
        ("/srv/venv/lib/python3.11/site-packages/torch/nn/rnn.py", "torch/nn/rnn.py"),
        ("/usr/lib/python3.11/threading.py", "threading.py"),
        ("/srv/app/main.py", "/srv/app/main.py"),
        ("/home/me/projects/x/y/z/main.py", "…/y/z/main.py"),
        ("<string>", "<string>"),
    ],
)
def test_short_paths(path: str, short: str) -> None:
    assert wording.short_path(path) == short


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (
            "flask_lstm",
            "Segmentation fault: a null pointer was read in libcuda.so.1, called by cuLaunchKernel, "
            "called from forward (/srv/ocr/crnn.py:41).",
        ),
        (
            "stack_overflow",
            "Segmentation fault: the stack overflowed in _PyEval_EvalFrameDefault, called from visit (/srv/app/tree.py:12).",
        ),
        ("logs_only", "Exit status 134: An index is out of range of an embedding table."),
        ("empty", "Crash."),
    ],
)
def test_the_sentence(name: str, said: str) -> None:
    assert wording.sentence(samples.ALL[name]()) == said


def test_an_unknown_signal_and_reason_are_said_as_they_are() -> None:
    crash = Crash(signal=Signal(number=40, name="SIGNEW", reason="cosmic-ray"))
    assert wording.sentence(crash) == "SIGNEW: cosmic ray."


def test_a_reason_of_the_evidence_is_no_format() -> None:
    assert wording.why(Signal(number=1, name="S", reason="{access.__class__} {0} {")) == "{access.__class__} {0} {"


def test_a_signal_from_outside_names_its_sender() -> None:
    assert wording.why(Signal(number=9, name="SIGKILL", reason="sent-from-outside", sender_pid=7)) == "sent by process 7"


def test_the_abort_machinery_is_not_the_place() -> None:
    names = ("__pthread_kill_implementation", "__GI_raise", "__GI_abort", "__libc_message", "malloc_printerr", "_int_free", "free_me")
    thread = Thread(frames=tuple(NativeFrame(function=name) for name in names))
    found = wording.native_at(thread)
    assert found and found.function == "_int_free"


def test_the_fault_lies_below_the_signal_handler() -> None:
    frames = (
        NativeFrame(function="faulthandler_fatal_error"),
        NativeFrame(function="write_dump"),
        NativeFrame(function="<signal handler called>", trust="signal"),
        NativeFrame(function="__memcpy_avx512_unaligned_erms"),
    )
    thread = Thread(tid=1, crashed=True, frames=frames)
    assert wording.native_at(thread) is frames[3]
    assert wording.runtime_frames(thread, None) == {0, 1, 2}
    assert wording.sentence(Crash(signal=Signal(number=11, name="SIGSEGV"), threads=(thread,))) == "Segmentation fault in memcpy."


def test_own_code_is_neither_the_standard_library_nor_a_package() -> None:
    files = ("<frozen importlib._bootstrap>", "/usr/lib/python3/dist-packages/x.py", "/usr/lib/python3.11/json/__init__.py", "/srv/a.py")
    own = wording.own_at(Thread(frames=tuple(PythonFrame(file=file) for file in files)))
    assert own and own.file == "/srv/a.py"


def test_runtime_frames_are_the_interpreters_outside_the_innermost_python_frame() -> None:
    crash = samples.flask_lstm()
    thread = crash.threads[0]
    found = {thread.frames[index].function for index in wording.runtime_frames(thread, samples.PYTHON)}  # type: ignore[union-attr]
    assert {"_PyEval_EvalFrameDefault", "slot_tp_call", "thread_run", "start_thread", "clone3"} <= found
    assert not found & {"cuLaunchKernel", "cfunction_call", "forward"}


def test_what_only_called_the_function_that_failed_is_runtime() -> None:
    calls = ("_PyObject_MakeTpCall", "_PyObject_VectorcallTstate", "cfunction_vectorcall_O", "method_vectorcall")
    names = ("PyObject_Vectorcall", "memcpy", "PyBytes_FromStringAndSize", *calls)
    thread = Thread(frames=(*(NativeFrame(function=name, module=samples.PYTHON) for name in names), PythonFrame(function="f")))
    assert wording.runtime_frames(thread, samples.PYTHON) == set(range(3, 7)), "the innermost one is what failed"


@pytest.mark.parametrize("start", ["clone3", "__GI___clone3", "_start"])
def test_a_thread_without_python_has_only_its_start_as_runtime(start: str) -> None:
    thread = Thread(frames=(NativeFrame(function="f", module="/usr/bin/python3.11"), NativeFrame(function=start)))
    assert wording.runtime_frames(thread, None) == {1}


@pytest.mark.parametrize(
    ("functions", "said"),
    [
        (("__futex_abstimed_wait_common64", "__pthread_cond_wait@@GLIBC_2.3.2", "work"), "waiting for a condition"),
        (("futex_wait", "pthread_cond_timedwait", "PyCOND_TIMEDWAIT", "take_gil", "PyEval_RestoreThread"), "waiting for the GIL"),
        (("__GI___poll", "f"), "waiting for events"),
        (("__GI___clock_nanosleep", "f"), "waiting for a timer"),
        (("compute",), "in compute"),
        ((None,), "in an unknown place"),
        ((), "no frames"),
    ],
)
def test_what_a_thread_does(functions: tuple[str | None, ...], said: str) -> None:
    assert wording.doing(Thread(frames=tuple(NativeFrame(function=name) for name in functions))) == said


def test_equal_stacks_are_one_group_whatever_their_addresses() -> None:
    def thread(tid: int, line: int = 1) -> Thread:
        return Thread(tid=tid, frames=(NativeFrame(function="poll", pc=Address(tid)), PythonFrame(function="f", file="a.py", line=line)))

    found = wording.groups([thread(1, 9), thread(2), thread(3), Thread(tid=4), thread(5)])
    assert [[member.tid for member in group.threads] for group in found] == [[2, 3, 5], [1], [4]]


@pytest.mark.parametrize(("native", "said"), [("poll", "waiting for events in"), ("compute", "in compute from")])
def test_a_group_says_what_it_does_and_where(native: str, said: str) -> None:
    group = wording.groups([Thread(frames=(NativeFrame(function=native), PythonFrame(function="f", file="/srv/a.py", line=3)))])[0]
    assert group.activity == said and group.at and group.at.line == 3


def test_a_crowd_is_few_groups() -> None:
    crash = samples.crowd(200)
    found = wording.groups(thread for thread in crash.threads if not thread.crashed)
    assert len(found[0].threads) == 179
    assert sum(len(group.threads) for group in found) == 199


def test_what_lies_at_an_address() -> None:
    space = AddressSpace(
        (
            Mapping(start=Address(0x2000), end=Address(0x3000), permissions="r-x", path="/lib/c.so"),
            Mapping(start=Address(0x1000), end=Address(0x2000)),
        ),
        (Module(path="/lib/c.so", base=Address(0x1800)),),
    )
    assert space.what(0x2010) == "c.so+0x810 r-x"
    assert space.what(0x1FFF) == "anonymous memory"
    assert space.what(0x3000) == space.what(0) == ""
    assert AddressSpace(space.mappings, (), 0x1800).what(0x1010) == "stack of the crashed thread"


@pytest.mark.parametrize(
    ("address", "cells"),
    [
        (0x10, ["gap 0x0-0x1000 hit", "a 0x1000-0x2000"]),
        (0x1000, ["a 0x1000-0x2000 hit", "b 0x2000-0x3000"]),
        (0x2FFF, ["a 0x1000-0x2000", "b 0x2000-0x3000 hit", "gap 0x3000-0x5000", "c 0x5000-0x6000"]),
        (0x3000, ["b 0x2000-0x3000", "gap 0x3000-0x5000 hit", "c 0x5000-0x6000"]),
        (0x5800, ["b 0x2000-0x3000", "gap 0x3000-0x5000", "c 0x5000-0x6000 hit"]),
        (0x6000, ["c 0x5000-0x6000", "gap 0x6000-0x10000000000000000 hit"]),
    ],
)
def test_what_lies_around_an_address(address: int, cells: list[str]) -> None:
    mappings = [(0x5000, 0x6000, "c"), (0x1000, 0x2000, "a"), (0x2000, 0x3000, "b")]
    space = AddressSpace(tuple(Mapping(start=Address(start), end=Address(end), path=path) for start, end, path in mappings), ())
    found = [f"{cell.name or 'gap'} {cell.start:#x}-{cell.end:#x}{' hit' if cell.hit else ''}" for cell in space.around(address)]
    assert found == cells
    assert AddressSpace((), ()).around(address) == []


def test_modules_in_the_way_of_a_better_report_come_first() -> None:
    modules = [Module(path=path, symbols=path) for path in ("full", "not-needed", "mismatch", "missing")]
    assert [module.path for _, module in wording.ordered_modules(modules)] == ["mismatch", "missing", "full", "not-needed"]


def test_a_log_alone_gives_its_first_line() -> None:
    crash = Crash(log=(LogLine(text="free(): invalid pointer"),), process=Process(exit_status=134))
    assert wording.sentence(crash) == "Exit status 134: free(): invalid pointer."


@pytest.mark.parametrize(
    ("fix", "prose"),
    [
        ("Find who should have set the pointer.", True),
        ("pip install --upgrade torch", False),
        ("OMP_NUM_THREADS=1 python3 server.py", False),
        ("Lock = 1\nwith Lock:", False),
        ("Restart", False),
        ("", False),
    ],
)
def test_a_sentence_is_told_from_something_to_paste(fix: str, prose: bool) -> None:
    assert wording.is_prose(fix) is prose


@pytest.mark.parametrize(
    ("file", "function", "own"),
    [
        ("<string>", "<module>", True),
        ("<stdin>", "work", True),
        ("<string>", "__init__", False),
        ("<frozen runpy>", "_run_code", False),
        ("/srv/app.py", "__init__", True),
    ],
)
def test_whose_code_it_is(file: str, function: str, own: bool) -> None:
    assert wording.is_own(PythonFrame(file=file, function=function)) == own


def test_the_collector_ran_below_a_python_line_or_alone() -> None:
    python = Thread(frames=(NativeFrame(function="gc_collect_main"), PythonFrame(function="f", file="/srv/a.py", line=1)))
    assert wording.collector_note(python).endswith("this line only triggered it")
    assert wording.collector_note(Thread(frames=python.frames[:1])).endswith("no Python code")
