"""A code with which Windows ends a process is known in whatever notation it stands."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from crashkit.evidence.text import windows_codes
from crashkit.evidence.text.log_patterns import Classifier

CODES = msgspec.toml.decode(Path(windows_codes.__file__).with_name("windows_codes.toml").read_bytes())["code"]
NOTATIONS = (
    "Process finished with exit code {signed}",
    "Process finished with exit code {signed} (0x{upper})",
    "the exit status was {unsigned}.",
    "exited with code {unsigned} after 3 s",
    '{{"exitCode": {unsigned}}}',
    "returncode={unsigned}",
    "CreateProcess returned {unsigned}",
    "the exit code of the worker: rc={unsigned}",
    "进程已退出，代码为 {unsigned}。",
    "{unsigned}",
    "exit code: 0x{lower}",
    "Exception code: 0x{lower}",
    "Ausnahmecode: 0x{upper}",
    "异常代码: 0x{lower}",
    "  Exception Code:\t{lower}",
    "ExceptionCode: {lower} (some words)",
    "Sig[6].Value={lower}",
    "P7: {lower}",
    "(1234.5678): Some words - code {lower} (first chance)",
    "FAILURE_BUCKET_ID:  INVALID_POINTER_READ_{lower}_foo.dll!bar",
    "Exception thrown at 0x00007FFB0B5E1234 (foo.pyd) in python.exe: 0x{upper}: some words",
)


@pytest.fixture(scope="module")
def classifier() -> Classifier:
    return Classifier()


@pytest.mark.parametrize("code", CODES, ids=lambda code: f"{code['value']:08x}")
def test_each_notation(code: dict[str, object], classifier: Classifier) -> None:
    value = code["value"]
    assert isinstance(value, int)
    signed = value - (1 << 32) if value >> 31 else value
    for notation in NOTATIONS:
        text = notation.format(signed=signed, unsigned=value, upper=f"{value:08X}", lower=f"{value:08x}")
        found = classifier.classify(text.replace("\t", "    "))
        assert found is not None and found[0] == code["kind"], text
        assert found[1].get("signal") == code.get("signal"), text


@pytest.mark.parametrize(
    "text",
    [
        "the address 0xC00000051234 was allocated",
        "loaded at 0xC0000005F",
        "sequence 32212254770 of 3221225477123",
        "ratio 0.3221225477",
        "commit c0000005 of the library",
        "hash c00000fdab12",
        "object 9c0000374 was freed",
        "3221225477.25 rows",
        "   0x80000003 0x00: eax=0x37692029 ebx=0x00000000",
        "HRESULT: 0x80000003",
        "error of HRESULT 0x80000003",
        "processed 2147483651 tokens",
        "wrote 1073741845 bytes",
        "status: 1073741845 bytes written",
        "id 3221225725 stored",
        "exit is clean; id 3221225725 stored",
        "mapped 0xc0000008",
        "write to 0xC0000006",
        "window flags 0x40000015",
    ],
)
def test_what_is_no_code(text: str, classifier: Classifier) -> None:
    assert classifier.classify(text) is None


def test_the_report_of_java_is_its_own(classifier: Classifier) -> None:
    found = classifier.classify("#  EXCEPTION_ACCESS_VIOLATION (0xc0000005) at pc=0x00007ffb12345678, pid=12, tid=34")
    assert found is not None and found[0] == "jvm-fatal"
