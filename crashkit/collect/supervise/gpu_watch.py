"""A process of ours that looks at processes which burn a processor without output: whether they wait for the GPU.

What it needs is imported there, and only once such a process has CUDA's driver: most runs never do.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Optional

from crashkit.collect.host import linux
from crashkit.collect.supervise.sighting import say
from crashkit.descriptors import close_all_but

if TYPE_CHECKING:
    from crashkit.collect.standstill import Standstill

_SAMPLES = 1000
"""Within the time between two looks: a step of a training that takes so long is seen to end if it computes a hundredth of its time."""
_SHORTEST = 0.005
"""Seconds between two samples, which take a twentieth of a millisecond each."""


class GpuWatch:
    """Waits for orders, which name processes; each answer is what was seen of those in the last one."""

    def __init__(self, interval: float) -> None:
        orders, self._orders = os.pipe()
        self._answers, answers = os.pipe()
        os.set_blocking(self._answers, False)
        os.set_blocking(self._orders, False)
        self._pending = b""
        self.pid = os.fork()
        if self.pid == 0:
            self._stand(orders, answers, interval)
        os.close(orders)
        os.close(answers)

    def ask(self, pids: Sequence[int]) -> dict[int, tuple[float, str]]:
        """Look at these from now on. Those of the last time that wait for the GPU: since when (time.monotonic()), and where."""
        import json

        with contextlib.suppress(OSError):  # it has ended: then nobody waits
            os.write(self._orders, f"{' '.join(map(str, pids))}\n".encode())
            while part := os.read(self._answers, 65536):
                self._pending += part
        *whole, self._pending = self._pending.split(b"\n")
        if not whole:
            return {}
        return {int(pid): (since, place) for pid, (since, place) in json.loads(whole[-1]).items() if int(pid) in pids}

    def close(self) -> None:
        """It ends."""
        os.close(self._orders)
        os.close(self._answers)

    def _stand(self, orders: int, answers: int, interval: float) -> None:
        status = 1
        try:
            os.setsid()
            linux.prctl(linux.PR_SET_PDEATHSIG, signal.SIGKILL)
            signal.pthread_sigmask(signal.SIG_SETMASK, set())
            close_all_but(2, orders, answers)
            _serve(orders, answers, max(_SHORTEST, interval / _SAMPLES))
            status = 0
        except BaseException as error:
            say(f"could not find out which processes wait for the GPU: {type(error).__name__}: {error}")
        finally:
            os._exit(status)


def _serve(orders: int, answers: int, pause: float) -> None:
    import json

    from crashkit.attempt import attempt
    from crashkit.collect.standstill import Standstill
    from crashkit.errors import EvidenceError

    watched: dict[int, Optional[Standstill]] = {}
    while order := os.read(orders, 65536):
        pids = [int(word) for word in order.splitlines()[-1].split()]
        for pid in watched.keys() - set(pids):
            if (gone := watched.pop(pid)) is not None:
                gone.close()
        there = {pid: one for pid, one in watched.items() if one is not None}
        # What is read of a process that runs may make no sense.
        looks = {pid: attempt("hang", "who waits for the GPU", one.look, None, []) for pid, one in there.items()}
        seen = {pid: standing for pid, standing in looks.items() if standing is not None}
        os.write(answers, json.dumps(seen).encode() + b"\n")
        for pid in (pid for pid in pids if pid not in watched):
            watched[pid] = None
            with contextlib.suppress(EvidenceError):
                standstill = attempt("hang", "who waits for the GPU", partial(Standstill, pid), None, [])
                if standstill is not None:
                    watched[pid] = there[pid] = standstill
        # Between two orders: who comes back to the same place in time was elsewhere. Who has moved is not looked at until then.
        while not select.select([orders], [], [], pause if there else None)[0]:
            there = {pid: one for pid, one in there.items() if not attempt("hang", "who waits for the GPU", one.sample, True, [])}
