"""`junit.xml`: each crash as a test that ended in an error, in the dialect of Ant's JUnit task, which every CI reads.

A crash of a known test carries that test's name, so that it stands in the list where the test stands.
"""

from __future__ import annotations

import re
from xml.etree import ElementTree

from crashkit.report import safe
from crashkit.report.index import wording
from crashkit.report.index.document import Entry, Index

FILE = "junit.xml"

_NOT_XML = re.compile("[^\t\n\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def render(index: Index) -> bytes:
    """The document, with one suite."""
    root = ElementTree.Element("testsuites")
    count = str(len(index.entries))
    time = (index.time or "1970-01-01T00:00:00Z").removesuffix("Z")
    facts = {"package": "crashkit", "id": "0", "name": "crashkit", "timestamp": time, "hostname": "localhost", "time": "0"}
    suite = ElementTree.SubElement(root, "testsuite", {**facts, "tests": count, "failures": "0", "errors": count})
    ElementTree.SubElement(suite, "properties")
    for entry in index.entries:
        group, name = names(entry)
        case = ElementTree.SubElement(suite, "testcase", {"classname": _text(group), "name": _text(name), "time": "0"})
        error = ElementTree.SubElement(case, "error", {"type": _text(entry.signal or "crash"), "message": _text(entry.what)})
        error.text = _text("\n".join(_details(entry)), block=True)
    ElementTree.SubElement(suite, "system-out")
    ElementTree.SubElement(suite, "system-err")
    ElementTree.indent(root)
    document: bytes = ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)
    return document + b"\n"


def names(entry: Entry) -> tuple[str, str]:
    """The test case's class and name: those under which pytest's own JUnit file has the test, else of the crash."""
    if entry.test and "::" in entry.test:
        file, _, rest = entry.test.partition("::")
        test, bracket, parameters = rest.partition("[")
        *classes, name = test.split("::")
        return ".".join([file.removesuffix(".py").replace("/", "."), *classes]), name + bracket + parameters
    return f"crashkit.{entry.signal or 'crash'}", f"{wording.at(entry) or entry.what} #{entry.number}"


def _details(entry: Entry) -> list[str]:
    lines = [entry.failed] if entry.failed else []
    if entry.cause:
        lines.append(f"{(entry.confidence or '').capitalize()}: {entry.cause}")
    if entry.fix:
        lines.append(f"What to do: {entry.fix}")
    lines += [f"  {one.function or '(no name)'}  {wording.place(one)}" for one in entry.stack]
    if entry.report:
        lines.append(f"Report: {entry.report}")
    return [*lines, f"Evidence: {', '.join(entry.evidence)}"]


def _text(text: str, block: bool = False) -> str:
    return _NOT_XML.sub("�", safe.block(text) if block else safe.line(text))
