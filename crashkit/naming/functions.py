"""Names of native functions: without compiler-added suffixes, arguments, return type and template arguments."""

from __future__ import annotations

import re
from functools import lru_cache

_LONGEST = 4096

# GCC's and LLVM's copies of one function: `f.constprop.0`, `f [clone .cold]`, `f.lto_priv.1`. Symbol versions and PLT entries:
# `f@@GLIBC_2.17`, `f@plt`. ABI tags, gdb's `f[cold]`, and the hash that rustc appends.
_SUFFIX = re.compile(
    r"(?: ?\[clone [^\[\]]*\]|\.(?:constprop|isra|part|cold|localalias|lto_priv|llvm|clone|unlikely|hot|ipa)\b[\w.]*"
    r"| ?\(\.(?:constprop|isra|part|cold|llvm|lto_priv)\b[\w.]*\)"  # as LLVM's demangler writes them
    r"|@.*|\[(?:abi:\w+|cold)\]|::h[0-9a-f]{16}$)+"
)
# The hash of a crate's version and build, which rustc's newer names have: `polars_stream[2aab324879e620c7]::execute`.
_CRATE_HASH = re.compile(r"(?<=\w)\[[0-9a-f]{13,16}\]")
_LAMBDA = re.compile(r"\{lambda\([^{}]*\)#\d+\}|\{lambda#\d+\}|'lambda\d*'(?:\([^()]*\))?|\$_\d+")
_OPERATOR = re.compile(r"\boperator *(?:<=>|<<=|>>=|<<|>>|<=|>=|->\*|->|<|>|\(\))")
_ANONYMOUS = "(anonymous namespace)"
_OPEN, _CLOSE = "<(", ">)"

# glibc compiles its string functions once a processor: `__memcpy_avx512_unaligned_erms`.
_VARIANT = re.compile(
    r"^(?=\w*$)_*((?:mem|str|wcs|wmem)\w+?)(?:_(?:sse|avx|evex|erms|unaligned|ssse|generic|sve|mte|asimd|falkor|thunderx)\w*)$"
)
# What glibc's functions of stdio and conversions of numbers are inside: `____strtol_l_internal`, `__vfprintf_internal`, `_IO_new_fclose`.
_INSIDE = re.compile(
    r"^_*(?:_IO_)?((?:str|wcs)to(?:l|ll|ul|ull|d|f|ld|f\d+x?)|v\w{0,4}(?:printf|scanf))(?:_l)?_internal$"
    r"|^_IO_(?:new_|old_)?(f(?:open|close|read|write|puts|gets|flush|seek|tell|getpos|setpos|printf)|(?:v|vf|vs)?printf|puts|gets|getdelim|popen|ungetc)$"
)
# The C functions of the C++ runtime, which debug info puts into its namespace: `__cxxabiv1::__cxa_throw`.
_C_OF_CXX = re.compile(r"^__cxxabiv1::(?=__cxa_)")
_ALIAS = re.compile(
    r"^(?:__libc_(?!start|main|csu|message|fatal)"
    r"|_{1,3}interceptor_(?:trampoline_)?|__(?:a|hwa|m|t)san_(?=mem(?:cpy|set|move)$))"  # what sanitizers put in their place
)


_NO_NAMES = frozenset(
    {"??", "???", "()", "(unknown)", "<unknown>", "<unknown function>", "[unknown]", "<redacted>", "n/a", "<null>", "(null)", "<no symbol>"}
)


def printed_name(text: str) -> str | None:
    """The function's name that a debugger or a handler printed; None for what they print where they do not know it."""
    return None if text in _NO_NAMES else text or None


@lru_cache(maxsize=65536)
def without_suffix(name: str) -> str:
    """The name, mangled or not, without compiler-added suffixes and symbol version: `f` for `f.constprop.0.cold`."""
    return _SUFFIX.sub("", name[:_LONGEST]) or name[:_LONGEST]


@lru_cache(maxsize=65536)
def plain(function: str, templates: str = "") -> str:
    """`at::native::add` for `at::Tensor at::native::add<int>(at::Tensor const&) [clone .cold]`, `raise` for `__GI_raise`.

    A lambda keeps its place: `f::{lambda}::operator()`. `templates` replaces each list of template arguments.
    """
    name = _LAMBDA.sub("{lambda}", _CRATE_HASH.sub("", without_suffix(function)))
    return _C_OF_CXX.sub("", _without_arguments(name, templates).removeprefix("__GI_"))


def short_function(function: str) -> str:
    """The name as shown in reports: `at::(anonymous)::run<…>`."""
    return plain(function, "<…>").replace(_ANONYMOUS, "(anonymous)")


def libc_name(name: str) -> str:
    """The manual's name of a C library function: `memcpy` for `__memcpy_avx512_unaligned_erms`, `malloc` for `__libc_malloc`.

    `name` is a plain name; it is returned unchanged if it is not a C library function.
    """
    name = _ALIAS.sub("", name)
    found = _VARIANT.match(name) or _INSIDE.match(name)
    return next(filter(None, found.groups())) if found else name


def _without_arguments(name: str, templates: str) -> str:
    kept: list[str] = []
    lists: dict[int, str] = {}  # of template arguments, by the piece that they stand behind: no part in where the name begins and ends
    depth = at = 0
    while at < len(name):
        symbol = _OPERATOR.match(name, at)
        if symbol:
            if not depth:
                kept.append(symbol[0])
            at = symbol.end()
            continue
        character = name[at]
        if character in _OPEN:
            if depth == 0 and name.startswith(_ANONYMOUS, at):
                kept.append(_ANONYMOUS.replace(" ", "\0"))
                at += len(_ANONYMOUS)
                continue
            if depth == 0 and character == "<":
                if not at:
                    return name  # <signal handler called>, <module>
                lists[len(kept)] = lists.get(len(kept), "") + templates
            elif depth == 0 and kept and name[at + 1 : at + 2] in ("*", "&") and "operator" not in "".join(kept):
                return _without_arguments(name[at + 2 :], templates)  # void (*f(int))(char): f returns a pointer to a function
            elif depth == 0 and kept and not (_is_decltype(kept) or _after(name, at).startswith("::")):
                break
            depth += 1
        elif character in _CLOSE:
            depth = max(0, depth - 1)
        elif not depth:
            kept.append(character)
        at += 1
    text = "".join(kept).rstrip()
    operator = text.find("operator")
    head = text if operator < 0 else text[:operator]
    begin = head.rfind(" ") + 1
    begin += len(text[begin:]) - len(text[begin:].lstrip().lstrip("*&"))
    found, at = "", 0
    for index, piece in enumerate(kept):
        if at >= begin and (at < len(text) or operator >= 0):  # `operator<< <char>`: its list stands apart
            found += piece + lists.get(index + 1, "")
        at += len(piece)
    return found.rstrip().replace("\0", " ") or name


def _is_decltype(kept: list[str]) -> bool:
    """Whether the parenthesis that follows belongs to a return type such as `decltype (auto)`."""
    return "".join(kept[-9:]).rstrip().endswith("decltype")


def _after(name: str, at: int) -> str:
    """What follows the parenthesis that opens here."""
    depth = 0
    for position in range(at, len(name)):
        depth += {"(": 1, ")": -1}.get(name[position], 0)
        if depth == 0:
            return name[position + 1 :]
    return ""
