"""A root folder that holds a Python and crashkit and nothing else: no shell, no gdb, no package manager, as distroless images have it.

The parts are bind mounts, read-only, in a mount namespace of the command's own. Needs root, or user namespaces.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
DEADLINE = 120
PYTHON = Path(sys.executable).resolve()

_UNSHARE = ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "-r", "--mount"]

_ENTER = """
set -e
root=$1; shift
mount --make-rprivate /
mount -t tmpfs tmpfs "$root"
while [ "$1" != -- ]; do
    if [ -d "$1" ]; then mkdir -p "$root$1"; else mkdir -p "$root${1%/*}"; : > "$root$1"; fi
    mount --rbind "$1" "$root$1"
    mount -o remount,bind,ro "$root$1" 2>/dev/null || :
    shift
done
shift
for folder in lib lib64; do [ -e "$root/$folder" ] || ln -s "usr/$folder" "$root/$folder"; done
mkdir -p "$root/proc" "$root/dev" "$root/tmp"
mount --rbind /proc "$root/proc"
for device in null zero urandom; do : > "$root/dev/$device"; mount --bind "/dev/$device" "$root/dev/$device"; done
ln -s /proc/self/fd "$root/dev/fd"
ln -s /proc/self/fd/0 "$root/dev/stdin"
case $1 in
    tmp) mount -t tmpfs tmpfs "$root/tmp" ;;
    evidence) mount --bind "$2" "$root/tmp" ;;
esac
shift 2
mount -o remount,bind,ro "$root"
exec chroot "$root" "$@"
"""


def parts() -> list[Path]:
    """What the interpreter of this test run needs, and crashkit with its dependencies."""
    paths = {
        name: Path(path) for name, path in sysconfig.get_paths(vars={"base": sys.base_prefix, "platbase": sys.base_exec_prefix}).items()
    }
    own = Path(sysconfig.get_paths()["purelib"])
    wanted = [PYTHON, paths["stdlib"], own, ROOT / "crashkit", ROOT / "gdb_scripts"]
    libpython = Path(sysconfig.get_config_var("LIBDIR") or "", sysconfig.get_config_var("LDLIBRARY") or "")
    if libpython.suffix == ".so":
        wanted += [libpython.parent]
    libraries = [Path("/usr/lib", sysconfig.get_config_var("MULTIARCH") or "x86_64-linux-gnu"), Path("/usr/lib64")]
    # The shorter first: a mount over the folder of another would hide it.
    return sorted({path for path in [*wanted, *libraries] if path.exists()})


def run(
    *arguments: str | Path, root: Path, writable: str = "tmp", folder: Path | None = None, stdin: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """`python ARGUMENT...` there. `writable` is what may be written: `tmp`, `nothing`, or `evidence`, which is `folder` as /tmp."""
    root.mkdir(exist_ok=True)
    command = [*_UNSHARE, "sh", "-c", _ENTER, "enter", root, *parts(), "--", writable, folder or "-", PYTHON, *arguments]
    path = f"{ROOT}:{sysconfig.get_paths()['purelib']}"
    environment = {"PYTHONPATH": path, "LANG": "C.UTF-8", "HOME": "/nonexistent", "PYTHONDONTWRITEBYTECODE": "1"}
    with (stdin or Path(os.devnull)).open("rb") as fed:
        return subprocess.run(
            command,
            stdin=fed,
            capture_output=True,
            text=True,
            timeout=DEADLINE,
            env={**environment, "PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin"},
            cwd="/",
            preexec_fn=_allow_core,
        )


def _allow_core() -> None:
    hard = resource.getrlimit(resource.RLIMIT_CORE)[1]
    resource.setrlimit(resource.RLIMIT_CORE, (hard, hard))


def can_be_made() -> bool:
    return subprocess.run([*_UNSHARE, "mount", "-t", "tmpfs", "tmpfs", "/mnt"], capture_output=True).returncode == 0


needed = pytest.mark.skipif(not can_be_made(), reason="a mount namespace cannot be made: needs root or user namespaces")


def crashkit(*arguments: str | Path, root: Path, writable: str = "tmp", folder: Path | None = None) -> subprocess.CompletedProcess[str]:
    return run("-m", "crashkit", *arguments, root=root, writable=writable, folder=folder)
