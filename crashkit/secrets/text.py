"""Masks the secrets in texts: logs, reprs of values, lines of source, command lines, environments. Pure; linear in the text's length.

A secret is known by its own shape, or by the name before it (rules.toml). Which values of such a name are secret depends on the text:
in source a name stands for its value, so only literals are secret; a repr of a number, None or a tensor is none.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Optional

from crashkit.regex import regex
from crashkit.secrets.rules import CERTAIN, NUMBER, WEAK, Command, Shape, kind, last_word, matches, rules

MASK = "<masked>"
"""Stands for a secret, whatever its length. Masking a masked text changes nothing."""

_LEAST_WEAK = 8
"""Characters of a secret behind a name that is also an ordinary word."""
_LEAST_REPEATED = 6
_SEPARATOR = 3
_LONGEST_REPEATED = 4096
_LINE_BEFORE = 512
_EXPRESSION = 256
"""Characters of an expression in which a literal that stands in for a secret is looked for."""
_WIDEST = 16384
"""Characters of a list or the like within a text: where a cut-off one ends is unknown."""

# A name, and what stands between it and its value: `x =`, `'x': `, `--x=`, `["x"] = `, `'x', `.
_NAMED = regex(
    r"(?<![\w-])(?P<name>-{0,2}[^\W\d][\w-]*)(?P<close>\\{0,3}[\"']?\]?)[ \t]{0,8}"
    r"(?P<sep>:=|=>|[=!]=|=|:(?!:)|,|(?<=\w)[ \t])[ \t]{0,8}"
)
_QUOTE = regex(r"(?:u8|[bBrRuUfFL]{1,2})?(?P<quote>\\{0,3}(?:\"\"\"|'''|\"|'))")
_UNTIL = {
    '"': regex(r'[^"\\\n]*(?:\\(?s:.)[^"\\\n]*)*'),
    "'": regex(r"[^'\\\n]*(?:\\(?s:.)[^'\\\n]*)*"),
}
_ANNOTATION = regex(r"[\w.| ]{1,64}(?:\[[^\]\n]{0,128}\][ |\w]{0,32})?=(?!=)[ \t]{0,8}")
_CALL = regex(r"(?:[\w.]{0,128}\.)?(?P<name>\w{1,64})\(")
_BARE = regex(r"[^\s'\"&;\\]{1,8192}")
_LINE = regex(r"[^\r\n\\]{1,8192}")
_CONTINUED = regex(r"[ \t]{0,8}\+?[ \t]{0,8}(?=[bBrRuUfF]{0,2}[\"'])")
_ALTERNATIVE = regex(r"\b(?:or|else)[ \t]{1,8}(?=[bBrRuUfF]{0,2}[\"'])")
_TOKENS = regex(r"[(\[{}\])]|(?:[bBrRuUfF]{1,2})?\\{0,3}[\"']")
_KEY = regex(r"\s{0,8}:(?!:)")
_CLOSED = regex(r"\s{0,8}[)\]]")
_ENDED = regex(r"[ \t]{0,8}(?:[,;:)\]}\n]|$)")
_NESTED = regex(r"(?:(?:^|,)[\w.]{0,64}=)?[\w.]{0,64}\($|,[\w.]{0,64}=$")
_LITERAL_OR_COMMENT = regex(r"[\"'#]")
_HEADER = regex(r"[A-Za-z-]{1,64}")
_FIELDS = regex(r"%(?:\(\w{1,32}\))?[srdi]|\{[^{}]{0,128}\}")
_CONSTANT = regex(r"[A-Z]{1,32}(?:_[A-Z]{1,32}){1,8}")
# As gdb shows a char *: 0x55d0c0ffee00 "text", 0x55d0c0ffee00 <symbol> "text", name@entry=0x55d0c0ffee00 "text".
_ADDRESS = regex(r"0x[0-9a-fA-F]{5,16}")
_POINTER = regex(r"(?:\w{1,128}@entry=)?0x[0-9a-fA-F]{1,16}[ \t](?:<[^<>\n]{1,256}>[ \t])?(?=(?:u8|[uUL])?\")")
_LONG_NUMBER = regex(r"[0-9]{4,}\b(?!\.)")

_NUMBER = regex(r"[-+]?(?:0x[0-9a-fA-F]+|[0-9][0-9_]*(?:\.[0-9]*)?(?:[eE][-+]?[0-9]+)?)[jL]?")
_WORDS = frozenset("none null nil true false yes no on off undefined nan inf str int float bool bytes object optional any ellipsis".split())
_PLACEHOLDER = regex(
    r"(?:(?:bearer|basic|token|digest)[ \t]{1,8})?"
    r"(?:[*•x.#_-]*|<[^<>]{0,64}>?|\[[A-Za-z _-]{0,32}\]|\{[^{}]{0,128}\}|\$\w{1,64}|\$\{[^{}]{0,128}\}|%\(?\w{0,32}\)?s)(?:\.{3})?",
    re.IGNORECASE,
)
_MIXED = regex(r"(?=[^0-9]{0,256}[0-9])(?=[^A-Za-z]{0,256}[A-Za-z])")
_OPTION = regex(r"--?[A-Za-z][\w-]{0,128}")
_PAIR = regex(r"[^\s:]{1,128}:(?![0-9]{1,6}$).+", re.DOTALL)
_PARTS = regex(r"[\s;]+(?:[\w-]{1,64}=)?|(?<!=)=(?!=|$)")
_JOINED_USER = regex(r"(?P<option>-u|--(?:proxy-)?user=)(?P<user>[^\s:=]{1,128}):(?P<secret>(?![0-9]{1,6}$).+)", re.DOTALL)
_NO_COMMAND = Command(frozenset(), ())
_USER_OPTIONS = frozenset(("-u", "-U", "--user", "--proxy-user"))


class Secrets:
    """Masks texts, and remembers what it masked, so that the same secret can be found where nothing names it."""

    def __init__(self) -> None:
        self.found: set[str] = set()
        """Those that are most likely secret wherever they stand."""
        self.hidden: set[str] = set()
        """All that were masked."""

    def text(self, text: str, source: bool = False) -> str:
        """A text of any kind, such as a log; `source`: lines of a program. Line breaks stay."""
        shapes, names = rules().fitting(text)
        text = self._shapes(text, shapes)
        return self._named(text, source) if names else text

    def by_shape(self, text: str) -> str:
        """A text of any kind, but only for secrets that need no name."""
        return self._shapes(text, rules().fitting(text)[0])

    def value(self, name: str, shown: str) -> str:
        """The repr of a variable of this name."""
        sure = kind(name)
        if sure is None:
            return self.text(shown)
        return self._value(self._shapes(shown, rules().fitting(shown)[0]), sure, name)

    def variable(self, name: str, value: str) -> str:
        """A text of this name that is not a repr, such as an environment variable."""
        sure = kind(name)
        if sure is not None and self._is_secret(value, sure, name, bare=True):
            return self._hide(value)
        return self.text(value)

    def environment(self, variables: Mapping[str, str]) -> dict[str, str]:
        """Environment variables; the names stay."""
        return {name: self.variable(name, value) for name, value in variables.items()}

    def arguments(self, arguments: Sequence[str]) -> list[str]:
        """A command line."""
        clean: list[str] = []
        before = ""
        command = _NO_COMMAND
        for argument in arguments:
            option = before if _OPTION.fullmatch(before) else ""
            sure = kind(option) if option else None
            joined = next((name for name in command.joined if argument.startswith(name) and argument != name), None)
            if option in command.apart and not argument.startswith("-"):
                clean.append(self._hide(argument))
                command = _NO_COMMAND  # What sshpass starts has options of its own.
            elif joined is not None and not argument.startswith("--"):
                clean.append(joined + self._hide(argument[len(joined) :]))
                command = _NO_COMMAND
            elif sure is not None and not argument.startswith("--") and self._is_secret(argument, sure, option, bare=True):
                clean.append(self._hide(argument))
            elif option in _USER_OPTIONS and _PAIR.fullmatch(argument):
                user, _, password = argument.partition(":")
                clean.append(f"{user}:{self._hide(password)}")
            elif (own := _JOINED_USER.fullmatch(argument)) is not None:
                clean.append(f"{own['option']}{own['user']}:{self._hide(own['secret'])}")
            else:
                clean.append(self.text(argument))
            before = argument
            # Also behind what starts it: sudo, timeout, env.
            command = rules().commands.get(argument.rpartition("/")[2], command)
        return clean

    def repeated(self, text: str) -> str:
        """The text without the secrets found so far, named or not."""
        return self.repetitions()(text) if self.found else text

    def repetitions(self) -> Callable[[str], str]:
        """Masks the secrets found so far, of which there must be one, in any text."""
        from ahocorasick_rs import AhoCorasick, MatchKind  # not at the start of `crashkit run`: it costs time there

        find = AhoCorasick(sorted(self.found), matchkind=MatchKind.LeftmostLongest)

        def masked(text: str) -> str:
            parts: list[str] = []
            done = 0
            for _, start, end in matches(find, text):
                parts += (text[done:start], MASK)
                done = end
            return "".join((*parts, text[done:])) if parts else text

        return masked

    # Shapes

    def _shapes(self, text: str, shapes: Iterable[Shape]) -> str:
        for shape in shapes:
            text = shape.pattern.sub(self._shape, text)
        return text

    def _shape(self, match: re.Match[str]) -> str:
        group = "secret" if match.re.groups and match["secret"] is not None else 0
        start, end = match.start(group) - match.start(), match.end(group) - match.start()
        whole, secret = match[0], match[group]
        if _PLACEHOLDER.fullmatch(secret):
            return whole
        return whole[:start] + self._hide(secret) + whole[end:]

    # Names

    def _named(self, text: str, source: bool) -> str:
        parts: list[str] = []
        done = at = 0
        while match := _NAMED.search(text, at):
            at = match.end()
            sure = self._kind_at(text, match)
            if sure is None:
                at = match.end("name")
                continue
            end, masked = self._after(text, match, sure, source)
            if masked is None:
                at = max(match.end("name"), end)
                continue
            parts += (text[done : match.end()], masked)
            done = at = max(end, match.end())
        return "".join((*parts, text[done:])) if parts else text

    def _kind_at(self, text: str, match: re.Match[str]) -> Optional[str]:
        name = match["name"]
        sure = kind(name)
        if sure is None and text[match.start() - 1 : match.start()] == "\\" and name[0] in "nrtbf":
            sure = kind(name[1:])  # \n in a repr
        sep, option = match["sep"], name.startswith("-")
        if sure is None or (sep.isspace() and not (option and match["close"] == "")):
            return None
        return sure if sep != "," or option or self._is_pair(text, match) else None

    def _is_pair(self, text: str, match: re.Match[str]) -> bool:
        """("name", "value") and ["name", "value"], but not a list of names."""
        literal = self._literal(text, match.end())
        if literal is None or match["close"].endswith("]") or not match["close"]:
            return False
        before = text[max(0, match.start() - 8) : match.start()].rstrip("'\"\\bBrRuUfF").rstrip()
        return before.endswith(("(", "[")) and bool(_CLOSED.match(text, literal[2]))

    def _after(self, text: str, match: re.Match[str], sure: str, source: bool) -> tuple[int, Optional[str]]:
        """Where the value of a name ends, and the value masked; None if there is nothing to mask."""
        at, name = match.end(), match["name"]
        shift = ""
        if source and match["sep"] == ":" and not match["close"] and (annotated := _ANNOTATION.match(text, at)):
            shift, at = annotated[0], annotated.end()
        if pointer := _POINTER.match(text, at):
            shift, at = shift + pointer[0], pointer.end()
        if self._ends_literal(text, at):
            return at, None
        if self._literal(text, at) is not None:
            end, masked = self._literals(text, at, sure, name)
            return end, None if masked is None else shift + masked
        if text[at : at + 1] in ("(", "[", "{"):
            end, masked = self._leaves(text, at, sure, name)
            return end, shift + masked
        if (call := _CALL.match(text, at)) and (not source or self._constructs(call["name"], sure)):
            end, masked = self._leaves(text, call.end() - 1, sure, name)
            return end, shift + call[0][:-1] + masked
        if source and self._around(text, at) is None:
            return self._expression(text, at, sure, shift)
        return self._bare(text, match, sure)

    @staticmethod
    def _constructs(name: str, sure: str) -> bool:
        return name[0].isupper() and (sure != WEAK or last_word(name) in rules().names.calls)

    def _around(self, text: str, place: int) -> Optional[int]:
        """Where the string literal or the comment around this place ends, as far as its own line shows; None if there is none."""
        at = max(text.rfind("\n", 0, place) + 1, place - _LINE_BEFORE)
        while found := _LITERAL_OR_COMMENT.search(text, at, place):
            literal = self._literal(text, found.start())
            if literal is None:
                return len(text)  # a comment
            if literal[1] >= place:
                return literal[1]
            at = literal[2]
        return None

    def _ends_literal(self, text: str, at: int) -> bool:
        """Whether a quote here ends a literal that asks for a secret: "Password: "."""
        return text[at : at + 1] in ("'", '"') and bool(_ENDED.match(text, at + 1)) and self._around(text, at) == at

    def _expression(self, text: str, at: int, sure: str, shift: str) -> tuple[int, Optional[str]]:
        """In source: numbers, and what stands in for a missing value (`x = f() or "..."`)."""
        if sure in (CERTAIN, NUMBER) and (number := _LONG_NUMBER.match(text, at)):
            return number.end(), shift + self._hide(number[0])
        stop = text.find("\n", at, at + _EXPRESSION)
        stop = min(len(text), at + _EXPRESSION) if stop < 0 else stop
        found = _ALTERNATIVE.search(text, at, stop)
        if found is None:
            return at, None
        end, masked = self._literals(text, found.end(), sure, "")
        return end, None if masked is None else shift + text[at : found.end()] + masked

    def _bare(self, text: str, match: re.Match[str], sure: str) -> tuple[int, Optional[str]]:
        """In a log, a value without quotes."""
        at, name, sep = match.end(), match["name"], match["sep"]
        if sep == ":" and last_word(name) in rules().names.headers and not match["close"]:
            return self._header(text, match)
        found = _BARE.match(text, at)
        if found is None or sep in ("==", "!="):
            return at, None
        # What follows it in a list or a sentence is not of it; what a placeholder ends with is.
        value = found[0].rstrip(",." if found[0].startswith(("<", "$", "%")) else ",.)]}>")
        if nested := _NESTED.search(value, max(0, len(value) - 200)):
            value = value[: nested.start()]  # the next name, or a call
        end = at + len(value)
        if sure == WEAK and sep == ":" and not _MIXED.match(value):
            return end, None  # prose, such as "unexpected token: name"
        loose = sep == "=" or sep.isspace()
        return end, self._hide(value) if self._is_secret(value, sure, name, bare=loose) else None

    def _header(self, text: str, match: re.Match[str]) -> tuple[int, Optional[str]]:
        found = _LINE.match(text, match.end())
        if found is None:
            return match.end(), None
        quote = text[match.start() - 1 : match.start()]
        value = found[0].split(quote, 1)[0] if quote in ("'", '"') else found[0]
        value = value.rstrip("'\" \t,)}]")
        return match.end() + len(value), self._hide(value) if self._is_secret(value, CERTAIN, "") else None

    # Reprs

    def _value(self, shown: str, sure: str, name: str) -> str:
        """A whole repr: its strings, or itself where it is one without quotes."""
        if "'" in shown or '"' in shown:
            return self._leaves(shown, 0, sure, name, whole=True)[1]
        if sure in (CERTAIN, NUMBER) and _LONG_NUMBER.fullmatch(shown):
            return self._hide(shown)
        looks_like_object = shown[-1:] in (">", ")", "]", "}") or shown.startswith(("<", "0x", "{", "[", "("))
        if looks_like_object or _NUMBER.fullmatch(shown) or not self._is_secret(shown, sure, name):
            return self.text(shown)
        return self._hide(shown)

    def _leaves(self, text: str, at: int, sure: str, name: str, whole: bool = False) -> tuple[int, str]:
        """From an opening bracket to its end, or the whole text, with every string masked that is not a key."""
        parts: list[str] = []
        done, depth, limit = at, 0, len(text) if whole else min(len(text), at + _WIDEST)
        while token := _TOKENS.search(text, at, limit):
            at = token.end()
            if token[0] in ("(", "[", "{"):
                depth += 1
                continue
            if token[0] in (")", "]", "}"):
                depth -= 1
                if depth <= 0 and not whole:
                    return at, "".join((*parts, text[done:at]))
                continue
            start, stop, at = self._literal(text, token.start()) or (at, at, at)
            is_key = depth > 0 and _KEY.match(text, at)
            if not is_key and self._is_secret(text[start:stop], sure, name, within=depth > 0):
                parts += (text[done:start], self._hide(text[start:stop]))
                done = stop
        end = max(at, limit)
        return end, "".join((*parts, text[done:end]))

    def _literals(self, text: str, at: int, sure: str, name: str) -> tuple[int, Optional[str]]:
        """A string literal and those that continue it."""
        parts: list[str] = []
        done = at
        while literal := self._literal(text, at):
            start, stop, at = literal
            if self._is_secret(text[start:stop], sure, name):
                parts += (text[done:start], self._hide(text[start:stop]))
                done = stop
            continued = _CONTINUED.match(text, at)
            if continued is None:
                break
            at = continued.end()
        return at, "".join((*parts, text[done:at])) if parts else None

    @staticmethod
    def _literal(text: str, at: int) -> Optional[tuple[int, int, int]]:
        """Start and end of the contents of the string literal that begins here, and the end of the literal."""
        opened = _QUOTE.match(text, at)
        if opened is None:
            return None
        quote, start = opened["quote"], opened.end()
        if quote in _UNTIL:
            body = _UNTIL[quote].match(text, start)
            stop = body.end() if body else start
            return start, stop, stop + 1 if text.startswith(quote, stop) else stop
        stop = text.find(quote, start)
        # Cut off: a repr is of limited length.
        return (start, len(text), len(text)) if stop < 0 else (start, stop, stop + len(quote))

    # What is secret

    def _is_secret(self, value: str, sure: str, name: str, bare: bool = False, within: bool = False) -> bool:
        """Whether a text that a name of this kind has is a secret. `bare`: without quotes; `within`: in a list or the like."""
        plain = value.strip()
        if not plain or plain.lower() in _WORDS or _PLACEHOLDER.fullmatch(plain) or plain.startswith(MASK):
            return False
        if len(plain) <= _SEPARATOR and not any(map(str.isalnum, plain)):
            return False  # ":".join(...)
        if not any(map(str.isalnum, _FIELDS.sub("", plain))) and _FIELDS.search(plain):
            return False  # "%s:%s" % ...
        if _ADDRESS.fullmatch(plain):
            return False
        if last_word(name) in rules().names.paths and plain.startswith(("/", "~")):
            return False
        if sure == NUMBER:
            return bool(_LONG_NUMBER.fullmatch(plain))
        if sure == CERTAIN:
            return True
        if last_word(plain) in rules().names.headers and _HEADER.fullmatch(plain):
            return False  # header = "Authorization"
        if _NUMBER.fullmatch(plain) or _CONSTANT.fullmatch(plain):
            return False
        if sure != WEAK or bare or within:
            return True
        least = _LEAST_REPEATED if _MIXED.match(plain) else _LEAST_WEAK
        return len(plain) >= least and not any(map(str.isspace, plain))

    def _hide(self, secret: str) -> str:
        self.hidden.add(secret)
        if len(secret) <= _LONGEST_REPEATED:
            # `Bearer x` and `id=x; theme=y` stand elsewhere as x alone.
            self.found.update(part for part in (secret, *_PARTS.split(secret, 32)) if is_telling(part))
        # The lines of a file are counted: those of a key stay, empty.
        return MASK + "\n" * secret.count("\n")


def is_telling(secret: str) -> bool:
    """Whether this text, wherever it stands, is most likely the secret: no ordinary word, path or number."""
    if (
        len(secret) < _LEAST_REPEATED
        or not secret.isprintable()
        or any(map(str.isspace, secret))
        or secret.startswith("/")
        or MASK in secret
    ):
        return False
    return bool(_MIXED.match(secret)) or len(secret) >= 2 * _LEAST_WEAK


def of_environment(variables: Mapping[str, str]) -> Iterable[str]:
    """The secrets in an environment that may stand elsewhere, too."""
    secrets = Secrets()
    secrets.environment(variables)
    return secrets.found
