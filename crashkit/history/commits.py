"""When a commit was made, for `--since COMMIT`."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Optional

from crashkit import isolation

_SECONDS = 10
_COMMITTER = re.compile(r"(?m)^committer [^\n]{0,1000}> (\d{1,12}) [+-]\d{4}$")


def commit_time(name: str, folder: Path) -> Optional[float]:
    """When a commit, tag or branch of the working copy around a folder was committed; None if there is no such thing.

    `git cat-file` shows an object and runs nothing that a repository's configuration names.
    """
    git = isolation.find_program("git")
    if git is None or name.startswith("-"):
        return None
    try:
        told = isolation.run([git, "-C", str(folder), "--no-lazy-fetch", "cat-file", "commit", name], _SECONDS)
        if told.returncode:  # a git before 2.45 does not know that option
            told = isolation.run([git, "-C", str(folder), "cat-file", "commit", name], _SECONDS)
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = _COMMITTER.search(told.stdout) if not told.returncode else None
    return float(found[1]) if found else None
