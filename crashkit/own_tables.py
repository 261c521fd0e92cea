"""Tables of crashkit's own, kept as Python keeps its modules: as JSON, which is read quickly, in the `__pycache__` beside them.

To parse the catalog's TOML takes longer than to compare a crash with it. What lies there is believed, so it must be as safe as the code
itself: the folder is the package's own, and whoever may write to it may change crashkit, too. Where it cannot be written, tables are
parsed each time. A process that calls `crashkit.enable()` pays for it: nothing heavy is imported.
"""

from __future__ import annotations

import json
import os
import struct
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

_VERSION = struct.Struct("<QQ")
"""Size of the TOML file and the time of its last change in nanoseconds."""


def own_table(path: Path) -> dict[str, Any]:
    """The contents of a TOML file that came with crashkit. Raises OSError, and ValueError for a text that is no TOML."""
    status = path.stat()
    version = _VERSION.pack(status.st_size, status.st_mtime_ns)
    kept = path.parent / "__pycache__" / f"{path.name}.json"
    # Whatever is wrong with the file, the table is parsed then.
    with suppress(OSError, ValueError, RecursionError):
        data = kept.read_bytes()
        if data.startswith(version):
            table = json.loads(data[_VERSION.size :])
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


__all__ = ["own_table"]
