"""What `crashkit attach` costs the requests of a loaded server: latencies with and without it, in the same run.

python -m benchmarks.bench_attach [--rounds N]
"""

from __future__ import annotations

import argparse
import http.client
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Optional

from crashkit.collect.live_core import take_core

CLIENTS = 2
SERVER = """
import http.server
kept = [bytes(1000) for _ in range(20_000)]  # as much memory as a small service has
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", "5000")
        self.end_headers()
        self.wfile.write(bytes(5000))
    def log_message(self, *_): pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print(server.server_port, flush=True)
server.serve_forever()
"""


def main(arguments: Optional[Sequence[str]] = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=100)
    rounds = parser.parse_known_args(arguments)[0].rounds
    with subprocess.Popen([sys.executable, "-c", SERVER], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        port = int(server.stdout.readline())
        alone = _loaded(port, lambda: time.sleep(rounds * 0.1))
        stopped: list[float] = []
        attached = _loaded(port, lambda: stopped.extend(_attach(server.pid, rounds)))
        server.kill()
    print(f"stopped, {rounds} times: median {_at(stopped, 0.5):.1f} ms, longest {max(stopped):.1f} ms")
    for name, (latencies, failed) in (("alone", alone), ("attached", attached)):
        shares = ", ".join(f"{share:.1%} {_at(latencies, share):.1f} ms" for share in (0.5, 0.99, 0.999))
        print(f"{name}: {len(latencies)} requests, {failed} failed; {shares}, longest {max(latencies):.1f} ms")
    return int(alone[1] + attached[1] > 0)


def _attach(pid: int, rounds: int) -> list[float]:
    took = []
    with tempfile.TemporaryDirectory() as folder:
        for number in range(rounds):
            path = Path(folder) / str(number)
            took.append(1000 * take_core(pid, path).stopped_seconds)
            os.unlink(path)  # noqa: PTH108
            time.sleep(0.05)
    return took


def _loaded(port: int, meanwhile) -> tuple[list[float], int]:  # type: ignore[no-untyped-def]
    """Latencies in ms, and how many requests failed."""
    latencies: list[float] = []
    failed = [0]
    over = threading.Event()

    def ask() -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        while not over.is_set():
            began = time.perf_counter()
            try:
                connection.request("GET", "/")
                connection.getresponse().read()
                latencies.append(1000 * (time.perf_counter() - began))
            except (OSError, http.client.HTTPException):
                failed[0] += 1
                connection.close()

    clients = [threading.Thread(target=ask) for _ in range(CLIENTS)]
    for client in clients:
        client.start()
    meanwhile()
    over.set()
    for client in clients:
        client.join()
    return latencies, failed[0]


def _at(values: list[float], share: float) -> float:
    return sorted(values)[int(share * (len(values) - 1))]


if __name__ == "__main__":
    sys.exit(main())
