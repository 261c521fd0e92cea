"""`crashkit run`: a command as it is, and a report when it crashes."""

from __future__ import annotations

import sys
from typing import Optional

import click


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option(
    "--capture",
    type=click.Choice(["auto", "core", "ptrace"]),
    default="auto",
    show_default=True,
    help="By the core that the kernel writes, or by gdb, which traces the command. auto: gdb where no core can be had.",
)
@click.option("--core/--no-core", "keep_core", default=True, help="With --capture ptrace: keep a core too, not only the stacks.")
@click.option("--cuda", is_flag=True, help="Have CUDA write GPU core dumps at an exception, and on request.")
@click.option("--blocking", is_flag=True, help="CUDA_LAUNCH_BLOCKING=1: the Python line of a CUDA error is the exact one; slow.")
@click.option("--sanitizer", is_flag=True, help="TORCH_CUDA_SANITIZER=1: find data races between CUDA streams; slow.")
@click.option(
    "--stderr/--no-stderr",
    "keep_stderr",
    default=True,
    help="Keep the end of the command's stderr, or leave it alone (interactive shells).",
)
@click.option("--restart", type=click.Choice(["never", "on-crash"]), default="never", show_default=True)
@click.option("--restart-limit", type=click.IntRange(1), default=5, show_default=True, help="Restarts in a row.")
@click.option(
    "--restart-delay", type=click.FloatRange(0), default=1.0, show_default=True, help="Seconds before the first; doubled each time."
)
@click.option("--on-crash", metavar="COMMAND", help="Run this after each report, with the report's path as its last argument.")
@click.option("--max-crashes", type=click.IntRange(1), default=10, show_default=True, help="Crashes kept at once; then one a minute.")
@click.option("--keep", type=click.IntRange(1), default=50, show_default=True, help="Crashes in the store.")
@click.option("--keep-days", type=click.FloatRange(0), default=30.0, show_default=True)
@click.option("--keep-size", default="20G", show_default=True, metavar="SIZE", help="Of the store; K, M, G or T.")
@click.option("--zstd", "compress", is_flag=True, help="Compress the cores in the store.")
@click.option("--analyze/--no-analyze", default=True, help="Make the report at once, or only keep the evidence.")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- COMMAND ARG...")
def command(
    capture: str,
    keep_core: bool,
    cuda: bool,
    blocking: bool,
    sanitizer: bool,
    keep_stderr: bool,
    restart: str,
    restart_limit: int,
    restart_delay: float,
    on_crash: Optional[str],
    max_crashes: int,
    keep: int,
    keep_days: float,
    keep_size: str,
    compress: bool,
    analyze: bool,
    command: tuple[str, ...],
) -> None:
    """Run a command; when it or a child of it crashes, leave a report.

    The command runs exactly as it would without us. A report of each process that dies of a signal lies in the crash store (crashkit list).
    Exits as the command does: 128 + number where a signal ended it, 127 where it does not exist, 126 where it cannot run.
    """
    from crashkit.collect.run import Request, run
    from crashkit.crashfolder.store import Retention

    request = Request(
        command=command,
        capture=capture,
        keep_core=keep_core,
        cuda=cuda,
        blocking=blocking,
        sanitizer=sanitizer,
        keep_stderr=keep_stderr,
        restart_limit=restart_limit if restart == "on-crash" else 0,
        restart_delay=restart_delay,
        on_crash=on_crash,
        burst=max_crashes,
        retention=Retention(keep, keep_days * 86400, parse_size(keep_size)),
        compress=compress,
        analyze=analyze,
    )
    sys.exit(run(request))


def parse_size(text: str) -> int:
    """Bytes from `20G` and the like; powers of 1024."""
    units = {"K": 10, "M": 20, "G": 30, "T": 40}
    number, unit = (text[:-1], text[-1].upper()) if text and text[-1].upper() in units else (text, "")
    try:
        return int(float(number) * (1 << units.get(unit, 0)))
    except (ValueError, OverflowError):
        raise click.BadParameter(f"{text!r} is no size such as 500M or 20G") from None
