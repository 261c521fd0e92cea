"""Watch a process and all that it starts; at a fatal signal take a core, or the stacks as text. For `crashkit run --capture ptrace`.

Runs in gdb, attached to the process before that executes its command. Talks through the environment:
CRASHKIT_CAPTURE_FOLDER  where PID.core and PID.gdb.txt go
CRASHKIT_CAPTURE_CORE    1: a core, the stacks only where that fails; 0: the stacks
CRASHKIT_CAPTURE_READY   descriptor to which one byte is written once gdb watches
Standard library only, Python 3.8 and newer.
"""

import os
import re
import time
from typing import Dict, List

import gdb

MEANING = {
    "SIGSEGV": "Segmentation fault",
    "SIGBUS": "Bus error",
    "SIGABRT": "Aborted",
    "SIGFPE": "Arithmetic exception",
    "SIGILL": "Illegal instruction",
    "SIGSYS": "Bad system call",
    "SIGQUIT": "Quit",
}
FATAL = tuple(MEANING)
AGAIN = 2.0
"""Seconds within which a second fatal signal is the first one, raised again by its handler: the first stop has the better stacks."""

MOST_FAILURES = 50

SETTINGS = (
    "set pagination off",
    "set confirm off",
    "set width 0",
    "set print inferior-events off",
    "set print thread-events off",
    "set print symbol-loading off",
    "set auto-solib-add off",  # nothing is loaded before it is needed
    "set detach-on-fork off",  # children are watched too,
    "set schedule-multiple on",  # and run
    "set follow-fork-mode parent",
    "set follow-exec-mode same",
    "set use-coredump-filter on",  # the same memory as the kernel's core would have
    "set dump-excluded-mappings off",
    "handle all nostop noprint pass",
    "handle SIGINT nostop noprint pass",
    "handle %s stop print pass" % " ".join(FATAL),
)


def capture(inferior: gdb.Inferior, signal: str, folder: str, core_wanted: bool) -> None:
    """Write a core or the stacks of the stopped process; the core gets its final name once it is complete."""
    thread = gdb.selected_thread()
    base = os.path.join(folder, str(inferior.pid))
    if core_wanted:
        try:
            gdb.execute("gcore %s.partial" % base, to_string=True)
            os.chmod(base + ".partial", 0o600)
            os.rename(base + ".partial", base + ".core")
            return
        except (gdb.error, OSError) as error:
            failure = "gcore: %s\n" % error
            if os.path.exists(base + ".partial"):
                os.unlink(base + ".partial")
    else:
        failure = ""
    gdb.execute("sharedlibrary", to_string=True)
    stacks = gdb.execute("thread apply %d.* backtrace -frame-arguments scalars 200" % inferior.num, to_string=True)
    # As in a gdb that knows of one process.
    stacks = re.sub(r"(?m)^Thread %d\.(\d+) " % inferior.num, r"Thread \1 ", stacks)
    descriptor = os.open(base + ".gdb.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8", errors="backslashreplace") as file:
        file.write(failure + 'Thread %d "%s" received signal %s, %s.\n' % (thread.num, thread.name, signal, MEANING[signal]) + stacks)


def watch(folder: str, core_wanted: bool) -> None:
    """Continue the processes and capture each one that gets a fatal signal. Ends gdb once none is alive."""
    stopped: List[gdb.Event] = []
    gdb.events.stop.connect(stopped.append)
    taken: Dict[int, float] = {}
    failures = 0
    while select_living():
        del stopped[:]
        try:
            gdb.execute("continue", to_string=True)
            failures = 0
        except gdb.error as error:  # a process that ends just now cannot be continued; the others can
            failures += 1
            if failures == MOST_FAILURES:
                print("watching ended: %s" % error, flush=True)
                return
        inferior = gdb.selected_inferior()
        fatal = [event for event in stopped if isinstance(event, gdb.SignalEvent) and event.stop_signal in FATAL]
        if fatal and inferior.pid and time.monotonic() - taken.get(inferior.pid, -AGAIN) >= AGAIN:
            try:
                capture(inferior, fatal[-1].stop_signal, folder, core_wanted)
            except Exception as error:  # the command goes on, whatever happens here
                print("capture of %d: %s" % (inferior.pid, error), flush=True)
            taken[inferior.pid] = time.monotonic()
    # All are gone. gdb 13 may abort in its own end when a process vanished under it, so that is left out.
    os._exit(0)


def select_living() -> bool:
    """Select a live process and remove those that ended; False if none is alive."""
    living = [inferior for inferior in gdb.inferiors() if inferior.pid and inferior.threads()]
    if not living:
        return False
    try:
        if gdb.selected_inferior() not in living:
            gdb.execute("inferior %d" % living[0].num, to_string=True)
        for inferior in gdb.inferiors():
            if inferior not in living and inferior.num != gdb.selected_inferior().num:
                gdb.execute("remove-inferiors %d" % inferior.num, to_string=True)
    except gdb.error:  # it ended meanwhile: the next turn sees it
        pass
    return True


for setting in SETTINGS:
    gdb.execute(setting, to_string=True)
os.write(int(os.environ["CRASHKIT_CAPTURE_READY"]), b".")
os.close(int(os.environ["CRASHKIT_CAPTURE_READY"]))
watch(os.environ["CRASHKIT_CAPTURE_FOLDER"], os.environ["CRASHKIT_CAPTURE_CORE"] == "1")
