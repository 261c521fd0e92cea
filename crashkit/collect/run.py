"""`crashkit run`: choose how to capture a crash, report what is not possible, and start the supervisor."""

from __future__ import annotations

import contextlib
import errno
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Optional

from crashkit import isolation
from crashkit.collect.host import cuda, outlook
from crashkit.collect.host.limits import all_limits
from crashkit.collect.host.snapshot import working_folder
from crashkit.collect.supervise.hang import Limits as HangLimits
from crashkit.collect.supervise.restart import Restart
from crashkit.collect.supervise.sighting import RunSettings, printable, say
from crashkit.collect.supervise.spawn import SpawnError
from crashkit.collect.supervise.storm import Storm
from crashkit.collect.supervise.supervisor import Options, Supervisor
from crashkit.crashfolder.store import Retention, Store, home, temporary_store
from crashkit.crashfolder.work import LOCK, Work
from crashkit.errors import CollectError
from crashkit.history.address import INSTALL, NONE, installed

if TYPE_CHECKING:
    from crashkit.collect.host.asan import Preload
    from crashkit.collect.supervise.tracer import Held


class Request(NamedTuple):
    """The options of the command line."""

    command: tuple[str, ...]
    capture: str = "auto"
    keep_core: bool = True
    minimal: bool = False
    """Keep of each core only what its report needs."""
    cuda: bool = False
    blocking: bool = False
    sanitizer: bool = False
    asan: bool = False
    keep_stderr: bool = True
    restart_limit: int = 0
    """Restarts in a row; 0 disables them."""
    restart_delay: float = 1.0
    on_crash: Optional[str] = None
    burst: int = 10
    retention: Retention = Retention()
    compress: bool = False
    analyze: bool = True
    show_secrets: bool = False
    locals: bool = True
    history: Optional[str] = None
    """Its address, if it is not the store's own."""
    wait_daemons: bool = False
    on_exit: bool = True
    kills_on_purpose: bool = False
    """See `Options.kills_on_purpose` of the supervisor."""
    again: Optional[Callable[[int, bytes], bool]] = None
    """See `Options.again` of the supervisor."""
    kept: Optional[Path] = None
    """See `RunSettings.kept`."""
    hang: Optional[HangLimits] = None
    siblings: bool = False


def run(request: Request) -> int:
    """Run the command and return the status to exit with. The command runs even if the crash store fails.

    Raises CollectError if --capture ptrace needs a script, or --asan a library, that is not installed, or does not suit the command.
    """
    preload = _asan(request.command) if request.asan else None
    closed = _occupy_closed_streams()
    place = _store()
    if place is None:
        return _run_alone(request, preload)
    store, inbox, helpers = place
    folder = inbox.path
    facts = outlook.gather(working_folder())
    problems = outlook.judge(facts)
    capture, tracer = _capture(request, problems)
    if capture != "ptrace":
        for problem in problems:
            say(f"{problem.message}. {problem.mend}")
    if request.history not in (None, NONE) and not installed():
        say(f"the history needs SQLAlchemy: until it is installed, crashes wait for it in the crash store; {INSTALL}")
    gpu_folder = None
    if request.cuda:
        gpu_folder = folder / "gpu"
        gpu_folder.mkdir(mode=0o700)
    environment = dict(os.environ)
    environment.update(evidence_variables(environment, request, gpu_folder, preload))
    settings = RunSettings(
        command=request.command,
        environment=environment,
        store=store,
        pattern=facts.pattern,
        capture=capture,
        inbox=inbox,
        gpu_folder=gpu_folder,
        began=time.time(),
        began_monotonic=time.monotonic(),
        limits=all_limits(),
        retention=request.retention,
        keep_core=request.keep_core,
        minimal=request.minimal or tracer == "crashkit",
        compress=request.compress,
        on_crash=request.on_crash,
        analyze=request.analyze,
        show_secrets=request.show_secrets,
        locals=request.locals,
        on_exit=request.on_exit,
        history=request.history,
        kept=request.kept,
    )
    options = Options(
        environment=environment,
        cuda=request.cuda,
        keep_stderr=request.keep_stderr and 2 not in closed,
        again=request.again,
        kills_on_purpose=request.kills_on_purpose,
        restart=Restart(request.restart_limit, request.restart_delay) if request.restart_limit else None,
        storm=Storm(request.burst),
        watcher=_watcher(tracer, inbox, request) if capture == "ptrace" else None,
        helpers=helpers,
        wait_daemons=request.wait_daemons,
        hang=request.hang,
        siblings=request.siblings,
    )
    try:
        return Supervisor(settings, options).run()
    except SpawnError as error:
        _refuse(error)
        return error.status
    finally:
        _leave(store, inbox)


def _resume(store: Store) -> frozenset[int]:
    """Start to finish what earlier runs left, if they did; the pid of the process that does."""
    if not store.has_unfinished():
        return frozenset()
    from crashkit.collect.recover import in_background

    say("finishing in the background what an interrupted run or analysis left behind; see crashkit list")
    return frozenset([in_background(store)])


def _leave(store: Store, inbox: Work) -> None:
    """Remove the folder of the run, unless there is evidence in it that nobody has taken."""
    if _holds_evidence(inbox):
        inbox.close()
        say(f"evidence that was not saved yet is in {inbox.path}; crashkit list tries to add it to the crash store")
    else:
        store.discard(inbox)
    if store.is_temporary:
        with contextlib.suppress(OSError):
            store.path.rmdir()  # where no crash is in it


def _watcher(tracer: str, inbox: Work, request: Request) -> Callable[[int], int]:
    if tracer == "crashkit":
        from crashkit.collect.supervise.tracer import watcher

        return watcher(inbox, _take_minimal)
    from crashkit.collect.capture import watcher as gdb_watcher

    return gdb_watcher(inbox.path, request.keep_core)


def evidence_variables(
    environment: dict[str, str], request: Request, gpu_folder: Optional[Path] = None, preload: Optional[Preload] = None
) -> dict[str, str]:
    """Variables to add to the command's environment; what is set in it stays. Pure."""
    # Without it, uWSGI's own handler of SIGSEGV ends a worker by exit(1): no core, and no signal that its master or we could see.
    wanted = {"PYTHONFAULTHANDLER": "1", "UWSGI_USE_ABORT": "1"}
    if request.blocking:
        wanted["CUDA_LAUNCH_BLOCKING"] = "1"
    if request.sanitizer:
        wanted["TORCH_CUDA_SANITIZER"] = "1"
    if gpu_folder is not None:
        wanted.update(cuda.variables(environment, gpu_folder))
    added = {name: value for name, value in wanted.items() if name not in environment}
    return added | preload.variables(environment) if preload is not None else added


def _asan(command: tuple[str, ...]) -> Preload:
    """Raises CollectError."""
    from crashkit.collect.host.asan import preload  # reads ELF files: few runs want it
    from crashkit.collect.host.program import program_of

    return preload(program_of(command)[0])


def _occupy_closed_streams() -> set[int]:
    """The standard streams that are closed. We occupy their numbers; the command still finds them closed."""
    closed = set()
    while (descriptor := os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)) <= 2:
        closed.add(descriptor)
    os.close(descriptor)
    return closed


def _holds_evidence(inbox: Work) -> bool:
    try:
        if inbox.names() == [LOCK]:
            return False  # the usual end, without the time that the import takes
        from crashkit.collect.recover import orphans

        return any(True for _ in orphans(inbox))
    except OSError:  # the store is gone, or cannot be read
        return inbox.path.exists()


def _store() -> Optional[tuple[Store, Work, frozenset[int]]]:
    """The crash store, the folder of this run in it, and the pids of `_resume`; a temporary store if it is not writable.

    None if neither works.
    """
    try:
        store = Store()
        helpers = _resume(store)  # first: who is forked later holds the lock of this run
        return store, store.begin("run"), helpers
    except (CollectError, OSError) as error:
        hint = error.hint if isinstance(error, CollectError) else "Set CRASHKIT_HOME to a writable folder."
        what = str(error) if isinstance(error, CollectError) else f"cannot write to the crash store {home()}: {error.strerror}"
        temporary = temporary_store()
        if temporary is None:
            say(f"{what}, and there is no temporary folder: the command runs with faulthandler only and a crash leaves no report. {hint}")
            return None
        say(f"{what}; crashes go to {temporary.path}. {hint}")
        return temporary, temporary.begin("run"), frozenset()


def _run_alone(request: Request, preload: Optional[Preload]) -> int:
    """Become the command, with faulthandler enabled; the status to exit with if it cannot be run."""
    environment = {**os.environ, **evidence_variables(dict(os.environ), request, preload=preload)}
    try:
        os.execvpe(request.command[0], request.command, environment)
    except OSError as error:
        failure = SpawnError(request.command[0], error.errno or errno.EIO)
        _refuse(failure)
        return failure.status


def _refuse(error: SpawnError) -> None:
    say(str(error))
    say(printable(error.hint))


def _take_minimal(held: Held, path: Path) -> bool:
    from crashkit.collect.stopped_core import take_minimal  # in a process of its own, once something crashes

    return take_minimal(held, path)


def _capture(request: Request, problems: list[outlook.Problem]) -> tuple[str, str]:
    """core or ptrace, and who traces: gdb, which takes whole cores, or crashkit, which takes minimal ones.

    auto has the command traced where minimal cores are wanted, and where no whole core is possible.
    """
    wanted = request.capture
    if wanted == "core":
        return "core", ""
    if request.minimal and (wanted == "ptrace" or request.hang is None) and _may_trace(request):
        return "ptrace", "crashkit"
    fatal = [problem for problem in problems if problem.fatal or problem.cuts]
    scarce = [problem for problem in problems if problem.scarce]
    if wanted == "auto" and scarce and _may_trace(request):
        say(f"{scarce[0].message}: minimal cores are kept, which hold all that a report needs (--keep minimal)")
        return "ptrace", "crashkit"
    if wanted == "auto" and not fatal:
        return "core", ""
    if isolation.find_program("gdb") is None:
        if wanted == "ptrace":
            say("gdb is not installed, so --capture ptrace is not possible; apt-get install gdb")
        elif _may_trace(request):
            say(f"{fatal[0].message}: minimal cores are kept (--keep minimal)")
            return "ptrace", "crashkit"
        return "core", ""
    if wanted == "auto":
        say(f"{fatal[0].message}: gdb traces the command instead (--capture ptrace)")
    return "ptrace", "gdb"


def _may_trace(request: Request) -> bool:
    """Whether we can take minimal cores, which takes an analysis."""
    if not request.keep_core or not request.analyze:
        return False
    from crashkit.collect.supervise.tracer import is_possible

    return is_possible()
