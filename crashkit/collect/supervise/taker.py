"""A process of ours that stands ready to look at living processes: what it needs is imported before a launcher ends them."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Optional

from crashkit.collect.host import linux
from crashkit.collect.supervise.sighting import say
from crashkit.crashfolder.work import Work
from crashkit.descriptors import close_all_but


class Taker:
    """Waits for one order. It ends when it has carried that out, or when we end."""

    def __init__(self, inbox: Work, gpu_folder: Optional[Path] = None) -> None:
        """`gpu_folder`: where CUDA's driver writes GPU cores."""
        reader, self._orders = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            self._stand(reader, inbox, gpu_folder)
        os.close(reader)

    def take(self, pids: Sequence[int], in_a_hurry: bool, of_gpu: bool = False) -> None:
        """Take the evidence of these processes into the folder of the run; it is there when the process has ended.

        `in_a_hurry`: somebody is about to end them. `of_gpu`: their GPU cores, too, although they end of that.
        """
        with suppress(BrokenPipeError):  # something has ended it: it has taken nothing
            os.write(self._orders, f"{int(in_a_hurry)} {int(of_gpu)} {' '.join(map(str, pids))}\n".encode())
        self.close()

    def close(self) -> None:
        """It ends, unless it has an order."""
        if self._orders >= 0:
            os.close(self._orders)
            self._orders = -1

    def _stand(self, reader: int, inbox: Work, gpu_folder: Optional[Path]) -> None:
        status = 1
        try:
            os.setsid()
            linux.prctl(linux.PR_SET_PDEATHSIG, signal.SIGKILL)
            signal.pthread_sigmask(signal.SIG_SETMASK, set())
            os.dup2(reader, 0)
            os.dup2(2, 1)
            close_all_but(0, 1, 2, inbox.descriptor)
            from crashkit.collect import live_evidence

            # PIPE_BUF bytes are written at once.
            if order := os.read(0, 4096).split():
                pids = list(map(int, order[2:]))
                live_evidence.take(pids, inbox, prepare=order[0] == b"0")
                if gpu_folder is not None and order[1] == b"1":
                    live_evidence.take_gpu(pids, gpu_folder)
            status = 0
        except BaseException as error:
            say(f"the living processes could not be examined: {type(error).__name__}: {error}")
        finally:
            os._exit(status)
