"""Holds a document to its official schema (fixtures/schemas); raises what the checker raises."""

from __future__ import annotations

import io
import json
from functools import cache
from pathlib import Path

import jsonschema
import xmlschema

SCHEMAS = Path(__file__).parent.parent.parent / "fixtures" / "schemas"


@cache
def _sarif() -> jsonschema.Draft4Validator:
    schema = json.loads((SCHEMAS / "sarif-schema-2.1.0.json").read_text())
    jsonschema.Draft4Validator.check_schema(schema)
    return jsonschema.Draft4Validator(schema, format_checker=jsonschema.Draft4Validator.FORMAT_CHECKER)


@cache
def _junit() -> xmlschema.XMLSchema:
    return xmlschema.XMLSchema(SCHEMAS / "JUnit.xsd")


def check_sarif(document: bytes) -> None:
    """SARIF 2.1.0 of OASIS. Raises jsonschema.ValidationError."""
    _sarif().validate(json.loads(document))


def check_junit(document: bytes) -> None:
    """The dialect of Ant. Raises xmlschema.XMLSchemaException."""
    _junit().validate(io.BytesIO(document))
