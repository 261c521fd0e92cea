"""Equal crashes get equal fingerprints, different ones different ones, and the notes say why."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crashkit.diagnose.fingerprint import fingerprint
from crashkit.diagnose.stable_names import native_name, python_name
from crashkit.model import Address, Crash, ElidedFrames, Gpu, GpuException, GpuKernel, NativeFrame, Offset, PythonFrame, Signal, Thread

LIBC = "/lib/x86_64-linux-gnu/libc.so.6"
PYTHON = "/usr/lib/libpython3.11.so.1.0"
EXTENSION = "/srv/app/decoder.so"
STDLIB = "/usr/lib/python3.11/ctypes/__init__.py"


def native(function, module=EXTENSION, **facts):
    return NativeFrame(function=function, module=module, **facts)


def python(function, file="/srv/app/server.py", line=1):
    return PythonFrame(function=function, file=file, line=line)


def of(*frames, **facts):
    return fingerprint(Crash(signal=Signal(number=11, name="SIGSEGV"), threads=(Thread(tid=1, crashed=True, frames=frames, **facts),)))


REQUEST = (python("string_at", STDLIB), python("read"), python("handle"), python("run", "/usr/lib/python3.11/threading.py"))


@pytest.mark.parametrize(
    ("name", "plain"),
    [
        ("__memcpy_avx512_unaligned_erms", "memcpy"),
        ("__memmove_evex_unaligned_erms", "memcpy"),
        ("__strlen_evex", "strlen"),
        ("__strlen_avx2", "strlen"),
        ("__GI_raise", "raise"),
        ("__GI___libc_malloc", "malloc"),
        ("_int_free", "free"),
        ("__libc_pause", "pause"),
        ("parse.constprop.0", "parse"),
        ("parse.part.3.cold", "parse"),
        ("parse(int, char const*) [clone .cold]", "parse"),
        ("read@@GLIBC_2.2.5", "read"),
        ("at::native::add<int, std::vector<float> >(at::Tensor const&, int) const", "at::native::add<T>"),
        ("void at::native::(anonymous namespace)::run<float>(float*)", "at::native::(anonymous namespace)::run<T>"),
        ("std::ostream& std::operator<< <char>(std::ostream&, char)", "std::operator<< <T>"),
        ("Foo::operator()(int) const", "Foo::operator()"),
        ("outer(int)::{lambda(float)#3}::operator()(float) const", "outer::{lambda}::operator()"),
        ("core::ptr::drop_in_place::h0123456789abcdef", "core::ptr::drop_in_place"),
        ("std::__cxx11::basic_string<char>::_M_create[abi:cxx11](unsigned long&)", "std::__cxx11::basic_string<T>::_M_create"),
        ("jit_7f3a99c01230", "jit_ADDR"),
        ("<signal handler called>", "<signal handler called>"),
        ("??", "??"),
        ("", ""),
        ("((((", None),
    ],
)
def test_plain_name(name, plain):
    assert plain is None or native_name(name) == plain
    assert isinstance(native_name(name), str)


@pytest.mark.parametrize(
    ("function", "file", "name"),
    [
        ("forward", "/venv/lib/python3.11/site-packages/torch/nn/modules/rnn.py", "rnn.forward"),
        ("string_at", STDLIB, "ctypes.string_at"),
        ("<listcomp>", "server.py", "server.<listcomp>"),
        ("f", "/tmp/ipykernel_991204/3812664012.py", "ADDR.f"),
        ("f", None, "f"),
    ],
)
def test_python_name(function, file, name):
    assert python_name(python(function, file)) == name


def test_names_the_place_and_the_users_code():
    found = of(native("__strlen_evex", LIBC), native("decode"), native("PyObject_Vectorcall", PYTHON), *REQUEST)
    assert found.frames == ("decode", "ctypes.string_at", "server.read", "server.handle")
    assert found.hash is not None
    assert any("user's own code" in note for note in found.notes)


@pytest.mark.parametrize("module", [LIBC, PYTHON, "/usr/lib/python3.13/lib-dynload/_ctypes.cpython-313-x86_64-linux-gnu.so"])
def test_names_that_only_debug_info_tells_do_not_matter(module):
    named = of(native("__strlen_evex", module), native("decode"), native("cfield_get", module), *REQUEST)
    assert of(native(None, module), native("decode"), native(None, module), *REQUEST).hash == named.hash
    assert of(native("decode", module), native("main")).frames == ("decode",), "without Python they are all there is"


def test_addresses_lines_paths_and_threads_do_not_matter():
    one = of(native("decode", pc=Address(0x1000), offset=Offset(16)), *REQUEST, registers={"rip": Address(5)}, name="a")
    moved = tuple(msgspec.structs.replace(frame, line=77) for frame in REQUEST)
    other = of(native("decode", "/other/decoder.so", pc=Address(0x2000), offset=Offset(99)), *moved, name="b")
    assert one.hash == other.hash


def test_another_place_another_hash():
    hashes = {
        of(native("decode"), *REQUEST).hash,
        of(native("encode"), *REQUEST).hash,
        of(native("decode"), python("write"), python("handle")).hash,
        of(native("decode")).hash,
        of(*REQUEST).hash,
    }
    assert len(hashes) == 5


HANDLER = (
    native("__pthread_kill_implementation", LIBC),
    native("__GI_raise", LIBC),
    native("faulthandler_fatal_error", PYTHON),
    native("<signal handler called>", LIBC, trust="signal"),
)


def test_faulthandler_does_not_matter():
    frames = (native("decode"), *REQUEST)
    assert of(*HANDLER, *frames).hash == of(*frames).hash


@pytest.mark.parametrize(
    "machinery",
    [
        ("__pthread_kill_implementation", "__pthread_kill_internal", "__GI_raise", "__GI_abort"),
        ("raise", "abort", "__libc_message", "malloc_printerr"),
        (
            "raise",
            "abort",
            "__gnu_cxx::__verbose_terminate_handler()",
            "__cxxabiv1::__terminate(void (*)())",
            "std::terminate()",
            "__cxa_throw",
        ),
        ("raise", "abort", "__libc_message", "__fortify_fail", "__stack_chk_fail"),
        ("raise", "abort", None, "__assert_fail"),
        ("raise", "abort", "fatal_error_exit", "fatal_error", "_Py_FatalErrorFunc"),
    ],
)
def test_abort_machinery_does_not_matter(machinery):
    frames = (native("decode"), *REQUEST)
    assert of(*(native(name, LIBC) for name in machinery), *frames).hash == of(*frames).hash


def test_an_exit_handler_that_crashed_is_not_machinery():
    found = of(native("Pool::~Pool()"), native("__run_exit_handlers", LIBC), native("exit", LIBC), native("main"))
    assert found.frames[0] == "Pool::~Pool"


def test_malloc_and_free_are_taken_with_their_caller():
    found = of(native("_int_free", LIBC), native("__libc_free", LIBC), native("release"), native("main"))
    assert found.frames == ("free", "release")


def deep(cut, depth=300, names=("visit", "children", "walk")):
    return [python(names[(at + cut) % len(names)]) for at in range(depth)]


def test_a_recursion_is_one_wherever_it_was_cut_off():
    found = {of(native("PyObject_Malloc", PYTHON), *deep(cut)).hash for cut in range(3)} | {of(*deep(1, 1001)).hash}
    assert len(found) == 1
    assert of(*deep(0)).frames == ("recursion", "server.children", "server.walk", "server.visit")
    assert of(*deep(0)).hash != of(*deep(0, names=("visit", "other"))).hash


def test_a_recursion_left_out_in_the_middle():
    def stack(cut):
        names = ["f", "g", "h"]
        ends = [native(names[(at + cut) % 3]) for at in range(10)]
        return (*ends, ElidedFrames(count=100_000, cycle=tuple(names[cut:] + names[:cut])), native("main"))

    assert {of(*stack(cut)).frames for cut in range(3)} == {("recursion", "f", "g", "h")}


def test_a_recursion_without_names_is_told_by_what_led_to_it():
    def stack(function):
        return (native(None), ElidedFrames(count=100_000, cycle=("??",)), python(function))

    assert of(*stack("load")).frames == ("recursion", "??", "server.load")


def test_a_shallow_function_that_calls_itself_counts_once():
    twice = of(native("decode"), python("walk"), python("walk"), python("main"))
    assert twice.hash == of(native("decode"), python("walk"), python("main")).hash


def test_comprehensions_do_not_matter():
    assert of(python("read"), python("<listcomp>"), python("handle")).hash == of(python("read"), python("handle")).hash


def test_stacks_side_by_side_count_like_merged_ones():
    merged = of(native("decode"), *REQUEST)
    assert of(native("decode"), python_frames=REQUEST).hash == merged.hash


def test_nothing_has_a_name():
    found = of(native(None, offset=Offset(0x1234)), native(None, None, pc=Address(0x7F0012345678)))
    assert found.frames == ("decoder.so+0x1234",)
    assert "no frame has a name" in found.notes[-1]


@pytest.mark.parametrize("crash", [Crash(), Crash(threads=(Thread(tid=1), Thread(tid=2))), Crash(threads=(Thread(tid=1, crashed=True),))])
def test_empty_says_why(crash):
    found = fingerprint(crash)
    assert (found.hash, found.frames) == (None, ())
    assert found.notes[-1].startswith("EMPTY: ")


@given(st.text(alphabet=st.one_of(st.characters(), st.sampled_from("<>()[]{}:,*& @._0123456789abcdefoperator")), max_size=300))
def test_any_name_has_a_plain_one(name):
    assert len(native_name(name)) <= 200
    assert native_name(native_name(name)) is not None
    assert fingerprint(Crash(threads=(Thread(crashed=True, frames=(native(name), python(name, name))),))).notes is not None


def test_the_hash_belongs_to_a_version_of_the_algorithm():
    """Whoever changes what is hashed gives VERSION another number, and this test another hash."""
    found = of(native("__strlen_evex", LIBC), native("PyBytes_FromString", PYTHON), *REQUEST)
    assert (found.version, found.hash) == (2, "028f7d5abcd95ed8")
    assert fingerprint(Crash()).version == 2


def on_gpu(**facts):
    return fingerprint(
        Crash(gpu=(Gpu(path="x.nvcudmp", **facts),), threads=(Thread(tid=1, crashed=True, frames=(native("abort", LIBC),)),))
    )


def test_a_failure_on_the_gpu_is_the_exception_the_kernel_and_the_function():
    inlined = GpuException(name="WARP_ASSERT", kernel="pick", frames=(native(None), native("check"), native("pick")))
    assert on_gpu(exceptions=(inlined, GpuException(name="OTHER", kernel="other"))).frames == ("GPU", "WARP_ASSERT", "pick", "check")
    itself = GpuException(name="WARP_ASSERT", kernel="pick", frames=(native("pick"),))
    assert on_gpu(exceptions=(itself,)).frames == ("GPU", "WARP_ASSERT", "pick")
    assert "the driver's" in on_gpu(exceptions=(itself,)).notes[-1]
    assert on_gpu(exceptions=(GpuException(name="WARP_ASSERT", kernel="pick"),)).frames == ("GPU", "WARP_ASSERT", "pick")


def test_a_gpu_core_without_a_kernel_leaves_the_thread():
    found = on_gpu(exceptions=(GpuException(name="WARP_ASSERT"),))
    assert "does not name the kernel" in found.notes[0] and found.frames[:1] != ("GPU",)


def test_a_hang_on_the_gpu_is_its_first_kernel_with_a_name():
    assert on_gpu(kernels=(GpuKernel(), GpuKernel(name="spin"), GpuKernel(name="copy"))).frames == ("GPU", "hang", "spin")
    assert "names no kernel" in on_gpu(kernels=(GpuKernel(),)).notes[0]


def test_what_was_left_out_is_counted():
    general = [native("inner", LIBC), native("outer", LIBC)]
    found = of(native(None), native("ffi_call"), native(None), native("ffi_prep"), *general, native("decode"), python("main"))
    assert found.frames == ("decode", "server.main")
    assert "omitted 2 native frames that surround every call and 2 without a name" in found.notes
    assert any(note.startswith("omitted 2 native frames of general code") for note in found.notes)


def test_the_interpreters_own_extension_modules_are_general():
    of_math = native("math_sqrt", "/usr/lib/python3.11/lib-dynload/math.cpython-311-x86_64-linux-gnu.so")
    assert of(of_math, native("decode"), python("main")).frames == ("decode", "server.main")


def test_python_ends_what_counts_as_native():
    """Frames behind Python are those that called it."""
    assert of(native("decode"), python("main"), native("embedding")).frames == ("decode", "server.main")


@pytest.mark.parametrize("length", [1, 2, 63, 64])
def test_cycles_of_every_length(length):
    names = [f"f{at:02}" for at in range(length)]
    assert of(*deep(5, 64 * 3 + length * 4, names)).frames == ("recursion", *[f"server.{name}" for name in names])


def test_what_is_repeated_too_seldom_is_no_recursion():
    names = [f"f{at:02}" for at in range(64)]
    twice = [python(name) for name in names * 2]
    assert of(*twice, *[python(f"g{at}") for at in range(100)]).frames[0] != "recursion"
    # Less than half of the stack, though often enough.
    assert of(*deep(0, 90), *[python(f"g{at}") for at in range(150)]).frames[0] != "recursion"
    assert of(*deep(0, 150), *[python(f"g{at}") for at in range(90)]).frames[0] == "recursion"


def test_a_place_without_a_name_needs_both_its_module_and_its_offset():
    assert of(native(None, None, offset=Offset(1)), native(None), native(None, offset=Offset(0))).frames == ("decoder.so+0x0",)
