"""Run `make demo` and `make test` on fresh machines: minimal Debian systems in folders with a clone of this repository.

    python -m tests.anywhere [--on SUITE]... [--as USER]... [--demo-only | --quick] [--write]

`make test-anywhere` runs all combinations. Needs root and debootstrap. The minimal systems are kept in CRASHKIT_TEST_CACHE (default:
~/.cache/crashkit-tests); each run uses a temporary copy. Such a system shares this machine's kernel, and so its core_pattern.
The exit status is 1 if a command failed, 3 if a system could not be made.
"""

from __future__ import annotations

import argparse
import datetime
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tests.crashes import PATTERN_LOCK

ROOT = Path(__file__).parent.parent
CACHE = Path(os.environ.get("CRASHKIT_TEST_CACHE", Path.home() / ".cache" / "crashkit-tests"))
MATRIX = ROOT / "docs" / "support-matrix.md"
BEGIN, END = "<!-- anywhere: begin -->", "<!-- anywhere: end -->"

SUITES = {"bookworm": "Debian 12", "trixie": "Debian 13", "sid": "Debian sid"}
USERS = {"root": "root", "user": "a user with sudo", "guest": "a user without sudo"}
"""The last one has no gdb and cannot install it: the demo works without gdb, the tests cannot be set up."""
PACKAGES = "python3,python3-venv,make,git,ca-certificates,sudo"
"""Programs that a user who could clone the repository has."""

DEADLINE = 1500
SHOWN = 100
"""Lines of a failed command's output to show."""
NETWORK = ("SSL_CERT_FILE", "PIP_CERT", "PIP_INDEX_URL", "PIP_DEFAULT_TIMEOUT", "http_proxy", "https_proxy", "no_proxy")
"""Variables that give access to the package indexes; the systems need them too."""
AGAIN, FAILED_ONCE = "CRASHKIT_TEST_AGAIN", "Failed once, "
"""See .ci/tests."""

_ENTER = """
set -e
mount --make-rprivate /
mount --bind "$1" "$1"  # a root that is no mount point cannot be given a mount namespace of its own
mount -t proc proc "$1/proc"
mount --rbind /sys "$1/sys"
mount --rbind /dev "$1/dev"
mount -t tmpfs tmpfs "$1/dev/shm"
touch "$1/etc/resolv.conf"
mount --bind /etc/resolv.conf "$1/etc/resolv.conf"
[ ! -e "$2" ] || mount --bind "$2" "$1/etc/ssl/certs/ca-certificates.crt"
touch "$1$3"
mount --bind "$3" "$1$3"
cd "$1"
shift 3
pivot_root . mnt  # not chroot, in which nobody may make user namespaces
umount -l /mnt
exec "$@"
"""


class Outcome(NamedTuple):
    suite: str
    user: str
    command: str
    passed: bool
    seconds: float
    downloaded: int
    """Bytes that this machine received during the run."""
    detail: str
    """The last line of the command's output."""


class NoSystem(Exception):
    """Why a system cannot be made here."""


def bare_system(suite: str) -> Path:
    """A folder with the suite's minimal system and PACKAGES; created once. Raises NoSystem."""
    base = CACHE / f"bare-{suite}"
    if not base.exists():
        print(f"Creating a minimal {SUITES[suite]} in {base} ...", flush=True)
        CACHE.mkdir(parents=True, exist_ok=True)
        partial = Path(tempfile.mkdtemp(prefix=f"{suite}.", dir=CACHE))
        made = subprocess.run(
            ["debootstrap", "--variant=minbase", f"--include={PACKAGES}", suite, partial], capture_output=True, text=True, cwd="/"
        )
        if made.returncode:
            shutil.rmtree(partial, ignore_errors=True)
            raise NoSystem(f"debootstrap of {suite} failed: {''.join(made.stdout.strip().splitlines()[-1:])}")
        partial.chmod(0o755)
        partial.rename(base)
    return base


def fresh_copy(suite: str, user: str, folder: Path) -> str:
    """Make a copy for one run, with a clone in the user's home; return the path of the clone inside."""
    subprocess.run(["cp", "-a", "--reflink=auto", f"{bare_system(suite)}/.", folder], check=True)
    home = Path("/root") if user == "root" else Path("/home", user)
    clone = folder / home.relative_to("/") / "crashkit"
    if user != "root":
        subprocess.run(["chroot", folder, "useradd", "--create-home", "--shell", "/bin/bash", user], check=True)
    if user == "user":
        (folder / "etc/sudoers.d" / user).write_text(f"{user} ALL=(ALL) NOPASSWD: ALL\n")
    (folder / "etc/hosts").write_text(f"127.0.0.1 localhost {socket.gethostname()}\n")
    subprocess.run(["git", "clone", "--quiet", "--no-hardlinks", ROOT, clone], check=True)
    subprocess.run(["chroot", folder, "chown", "-R", f"{user}:", str(home / "crashkit")], check=True)
    return str(home / "crashkit")


def enter(folder: Path, user: str, command: str, log: Path) -> int:
    """Run a shell command in the system as that user, in new namespaces; return its exit status. Its output goes to the log."""
    PATTERN_LOCK.touch()  # the systems share core_pattern with this machine, so they share its lock
    certificates = os.environ.get("SSL_CERT_FILE", "")
    inside = {name: value for name in NETWORK if (value := os.environ.get(name))}
    if certificates:
        inside |= {name: "/etc/ssl/certs/ca-certificates.crt" for name in ("SSL_CERT_FILE", "PIP_CERT") if name in inside}
    if AGAIN in os.environ:
        inside[AGAIN] = "/dev/null"  # the log has the names
    words = ["su", "-", user, "-w", ",".join(inside), "-c", command] if inside else ["su", "-", user, "-c", command]
    namespaces = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--ipc"]
    argv = [*namespaces, "sh", "-c", _ENTER, "enter", folder, certificates, PATTERN_LOCK, *words]
    environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8", **inside}
    with log.open("wb") as output:
        try:
            return subprocess.run(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environment,
                timeout=DEADLINE,
                preexec_fn=_default_signals,
            ).returncode
        except subprocess.TimeoutExpired:
            return 124


def _default_signals() -> None:
    """Undo what nohup and shells without job control leave ignored: the tests send these signals."""
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
        signal.signal(number, signal.SIG_DFL)


def received() -> int:
    """Bytes received on all interfaces except loopback."""
    rows = (line.split(":") for line in Path("/proc/net/dev").read_text().splitlines() if ":" in line)
    return sum(int(numbers.split()[0]) for name, numbers in rows if name.strip() != "lo")


def closing_line(text: str) -> str:
    """pytest's counts if there are any, or else the last line."""
    lines = [line for line in text.splitlines() if line.strip()]
    counts = [found[1] for line in lines if (found := re.search(r"((?:\d+ \w+, )*\d+ (?:passed|failed|error\w*)[^=]*? in [\d.]+s)", line))]
    return (counts or lines or ["no output"])[-1].strip()


def try_system(suite: str, user: str, commands: Sequence[str], logs: Path) -> list[Outcome]:
    outcomes = []
    with tempfile.TemporaryDirectory(prefix=f"{suite}-", dir=CACHE) as name:
        folder = Path(name)
        folder.chmod(0o755)
        clone = fresh_copy(suite, user, folder)
        for command in commands[:1] if user == "guest" else commands:
            log = logs / f"{suite}-{user}-{command.split()[-1]}.log"
            print(f"{SUITES[suite]}, {USERS[user]}: {command} ...", flush=True)
            before, began = received(), time.monotonic()
            status = enter(folder, user, f"cd {clone} && {command}", log)
            seconds = time.monotonic() - began
            output = log.read_text(errors="replace")
            if status:
                print("\n".join(output.splitlines()[-SHOWN:]))
            for line in output.splitlines():
                if line.startswith(FAILED_ONCE):
                    print(f"  {line}")
            detail = closing_line(output)
            outcomes.append(Outcome(suite, user, command, status == 0, seconds, received() - before, detail))
            print(f"  {row(outcomes[-1])}", flush=True)
    return outcomes


def row(outcome: Outcome) -> str:
    result = "works" if outcome.passed else "**fails**"
    detail = f" ({outcome.detail})" if outcome.command != "make demo" or not outcome.passed else ""
    size = f"{outcome.downloaded / 1e6:.0f} MB"
    return (
        f"| {SUITES[outcome.suite]} | {USERS[outcome.user]} | `{outcome.command}` | {result}{detail} | {outcome.seconds:.0f} s | {size} |"
    )


def table(outcomes: Sequence[Outcome], today: datetime.date) -> str:
    head = ["| system | as | command | outcome | time | received |", "|---|---|---|---|---|---|"]
    return "\n".join([f"Tested on {today.isoformat()}:", "", *head, *map(row, outcomes)])


def write(text: str, document: Path = MATRIX) -> None:
    """Replace the text between the marks in the document."""
    before, rest = document.read_text().split(BEGIN)
    after = rest.split(END)[1]
    document.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{after}")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.anywhere", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--on", action="append", choices=SUITES, help="only on this system (may be repeated)")
    parser.add_argument("--as", action="append", choices=USERS, dest="users", help="only as this user (may be repeated)")
    fewer = parser.add_mutually_exclusive_group()
    fewer.add_argument("--demo-only", action="store_const", dest="tests", const=(), default=("make test",), help="skip make test")
    fewer.add_argument("--quick", action="store_const", dest="tests", const=("make test-fast",), help="make test-fast instead of make test")
    parser.add_argument("--write", action="store_true", help="write the table to docs/support-matrix.md")
    parser.add_argument("--logs", type=Path, default=ROOT / ".cache" / "anywhere", help="folder for the output of the commands")
    options = parser.parse_args()
    if os.geteuid() != 0 or not shutil.which("debootstrap"):
        raise SystemExit("This needs root and debootstrap: run apt-get install debootstrap, then use sudo.")
    options.logs.mkdir(parents=True, exist_ok=True)
    try:
        outcomes = [
            outcome
            for suite in options.on or SUITES
            for user in options.users or USERS
            for outcome in try_system(suite, user, ("make demo", *options.tests), options.logs)
        ]
    except NoSystem as error:
        print(error, file=sys.stderr)
        return 3
    text = table(outcomes, datetime.datetime.now(datetime.timezone.utc).date())
    print(f"\n{text}\n\nOutput of the commands: {options.logs}")
    if options.write:
        write(text)
    return 0 if all(outcome.passed for outcome in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
