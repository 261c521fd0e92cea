"""Which process of a job wrote a file, from the file's path."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

from crashkit.job.word import Who

# torchrun --log-dir: RUN_ID/attempt_N/LOCAL_RANK/stderr.log (torch/distributed/elastic/multiprocessing/api.py).
_TORCHRUN = re.compile(r"(?:^|/)attempt_(?P<attempt>\d{1,6})/(?P<local>\d{1,6})/(?:std(?:out|err)\.log|error\.json)$")
# rank3.log, rank_3.err, worker-rank-3/stderr.
_RANK = re.compile(r"(?:^|[/._-])rank[._-]?(?P<rank>\d{1,6})(?:[/._-]|$)", re.IGNORECASE)
_NUMBER = re.compile(r"\d{1,9}")
_FEWEST = 2


def processes(paths: Iterable[Path]) -> dict[Path, Who]:
    """The process of each file whose path tells it.

    Files of one folder whose names differ in a single number are a task's each (SLURM: `job-%t.out`), numbered from 0.
    """
    several = list(paths)
    found = {path: who for path in several if (who := of_path(path)) is not None}
    families: defaultdict[tuple[Path, str], dict[int, Path]] = defaultdict(dict)
    for path in several:
        if path in found:
            continue
        for match in _NUMBER.finditer(path.name):
            family = path.parent, f"{path.name[: match.start()]}\0{path.name[match.end() :]}"
            families[family][int(match[0])] = path
    for members in families.values():
        if len(members) >= _FEWEST and sorted(members) == list(range(len(members))):
            found.update({path: Who(rank=rank) for rank, path in members.items() if path not in found})
    return found


def of_path(path: Path) -> Who | None:
    """The process that the path names itself."""
    text = str(path)
    if match := _TORCHRUN.search(text):
        return Who(local_rank=int(match["local"]), attempt=int(match["attempt"]))
    if match := _RANK.search(text):
        return Who(rank=int(match["rank"]))
    return None


def label(name: str) -> Who:
    """The process that a line's prefix names: `rank1`, `default3`, `default3 rank1`, `5` (srun), `EngineCore pid=812`."""
    rank = _last(r"(?:^| )rank(\d{1,9})(?: |$)", name)
    local = _last(r"(?:^| )(?:default|\w*?)(\d{1,9})(?: |$)", name) if rank is None and re.fullmatch(r"default\d{1,9}", name) else None
    if rank is None and local is None and re.fullmatch(r"\d{1,5}", name):
        rank = int(name)
    pid = _last(r"pid=(\d{1,9})\b", name)
    host = re.search(r"ip=([\d.]{7,15})", name)
    return Who(rank=rank, local_rank=local, pid=pid, host=host[1] if host else None, name=name if rank is None and local is None else None)


def _last(pattern: str, text: str) -> int | None:
    match = re.search(pattern, text)
    return int(match[1]) if match else None


def is_job(found: Sequence[Who]) -> bool:
    """Whether these are several processes."""
    return len({(who.rank, who.local_rank) for who in found}) > 1
