"""A gdb that is started before anything else is known of a core, and reads what it will need in any case: the debug info of the C library
and of the interpreter, half of its time for a core. Meanwhile this process imports what it needs itself. Once it is known that a kernel
may have written the core, gdb opens that, too.

Which files these are is only guessed, by the names that the core has for its mapped files; `GdbDebugger` takes another gdb if the guess was
wrong. Reads as little as possible and imports little: that is the point.
"""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from itertools import islice
from pathlib import Path
from typing import Any, Optional

from crashkit.debugger.gdb.kept import (
    bytecode_folder,
    cache_folder,
    forget_old,
    give_up,
    has_debug_file,
    has_index,
    index_folder,
    is_wanted,
    keep_debug_file,
)
from crashkit.debugger.gdb.process import BYTECODE, Gdb, commands_file, in_console, open_core, quote
from crashkit.elf import notes
from crashkit.elf.file import has_dwarf
from crashkit.elf.headers import ET_CORE, PT_LOAD, PT_NOTE, Word, bounded, of_descriptor, read_header, read_program_headers
from crashkit.elf.twin import BIG
from crashkit.errors import DebuggerError
from crashkit.gdb_files import DEBUG_ROOT
from crashkit.limits import MOST_SEGMENTS
from crashkit.scratch import Scratch

_NAMES = re.compile(r"/(?:libc\.so\.6|libc-2\.\d+\.so|libpython3\.\d+[a-z]*\.so[.\d]*|python3\.\d+[a-z]*)$")
_MACHINES = {"x86_64": 62, "aarch64": 183}
_MOST_BYTES = 64 << 20
_MOST_NOTES = 1 << 20
_MOST_FILES = 4
_PATIENCE = 1.0
"""Seconds that the first analysis may take longer, so that the next ones are shorter."""


class Ahead:
    """The gdb, and which files it reads. To be closed."""

    def __init__(self, gdb: Gdb, core: Path, files: dict[Path, int], folder: Scratch, indexes: dict[Path, Path]) -> None:
        self.gdb = gdb
        self.core = core
        self.opened: Optional[int] = None
        """Token of the command that opens the core, once it has got that."""
        self.files = files
        """With the offset that the loader added to the file's addresses."""
        self._folder = folder
        self._indexes = indexes
        """Where indexes of these files are kept."""
        self.used: list[Path] = []
        """Folders of what earlier analyses kept."""
        self._keeping: Optional[int] = None
        self._served = False

    def open(self, core: Path) -> None:
        """Let it open this core, if it was started for it: one that no kernel can have written must never get here."""
        # Where it fails, whoever needs the core will open it, or say why that is not possible.
        with suppress(DebuggerError, OSError):
            if self.core.samefile(core):
                self.opened = self.gdb.send(open_core(core, self._folder.path))

    def keep_indexes(self) -> bool:
        """Let it keep its indexes of these files for the next analysis, once it has answered all else: it forgets other files then.

        False if there is nothing to keep.
        """
        self._served = True
        missing = {file: folder for file, folder in self._indexes.items() if file in self.files and is_wanted(folder)}
        if not missing or self._keeping is not None:
            return False
        with suppress(DebuggerError, OSError, UnicodeEncodeError):
            self._keeping = self._ask("keep", {"files": [[str(file), str(folder)] for file, folder in missing.items()]})
        return self._keeping is not None

    def _ask(self, command: str, request: dict[str, Any]) -> int:
        place = self._folder.path / f"{command}.request"
        place.write_text(json.dumps(request), encoding="utf-8")
        return self.gdb.send(f"-crashkit-{command} {quote(str(place))} {quote(str(self._folder.path / f'{command}.result'))}")

    def close(self) -> None:
        """End the gdb."""
        if self._keeping is not None:
            try:
                self.gdb.response(self._keeping, _PATIENCE)
            except (DebuggerError, OSError, ValueError):
                give_up(self._indexes.values())
            forget_old(next(iter(self._indexes.values())).parent)
        self.gdb.close()
        self._folder.close()
        if self._served:
            for file, place in self._indexes.items():
                keep_debug_file(place, file, Path(DEBUG_ROOT))


def begin(paths: Sequence[Path], program: str, deadline: float) -> Optional[Ahead]:
    """Start a gdb for the core among these paths; None if there is none, or gdb cannot be started: whoever needs it will say so."""
    found = ((path, mappings) for path in paths if _is_file(path) and (mappings := _mappings(path)))
    core, mappings = next(found, (None, []))
    if core is None:
        return None
    with ExitStack() as started:
        try:
            folder = Scratch("ahead")
            started.callback(folder.close)
            cache = cache_folder()
            gdb = Gdb(deadline, program, {BYTECODE: str(bytecode_folder(cache))} if cache is not None else None)
            started.callback(gdb.close)
        except (DebuggerError, OSError):
            return None
        files = dict(islice(_needed(mappings), _MOST_FILES))
        indexes = {file: place for file in files if cache is not None and (place := index_folder(cache, file)) is not None}
        ahead = Ahead(gdb, core, files, folder, indexes)
        try:
            plain = [place for place in indexes.values() if has_debug_file(place)]
            gdb.send(in_console(f"set debug-file-directory {':'.join(map(str, (*plain, DEBUG_ROOT)))}"))
            gdb.send(in_console(f"source {commands_file()}"))
            indexed = [place for place in indexes.values() if has_index(place)]
            ahead.used = [*indexed, *(place for place in plain if place not in indexed)]
            kept = {file: str(place) for file, place in indexes.items() if place in indexed}
            ahead._ask("ahead", {"files": [[str(file), bias, kept.get(file)] for file, bias in files.items()]})
        except (DebuggerError, OSError, UnicodeEncodeError):
            # It may still serve, or will say why it does not.
            ahead.files = {}
        started.pop_all()  # an interrupt until here ends it
        return ahead


def _mappings(path: Path) -> list[notes.FileMapping]:
    """The mapped files of a core of a process of this kind of machine; [] for anything else."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except (OSError, ValueError):
        return []
    try:
        read = bounded(of_descriptor(descriptor), _MOST_BYTES)
        header = read_header(read)
        if header is None or header.kind != ET_CORE or header.word != Word(8, "<") or header.machine != _MACHINES.get(os.uname().machine):
            return []
        segment = next((one for one in read_program_headers(read, header, MOST_SEGMENTS) if one.kind == PT_NOTE), None)
        data = read(segment.offset, min(segment.stored, _MOST_NOTES)) if segment else b""
        rows = (notes.file_mappings(payload, header.word) for _, kind, payload in notes.split(data, "<") if kind == notes.NT_FILE)
        return next(rows, [])
    finally:
        os.close(descriptor)


def _needed(mappings: Sequence[notes.FileMapping]) -> Iterator[tuple[Path, int]]:
    """Files that every stack of a Python process has, and where they lie, as far as gdb would be given them as they are."""
    for one in mappings:
        path = Path(one.path)
        if one.offset or not _NAMES.search(one.path) or not one.path.isprintable() or not _is_file(path):
            continue
        with suppress(OSError):
            first = _first_address(path)
            if first is not None and (path.stat().st_size < BIG or has_dwarf(path)):
                yield path, one.start - first


def _first_address(path: Path) -> Optional[int]:
    """Where the file itself would lie."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        read = bounded(of_descriptor(descriptor), _MOST_BYTES)
        header = read_header(read)
        first = next((one for one in read_program_headers(read, header) if one.kind == PT_LOAD), None) if header else None
        return None if first is None else first.address - first.offset
    finally:
        os.close(descriptor)


def _is_file(path: Path) -> bool:
    try:
        return stat.S_ISREG(path.stat().st_mode)
    except (OSError, ValueError):
        return False
