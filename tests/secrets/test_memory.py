"""Memory: each secret that the report masks goes, in every form in which a process may keep it; ordinary words stay."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from crashkit.secrets.memory import SecretBytes, zeroed

WORD = "correcthorse77battery"
LONG = "x1" * 50
"""A report may have cut one of a hundred characters."""
KEY_LINES = tuple(f"{number:032x}" for number in range(1, 6))
KEY = "\n".join(("-----BEGIN RSA PRIVATE KEY-----", *KEY_LINES, "short", "-----END RSA PRIVATE KEY-----"))
TOKEN = "ghp_" + "4D3c2B1a" * 4 + "abcd"


def clean(memory: bytes, hidden: Iterable[str], shown: Iterable[str] = ()) -> bytes:
    known = SecretBytes(hidden, tuple(shown))
    places = known.places(memory)
    assert places == sorted(places)
    assert all(end - start <= known.longest for start, end in places if end - start < 100), (
        "else what reads a piece reads too little around it"
    )
    return zeroed(memory, places)


@pytest.mark.parametrize("code", ["utf-8", "latin-1", "utf-16-le", "utf-32-le"])
@pytest.mark.parametrize("secret", [WORD, WORD + "\xe9", "wor", "w\xf6r"], ids=["long", "accented", "short", "short and accented"])
def test_a_secret_goes_in_each_encoding(secret: str, code: str) -> None:
    kept = secret.encode(code)
    assert clean(b"\0" + kept + b"\0text", {secret}) == bytes(len(kept) + 2) + b"text"


@pytest.mark.parametrize(("hidden", "memory"), [("k\udc81p", b"k\x81p"), (LONG + "\udc81", LONG.encode() + b"\x81")], ids=["short", "long"])
def test_a_secret_that_is_not_unicode_goes(hidden: str, memory: bytes) -> None:
    assert not any(clean(b"\0" + memory + b"\0", {hidden}))


@pytest.mark.parametrize("shown", ["k\\ud800p", "\\ud800" + LONG], ids=["short", "long"])
def test_a_surrogate_of_its_own_goes_as_python_keeps_it(shown: str) -> None:
    memory = shown.replace("\\ud800", "\ud800").encode("utf-16-le", "surrogatepass")
    assert not any(clean(memory, {shown}))


@pytest.mark.parametrize(
    ("memory", "stays"),
    [
        (b"\0word\0", False), (b"word\0", False), (b"\x1fword\0", False), (b"A=word\0", False), (b"\0word\0word\0", False),
        (b"sword\0", True), (b"a word\0", True), (b"<word\0", True), (b">word\0", True), (b"~word\0", True), (b"\xc3word\0", True),
        (b"\0words\0", True), (b"\0word ", True), (b"\0word", True), (b"\0w.rd\0", True),
    ],
)  # fmt: skip
def test_an_ordinary_word_goes_where_it_is_a_whole_string_or_the_value_of_a_variable(memory: bytes, stays: bool) -> None:
    assert (clean(memory, {"word"}) == memory) is stays
    assert (b"word" in clean(memory, {"word"})) is (stays and b"word" in memory)


def test_names_of_two_characters_and_what_the_report_shows_stay() -> None:
    memory = b"\0ab\0word\0sesame\0"
    assert clean(memory, {"ab", "word", "sesame"}, shown=["in word (app.py:3)"]) == b"\0ab\0word\0" + bytes(7)
    assert clean(b"\0" + WORD.encode() + b"\0", {WORD}, shown=[f"a {WORD}"]) == bytes(len(WORD) + 2), "nothing else is called that"
    assert clean(b"\0ses\0ame\0sesame\0", {"sesame"}, shown=["ses", "ame"]) == b"\0ses\0ame\0" + bytes(7), "two texts are not one"


def test_a_dot_is_a_dot() -> None:
    assert clean(b"\0w.rd\0word\0", {"w.rd"}) == bytes(6) + b"word\0"


@pytest.mark.parametrize(
    ("shown", "kept"),
    [
        ("it\\'s " + WORD, "it's " + WORD), ('say "' + WORD, 'say "' + WORD), ('say \\"' + WORD, 'say "' + WORD),
        ('say\\\\"' + WORD, 'say\\"' + WORD), ("a\\\\b" + WORD, "a\\b" + WORD), ("\\u4e2d9" + WORD, "\u4e2d9" + WORD),
        ("a\\nline", "a\nline"), (WORD + "\\x4", WORD + "\\x4"),
        ("two\\nlines\\", "two\nlines"), ("two\\nlines\\u4e2", "two\nlines"), ("two\\nlines\\\\\\", "two\nlines\\"),
    ],
    ids=str.split("apostrophe quote escaped-quote backslash-and-quote backslash character line cut-x cut cut-u cut-after-backslash"),
)  # fmt: skip
def test_a_secret_with_escapes(shown: str, kept: str) -> None:
    for code in ("utf-8", "utf-16-le"):
        assert not any(clean(b"\0" + kept.encode(code) + b"\0", {shown}))


@pytest.mark.parametrize("end", ["…", "...", "(truncated)"])
@pytest.mark.parametrize("rest", ["", "and more of it", " with\ttabs,\nlines\r\nand \xe9"], ids=["nothing", "text", "lines"])
def test_the_rest_of_a_long_secret_that_the_report_has_cut(end: str, rest: str) -> None:
    memory = b"\1" + (LONG + rest).encode() + b"\0tail"
    assert clean(memory, {LONG + end}) == b"\1" + bytes(len(memory) - 6) + b"\0tail"
    known = SecretBytes({LONG + end}, [])
    assert known.has_cut
    known.learn_rest(memory)
    # Elsewhere the rest stands alone, or wide.
    elsewhere = (LONG + rest).encode("utf-16-le")
    assert known.longest >= len(elsewhere)
    assert not any(zeroed(elsewhere, known.places(elsewhere)))


def test_words_are_a_secret_wherever_they_stand_if_they_are_many() -> None:
    words = "word " * 20
    assert clean(b"a " + words.encode() + b"and more\0b", {words}) == b"a " + bytes(len(words) + 9) + b"b"
    assert words[1:].encode() in clean(b"a " + words.encode() + b"and more\0b", {words[1:]})


def test_what_follows_a_shorter_secret_stays() -> None:
    assert clean(WORD.encode() + b" and more\0", {WORD}) == bytes(len(WORD)) + b" and more\0"
    assert clean(bytes(200) + WORD.encode() + b" and more\0", {WORD}).strip(b"\0") == b" and more"
    assert not SecretBytes({WORD, "word"}, []).has_cut
    known = SecretBytes({WORD}, [])
    known.learn_rest(WORD.encode() + b" and more\0")
    assert known.longest == 4 * len(WORD)


def test_the_rest_is_learned_of_each_place() -> None:
    known = SecretBytes({LONG + "…"}, [])
    known.learn_rest(LONG.encode() + b"one\0" + LONG.encode() + b"\xffother\0")
    for rest in (b"one", b"\xffother"):
        wide = (LONG.encode() + rest).decode("utf-8", "surrogateescape").encode("utf-32-le", "surrogatepass")
        assert (0, len(wide)) in known.places(wide)


def test_the_rest_is_learned_up_to_a_limit() -> None:
    """Around each piece of memory that is written, so much is read."""
    known = SecretBytes({LONG + "…"}, [])
    known.learn_rest(LONG.encode() + b"y" * (1 << 17))
    assert known.longest == 4 * (len(LONG) + (1 << 16))


def test_the_lines_of_a_key_go_alone_too() -> None:
    """A key is read from its file line by line."""
    memory = b"\0".join(line.encode() for line in KEY.splitlines())
    for hidden in (KEY, KEY.replace("\n", "\\n")):
        left = clean(memory, {hidden}).split(b"\0")
        assert [line for line in left if line] == [b"-----BEGIN RSA PRIVATE KEY-----", b"short", b"-----END RSA PRIVATE KEY-----"]
        cut = SecretBytes({hidden[:120] + "…"}, [])
        cut.learn_rest(KEY.encode() + b"\0")
        left = zeroed(memory, cut.places(memory)).split(b"\0")
        assert not [line for line in left if line.decode() in KEY_LINES]


@pytest.mark.parametrize(("line", "goes"), [("0123456789abcdef", True), ("0123456789abcde", False), ("one of two lines", True)])
def test_a_line_of_a_secret_goes_alone_if_it_is_long(line: str, goes: bool) -> None:
    assert any(clean(b"\0" + line.encode() + b"\0", {f"{line}\nx"})) is not goes


@pytest.mark.parametrize(
    "where", [b"\1\2token %s\0", b"%s", b'{"a": "%s"}', b"line\n\tindent %s\r\n"], ids=["binary", "alone", "json", "lines"]
)
def test_shapes_need_no_name(where: bytes) -> None:
    memory = where % TOKEN.encode()
    known = SecretBytes(set(), [])
    assert known.places(memory) == [] and known.longest == 0 and not known.has_cut
    known.learn_rest(memory)
    known.learn(b"nothing of that kind in here")
    assert known.places(memory) == [] and known.longest == 0
    known.learn(memory)
    assert zeroed(memory, known.places(memory)) == where % bytes(len(TOKEN))
    wide = TOKEN.encode("utf-32-le")
    assert not any(zeroed(wide, known.places(wide))) and known.longest == len(wide)


def test_what_is_learned_is_added() -> None:
    known = SecretBytes({WORD, "word"}, [])
    known.learn(TOKEN.encode())
    known.learn(b"nothing in here at all")
    memory = b"\0word\0" + TOKEN.encode() + WORD.encode()
    assert not any(zeroed(memory, known.places(memory)))


def test_an_ordinary_word_in_the_shape_of_a_secret_is_not_learned() -> None:
    memory = b"mysql://root:postgres@db:3306/x"
    known = SecretBytes(set(), [])
    known.learn(memory)
    assert known.places(memory) == []


def test_parts_of_it_in_registers() -> None:
    known = SecretBytes({WORD, "word", "A1b2c3"}, [])
    aligned = b"\1" * 4 + b"thorse77" + b"\2" * 8 + WORD.encode()[:8] + b"battery\0" + WORD.encode()[-8:]
    assert zeroed(aligned, known.in_registers(aligned)) == b"\1" * 4 + bytes(8) + b"\2" * 8 + bytes(8) + b"battery\0" + bytes(8)
    assert known.in_registers(b"\1\1" + b"thorse77" + b"\2" * 6) == []
    wide = WORD.encode("utf-16-le")[2:10]
    assert known.in_registers(wide) == [(0, 8)]
    assert SecretBytes({"word"}, []).in_registers(b"word" * 4) == SecretBytes(set(), []).in_registers(bytes(16)) == []


def test_a_secret_reaches_beyond_a_piece() -> None:
    assert zeroed(b"abcdef", [(-9, -5), (-2, 1), (5, 9), (20, 30), (3, 3), (4, 2)]) == b"\0bcde\0"


def test_secrets_at_the_edge_of_a_piece_are_as_wide_as_the_longest() -> None:
    for hidden, longest in (({"word"}, 16), ({WORD}, 4 * len(WORD)), ({"ab"}, 0), (set[str](), 0)):
        assert SecretBytes(hidden, []).longest == longest
