"""`crashkit.enable()`: prepare a process from inside to leave evidence of its crash."""

from __future__ import annotations

import atexit
import contextlib
import faulthandler
import glob
import os
import sys
import time
from pathlib import Path
from typing import BinaryIO, NamedTuple, Optional

from crashkit.collect.host import cuda as cuda_variables
from crashkit.collect.host import outlook
from crashkit.collect.host.core_pattern import parse, resolve
from crashkit.collect.host.limits import FILTER, allow_core, core_limit
from crashkit.collect.host.snapshot import read_stat, snapshot, versions, working_folder
from crashkit.crashfolder.files import create
from crashkit.crashfolder.ids import identity
from crashkit.crashfolder.manifest import SCHEMA, Manifest, read_manifest, write_manifest
from crashkit.crashfolder.store import Store
from crashkit.elf.core_head import read_head
from crashkit.environment import shown
from crashkit.errors import CollectError
from crashkit.secrets.text import Secrets

_PREFIX = ".enabled-"


class Enabled(NamedTuple):
    """What `enable` did. `crashkit list` shows the crash after one has happened."""

    folder: Optional[Path]
    done: tuple[str, ...]
    could_not: tuple[str, ...]


_log: Optional[BinaryIO] = None
_log_folder: Optional[Path] = None


def enable(cuda: bool = True) -> Enabled:
    """Prepare this process and its future children to leave evidence of a crash.

    Raises the core limit, sets coredump_filter, and makes faulthandler write into the crash store. If the NVIDIA driver is loaded
    and torch has not initialized CUDA, also enables GPU core dumps; `cuda=False` omits them, so that a GPU exception stays a
    Python exception instead of ending the process. Never raises; `could_not` lists what failed. Nothing watches the process;
    `crashkit run` sees more.
    """
    global _log, _log_folder
    done: list[str] = []
    could_not = list(allow_core(cuda))
    if not could_not:
        done.append(f"core limit raised to {_limit(core_limit()[0])}")
    could_not += [f"{problem.message}; {problem.mend}" for problem in outlook.judge(outlook.gather(working_folder()))]
    try:
        if _log is None:
            _log_folder = _folder()
            _log = create(_log_folder / "faulthandler.log")
            atexit.register(_leave, _log_folder, os.getpid())
        faulthandler.enable(file=_log, all_threads=True)
        done.append(f"faulthandler writes to {_log_folder}/faulthandler.log")
    except (OSError, CollectError) as error:
        could_not.append(f"faulthandler cannot write to the crash store: {error}")
        try:
            faulthandler.enable()
        except (OSError, RuntimeError, ValueError, AttributeError):  # sys.stderr is closed, None, or no file
            could_not.append("faulthandler is off: there is no stderr to write to")
    folder = _log_folder
    if cuda and folder is not None and os.path.exists("/proc/driver/nvidia/version"):
        if _cuda_started():
            could_not.append("torch has already initialized CUDA: call crashkit.enable() before the first use of a GPU")
        else:
            os.environ.update(cuda_variables.variables(os.environ, folder))
            done.append("GPU core dumps are enabled")
    return Enabled(folder, tuple(done), tuple(could_not))


def _limit(number: int) -> str:
    return "unlimited" if number < 0 else f"{number} bytes"


def _cuda_started() -> bool:
    torch = sys.modules.get("torch")
    try:
        return bool(torch is not None and torch.cuda.is_initialized())
    except Exception:
        return False


def _folder() -> Path:
    """A work folder that `adopt` turns into a crash once this process has died."""
    store = Store()
    folder = store.work_folder(_PREFIX.strip(".-"))
    pid = os.getpid()
    stat = read_stat(pid)
    me = snapshot(pid)
    manifest: Manifest = {
        "schema": SCHEMA,
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "pid": pid,
        "start": stat.start if stat else 0,
        "name": stat.name if stat else "python",
        "executable": sys.executable,
        "argv": Secrets().arguments(me.argv if me else sys.argv),
        "cwd": working_folder(),
        "environment": Secrets().environment(shown(os.environ)),
        "versions": versions(sys.executable, me.libraries if me else ()),
        "core_pattern": outlook.read_pattern().text,
        "capture": "core",
        "analysis": "none",
        "files": [],
    }
    with contextlib.suppress(OSError):
        manifest["coredump_filter"] = FILTER.read_text().strip()
    write_manifest(folder, manifest)
    return folder


def _leave(folder: Path, owner: int) -> None:
    """Remove the folder at a clean exit."""
    if os.getpid() != owner:
        return
    faulthandler.disable()
    with contextlib.suppress(OSError):
        if not (folder / "faulthandler.log").stat().st_size:
            for path in folder.iterdir():
                path.unlink()
            folder.rmdir()


def adopt(store: Store) -> None:
    """Publish the folders of dead processes that left a log or a core as crashes; remove the others."""
    for folder in sorted(store.path.glob(f"{_PREFIX}*")):
        manifest = read_manifest(folder)
        if manifest is None or _alive(manifest):
            continue
        core = _find_core(manifest)
        log = folder / "faulthandler.log"
        with contextlib.suppress(OSError, CollectError):
            text = log.stat().st_size if log.is_file() else 0
            if not text and core is None:
                for path in folder.iterdir():
                    path.unlink()
                folder.rmdir()
                continue
            _adopt(store, folder, manifest, core, bool(text))


def _alive(manifest: Manifest) -> bool:
    stat = read_stat(manifest.get("pid", 0))
    return stat is not None and stat.start == manifest.get("start") and stat.state not in "ZX"


def _find_core(manifest: Manifest) -> Optional[Path]:
    """The core of the process, at the place that core_pattern names."""
    pid = manifest.get("pid", 0)
    where = resolve(parse(manifest.get("core_pattern", ""), uses_pid=False), {"p": str(pid)}, manifest.get("cwd", "/"))
    for path in glob.glob(where) + glob.glob(f"{where}.{pid}") if where else []:
        with contextlib.suppress(OSError), open(path, "rb") as file:
            head = read_head(file.fileno())
            if head is not None and head.pid == pid:
                return Path(path)
    return None


def _adopt(store: Store, folder: Path, manifest: Manifest, core: Optional[Path], has_log: bool) -> None:
    when = (core or folder / "faulthandler.log").stat().st_mtime
    manifest["time"] = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(when))
    if has_log:
        manifest.setdefault("files", []).append({"name": "faulthandler.log", "kind": "faulthandler"})
    if core is not None:
        from crashkit.collect.keep import copy_core
        from crashkit.collect.supervise.core_watch import CoreFile
        from crashkit.naming.signals import signal_name

        taken = CoreFile(str(core), os.open(core, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), None, False)
        taken.head = read_head(taken.descriptor)
        if taken.head is not None and copy_core(taken, folder / "core", store) is None:
            manifest.setdefault("files", []).append({"name": "core", "kind": "core", "size": taken.size, "expected": taken.head.expected})
            manifest["signal"], manifest["signal_name"] = taken.head.signal, signal_name(taken.head.signal)
            manifest["exit_status"] = 128 + taken.head.signal
            taken.remove_original()
        taken.drop()
    for dump in cuda_variables.dumps(folder, manifest.get("pid", 0)):
        dump.chmod(0o600)
        manifest.setdefault("files", []).append({"name": dump.name, "kind": "gpu-core", "size": dump.stat().st_size})
    name = identity(when, manifest.get("pid", 0), manifest.get("executable", "python"))
    manifest["id"] = name
    write_manifest(folder, manifest)
    store.publish(folder, name)
