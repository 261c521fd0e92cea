"""Secrets go, and what only looks like one stays readable."""

from __future__ import annotations

import re
import time
from collections.abc import Callable

import pytest

from crashkit.secrets.rules import kind, rules
from crashkit.secrets.text import MASK, Secrets, is_telling
from tests.secrets import texts


@pytest.mark.parametrize("line", texts.LOGS)
def test_a_secret_of_a_log_goes(line: str) -> None:
    masked = Secrets().text(f"before {line} after")
    assert texts.LOGS[line] not in masked and MASK in masked
    assert masked.startswith("before ") and masked.count("\n") == line.count("\n")


@pytest.mark.parametrize("line", texts.MASKED, ids=range(len(texts.MASKED)))
def test_what_stands_around_a_secret_stays(line: str) -> None:
    assert Secrets().text(line) == texts.MASKED[line]


@pytest.mark.parametrize("line", texts.SOURCE)
def test_a_secret_of_source_goes_and_the_line_stays_readable(line: str) -> None:
    assert Secrets().text(line, source=True).replace("\n", "") == texts.SOURCE[line]


@pytest.mark.parametrize("value", texts.VALUES, ids=lambda value: value.name)
def test_a_secret_value_goes(value: texts.Value) -> None:
    assert Secrets().value(*value) == texts.VALUES[value]


@pytest.mark.parametrize("line", texts.ORDINARY_LOGS)
def test_an_ordinary_line_stays(line: str) -> None:
    assert Secrets().text(line) == line


@pytest.mark.parametrize("line", texts.ORDINARY_SOURCE)
def test_ordinary_source_stays(line: str) -> None:
    assert Secrets().text(line, source=True) == line


@pytest.mark.parametrize("value", texts.ORDINARY_VALUES, ids=lambda value: value.name)
def test_an_ordinary_value_stays(value: texts.Value) -> None:
    assert Secrets().value(*value) == value.shown


@pytest.mark.parametrize("line", [*texts.LOGS, *texts.ORDINARY_LOGS])
def test_masking_again_changes_nothing(line: str) -> None:
    once = Secrets().text(line)
    assert Secrets().text(once) == once


def test_arguments() -> None:
    line = "x --token hush --password=hush -u me:hush -u 1000:1000 --port 80 DB_PASS=hush --secret --v"
    masked = f"x --token {MASK} --password={MASK} -u me:{MASK} -u 1000:1000 --port 80 DB_PASS={MASK} --secret --v"
    assert " ".join(Secrets().arguments(line.split())) == masked


@pytest.mark.parametrize(
    "line",
    [
        "sshpass -p {} ssh -p 22 host",
        "/usr/bin/sshpass -p{} ssh host",
        "sudo mysql -u root -p{} shop",
        "mysqldump --passwd={} shop",
        "redis-cli -h cache -a {} ping",
        "curl -u me:{} https://host/",
        "curl -ume:{} https://host/",
        "curl --user=me:{} https://host/",
        "mongosh -u me -p {} host",
        "ldapsearch -x -w {} cn=me",
        "7z x -p{} a.7z",
        "unzip -P {} a.zip",
    ],
)
def test_passwords_in_options_whose_names_do_not_tell(line: str) -> None:
    """As arguments, and as the one text that a shell was given."""
    assert " ".join(Secrets().arguments(line.format("Tr0ub4dor").split())) == line.format(MASK)
    if not line.startswith(("ldapsearch", "7z", "unzip")):
        assert "Tr0ub4dor" not in Secrets().text(f"bash -c '{line.format('Tr0ub4dor')}'")


@pytest.mark.parametrize(
    "line", ["ssh -p 22 host", "mysql -P 3306 -p shop", "python -p train", "tar -a -p x", "redis-cli -p 6379", "mkdir -p deep"]
)
def test_other_programs_use_these_options_for_something_else(line: str) -> None:
    assert " ".join(Secrets().arguments(line.split())) == line
    assert Secrets().text(line) == line


def test_a_password_with_a_colon() -> None:
    assert Secrets().arguments(["curl", "-u", "me:hush:hush2"]) == ["curl", "-u", f"me:{MASK}"]


def test_a_number_is_secret_by_its_name_and_a_word_of_this_name_is_not() -> None:
    assert Secrets().arguments(["--pin", "4711", "--pin", "left"]) == ["--pin", MASK, "--pin", "left"]
    assert Secrets().environment({"PIN": "left", "PIN_CODE": "4711"}) == {"PIN": "left", "PIN_CODE": MASK}


def test_a_whole_value_is_masked_however_long_it_is() -> None:
    assert Secrets().value("secrets", repr(["hunter2"] * 4000)) == repr([MASK] * 4000)


def test_an_environment_keeps_its_names() -> None:
    variables = {"NCCL_PASS": "hush", "NCCL_DEBUG": "INFO", "TORCH_TOKEN": "hush", "OMP_X": "http://a:hush@b", "PWD": "/srv"}
    clean = {"NCCL_PASS": MASK, "NCCL_DEBUG": "INFO", "TORCH_TOKEN": MASK, "OMP_X": f"http://a:{MASK}@b", "PWD": "/srv"}
    assert Secrets().environment(variables) == clean


def test_a_secret_goes_wherever_it_stands_again() -> None:
    secrets = Secrets()
    secrets.value("password", "'hunter2'")
    secrets.text("Authorization: Bearer Zk3hunterZk3")
    assert secrets.repeated("login failed for me/hunter2, Zk3hunterZk3") == f"login failed for me/{MASK}, {MASK}"


def test_bytes_that_are_no_text() -> None:
    secrets = Secrets()
    assert secrets.text("\udc80 password=hunter2\udc81 \udc82") == f"\udc80 password={MASK} \udc82"
    assert secrets.value("password", "'Zk3hunter2'") == f"'{MASK}'"
    assert secrets.repeated("\udc80 Zk3hunter2 \udc81") == f"\udc80 {MASK} \udc81"


@pytest.mark.parametrize(
    "word", ["postgres", "root", "secret", "12345678", "/srv/model.v2", "two words 2", "a1b2c", "ab1", "abcdefghijklmno", "a1b2c3\x00"]
)
def test_an_ordinary_word_stays_elsewhere_though_it_is_a_password(word: str) -> None:
    assert not is_telling(word)


@pytest.mark.parametrize("word", ["a1b2c3", "abcdefghijklmnop"])
def test_a_word_of_letters_and_digits_or_a_long_one_goes(word: str) -> None:
    assert is_telling(word)


def test_of_two_secrets_at_one_place_the_longer_one_goes() -> None:
    secrets = Secrets()
    secrets.text("password=hunter2 password=hunter2xyz99")
    assert secrets.repeated("a hunter2xyz99 and hunter2.") == f"a {MASK} and {MASK}."


def test_a_secret_goes_where_it_stands_with_others() -> None:
    secrets = Secrets()
    secrets.text("Cookie: a=hunter2; theme=dark; id=Zk3hunterZk3")
    assert secrets.repeated("a hunter2, Zk3hunterZk3, theme, dark") == f"a {MASK}, {MASK}, theme, dark"


@pytest.mark.parametrize(
    ("name", "sure"),
    [
        ("password", "certain"), ("db_password2", "certain"), ("userPassword", "certain"), ("password_file", None), ("api_key", "strong"),
        ("APIKey", "strong"), ("x-api-key", "strong"), ("access_key_id", None), ("secret_value", "strong"), ("client_secret", "strong"),
        ("token", "weak"), ("eos_token", None), ("tokens", None), ("pass", "weak"), ("bypass", None), ("pin_code", "number"), ("key", None),
        ("", None), ("___", None),
    ],
)  # fmt: skip
def test_names(name: str, sure: str | None) -> None:
    assert kind(name) == sure


# Long lines

PIECES = [
    "password", "password=", "password='", "password=\\'", "token: ", "a", "\\", "'", '"', "password=(", "auth=[", "://", "a://", "a://b:",
    "a://a@b:", "eyJ", "eyJa.", "-----BEGIN PRIVATE KEY-----", "-----BEGIN ", "sk-", "ghp_", "bearer ", "basic ", "--pass ", "-u a:", "-u ",
    "login a password ", "xox", "0", "12345678:AA", "_", "-", "pass_", "aA1", "password: str", "password: a.b.", 'token or "a" else ',
    "password = x or ", "?sig=", "{", "password={'a':", "('password', ", "['password', 'a'", "\\n", "\\x00", " ", "\t", "password \t",
    "cookie: a'", "Cookie:", "SG.", "sk-a", "x ", "password=\"a\" ", "# password: a ", "password=\n", "password=$",
]  # fmt: skip
STARTS = ["password='", "password=", "cookie: ", "password=(", "a://b:", "Bearer ", "password=SecretStr(", "password: a.", "-u a:"]


LINES = [("", piece) for piece in PIECES] + [(start, piece) for start in STARTS for piece in "a'(. \\:-1@="]


@pytest.mark.slow
@pytest.mark.parametrize("number", range(4))
def test_a_long_line_takes_no_longer_than_its_length(number: int) -> None:
    """64 KB of anything take some four times as long as 16 KB; what is quadratic takes sixteen times."""
    for start, piece in LINES[number::4]:
        for mask in (Secrets().text, lambda text: Secrets().text(text, source=True), lambda text: Secrets().value("password", text)):
            short, long = (_seconds(mask, (start + piece * size)[:size]) for size in (16384, 65536))
            assert long < max(0.3, 9 * short), (start, piece)


def _seconds(mask: Callable[[str], str], line: str) -> float:
    began = time.process_time()
    mask(line)
    return time.process_time() - began


def test_the_rules_as_they_are_read() -> None:
    """Each word of a name that is a secret has a hint in it; none is looked for in vain, and a shape begins with a word."""
    read = rules.__wrapped__()
    assert read.names == rules().names and [shape.name for shape in read.shapes] == [shape.name for shape in rules().shapes]
    hints = read.names.hints
    assert not [(one, other) for one in hints for other in hints if one != other and one in other]
    for name in ("password", "passwd", "api_key", "AWS_SECRET_ACCESS_KEY", "hf_token", "cookie", "pin_code", "sid", "dsn", "seed_phrase"):
        assert kind(name) and any(hint in name.lower() for hint in hints), name
    github = next(shape.pattern for shape in read.shapes if shape.name == "github")
    bearer = next(shape.pattern for shape in read.shapes if shape.name == "bearer")
    token = "ghp_Ab12Cd34Ef56Gh78Ij90Kl12Mn34Op56Qr78"
    assert github.search(f"x={token}") and not github.search(f"x{token}") and not github.search(token.upper())
    assert bearer.search("a BEARER Zk3hunterZk3x") and not bearer.search("forbearer Zk3hunterZk3x")


def test_every_repetition_of_a_shape_is_bounded() -> None:
    for shape in rules().shapes:
        plain = re.sub(r"\\.|\[(?:\\.|[^\]\\])*\]", "x", shape.pattern.pattern)
        assert not re.search(r"[*+]|,\}", plain), shape.name


def test_every_shape_has_a_source_and_needs_what_it_contains() -> None:
    everything = "\n".join(texts.LOGS)
    for shape in rules().shapes:
        assert shape.source.startswith("https://")
        found = [match[0].lower() for match in shape.pattern.finditer(everything)]
        assert found, f"no example of {shape.name}"
        assert all(any(word in text for word in shape.contains) for text in found)
