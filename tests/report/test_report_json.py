import json

import msgspec
import pytest

from crashkit.errors import EvidenceError
from crashkit.model import Address, Crash, ElidedFrames
from crashkit.report.json import decode, encode, schema
from tests.report import samples


@pytest.mark.parametrize("name", sorted(set(samples.ALL) - {"hostile", "gpu_hostile"}))
def test_a_crash_survives_the_round_trip(name: str) -> None:
    crash = samples.ALL[name]()
    assert decode(encode(crash)) == crash


def test_hostile_strings_become_unicode_and_nothing_else_is_lost() -> None:
    document = encode(samples.hostile())
    text = document.decode("utf-8")
    assert text.endswith("}\n") and not text.endswith("\n\n")
    again = decode(document)
    assert again.signal and again.signal.name == samples.HOSTILE.replace("\udc80", "\ufffd")
    assert again.signal.address == Address(2**64 - 1)
    assert encode(again) == document


def test_a_surrogate_pair_is_one_character() -> None:
    assert decode(encode(Crash(id="\ud83d\ude00 \ud83d"))).id == "\U0001f600 \ufffd"


def test_what_is_not_known_stays_out() -> None:
    assert json.loads(encode(Crash())) == {"schema": "crashkit.report/1"}


def test_addresses_are_strings() -> None:
    raw = json.loads(encode(samples.flask_lstm()))
    assert raw["signal"]["address"] == "0x0000000000000010"
    assert raw["threads"][0]["frames"][3]["offset"] == "0x290f40"


def test_a_reader_survives_nulls_unknown_fields_and_unknown_frames() -> None:
    raw = json.loads(encode(samples.flask_lstm()))
    raw["process"]["argv"] = None
    raw["new_field"] = {"of": "a later version"}
    raw["signal"]["reason"] = "a-reason-of-tomorrow"
    raw["threads"][0]["frames"][1] = {"kind": "quantum", "function": "f"}
    crash = decode(json.dumps(raw).encode())
    assert crash.process and crash.process.argv == ()
    assert crash.threads[0].frames[1] == ElidedFrames(count=1)
    assert crash.threads[0].frames[2] == samples.flask_lstm().threads[0].frames[2]


@pytest.mark.parametrize(
    "document",
    [
        b"",
        b"[]",
        b"{}",
        b'{"schema": "crashkit.report/2"}',
        b"\xff\xfe",
        b'{"schema": "crashkit.report/1", "threads": 3}',
        b'{"schema": "crashkit.report/1", "signal": {"number": 1, "name": "x", "address": "zz"}}',
        b"[" * 100_000,
    ],
)
def test_another_document_is_an_expected_error(document: bytes) -> None:
    with pytest.raises(EvidenceError) as caught:
        decode(document)
    assert "\n" not in str(caught.value) and caught.value.hint


def test_the_schema_names_every_field() -> None:
    definitions = schema()["$defs"]
    assert set(definitions["Crash"]["properties"]) == {field.encode_name for field in msgspec.structs.fields(Crash)}
    assert definitions["Signal"]["properties"]["address"]["anyOf"][0]["pattern"] == "^0x[0-9a-f]{16}$"
