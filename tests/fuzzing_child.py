"""One reader under Atheris (libFuzzer), a process of its own: `python -m tests.fuzzing_child READER LIBFUZZER-OPTION... CORPUS`."""

from __future__ import annotations

import sys

import atheris

with atheris.instrument_imports(include=["crashkit"]):
    from tests.fuzzing import READERS


def main() -> None:
    """Does not return."""
    read = READERS[sys.argv[1]]

    def once(data: bytes) -> None:
        read(bytes(data))

    atheris.Setup([sys.argv[0], *sys.argv[2:]], once)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
