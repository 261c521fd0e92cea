"""The tests of this folder leave no process behind, also where one fails."""

from __future__ import annotations

import os
import select
import subprocess
import sys
from pathlib import Path

from tests.collect.conftest import Crashkit

STARTS = """
import subprocess, sys
quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
print(subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"], start_new_session=True, **quiet).pid, flush=True)
sys.stdin.readline()
"""


def test_a_server_that_belongs_to_nobody_any_more(tmp_path: Path) -> None:
    runner = Crashkit(tmp_path)
    process = runner.start("run", "--", sys.executable, "-c", STARTS, stdin=subprocess.PIPE)
    assert process.stdout is not None
    server = os.pidfd_open(int(process.stdout.readline()))
    process.kill()
    process.wait()
    assert not select.select([server], [], [], 0)[0]
    runner.end()
    assert select.select([server], [], [], 60)[0]
    os.close(server)
