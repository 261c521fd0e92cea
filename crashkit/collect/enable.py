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
from crashkit.collect.inventory import inventory
from crashkit.crashfolder.files import open_regular
from crashkit.crashfolder.manifest import SCHEMA, Manifest, read_manifest, write_manifest
from crashkit.crashfolder.store import Store
from crashkit.crashfolder.work import Work
from crashkit.elf.core_head import read_head
from crashkit.environment import shown
from crashkit.errors import CollectError
from crashkit.secrets.text import Secrets

_KIND = "enabled"


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
    could_not += [f"{problem.message}. {problem.mend}" for problem in outlook.judge(outlook.gather(working_folder()))]
    try:
        if _log is None:
            store, work = _work_folder()
            _log_folder = work.path
            _log = work.create("faulthandler.log")
            atexit.register(_leave, store, work, os.getpid())
            os.register_at_fork(after_in_child=work.close)  # a child may outlive us: the folder is about this process
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


def _work_folder() -> tuple[Store, Work]:
    """A work folder that `adopt` turns into a crash once this process has died."""
    store = Store()
    work = store.begin(_KIND)
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
    write_manifest(work.descriptor, manifest)
    return store, work


def _leave(store: Store, work: Work, owner: int) -> None:
    """Remove the folder at a clean exit."""
    if os.getpid() != owner:
        return
    faulthandler.disable()
    log = work.stat("faulthandler.log")
    if log is None or not log.st_size:
        store.discard(work)


def adopt(store: Store) -> None:
    """Publish the folders of dead processes that left a log or a core as crashes; remove the others."""
    for work in store.abandoned(_KIND):
        with contextlib.suppress(OSError, CollectError):  # another time: everything is where it was
            manifest = read_manifest(work.descriptor) or {"schema": SCHEMA, "analysis": "none"}
            core = _find_core(manifest) if work.stat("core") is None else None
            if core is None and not inventory(work):
                store.discard(work)
            else:
                _adopt(store, work, manifest, core)
                work.done()
        work.close()


def _find_core(manifest: Manifest) -> Optional[Path]:
    """The core of the process, at the place that core_pattern names."""
    pid = manifest.get("pid", 0)
    if not pid:
        return None
    where = resolve(parse(manifest.get("core_pattern", ""), uses_pid=False), {"p": str(pid)}, manifest.get("cwd", "/"))
    for path in glob.glob(where) + glob.glob(f"{where}.{pid}") if where else []:
        with contextlib.suppress(OSError), open(path, "rb") as file:
            head = read_head(file.fileno())
            if head is not None and head.pid == pid:
                return Path(path)
    return None


def _adopt(store: Store, work: Work, manifest: Manifest, core: Optional[Path]) -> None:
    from crashkit.collect.keep import copy_core, ended_by, publish

    if core is not None:
        with open_regular(core) as source:
            failure = copy_core(source.fileno(), work, store)
            if failure is None:
                os.unlink(core)
            else:
                manifest.setdefault("notes", []).append(f"{failure}; it stays at {core}")
    with contextlib.suppress(OSError), open_regular("core", work.descriptor) as file:
        head = read_head(file.fileno())
        if head is not None:
            manifest.update(ended_by(head.signal))
    stats = [work.stat(file["name"]) for file in inventory(work)]
    when = max((stat.st_mtime for stat in stats if stat is not None), default=time.time())
    manifest["time"] = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(when))
    publish(work, manifest, store, when)
