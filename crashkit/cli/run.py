"""`crashkit run`: run a command unchanged and report its crashes."""

from __future__ import annotations

from typing import Optional

import click

from crashkit.cli.completion import files
from crashkit.cli.index_option import checked_index


@click.command(context_settings={"allow_interspersed_args": False})
@click.option(
    "--capture",
    type=click.Choice(["auto", "core", "ptrace"]),
    default="auto",
    show_default=True,
    help="core: use the core that the kernel writes. ptrace: trace the command, with gdb for whole cores. auto: ptrace for minimal cores, "
    "and if the kernel writes no core.",
)
@click.option("--core/--no-core", "keep_core", default=True, help="With --capture ptrace: keep the core, or only the stacks.")
@click.option(
    "--cuda",
    is_flag=True,
    help="Write GPU core dumps on CUDA exceptions and on request. Driver 580 then loses some faults of a kernel's last store: if an "
    "error disappears, use --blocking without --cuda, and compute-sanitizer.",
)
@click.option("--blocking", is_flag=True, help="Set CUDA_LAUNCH_BLOCKING=1: exact Python line of a CUDA error; slow.")
@click.option(
    "--asan",
    is_flag=True,
    help="Preload AddressSanitizer: the report shows the line that damages the heap or uses freed memory, without rebuilding anything. The "
    "command takes about twice as long, and more memory.",
)
@click.option("--sanitizer", is_flag=True, help="Set TORCH_CUDA_SANITIZER=1: find data races between CUDA streams; slow.")
@click.option(
    "--stderr/--no-stderr",
    "keep_stderr",
    default=True,
    help="Keep the end of the command's stderr, or do not touch stderr (for interactive shells).",
)
@click.option(
    "--restart", type=click.Choice(["never", "on-crash"]), default="never", show_default=True, help="When to restart the command."
)
@click.option("--restart-limit", type=click.IntRange(1), default=5, show_default=True, help="Maximum number of restarts in a row.")
@click.option(
    "--restart-delay", type=click.FloatRange(0), default=1.0, show_default=True, help="Seconds before the first restart; doubled each time."
)
@click.option("--on-crash", metavar="COMMAND", help="Run COMMAND after each report, with the report's path as its last argument.")
@click.option(
    "--max-crashes", type=click.IntRange(1), default=10, show_default=True, help="Crashes kept in a burst; after that, one per minute."
)
@click.option(
    "--keep",
    "kept",
    multiple=True,
    metavar="full|minimal|N",
    help="full: whole cores. minimal: only the memory that the report needs, and no secrets. N: maximum number of crashes in the store. "
    "[default: full, 50]",
)
@click.option("--keep-days", type=click.FloatRange(0), default=30.0, show_default=True, help="Days to keep a crash.")
@click.option("--keep-size", default="20G", show_default=True, metavar="SIZE", help="Maximum size of the store, in K, M, G or T.")
@click.option("--zstd", "compress", is_flag=True, help="Compress cores in the store with zstd.")
@click.option("--analyze/--no-analyze", default=True, help="Write the report immediately, or only keep the evidence.")
@click.option("--show-secrets", is_flag=True, help="Keep and show what looks like a password, token or key, instead of masking it.")
@click.option("--locals/--no-locals", "show_locals", default=True, help="Show or omit the values of arguments and local variables.")
@click.option(
    "--index",
    envvar="CRASHKIT_INDEX",
    callback=checked_index,
    metavar="URL",
    help="Record the crashes in this history: a file, postgresql://..., or none.  [default: the one in the crash store]",
)
@click.option("--wait-daemons", is_flag=True, help="After the command has ended, wait until every process that it started has ended.")
@click.option(
    "--on-exit",
    type=click.Choice(["known", "never"]),
    default="known",
    show_default=True,
    help="Report a command that ends by itself with an error if the end of its stderr is a known failure, such as a CUDA error.",
)
@click.option(
    "--hang-after",
    type=click.FloatRange(min=0, min_open=True),
    metavar="SECONDS",
    help="Write a report when there has been no progress for this long.",
)
@click.option(
    "--on-hang",
    type=click.Choice(["report", "abort", "restart"]),
    default="report",
    show_default=True,
    help="After the report of a hang: let the command continue, end it, or restart it.",
)
@click.option("--heartbeat", metavar="FILE", help="With --hang-after: the only sign of progress is that the command touches this file.")
@click.option("--health", metavar="URL", help="With --hang-after: the only sign of progress is that this HTTP address answers.")
@click.option(
    "--siblings/--no-siblings",
    default=True,
    help="When one of several processes fails, also report what the others were doing.",
)
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED, shell_complete=files, metavar="-- COMMAND ARG...")
def command(
    capture: str,
    keep_core: bool,
    cuda: bool,
    blocking: bool,
    asan: bool,
    sanitizer: bool,
    keep_stderr: bool,
    restart: str,
    restart_limit: int,
    restart_delay: float,
    on_crash: Optional[str],
    max_crashes: int,
    kept: tuple[str, ...],
    keep_days: float,
    keep_size: str,
    compress: bool,
    analyze: bool,
    show_secrets: bool,
    show_locals: bool,
    index: Optional[str],
    wait_daemons: bool,
    on_exit: str,
    hang_after: Optional[float],
    on_hang: str,
    heartbeat: Optional[str],
    health: Optional[str],
    siblings: bool,
    command: tuple[str, ...],
) -> int:
    """Run a command and write a report when it or a child process crashes.

    The command runs exactly as it would without crashkit. Each process that dies of a signal gets a report in the crash store
    (see crashkit list). Exits with the status of the command: 128 + number if a signal killed it, 127 if it does not exist, 126 if
    it cannot be run.
    """
    from crashkit.collect.run import Request, run
    from crashkit.collect.supervise.hang import Limits
    from crashkit.crashfolder.store import Retention

    if hang_after is None and (on_hang != "report" or heartbeat or health):
        raise click.UsageError("--on-hang, --heartbeat and --health need --hang-after SECONDS")
    if heartbeat and health:
        raise click.UsageError("--heartbeat and --health cannot be used together")
    keep, minimal = parse_keep(kept)
    if minimal and not analyze:
        raise click.UsageError("--keep minimal needs the report, which shows what to keep: omit --no-analyze")
    request = Request(
        command=command,
        capture=capture,
        keep_core=keep_core,
        minimal=minimal,
        cuda=cuda,
        blocking=blocking,
        asan=asan,
        sanitizer=sanitizer,
        keep_stderr=keep_stderr,
        restart_limit=restart_limit if restart == "on-crash" or on_hang == "restart" else 0,
        restart_delay=restart_delay,
        on_crash=on_crash,
        burst=max_crashes,
        retention=Retention(keep, keep_days * 86400, parse_size(keep_size)),
        compress=compress,
        analyze=analyze,
        show_secrets=show_secrets,
        locals=show_locals,
        history=index,
        wait_daemons=wait_daemons,
        on_exit=on_exit == "known",
        siblings=siblings,
        hang=Limits(hang_after, on_hang, heartbeat, health) if hang_after is not None else None,
    )
    return run(request)


def parse_keep(values: tuple[str, ...]) -> tuple[int, bool]:
    """How many crashes to keep, and whether only minimal cores. Raises click.BadParameter for anything else."""
    count, minimal = 50, False
    for value in values:
        if value in ("full", "minimal"):
            minimal = value == "minimal"
        elif value.isascii() and value.isdigit() and int(value) > 0:
            count = int(value)
        else:
            raise click.BadParameter(f"{value!r} is not full, minimal or a number of crashes", param_hint="--keep")
    return count, minimal


def parse_size(text: str) -> int:
    """Bytes in a size such as `20G`, in powers of 1024. Raises click.BadParameter if it is not a size."""
    units = {"K": 10, "M": 20, "G": 30, "T": 40}
    number, unit = (text[:-1], text[-1].upper()) if text and text[-1].upper() in units else (text, "")
    try:
        return int(float(number) * (1 << units.get(unit, 0)))
    except (ValueError, OverflowError):
        raise click.BadParameter(f"{text!r} is not a size such as 500M or 20G") from None
