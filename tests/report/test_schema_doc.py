from pathlib import Path

import msgspec

from tests.report import schema_doc

DOCUMENT = Path(__file__).parents[2] / "docs" / "report-schema.md"


def test_the_schema_document_is_that_of_the_model() -> None:
    assert DOCUMENT.read_text(encoding="utf-8") == schema_doc.document(), (
        "docs/report-schema.md is stale: python -m tests.report.schema_doc > docs/report-schema.md"
    )


def test_every_meaning_is_of_a_field_that_exists() -> None:
    fields = {f"{struct.__name__}.{field.name}" for struct in schema_doc.structs() for field in msgspec.structs.fields(struct)}
    assert set(schema_doc.MEANING) <= fields


def test_every_field_has_a_row() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    for struct in schema_doc.structs():
        section = text.split("## The document" if struct.__name__ == "Crash" else f"## {struct.__name__}\n", 1)[1].split("\n## ", 1)[0]
        assert section.count("\n| `") == len(msgspec.structs.fields(struct))
