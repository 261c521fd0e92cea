"""What an error of a process says of who failed: itself, one of its peers, or nobody because it was stopped. Data and its reader."""

from __future__ import annotations

from crashkit.regex import regex

OWN, PEER, STOPPED = "own", "peer", "stopped"

# What a process says when others are gone or late; each is a text of torch, gloo or NCCL.
_PEER = regex(
    r"Connection closed by peer|Connection reset by peer|Timed out waiting \d{1,12}ms|Broken pipe|NCCL communicator was aborted"
    r"|remote process exited|ncclRemoteError|DistNetworkError|[Ss]ocket [Tt]imeout|failed to pass monitoredBarrier"
    r"|collective operation timeout|[Ww]atchdog caught|connectFullMesh failed|[Ww]ait timeout|wait\(\) timed out"
    r"|DistBackendError|RendezvousConnectionError|RendezvousTimeoutError|TCPStore|on SocketImpl|[Cc]lient socket has"
    r"|successfully reached monitoredBarrier|Detected mismatch between collectives|timed out in call to wait|application-level timeout"
)
_STOPPED = regex(r"SignalException|got signal: 15|^KeyboardInterrupt\b|SIGTERM|^SystemExit: (?:143|130)\b")
_IN_VAIN = regex(r"[Tt]imed? ?out|failed to pass monitoredBarrier|TIMEOUT")
_LAUNCHERS = (
    "torch/distributed/run.py",
    "torch/distributed/launch.py",
    "torch/distributed/launcher/api.py",
    "accelerate/commands/launch.py",
    "deepspeed/launcher/launch.py",
    "deepspeed/launcher/runner.py",
)


def of_exception(text: str) -> str:
    """own, peer or stopped, from an exception's last line."""
    if _STOPPED.search(text):
        return STOPPED
    return PEER if _PEER.search(text) else OWN


def waited_in_vain(text: str) -> bool:
    """Whether an exception says that a peer did not come in time, rather than that it was gone."""
    return _IN_VAIN.search(text) is not None


def is_launchers(file: str) -> bool:
    """Whether this source file is a launcher's own: its exception only tells that a process failed."""
    return file.endswith(_LAUNCHERS)
