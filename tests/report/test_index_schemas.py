"""SARIF and JUnit against their official schemas, whatever the crashes say. `tests/batch/test_ci.py` does it with real ones."""

from __future__ import annotations

import json

import jsonschema
import pytest
import xmlschema
from msgspec.structs import replace

from crashkit.report.index import junit, sarif
from crashkit.report.index.document import Entry, Group, Index, Past, Place
from tests.report.schemas import check_junit, check_sarif
from tests.report.test_index import EMPTY, HOSTILE, INDEX

BARE = Index(entries=(Entry(number=1),), groups=(Group(key="text::Crash", crashes=(1,)),))
TWICE = Index(
    entries=(HOSTILE, replace(HOSTILE, number=2, test=None, report=None, stack=())),
    groups=(Group(key="2:a", crashes=(1, 2), past=Past(count=3, trend=(0, 1, 2), days=30)),),
)
INDEXES = {"hostile": INDEX, "empty": EMPTY, "bare": BARE, "twice": TWICE}


@pytest.mark.parametrize("index", INDEXES.values(), ids=INDEXES)
def test_sarif(index: Index) -> None:
    check_sarif(sarif.render(index))


@pytest.mark.parametrize("index", INDEXES.values(), ids=INDEXES)
def test_junit(index: Index) -> None:
    check_junit(junit.render(index))


@pytest.mark.parametrize(
    ("entry", "path", "line"),
    [
        (Entry(number=1), "no-file-of-this-repository", 1),
        (Entry(number=1, test="tests/test_a b.py::test_c"), "tests/test_a%20b.py", 1),
        (Entry(number=1, test="../x.py::test_c"), "no-file-of-this-repository", 1),
        (Entry(number=1, test="tests/a.py::b", stack=(Place(file="/b.py"), Place(file="/c.py", path="c.py"))), "c.py", 1),
        (Entry(number=1, stack=(Place(file="/c.py", path="c.py", line=7),)), "c.py", 7),
    ],
)
def test_each_result_has_a_place(entry: Entry, path: str, line: int) -> None:
    """GitHub takes no file with a result that has none, nor one that has only a function."""
    (result,) = json.loads(sarif.render(Index(entries=(entry,), groups=BARE.groups)))["runs"][0]["results"]
    place = result["locations"][0]["physicalLocation"]
    assert (place["artifactLocation"]["uri"], place["region"]["startLine"]) == (path, line)


def test_what_is_wrong_is_noticed() -> None:
    document = json.loads(sarif.render(INDEX))
    document["runs"][0]["results"][0]["ruleIndex"] = "first"
    with pytest.raises(jsonschema.ValidationError):
        check_sarif(json.dumps(document).encode())
    with pytest.raises(xmlschema.XMLSchemaException):
        check_junit(junit.render(INDEX).replace(b"<properties />", b""))
