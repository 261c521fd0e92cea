"""Demangles C++ names, such as those of GPU code and of stacks in logs, where there is no debugger to ask.

The Itanium C++ ABI, "External Names (a.k.a. Mangling)". Covers what functions and kernels are named by: nested names, templates,
literals, lambdas, local and anonymous names, function pointers, packs. What it does not cover (expressions, decltype) leaves the name
as it was, or without its parameters. Names are untrusted: their length and the result's are limited, and so is the depth (by Python).
"""

from __future__ import annotations

import re
from functools import lru_cache

from crashkit.regex import regex

_LONGEST = 1 << 15
_LONGEST_RESULT = 1 << 16

_BUILTIN = {
    "v": "void",
    "w": "wchar_t",
    "b": "bool",
    "c": "char",
    "a": "signed char",
    "h": "unsigned char",
    "s": "short",
    "t": "unsigned short",
    "i": "int",
    "j": "unsigned int",
    "l": "long",
    "m": "unsigned long",
    "x": "long long",
    "y": "unsigned long long",
    "n": "__int128",
    "o": "unsigned __int128",
    "f": "float",
    "d": "double",
    "e": "long double",
    "g": "__float128",
    "z": "...",
}
_BUILTIN_D = {"h": "_Float16", "i": "char32_t", "s": "char16_t", "u": "char8_t", "n": "std::nullptr_t", "a": "auto", "c": "decltype(auto)"}
_STANDARD = {"t": "std", "a": "std::allocator", "b": "std::basic_string", "s": "std::string", "i": "std::istream", "o": "std::ostream"}
_STANDARD["d"] = "std::iostream"
_SUFFIX = {"i": "", "j": "u", "l": "l", "m": "ul", "x": "ll", "y": "ull"}
_OPERATORS = {
    "nw": " new",
    "na": " new[]",
    "dl": " delete",
    "da": " delete[]",
    "ps": "+",
    "ng": "-",
    "ad": "&",
    "de": "*",
    "co": "~",
    "pl": "+",
    "mi": "-",
    "ml": "*",
    "dv": "/",
    "rm": "%",
    "an": "&",
    "or": "|",
    "eo": "^",
    "aS": "=",
    "pL": "+=",
    "mI": "-=",
    "mL": "*=",
    "dV": "/=",
    "rM": "%=",
    "aN": "&=",
    "oR": "|=",
    "eO": "^=",
    "ls": "<<",
    "rs": ">>",
    "lS": "<<=",
    "rS": ">>=",
    "eq": "==",
    "ne": "!=",
    "lt": "<",
    "gt": ">",
    "le": "<=",
    "ge": ">=",
    "nt": "!",
    "aa": "&&",
    "oo": "||",
    "pp": "++",
    "mm": "--",
    "cm": ",",
    "pm": "->*",
    "pt": "->",
    "cl": "()",
    "ix": "[]",
    "qu": "?",
    "ss": "<=>",
}
_NAMELESS = "(anonymous namespace)"
_INTERNAL = regex(r"_INTERNAL_[0-9a-f]{8}_\d+_\w+|_GLOBAL__N_.*")


@lru_cache(maxsize=4096)
def demangled(name: str) -> str:
    """`at::native::add<float>(float*)` for `_ZN2at6native3addIfEEvPf`; other names, and those it does not understand, as they are."""
    if not name.startswith("_Z") or len(name) > _LONGEST:
        return name
    reader = _Reader(name)
    try:
        text = reader.encoding()
    except (_NotUnderstood, IndexError, ValueError, RecursionError):
        return name
    return text if reader.at == len(name) or name[reader.at] in ".@" else name


def demangled_function(name: str) -> str:
    """`at::native::add<float>` for `_ZN2at6native3addIfEEvPf`: without return type and parameters, which need not be understood.

    Of a name that was cut off, or has a part that is not understood, what comes before; other names as they are.
    """
    if not name.startswith("_Z") or len(name) > _LONGEST:
        return name
    reader = _Reader(name)
    try:
        return reader.name()
    except (_NotUnderstood, IndexError, ValueError, RecursionError):
        return reader.outermost or name


class _NotUnderstood(Exception):
    pass


class _Reader:
    def __init__(self, text: str) -> None:
        self.text, self.at = text, 2
        self.known: list[str] = []
        """Substitution candidates."""
        self.arguments: list[str] = []
        """Template arguments of the innermost template, for T_."""
        self.templated = self.returns_nothing = False
        self.qualifiers = ""
        self.outermost = ""
        """What was read of the name's own nested parts, without those of its template arguments."""
        self._depth = 0

    def peek(self, text: str) -> bool:
        return self.text.startswith(text, self.at)

    def take(self, text: str) -> bool:
        if not self.peek(text):
            return False
        self.at += len(text)
        return True

    def keep(self, text: str) -> str:
        if len(text) > _LONGEST_RESULT:
            raise _NotUnderstood
        self.known.append(text)
        return text

    def encoding(self, whole: bool = True) -> str:
        """A function with its parameters; its return type only where it is the `whole` name."""
        name = self.name()
        returns = self.templated and not self.returns_nothing
        qualifiers = self.qualifiers
        if self.at >= len(self.text) or self.text[self.at] in "E.@":
            return name
        result = f"{self.type()} " if returns else ""
        result = result if whole else ""
        return f"{result}{name}({self.parameters()}){qualifiers}"

    def parameters(self) -> str:
        found = []
        while self.at < len(self.text) and self.text[self.at] not in "E.@":
            found.append(self.type())
        return "" if found == ["void"] else ", ".join(one for one in found if one)

    def name(self) -> str:
        self.templated = self.returns_nothing = False
        self.qualifiers = ""
        if self.take("N"):
            self._depth += 1
            name = self.nested()
            self._depth -= 1
            return name
        if self.take("Z"):
            return self.local()
        standard = self.take("St")
        if not standard and self.peek("S") and not self.peek("St"):
            name = self.substitution()
        else:
            name = ("std::" if standard else "") + self.part("")
            if self.peek("I"):
                self.keep(name)
        if self.peek("I"):
            name += self.template_arguments()
            self.templated = True
        return name

    def local(self) -> str:
        outer = self.encoding(whole=False)
        if not self.take("E"):
            raise _NotUnderstood
        if self.take("s"):
            self.discriminator()
            return f"{outer}::string literal"
        if self.take("d"):
            self.number()
            if not self.take("_"):
                raise _NotUnderstood
        name = self.name()
        self.discriminator()
        return f"{outer}::{name}"

    def discriminator(self) -> None:
        if self.take("__"):
            self.number()
            self.take("_")
        elif self.peek("_") and self.text[self.at + 1 : self.at + 2].isdigit():
            self.at += 2

    def nested(self) -> str:
        while self.at < len(self.text) and self.text[self.at] in "rVK":
            self.qualifiers = {"K": " const", "V": " volatile", "r": " restrict"}[self.text[self.at]] + self.qualifiers
            self.at += 1
        if self.peek("R") or (self.peek("O") and not self.peek("On")):
            self.qualifiers += " &" if self.text[self.at] == "R" else " &&"
            self.at += 1
        qualifiers = self.qualifiers
        name, last = "", ""
        templated = returns_nothing = False
        while not self.take("E"):
            if self._depth == 1:
                self.outermost = name
            if self.peek("I"):
                if not name:
                    raise _NotUnderstood
                name += self.template_arguments()
                templated = True
            elif self.peek("S") and not self.peek("St"):
                name, templated = self.substitution(), False
                last = name.rpartition("::")[2].partition("<")[0]
                continue
            elif self.peek("T"):
                name, templated = self.template_parameter(), False
            else:
                standard = not name and self.take("St")
                returns_nothing = self.peek("cv") or self.text[self.at] in "CD"
                part = self.part(last)
                # nvcc wraps what has no linkage in two nameless namespaces.
                if part != _NAMELESS or not name.endswith(_NAMELESS):
                    name = f"std::{part}" if standard else f"{name}::{part}" if name else part
                last, templated = part, False
            if not self.peek("E"):
                self.keep(name)
        self.templated, self.returns_nothing, self.qualifiers = templated, returns_nothing, qualifiers
        return name

    def part(self, last: str) -> str:
        """An unqualified name."""
        self.take("L")
        if self.text[self.at].isdigit():
            found = self.identifier()
        elif self.peek("Ul"):
            found = self.lambda_()
        elif self.take("Ut"):
            found = f"{{unnamed type#{self.index()}}}"
        elif self.text[self.at] in "CD" and self.text[self.at + 1].isdigit():
            found = ("~" if self.text[self.at] == "D" else "") + last
            self.at += 2
        elif self.take("cv"):
            found = f"operator {self.type()}"
        elif self.text[self.at : self.at + 2] in _OPERATORS:
            found = f"operator{_OPERATORS[self.text[self.at : self.at + 2]]}"
            self.at += 2
        else:
            raise _NotUnderstood
        while self.take("B"):
            found += f"[abi:{self.identifier()}]"
        return found

    def identifier(self) -> str:
        length = self.number()
        found = self.text[self.at : self.at + length]
        if len(found) != length or not length:
            raise _NotUnderstood
        self.at += length
        return _NAMELESS if _INTERNAL.fullmatch(found) else found

    def number(self) -> int:
        end = self.at
        while end < len(self.text) and end < self.at + 10 and self.text[end].isdigit():
            end += 1
        value = int(self.text[self.at : end])
        self.at = end
        return value

    def index(self) -> int:
        """`_` is the first, `0_` the second."""
        value = 1 if self.peek("_") else self.number() + 2
        if not self.take("_"):
            raise _NotUnderstood
        return value

    def lambda_(self) -> str:
        self.at += 2
        parameters = self.parameters()
        if not self.take("E"):
            raise _NotUnderstood
        return f"{{lambda({parameters})#{self.index()}}}"

    def substitution(self) -> str:
        self.at += 1
        letter = self.text[self.at]
        if letter in _STANDARD:
            self.at += 1
            return _STANDARD[letter]
        end = self.text.find("_", self.at, self.at + 8)
        if end < 0:
            raise _NotUnderstood
        digits, self.at = self.text[self.at : end], end + 1
        number = int(digits, 36) + 1 if digits else 0
        if digits.upper() != digits or number >= len(self.known):
            raise _NotUnderstood
        return self.known[number]

    def template_parameter(self) -> str:
        self.at += 1
        number = self.index() - 1
        # A lambda's own parameter may stand before the arguments that it refers to.
        return self.arguments[number] if number < len(self.arguments) else "auto"

    def template_arguments(self) -> str:
        self.at += 1
        found = []
        while not self.take("E"):
            found.append(self.template_argument())
        self.arguments = found
        text = ", ".join(one for one in found if one)
        return f"<{text}{' ' if text.endswith('>') else ''}>"

    def template_argument(self) -> str:
        if self.take("J"):
            found = []
            while not self.take("E"):
                found.append(self.template_argument())
            return ", ".join(found)
        if self.peek("L"):
            return self.literal()
        if self.peek("X"):
            raise _NotUnderstood
        return self.type()

    def literal(self) -> str:
        self.at += 1
        if self.peek("_Z"):
            inner = _Reader(self.text)
            inner.at, inner.known = self.at + 2, self.known
            text = inner.encoding(whole=False)
            self.at = inner.at
            if not self.take("E"):
                raise _NotUnderstood
            return text
        kind = self.text[self.at]
        text = self.type()
        end = self.text.find("E", self.at)
        if end < 0:
            raise _NotUnderstood
        value, self.at = self.text[self.at : end].replace("n", "-", 1), end + 1
        if kind == "b" and value in ("0", "1"):
            return "true" if value == "1" else "false"
        return value + _SUFFIX[kind] if kind in _SUFFIX else f"({text}){value}"

    def type(self) -> str:
        letter = self.text[self.at]
        if letter in _BUILTIN:
            self.at += 1
            return _BUILTIN[letter]
        if letter in "PRO":
            self.at += 1
            return self.keep(_pointer(self.type(), {"P": "*", "R": "&", "O": "&&"}[letter]))
        if letter in "rVK":
            qualifiers = ""
            while self.text[self.at] in "rVK":
                qualifiers = {"K": " const", "V": " volatile", "r": " restrict"}[self.text[self.at]] + qualifiers
                self.at += 1
            inner = self.type()
            return self.keep(_pointer(inner, qualifiers, "") if "(*" in inner else inner + qualifiers)
        if letter == "D":
            return self._type_of_d()
        if letter == "F":
            return self._function()
        if letter == "A":
            self.at += 1
            size = self.number() if self.text[self.at].isdigit() else None
            if not self.take("_"):
                raise _NotUnderstood
            return self.keep(f"{self.type()} [{'' if size is None else size}]")
        if letter == "M":
            self.at += 1
            owner, member = self.type(), self.type()
            return self.keep(f"{member} {owner}::*")
        if letter == "u":
            self.at += 1
            return self.keep(self.identifier())
        if letter == "T" and self.text[self.at + 1] in "_0123456789":
            text = self.keep(self.template_parameter())
            return self.keep(text + self.template_arguments()) if self.peek("I") else text
        if letter == "S" and not self.peek("St"):
            text = self.substitution()
            if self.peek("I"):
                return self.keep(text + self._arguments_aside())
            return text
        saved = (self.templated, self.returns_nothing, self.qualifiers, self.arguments)
        text = self.name()
        self.templated, self.returns_nothing, self.qualifiers, self.arguments = saved
        return self.keep(text)

    def _arguments_aside(self) -> str:
        """Template arguments of a type: T_ keeps meaning the function's own."""
        arguments = self.arguments
        text = self.template_arguments()
        self.arguments = arguments
        return text

    def _type_of_d(self) -> str:
        letter = self.text[self.at + 1]
        if letter in _BUILTIN_D:
            self.at += 2
            return _BUILTIN_D[letter]
        if letter == "p":
            self.at += 2
            return self.keep(self.type())
        if letter == "F":
            self.at += 2
            bits = self.number()
            suffix = "b" if self.take("b") else ""
            return f"_Float{bits}x" if self.take("x") else f"std::bfloat{bits}_t" if suffix else self._after("_", f"_Float{bits}")
        if letter == "v":
            self.at += 2
            size = self.number()
            return self.keep(f"{self._after('_', '')}{self.type()} __vector({size})")
        raise _NotUnderstood

    def _after(self, text: str, result: str) -> str:
        if not self.take(text):
            raise _NotUnderstood
        return result

    def _function(self) -> str:
        self.at += 1
        self.take("Y")
        result = self.type()
        parameters = self.parameters()
        if not self.take("E"):
            raise _NotUnderstood
        return self.keep(f"{result} ({parameters})")


def _pointer(inner: str, mark: str, separator: str = "") -> str:
    """A pointer to `inner`; one to a function goes between its result and its parameters."""
    if inner.endswith((")", "]")) and " (" in inner and not inner.startswith("decltype"):
        at = _opening(inner)
        if inner.startswith("(*", at) or inner.startswith("(&", at):
            return f"{inner[: at + 2]}{mark}{inner[at + 2 :]}"
        return f"{inner[:at]}({mark}){inner[at:]}"
    if mark in ("&", "&&") and inner.endswith("&"):
        return inner if mark == "&&" or not inner.endswith("&&") else inner[:-1]
    return f"{inner}{separator}{mark}"


def _opening(text: str) -> int:
    """Where a function type's first parenthesis opens."""
    depth = 0
    for at, character in enumerate(text):
        if character == "<":
            depth += 1
        elif character == ">":
            depth -= 1
        elif character == "(" and not depth and at and text[at - 1] == " ":
            return at
    return text.rfind("(")


_NUMBERED = regex(r"L[a-z]n?\d{1,20}E|[ST][0-9A-Z]{0,10}_|(\d{1,10})")
"""Literals, substitutions and parameters have numbers, too, which are no lengths."""


def identifiers(name: str) -> tuple[str, ...]:
    """The identifiers in a mangled name, in order, by their length prefixes: works where `demangled` gives up."""
    found, at = [], 0
    while match := _NUMBERED.search(name, at):
        at = match.end()
        length = int(match[1][:6]) if match[1] else 0
        text = name[at : at + length]
        if length and len(text) == length and re.fullmatch(r"[A-Za-z_]\w*", text):
            found.append(text)
            at += length
    return tuple(found)
