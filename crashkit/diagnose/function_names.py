"""Names of functions as people say them: without arguments, templates, clones and what differs from build to build."""

from __future__ import annotations

import re
from pathlib import PurePosixPath

from crashkit.model import PythonFrame

_LONGEST = 200

# GCC's and LLVM's copies of one function: `f.constprop.0`, `f [clone .cold]`, `f.lto_priv.1`; versions and PLT: `f@@GLIBC_2.17`, `f@plt`.
_CLONE = re.compile(
    r"(?: ?\[clone [^\]]*\]|\.(?:constprop|isra|part|cold|localalias|lto_priv|llvm|clone|unlikely|hot|ipa)\b[\w.]*"
    r"|@.*|\[abi:\w+\]|::h[0-9a-f]{16}$)+"
)
# glibc compiles its string functions once a processor: `__memcpy_avx512_unaligned_erms`.
_VARIANT = re.compile(r"^_*((?:mem|str|wcs|wmem)\w+?)(?:_(?:sse|avx|evex|erms|unaligned|ssse|generic|sve|mte|asimd|falkor|thunderx)\w*)$")
_ALIASES = re.compile(r"^(?:__GI_)?(?:__libc_(?!start|main|csu|message|fatal))?")
_ALLOCATOR = {
    **dict.fromkeys(("_int_malloc", "malloc_consolidate", "sysmalloc", "tcache_get", "_int_memalign", "__libc_memalign"), "malloc"),
    **dict.fromkeys(("_int_free", "cfree", "unlink_chunk", "tcache_put", "_int_free_merge_chunk", "_int_free_chunk"), "free"),
    **dict.fromkeys(("_int_realloc", "mremap_chunk"), "realloc"),
    "memmove": "memcpy",
    "_raise": "raise",
}
_LAMBDA = re.compile(r"\{lambda\([^{}]*\)#\d+\}|\{lambda#\d+\}|'lambda\d*'(?:\([^()]*\))?|\$_\d+")
_OPERATOR = re.compile(r"\boperator *(?:<=>|<<=|>>=|<<|>>|<=|>=|->\*|->|<|>|\(\))")
_NUMBER = re.compile(r"0x[0-9a-fA-F]+|(?<![0-9A-Za-z])[0-9a-fA-F]*\d[0-9a-fA-F]{5,}(?![0-9A-Za-z])")
_HASH = re.compile(r"\b(?=\w*\d)[0-9a-z]{24,}\b")
_OPEN, _CLOSE = "<(", ">)"


def plain_name(function: str) -> str:
    """`at::native::add<int>(at::Tensor const&) [clone .cold]` is `at::native::add<T>`; `__memcpy_avx_unaligned` is `memcpy`."""
    name = _CLONE.sub("", function.strip()[: _LONGEST * 20])
    name = _LAMBDA.sub("{lambda}", name)
    name = _without_arguments(name)
    name = _ALIASES.sub("", name)
    name = without_variant(name)
    name = _ALLOCATOR.get(name, name)
    return stable(name)[:_LONGEST]


def without_variant(name: str) -> str:
    """`strlen` for `__strlen_evex`."""
    variant = _VARIANT.match(name)
    return variant[1] if variant else name


def python_name(frame: PythonFrame) -> str:
    """`rnn.forward`: the module's name, as its file tells it, and the function's. A package's `__init__.py` gives the package."""
    path = PurePosixPath((frame.file or "").replace("\\", "/"))
    module = path.parent.name if path.stem == "__init__" else path.stem
    function = frame.function or "?"
    return stable(f"{module}.{function}" if module else function)[:_LONGEST]


def stable(text: str) -> str:
    """Without numbers and hashes that are another in every run: addresses, cell numbers, names of generated files."""
    return _HASH.sub("HASH", _NUMBER.sub("ADDR", text))


def _without_arguments(name: str) -> str:
    """Template arguments become `<T>`; function arguments, cv and the return type go."""
    kept: list[str] = []
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
            if depth == 0 and name.startswith("(anonymous namespace)", at):
                kept.append("(anonymous namespace)".replace(" ", "\0"))
                at += len("(anonymous namespace)")
                continue
            if depth == 0 and character == "<" and at:
                kept.append("<T>")
            elif depth == 0 and character == "<":
                return name  # <signal handler called>, <module>
            if depth == 0 and character == "(" and kept:
                rest = _after(name, at)
                if not rest.startswith("::"):
                    break
            depth += 1
        elif character in _CLOSE:
            depth = max(0, depth - 1)
        elif not depth:
            kept.append(character)
        at += 1
    text = "".join(kept).strip()
    operator = text.find("operator")
    head = text if operator < 0 else text[:operator]
    returned = head.rfind(" ")
    return text[returned + 1 :].replace("\0", " ") or name


def _after(name: str, at: int) -> str:
    """What follows the parenthesis that opens here."""
    depth = 0
    for position in range(at, len(name)):
        depth += {"(": 1, ")": -1}.get(name[position], 0)
        if depth == 0:
            return name[position + 1 :]
    return ""
