"""A PostgreSQL server of the test's own, in a temporary folder, reachable through a socket there."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Optional

import pytest

PROGRAMS = ("initdb", "pg_ctl")


def _program(name: str) -> Optional[str]:
    packaged = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
    return shutil.which(name) or (str(packaged[-1]) if packaged else None)


class Server:
    """It refuses to run as root: then it runs as `postgres` or `nobody`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._as: dict[str, Any] = {}
        self._owner = pwd.getpwuid(os.geteuid()).pw_name
        if os.geteuid() == 0:
            known = {entry.pw_name for entry in pwd.getpwall()}
            self._owner = "postgres" if "postgres" in known else "nobody"
            account = pwd.getpwnam(self._owner)
            self._as = {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}
            os.chown(folder, account.pw_uid, account.pw_gid)
        self._run("initdb", "-D", self._data, "-A", "trust", "-E", "UTF8", "--locale=C", "-N")
        self.start()

    @property
    def _data(self) -> str:
        return str(self._folder / "data")

    def _run(self, program: str, *arguments: str) -> None:
        path = _program(program)
        assert path is not None
        done = subprocess.run(
            [path, *arguments], cwd=self._folder, capture_output=True, text=True, timeout=60, check=False, env={"LC_ALL": "C"}, **self._as
        )
        assert done.returncode == 0, done.stdout + done.stderr

    def start(self) -> None:
        options = f"-c listen_addresses='' -c unix_socket_directories={self._folder} -c fsync=off"
        log = str(self._folder / "log")
        self._run("pg_ctl", "-D", self._data, "-l", log, "-w", "-o", options, "start")

    def stop(self) -> None:
        self._run("pg_ctl", "-D", self._data, "-w", "-m", "immediate", "stop")

    def emptied(self) -> str:
        """The address of its database, with nothing in it."""
        import psycopg

        with psycopg.connect(host=str(self._folder), user=self._owner, dbname="postgres", autocommit=True) as connection:
            connection.execute("DROP SCHEMA public CASCADE")
            connection.execute("CREATE SCHEMA public")
        return f"postgresql://{self._owner}@/postgres?host={self._folder}"


@contextmanager
def server() -> Iterator[Server]:
    """Skips the test where there is no server program."""
    missing = [name for name in PROGRAMS if _program(name) is None]
    if missing:
        pytest.skip("needs a PostgreSQL server (apt-get install postgresql)")
    pytest.importorskip("psycopg", reason="needs psycopg (pip install 'psycopg[binary]')")
    # Not pytest's folder: another user must reach it, and the path of a socket has at most 107 bytes.
    folder = Path(tempfile.mkdtemp(prefix="crashkit-pg-", dir="/tmp"))
    running: Optional[Server] = None
    try:
        running = Server(folder)
        yield running
    finally:
        if running is not None and (folder / "data" / "postmaster.pid").exists():
            running.stop()
        shutil.rmtree(folder)
