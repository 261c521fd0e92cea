"""Names of native functions: one core for what signatures match, reports show and fingerprints hash."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from crashkit.naming.functions import libc_name, plain, short_function, without_suffix


@pytest.mark.parametrize(
    ("name", "plainly"),
    [
        ("at::Tensor at::native::add<int>(at::Tensor const&) [clone .cold]", "at::native::add"),
        ("outer(int)::{lambda(float)#3}::operator()(float) const", "outer::{lambda}::operator()"),
        ("decltype (auto) c10::visit<int>(int)", "c10::visit"),
        ("int *find(char)", "find"),
        ("Foo::operator bool() const", "Foo::operator bool"),
        ("void my_operator_x(int)", "my_operator_x"),
        ("void (*conv::Base<int>::create<(Isa)3>(bool, int))(unsigned char const*, int*)", "conv::Base::create"),
        ("Hook::operator void (*)(int)() const", "Hook::operator void"),
        ("read@plt", "read"),
        ("__cxxabiv1::__cxa_pure_virtual ()", "__cxa_pure_virtual"),
        ("__cxxabiv1::__terminate(void (*)())", "__cxxabiv1::__terminate"),
        ("parse.llvm.1234567", "parse"),
        ("uwsgi_segfault[cold]", "uwsgi_segfault"),
        ("core::ptr::drop_in_place::h0123456789abcdef", "core::ptr::drop_in_place"),
        ("polars_stream[2aab324879e620c7]::execute::execute_graph", "polars_stream::execute::execute_graph"),
        (
            "<rayon_core[566b2952e37088e4]::registry::WorkerThread>::wait_until_cold",
            "<rayon_core::registry::WorkerThread>::wait_until_cold",
        ),
        ("<signal handler called>", "<signal handler called>"),
    ],
)
def test_plain(name: str, plainly: str) -> None:
    assert plain(name) == plainly


@pytest.mark.parametrize("suffix", [".constprop.0", ".isra.1", ".part.2", ".cold", ".lto_priv.0", ".llvm.77", ".localalias", ".cold.3"])
def test_compiler_added_suffixes_go_from_plain_and_mangled_names(suffix: str) -> None:
    assert without_suffix("_ZN3shop3buyEv" + suffix) == "_ZN3shop3buyEv"
    assert plain("parse" + suffix) == short_function("parse" + suffix) == "parse"


@pytest.mark.parametrize("name", ["a.colder", "parse.partial", "x.y"])
def test_other_dots_stay(name: str) -> None:
    assert without_suffix(name) == name


@pytest.mark.parametrize(
    ("name", "manual"),
    [
        ("__memcpy_avx512_unaligned_erms", "memcpy"),
        ("__libc_malloc", "malloc"),
        ("__libc_start_main", "__libc_start_main"),
        ("__libc_message", "__libc_message"),
        ("memory_avx", "memory"),
        ("shop_buy", "shop_buy"),
        ("____strtol_l_internal", "strtol"),
        ("____wcstod_l_internal", "wcstod"),
        ("__vfprintf_internal", "vfprintf"),
        ("_IO_vfscanf_internal", "vfscanf"),
        ("_IO_new_fclose", "fclose"),
        ("_IO_puts", "puts"),
        ("_IO_new_file_xsputn", "_IO_new_file_xsputn"),
        ("strtok_internal", "strtok_internal"),
        ("my_internal", "my_internal"),
    ],
)
def test_names_as_the_manual_has_them(name: str, manual: str) -> None:
    assert libc_name(name) == manual


@given(st.text(alphabet=st.one_of(st.characters(), st.sampled_from("<>()[]{}:,*& @._operator")), max_size=200))
@example("\r<")
@example("f <int>")
@example("*<int>*f")
@example("operator<< <char>")
def test_what_is_shown_and_what_is_matched_differ_in_their_template_arguments_only(name: str) -> None:
    assert "…" in name or "anonymous" in name or "�" in name or short_function(name).replace("<…>", "").rstrip() == plain(name).rstrip()
