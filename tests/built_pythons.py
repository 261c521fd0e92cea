"""CPython built from source as no package here has it: against musl, as Alpine's is, as conda-forge builds its own, and free-threaded.

Each takes minutes, once: they are kept in ~/.cache/crashkit-tests. The sources are Debian's, which `apt-get source` brings. Neither is a
download of the real thing: the compiler, the options that matter for a crash, and what is stripped are theirs.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.crashes import lock
from tests.packages import CACHE

BUILDING = 1500
"""Seconds."""
MUSL = {"3.13": "trixie"}
"""The versions that are built against musl, and Debian's release that has their source. setup.py of older ones finds glibc's headers."""
CONDA = ("3.13", "trixie")
FREE_THREADED = {"3.13t": "trixie", "3.14t": "sid"}
"""As MUSL, by what the program is called."""
NO_MUSL = "no CPython built against musl here: apt-get install musl-tools, then python -m tests.built_pythons musl-3.13"
NO_FREE_THREADED = "no free-threaded CPython {0} built here: python -m tests.built_pythons free-threaded-{0}"
NO_CONDA = "no CPython built as conda-forge does: python -m tests.built_pythons conda-3.13"
PLACEHOLDER = "/opt/" + "_placehold" * 24
"""conda-build's prefix is as long as it can be: conda writes the environment's over it in every file, and fills up with zeros."""

CONDA_ENVIRONMENT = "conda-3.13/miniforge3/envs/crashy"
_LIBFFI = ("libffi", "3.4.4", "bookworm")
_DEBIAN = "http://deb.debian.org/debian"
_COMPILER = """#!/bin/sh
# Debian's gcc below musl-gcc would name the platform of glibc.
test "$1" = --print-multiarch && exit 0
exec musl-gcc "$@"
"""
_FLAGS = "-g1 -O2 -fwrapv"
_COMMON = ("--without-ensurepip", "--disable-test-modules")


def musl_python(version: str, stripped: bool = False) -> Path:
    """That version against musl with debug info, or stripped and without build-ids as Alpine's; skips the test where nobody built it."""
    return _kept(f"musl-{version}{'-stripped' if stripped else ''}", version, NO_MUSL)


def conda_python() -> Path:
    """An interpreter in an environment called `crashy` below a folder called miniforge3; skips the test where nobody built it."""
    return _kept(CONDA_ENVIRONMENT, CONDA[0], NO_CONDA)


def free_threaded_python(version: str) -> Path:
    """That version, such as 3.13t, with debug info; skips the test where nobody built it."""
    return _kept(f"free-threaded-{version}", version, NO_FREE_THREADED.format(version))


def _kept(name: str, version: str, missing: str) -> Path:
    program = place(name, version)
    if not program.exists():
        pytest.skip(missing)
    return program


def place(name: str, version: str) -> Path:
    """Where the program of that build is, if it is there."""
    return CACHE / name / "bin" / f"python{version}"


def build(name: str) -> None:
    """Build `musl-VERSION`, `conda-VERSION` or `free-threaded-VERSION`, unless it is there. Raises SystemExit where a step fails."""
    kind, _, version = name.rpartition("-")
    target = CACHE / name
    CACHE.mkdir(parents=True, exist_ok=True)
    with lock(target.with_name(f"{name}.lock")), TemporaryDirectory(prefix="crashkit-build-") as folder:
        if not target.exists():
            _BUILDS[kind](version, target, Path(folder))


def _musl(version: str, target: Path, folder: Path) -> None:
    if shutil.which("musl-gcc") is None:
        raise SystemExit("This needs musl-gcc: apt-get install musl-tools.")
    compiler, headers, ffi = folder / "cc", folder / "kernel", folder / "ffi"
    compiler.write_text(_COMPILER)
    compiler.chmod(0o755)
    headers.mkdir()
    for name, place in {"linux": "linux", "asm-generic": "asm-generic", "asm": "x86_64-linux-gnu/asm"}.items():
        (headers / name).symlink_to(f"/usr/include/{place}")
    library = _source(*_LIBFFI, folder)
    options = ("--disable-shared", "--with-pic", "--disable-docs", "--disable-exec-static-tramp")
    _made(library, ffi, (f"CC={compiler}", *options), {})
    # musl-gcc does not ask for the index of the unwind tables, which Alpine's gcc does; build-ids Alpine has none.
    linking = f"-Wl,--eh-frame-hdr,--build-id=none -Wl,-rpath,{target}/lib"
    settings = (
        f"CC={compiler}",
        f"CFLAGS=-idirafter {headers}",
        f"CPPFLAGS=-I{ffi}/include -idirafter {headers}",
        f"LDFLAGS={linking} -L{ffi}/lib",
        f"LIBFFI_CFLAGS=-I{ffi}/include",
        f"LIBFFI_LIBS=-L{ffi}/lib -lffi",
        "--with-system-ffi",
        "--enable-shared",
    )
    source = _source(f"python{version}", None, MUSL[version], folder)
    # Debian's own libraries are glibc's.
    _made(source, target, (*settings, *_COMMON, f"OPT={_FLAGS}"), {"PKG_CONFIG_LIBDIR": str(folder), "PKG_CONFIG": "/bin/false"})
    stripped = target.with_name(f"{target.name}-stripped")
    shutil.rmtree(stripped, ignore_errors=True)
    shutil.copytree(target, stripped, symlinks=True)
    _strip(stripped, "--strip-all")


def _conda(version: str, target: Path, folder: Path) -> None:
    """Static, exporting all, in folders that can be moved; the prefix is written over once it is installed."""
    source = _source(f"python{version}", None, CONDA[1], folder)
    flags = "OPT=-DNDEBUG -O2 -fwrapv -fno-semantic-interposition -ffunction-sections -fstack-protector-strong"
    linking = "LDFLAGS=-Wl,-rpath,'$$ORIGIN/../lib' -Wl,--gc-sections -Wl,-z,relro -Wl,-z,now -Wl,--disable-new-dtags"
    installed = folder / "root"
    _made(source, Path(PLACEHOLDER), ("--enable-loadable-sqlite-extensions", *_COMMON, flags, linking), {}, installed)
    environment = target / "miniforge3" / "envs" / "crashy"
    partial = target.with_name(f"{target.name}.{os.getpid()}")
    there = partial / environment.relative_to(target)
    there.parent.mkdir(parents=True)
    shutil.move(f"{installed}{PLACEHOLDER}", there)
    _strip(there, "--strip-unneeded")
    for path in there.rglob("*"):
        if path.suffix == ".pyc":
            path.unlink()  # their texts have a length
        elif path.is_file() and not path.is_symlink():
            _replace_prefix(path, PLACEHOLDER.encode(), str(environment).encode())
    (there / "conda-meta").mkdir()
    record = '{"name": "python", "version": "%s", "build": "h9e4cc4f_1_cpython", "channel": "conda-forge"}\n'
    told = subprocess.run([there / "bin" / f"python{version}", "-V"], capture_output=True, text=True, check=True).stdout.split()[1]
    (there / "conda-meta" / f"python-{told}-h9e4cc4f_1_cpython.json").write_text(record % told)
    partial.rename(target)


def _free_threaded(version: str, target: Path, folder: Path) -> None:
    source = _source(f"python{version.removesuffix('t')}", None, FREE_THREADED[version], folder)
    _made(source, target, ("--disable-gil", *_COMMON, "CFLAGS=-g -O1"), {})


_BUILDS = {"musl": _musl, "conda": _conda, "free-threaded": _free_threaded}


def _replace_prefix(path: Path, before: bytes, after: bytes) -> None:
    """As conda does on installation: in texts the name alone, in other files without a change of their size."""
    data = path.read_bytes()
    if before not in data:
        return
    if b"\0" not in data:
        path.write_bytes(data.replace(before, after))
        return
    pieces = data.split(b"\0")
    changed = [piece.replace(before, after).ljust(len(piece), b"\0") for piece in pieces]
    path.write_bytes(b"\0".join(changed))


def _strip(folder: Path, how: str) -> None:
    for path in folder.rglob("*"):
        if path.is_file() and not path.is_symlink() and path.open("rb").read(4) == b"\x7fELF":
            path.chmod(path.stat().st_mode | 0o200)
            subprocess.run(["strip", how, path], check=True)


def _source(package: str, version: str | None, suite: str, folder: Path) -> Path:
    """The unpacked folder of a package's original source, without Debian's changes, brought by apt with settings of its own."""
    place = folder / f"{package}-source"
    place.mkdir()
    (place / "sources.list").write_text(f"deb-src {_DEBIAN} {suite} main\n")
    (place / "lists" / "partial").mkdir(parents=True)
    (place / "cache" / "archives" / "partial").mkdir(parents=True)
    settings = {
        "Dir::Etc::sourcelist": place / "sources.list",
        "Dir::Etc::sourceparts": "/dev/null",
        "Dir::State::lists": place / "lists",
        "Dir::Cache": place / "cache",
        "APT::Sandbox::User": "root",
    }
    options = [part for name, value in settings.items() for part in ("-o", f"{name}={value}")]
    _run(["apt-get", *options, "-qq", "update"], place)
    _run(["apt-get", *options, "-qq", "source", "--download-only", package], place)
    archive = next(path for path in place.glob(f"{package}_{version or ''}*.orig.tar.*") if not path.name.endswith(".asc"))
    unpacked = place / "unpacked"
    unpacked.mkdir()
    _run(["tar", "-xf", archive, "--strip-components=1", "-C", unpacked], place)
    return unpacked


def _made(source: Path, prefix: Path, options: Sequence[str], variables: Mapping[str, str], root: Path | None = None) -> None:
    _run(["./configure", f"--prefix={prefix}", *options], source, variables)
    _run(["nice", "-n", "15", "make", "-j2"], source, variables)
    _run(["make", "install", *([f"DESTDIR={root}"] if root else [])], source, variables)


def _run(command: Sequence[str | Path], folder: Path, variables: Mapping[str, str] | None = None) -> None:
    environment = {**os.environ, **(variables or {})}
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, errors="replace", timeout=BUILDING, check=False
    )
    if done.returncode != 0:
        raise SystemExit(f"{command[0]} failed in {folder}:\n{done.stdout[-1500:]}{done.stderr[-3000:]}")


if __name__ == "__main__":
    for wanted in sys.argv[1:]:
        build(wanted)
