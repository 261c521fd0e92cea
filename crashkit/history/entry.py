"""What the history keeps of one crash: a few masked facts, never the evidence. Pure."""

from __future__ import annotations

import calendar
import hashlib
import re
import time
from collections.abc import Mapping
from typing import Optional

import msgspec

from crashkit.crashfolder.manifest import Manifest
from crashkit.model import Crash, Process
from crashkit.report import one_line
from crashkit.secrets.crash import masked
from crashkit.secrets.text import Secrets

_LONGEST = 500
"""Characters of a text: a row of a list shows less."""
_DIGITS = 16
_RECORD = re.compile("[0-9a-f]{32}")
_NO_FINGERPRINT = 0
"""In place of the algorithm's version, where crashes are grouped by signal and program because nothing else is known of them."""


class Entry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One crash. Two entries with the same key are the same crash: the one that was recorded last counts."""

    key: str
    group: str
    """The fingerprint with its algorithm's version, such as `2-00c4f3b2a1d09e8f`; version 0: signal and program, for want of a stack."""
    seen: float
    """When it crashed, in seconds since the epoch; where that is not known, when it was recorded."""
    recorded: float
    id: str
    host: str
    """Where it was recorded."""
    place: str
    """Where its report or its evidence was: a path or a URL."""
    frames: tuple[str, ...] = ()
    """Those of the fingerprint."""
    signal: str = ""
    where: str = ""
    cause: str = ""
    program: str = ""
    release: str = ""
    """The version of the user's program: a release or a commit."""
    python: str = ""
    crashkit: str = ""
    versions: dict[str, str] = {}


def of_crash(
    crash: Crash, place: str, *, host: str, release: str = "", manifest: Optional[Manifest] = None, now: Optional[float] = None
) -> Entry:
    """The entry of an analyzed crash. `place` tells two crashes without time and pid apart: name the run of a CI job in it.

    With the manifest of its crash folder it is the same crash wherever that folder is.
    """
    crash = masked(_telling(crash))
    recorded = time.time() if now is None else now
    identity, program = crash.id or "", _program(crash.process)
    signal = crash.signal.name if crash.signal else ""
    print_ = crash.fingerprint
    return Entry(
        key=_key(host, identity, place, manifest),
        group=group_of(crash) or _nameless(signal, program),
        seen=_seconds(crash.time) or recorded,
        recorded=recorded,
        id=_cut(identity),
        host=_cut(host),
        place=_cut(Secrets().text(place)),
        frames=tuple(map(_cut, print_.frames)) if print_ else (),
        signal=_cut(signal),
        where=_cut(one_line.where(crash)),
        cause=_cut(one_line.cause(crash)),
        program=_cut(program),
        release=_cut(Secrets().text(release)),
        python=_cut((crash.python and crash.python.version) or ""),
        crashkit=_cut(crash.crashkit or ""),
        versions=_versions(crash.process.versions if crash.process else {}),
    )


def of_manifest(manifest: Manifest, place: str, *, host: str, release: str = "", now: Optional[float] = None) -> Entry:
    """The entry of a crash without a report, of which nothing but this is known. A report that is written later takes its place."""
    recorded = time.time() if now is None else now
    secrets = Secrets()
    identity = manifest.get("id", "")
    program = secrets.text(manifest.get("executable") or manifest.get("name") or "").rpartition("/")[2]
    signal = manifest.get("signal_name", "")
    return Entry(
        key=_key(host, identity, place, manifest),
        group=_nameless(signal, program),
        seen=_seconds(manifest.get("time")) or recorded,
        recorded=recorded,
        id=_cut(identity),
        host=_cut(host),
        place=_cut(secrets.text(place)),
        signal=_cut(signal),
        program=_cut(program),
        release=_cut(secrets.text(release)),
        crashkit=_cut(manifest.get("crashkit", "")),
        versions=_versions({name: secrets.text(text) for name, text in manifest.get("versions", {}).items()}),
    )


def group_of(crash: Crash) -> Optional[str]:
    """The name that equal crashes share; None for a crash without a fingerprint."""
    found = crash.fingerprint
    return f"{found.version}-{found.hash}" if found and found.hash else None


def _telling(crash: Crash) -> Crash:
    """The parts that an entry is made from, with those that name secrets: to mask all of a large crash again takes long."""
    thread = crash.thread or (crash.threads[0] if len(crash.threads) == 1 else None)
    return msgspec.structs.replace(
        crash, threads=(thread,) if thread else (), modules=(), mappings=(), instructions=(), soft_errors=(), looked_for=()
    )


def _key(host: str, identity: str, place: str, manifest: Optional[Manifest] = None) -> str:
    """The same crash, analyzed again, has the same one; the ranks of a job that die at once in containers with equal pids do not."""
    record = (manifest or {}).get("record", "")
    if _RECORD.fullmatch(record):
        return record
    return hashlib.sha256("\0".join((host, identity, place)).encode("utf-8", "backslashreplace")).hexdigest()[: 2 * _DIGITS]


def _nameless(signal: str, program: str) -> str:
    return f"{_NO_FINGERPRINT}-" + hashlib.sha256(f"{signal}\0{program}".encode("utf-8", "backslashreplace")).hexdigest()[:_DIGITS]


def _program(process: Optional[Process]) -> str:
    return ((process.executable or process.name or "") if process else "").rpartition("/")[2]


def _versions(versions: Mapping[str, str]) -> dict[str, str]:
    return {_cut(name): _cut(text) for name, text in list(versions.items())[:100]}


def _cut(text: str) -> str:
    """Without what a database cannot store: PostgreSQL has no NUL, and neither takes lone surrogates."""
    return text[:_LONGEST].replace("\0", "\ufffd").encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _seconds(text: Optional[str]) -> Optional[float]:
    for form in ("%Y-%m-%dT%H:%M:%SZ", "%Y-%m-%dT%H:%M:%S"):
        try:
            return float(calendar.timegm(time.strptime((text or "")[:20], form)))
        except ValueError:
            continue
    return None
