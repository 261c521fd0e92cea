"""Names of C++ and Rust functions in texts that show them mangled: only the nested name, without arguments.

After the Itanium C++ ABI, 5.1 (mangling); Rust's legacy mangling is the same with a hash at the end. A name with something that
is not read here stays as it was, or ends before it.
"""

from __future__ import annotations

import re

_LONGEST = 4096
_STANDARD = {
    "St": "std",
    "Sa": "std::allocator",
    "Sb": "std::basic_string",
    "Ss": "std::string",
    "Si": "std::istream",
    "So": "std::ostream",
    "Sd": "std::iostream",
}
_OPERATORS = {
    "nw": "new",
    "na": "new[]",
    "dl": "delete",
    "da": "delete[]",
    "cl": "()",
    "ix": "[]",
    "eq": "==",
    "aS": "=",
    "ls": "<<",
    "rs": ">>",
}
_LENGTH = re.compile(r"\d{1,4}")
_HASH = re.compile(r"h[0-9a-f]{16}")
_RUST = {"$LT$": "<", "$GT$": ">", "$u20$": " ", "$RF$": "&", "$BP$": "*", "$LP$": "(", "$RP$": ")", "$C$": ",", "$u7b$": "{", "$u7d$": "}"}
_OPENERS = "INXJFL"


def demangled(name: str) -> str:
    """`c10::cuda::f` for `_ZN3c104cuda1fEv`; the name itself where it is not mangled, or cannot be read."""
    if not name.startswith("_Z") or len(name) > _LONGEST:
        return name
    at = 2
    if name.startswith("L", at):
        at += 1
    nested = name.startswith("N", at)
    if nested:
        at += 1
        while at < len(name) and name[at] in "rVKRO":
            at += 1
    parts: list[str] = []
    while at < len(name):
        if (found := _LENGTH.match(name, at)) is not None:
            length = int(found[0])
            part = name[found.end() : found.end() + length]
            if len(part) < length:
                break
            at = found.end() + length
            parts.append("(anonymous namespace)" if part.startswith("_GLOBAL__N") else part)
        elif name[at : at + 2] in _STANDARD:
            parts.append(_STANDARD[name[at : at + 2]])
            at += 2
            if not nested and parts != ["std"]:
                break
            continue
        elif name[at] == "C" and parts and name[at + 1 : at + 2] in "12345":
            parts.append(parts[-1].rpartition("::")[2])
            at += 2
        elif name[at] == "D" and parts and name[at + 1 : at + 2] in "012345":
            parts.append("~" + parts[-1].rpartition("::")[2])
            at += 2
        elif name[at] == "I":
            at = _after_list(name, at)
            continue
        elif name[at] == "B":
            found = _LENGTH.match(name, at + 1)
            if found is None:
                break
            at = found.end() + int(found[0])
            continue
        elif name[at : at + 2] in _OPERATORS:
            parts.append(f"operator {_OPERATORS[name[at : at + 2]]}" if name[at] in "nd" else f"operator{_OPERATORS[name[at : at + 2]]}")
            at += 2
        else:
            break
        if not nested:
            break
    if parts and _HASH.fullmatch(parts[-1]):
        parts.pop()
    text = "::".join(parts)
    for code, character in _RUST.items():
        text = text.replace(code, character)
    return text.replace("..", "::") or name


def _after_list(name: str, at: int) -> int:
    """Behind the list of template arguments that opens here; the end of the name if it does not close."""
    depth = 0
    while at < len(name):
        if (found := _LENGTH.match(name, at)) is not None and name[at - 1] not in "SLT_":
            at = found.end() + int(found[0])
            continue
        if name[at] == "S":
            at += 2
            continue
        if name[at] in _OPENERS:
            depth += 1
        elif name[at] == "E":
            depth -= 1
            if depth == 0:
                return at + 1
        at += 1
    return at
