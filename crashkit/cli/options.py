"""Options that several commands have."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Optional, TypeVar

import click

from crashkit.evidence.place import local_path

_Command = TypeVar("_Command", bound=Callable[..., Any])

exe = click.option("--exe", type=click.Path(path_type=Path), help="The executable that crashed, if it is not at the path in the core.")
sysroot = click.option(
    "--sysroot",
    type=click.Path(exists=True, path_type=Path),
    help="Root folder of the crashed system, such as a container's file system.",
)
path_maps = click.option(
    "--path-map", "path_maps", multiple=True, metavar="FROM=TO", help="Look under TO for files that the core places under FROM."
)
extra_dirs = click.option(
    "--search",
    "extra_dirs",
    multiple=True,
    type=click.Path(exists=True, path_type=Path),
    help="Search this folder for modules and debug files.",
)
_SYSTEM_FILES = (
    exe,
    sysroot,
    path_maps,
    extra_dirs,
    click.option("--debuginfod", is_flag=True, help="Download missing files from the debuginfod servers in DEBUGINFOD_URLS."),
)


def system_files(command: _Command) -> _Command:
    """Where the files of the crashed system are: exe, sysroot, path_maps, extra_dirs, debuginfod."""
    for option in reversed(_SYSTEM_FILES):
        command = option(command)
    return command


class EvidencePath(click.Path):
    """The path of evidence. Raises EvidenceError for a URL."""

    def __init__(self) -> None:
        super().__init__(path_type=Path, readable=False)

    def convert(self, value: Any, param: Optional[click.Parameter], ctx: Optional[click.Context]) -> Any:
        return super().convert(local_path(value), param, ctx)


def at_most_one(**options: bool) -> None:
    """What is printed is one document. Raises UsageError if more than one of these options was passed."""
    passed = [f"--{name}" for name, value in options.items() if value]
    if len(passed) > 1:
        raise click.UsageError(f"{passed[0]} and {passed[1]} cannot be combined: pass one of them.", click.get_current_context())


def path_map(text: str) -> tuple[str, Path]:
    """FROM=TO of `--path-map`. Raises BadParameter, also where TO is not there."""
    source, separator, target = text.partition("=")
    if not separator or not source or not target:
        raise click.BadParameter(f"{text!r} is not FROM=TO", param_hint="--path-map")
    if not Path(target).exists():
        raise click.BadParameter(f"Path {target!r} does not exist.", param_hint="--path-map")
    return source, Path(target)
