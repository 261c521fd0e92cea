"""Keeps templates as Python keeps its modules: compiled, in the `__pycache__` beside them.

Compiling the report's template takes longer than filling it. What lies there is run, so it must be as safe as the code itself: the folder
is the package's own, and whoever may write to it may change crashkit, too. Where it cannot be written, templates are compiled each time.
"""

from __future__ import annotations

import hashlib
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

import jinja2
from jinja2.bccache import Bucket, BytecodeCache

_OPTIONS = ("autoescape", "trim_blocks", "lstrip_blocks", "optimized", "sandboxed")
"""Of an environment: what the code of its templates depends on."""


class CompiledTemplates(BytecodeCache):
    """The compiled templates of a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "__pycache__"

    def load_bytecode(self, bucket: Bucket) -> None:
        """Fill the bucket, if there is code for this very text. Whatever is wrong with the file, the template is compiled then."""
        with suppress(Exception), self._path(bucket).open("rb") as file:
            bucket.load_bytecode(file)

    def dump_bytecode(self, bucket: Bucket) -> None:
        """Keep the code, at once and whole, if that is permitted."""
        if sys.dont_write_bytecode:
            return
        with suppress(OSError):
            self._folder.mkdir(exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=self._folder, delete=False) as file:
                written = Path(file.name)
                try:
                    bucket.write_bytecode(file)
                    written.chmod(0o644)
                    written.replace(self._path(bucket))
                except BaseException:
                    written.unlink(missing_ok=True)
                    raise

    def _path(self, bucket: Bucket) -> Path:
        options = " ".join(str(getattr(bucket.environment, name)) for name in _OPTIONS)
        tag = hashlib.sha256(f"{jinja2.__version__} {options}".encode()).hexdigest()[:16]
        return self._folder / f"{bucket.key}.{sys.implementation.cache_tag}-{tag}.jinja"
