"""Tables of crashkit's own, kept as Python keeps its modules: as JSON, which is read quickly, in the `__pycache__` beside them.

To parse the catalog's TOML takes longer than to compare a crash with it. What lies there is believed, so it must be as safe as the code
itself: the folder is the package's own, and whoever may write to it may change crashkit, too. Where it cannot be written, tables are
parsed each time. A process that calls `crashkit.enable()` pays for it: nothing heavy is imported.
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

_VERSION = struct.Struct("<QQ")
"""Size of the TOML file and the time of its last change in nanoseconds."""


def own_table(path: Path) -> dict[str, Any]:
    """The contents of a TOML file that came with crashkit. Raises OSError, and ValueError for a text that is no TOML."""
    version, kept = _version(path), path.parent / "__pycache__" / f"{path.name}.json"
    table = _kept(kept, version)
    if isinstance(table, dict):
        return table
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib

    read: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
    with suppress(TypeError):  # a table with dates
        _keep(kept, version + json.dumps(read).encode())
    return read


def own_derived(place: Path, texts: Iterable[str], code: Path, derive: Callable[[], Any]) -> Any:
    """What is derived from these texts by this module, as JSON. `place` names it, in a folder of the package.

    Raises OSError if the module is missing, and whatever `derive` raises.
    """
    digest = hashlib.sha256("\0".join(texts).encode())
    # Python's own modules may be asked, too, and may answer otherwise in another version.
    version, kept = digest.digest() + _version(code), place.parent / "__pycache__" / f"{place.name}.{sys.implementation.cache_tag}.json"
    found = _kept(kept, version)
    if found is None:
        text = json.dumps(derive())
        found = json.loads(text)
        _keep(kept, version + text.encode())
    return found


def _version(path: Path) -> bytes:
    status = path.stat()
    return _VERSION.pack(status.st_size, status.st_mtime_ns)


def _kept(place: Path, version: bytes) -> Any:
    """None if there is nothing, or not of that version. Whatever is wrong with the file, it is made again then."""
    with suppress(OSError, ValueError, RecursionError):
        data = place.read_bytes()
        if data.startswith(version):
            return json.loads(data[len(version) :])
    return None


def _keep(place: Path, data: bytes) -> None:
    """Write the file at once and whole, if that is permitted."""
    if sys.dont_write_bytecode:
        return
    import tempfile

    with suppress(OSError):
        place.parent.mkdir(exist_ok=True)
        handle, name = tempfile.mkstemp(dir=place.parent)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
            written = Path(name)
            written.chmod(0o644)
            written.replace(place)
        except BaseException:
            with suppress(OSError):
                Path(name).unlink()
            raise


__all__ = ["own_derived", "own_table"]
