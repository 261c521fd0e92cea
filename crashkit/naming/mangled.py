"""Names of C++ and Rust functions in texts that show them mangled: without arguments, template arguments and hashes."""

from __future__ import annotations

from crashkit.naming.functions import plain
from crashkit.naming.itanium import demangled_function

# Rust's legacy mangling is C++'s, with these in the place of characters, and a hash at the end.
_RUST = {"$LT$": "<", "$GT$": ">", "$u20$": " ", "$RF$": "&", "$BP$": "*", "$LP$": "(", "$RP$": ")", "$C$": ",", "$u7b$": "{", "$u7d$": "}"}


def demangled(name: str) -> str:
    """`c10::cuda::f` for `_ZN3c104cuda1fEv`; the name itself where it is not mangled, or cannot be read."""
    function = demangled_function(name)
    if function == name:
        return name
    text = plain(function)
    for code, character in _RUST.items():
        text = text.replace(code, character)
    return text.replace("..", "::") or name
