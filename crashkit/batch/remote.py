"""Artefacts behind URLs: fsspec reads them (an optional extra), and what is there is copied into a scratch folder."""

from __future__ import annotations

import glob
import os
import re
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from crashkit.errors import CrashkitError
from crashkit.evidence.input import DISK_RESERVE
from crashkit.evidence.place import is_url
from crashkit.limits import MOST_FOUND

_MAGIC = re.compile(r"[*?[]")
_BLOCK = 1 << 20
_UNFIT = re.compile(r"[^A-Za-z0-9._+=@,-]")


def local(paths: Iterable[str], scratch: Path) -> list[tuple[Path, str]]:
    """Each path, also those of a pattern, with what the user calls it; what is behind a URL is copied.

    Raises CrashkitError if a URL cannot be read.
    """
    found: list[tuple[Path, str]] = []
    for number, text in enumerate(dict.fromkeys(one for path in paths for one in _expanded(path))):
        found.append((_copied(text, scratch / f"url-{number}"), text) if is_url(text) else (Path(text), text))
    return found


def _expanded(text: str) -> list[str]:
    """The paths that a pattern stands for, which no shell has expanded; itself, if it is none or nothing matches."""
    if is_url(text) or os.path.lexists(text):
        return [text]
    return sorted(glob.glob(text, recursive=True)) or [text]  # noqa: PTH207 (a path stays as it was written)


def _copied(url: str, folder: Path) -> Path:
    try:
        import fsspec
    except ImportError as error:
        raise CrashkitError(
            f"{url} is a URL, which needs fsspec", "pip install 'crashkit[urls]', and what your storage needs (s3fs)."
        ) from error
    folder.mkdir(mode=0o700)
    try:
        system, root = fsspec.core.url_to_fs(url)
        base, names = _files(system, root)
        for name in names:
            # Whatever the storage calls it, it stays in the folder.
            parts = [_UNFIT.sub("_", part).lstrip(".") or "_" for part in str(name).removeprefix(base).split("/") if part]
            place = folder.joinpath(*(parts or [_UNFIT.sub("_", root.rstrip("/").rpartition("/")[2]).lstrip(".") or "file"]))
            place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with system.open(name, "rb") as source, place.open("xb") as target:
                while block := source.read(_BLOCK):
                    if shutil.disk_usage(folder).free < DISK_RESERVE + len(block):
                        raise CrashkitError(f"{url} is too large for {folder.parent}", "Set TMPDIR to a folder with more space.")
                    target.write(block)
    except CrashkitError:
        raise
    except FileNotFoundError as error:
        raise CrashkitError(f"{url} does not exist", "Check the URL; a job that failed early may have uploaded nothing.") from error
    except ImportError as error:
        # The words are those of fsspec, and name the packages.
        hint = "Install what reads this storage beside crashkit, such as pip install s3fs, gcsfs, or requests aiohttp for https."
        raise CrashkitError(f"{url} cannot be read: {_words(error)}", hint) from error
    # Storage of any kind raises whatever its library raises.
    except Exception as error:
        raise CrashkitError(f"{url} cannot be read: {_words(error)}", "Check the URL, and the credentials of its storage.") from error
    return next(folder.iterdir()) if names == [root] else folder


def _words(error: Exception) -> str:
    return (" ".join(str(error).split()) or type(error).__name__)[:300]


def _files(system: Any, root: str) -> tuple[str, list[str]]:
    """The files behind a path of a storage, which may be one, a folder or a pattern, and the folder that all of them are in.

    Raises FileNotFoundError if there is nothing.
    """
    found = sorted(system.glob(root)) if glob.has_magic(root) and not system.exists(root) else [root]
    if not found:
        raise FileNotFoundError(root)
    names = [name for one in found for name in (sorted(system.find(one)) if system.isdir(one) else [one])]
    base = root if found == [root] else _MAGIC.split(root, maxsplit=1)[0].rpartition("/")[0]
    return base, list(dict.fromkeys(names))[:MOST_FOUND]
