"""The command line: one module per command, imported on use. Only this package prints and exits."""

from __future__ import annotations

import errno
import gc
import os
import sys
from importlib import import_module
from typing import Any, NoReturn, Optional

import click

from crashkit import __version__
from crashkit.errors import CrashkitError

# The help page must not import twelve modules: this repeats the first line of each command's help; a test compares them.
COMMANDS = {
    "analyze": "Show where and why a process died, from its core or other evidence.",
    "attach": "Show what a running process does and what its threads wait for.",
    "run": "Run a command and write a report when it or a child process crashes.",
    "ci": "Find, analyze and group all crashes among the artefacts of a run.",
    "list": "List the crashes in the store, newest first.",
    "show": "Show one crash from the store.",
    "gdb": "Open a crash in gdb, with symbols and CPython's commands loaded.",
    "compare": "Show what differs between two crashes.",
    "groups": "List equal crashes in groups, from the history.",
    "bundle": "Put a crash and what another machine needs to analyze it into one file.",
    "rm": "Remove crashes from the store.",
    "doctor": "Check whether a crash would leave evidence here, and how to fix problems.",
    "signatures": "List, show and test the known failures.",
    "demo": "Crash a small server for real and show its report.",
}

EXPECTED_ERROR, USAGE, OUR_BUG, INTERRUPTED = 1, 2, 3, 130
_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""A full disk, a quota, and `ulimit -f`."""


# Importing a command makes its module a name here: `list` is one of them, not the built-in.
class _Commands(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*COMMANDS]

    def get_command(self, ctx: click.Context, cmd_name: str) -> Optional[click.Command]:
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = import_module(f"crashkit.cli.{cmd_name}").command
        return command

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[Optional[str], Optional[click.Command], list[str]]:
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            raise click.UsageError(f"no such command {args[0]!r}{_suggestion(args[0])}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([*COMMANDS.items()])


_SYNONYMS = {
    "help": "--help", "version": "--version", "analyse": "analyze", "report": "show", "open": "show", "view": "show", "info": "show",
    "delete": "rm", "remove": "rm", "clean": "rm", "prune": "rm", "diff": "compare", "debug": "gdb", "history": "groups", "hang": "attach",
    "dump": "attach", "check": "doctor", "exec": "run", "start": "run", "ls": "list", "pack": "bundle",
}  # fmt: skip
"""Words of other tools."""


def _suggestion(word: str) -> str:
    """What somebody who typed `word` probably meant: a core, a crash in the store, or a command."""
    from difflib import get_close_matches

    from crashkit.crashfolder.ids import time_of

    if os.path.exists(word):  # noqa: PTH110  # pathlib's raises for a name that is too long
        return f"; to analyze a file: crashkit analyze {word}"
    if time_of(word) is not None:
        return f"; to show a crash: crashkit show {word}"
    close = [_SYNONYMS[word]] if word in _SYNONYMS else get_close_matches(word, COMMANDS, 1)
    return f"; did you mean {close[0]!r}?" if close else ""


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="crashkit")
def group() -> None:
    """From a dead Python process to the line and the cause.

    \b
    A core file:            crashkit analyze core
    No evidence yet:        crashkit run -- python server.py
    Check this machine:     crashkit doctor
    """


def main() -> NoReturn:
    """Run the command line and exit: 0 success, 1 expected error, 2 usage, 3 bug in crashkit, 130 interrupted."""
    status = _status(sys.argv[1:])
    # As it ends, Python looks for garbage among all objects that are left: a tenth of a second after an analysis.
    gc.freeze()
    sys.exit(status)


def _status(arguments: list[str]) -> int:
    if "_CRASHKIT_COMPLETE" in os.environ:
        import_module("crashkit.cli.completion")  # registers our shells with click
    try:
        result: Any = group.main(arguments, prog_name="crashkit", standalone_mode=False)
        if sys.stdout is not None:  # it may be closed
            sys.stdout.flush()
        return result if isinstance(result, int) else 0
    except click.exceptions.Exit as done:
        return done.exit_code
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except CrashkitError as error:
        complain(error)
        return EXPECTED_ERROR
    except (KeyboardInterrupt, click.Abort):
        if sys.stderr is not None and sys.stderr.isatty():
            click.echo(err=True)  # the terminal wrote ^C, or the answer to a question is missing
        # If the interrupt came through exec(), as in a dataclass that was being made, `python -m` would end by SIGINT although it was
        # caught: only the next exec() clears that (run_eval_code_obj in Python/pythonrun.c, Py_RunMain in Modules/main.c).
        exec("")
        return INTERRUPTED
    except (BrokenPipeError, SystemExit):
        # Without its standalone mode, click exits by itself only where it meets a broken pipe.
        return _unread()
    except Exception as error:
        if isinstance(error, OSError) and error.errno in _NO_ROOM:
            return _no_room(error)
        return _our_bug(arguments)


def _unread() -> int:
    """The reader of our output had enough of it. Keep the interpreter from complaining about it at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


def _no_room(error: OSError) -> int:
    """Output, or a file that a command writes, does not fit on its disk."""
    complain(CrashkitError(f"cannot write {error.filename or 'the output'}: {error.strerror}", "Make room, or write to another disk."))
    if error.filename is None and sys.stdout is not None:
        _unread()
    return EXPECTED_ERROR


def complain(error: CrashkitError) -> None:
    """Print an expected error on stderr: one line for the message, one for the hint."""
    from crashkit.report import safe

    click.echo(f"crashkit: {safe.line(str(error))}\n{safe.line(error.hint)}", err=True)


def _our_bug(arguments: list[str]) -> int:
    import platform
    import tempfile
    import traceback

    system = " ".join(os.uname()[::2])  # platform.platform() would start a program that it looks for in PATH
    versions = f"crashkit {__version__}, Python {platform.python_version()}, {system}"
    details = f"{versions}\n{arguments!r}\n\n{traceback.format_exc()}"
    try:
        handle, path = tempfile.mkstemp(prefix="crashkit-bug-", suffix=".log")
        with os.fdopen(handle, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(details)
    except OSError:
        # A full disk is no reason to lose them.
        click.echo(f"crashkit: this is a bug in crashkit; please report it with these details:\n{details}", err=True)
        return OUR_BUG
    click.echo(f"crashkit: this is a bug in crashkit ({sys.exc_info()[1].__class__.__name__}); details are in {path}", err=True)
    click.echo("Please report it and attach that file; review it first, it contains file names.", err=True)
    return OUR_BUG
