"""A worker of the pool: a process that analyzes one crash after the other and keeps what it loaded.

It reads a task and then jobs, one line each, from stdin, and writes one line for each job that is done to stdout.
"""

from __future__ import annotations

import os
import sys

from crashkit.batch import job as messages
from crashkit.batch.one import done, warm


def main() -> None:
    """Work until stdin ends."""
    # Nothing that prints by mistake may break the protocol.
    answers = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)
    with answers:
        task = messages.decode_task(sys.stdin.buffer.readline())
        warm()
        for line in sys.stdin.buffer:
            answers.write(messages.encode(done(messages.decode_job(line), task)))
