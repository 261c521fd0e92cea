"""Which version of the user's program ran: what the environment says, else the commit of the working copy that it ran in."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from crashkit.crashfolder.files import open_regular

VARIABLE = "CRASHKIT_RELEASE"
VARIABLES = (
    VARIABLE,
    "GITHUB_SHA",  # https://docs.github.com/actions/reference/variables-reference
    "CI_COMMIT_SHA",  # https://docs.gitlab.com/ci/variables/predefined_variables/
    "BUILDKITE_COMMIT",  # https://buildkite.com/docs/pipelines/configure/environment-variables
    "CIRCLE_SHA1",  # https://circleci.com/docs/reference/variables/
    "BITBUCKET_COMMIT",  # https://support.atlassian.com/bitbucket-cloud/docs/variables-and-secrets/
    "TRAVIS_COMMIT",  # https://docs.travis-ci.com/user/environment-variables/
    "BUILD_SOURCEVERSION",  # https://learn.microsoft.com/azure/devops/pipelines/build/variables
    "GIT_COMMIT",  # https://plugins.jenkins.io/git/
)
"""The first that is set counts."""

_COMMIT = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_MOST_BYTES = 8 << 20
_DEEPEST = 64


def named(environment: Mapping[str, str]) -> str:
    """The release that the environment names; '' if none."""
    return next((environment[name] for name in VARIABLES if environment.get(name)), "")


def commit_of(folder: Path) -> str:
    """The commit that is checked out around a folder, from git's own files (gitrepository-layout(5)); '' outside of a working copy.

    git itself is not run: its configuration there may name programs.
    """
    for place in [folder, *folder.parents][:_DEEPEST]:
        for git in _git_folder(place / ".git"):
            return _head(git)
    return ""


def _git_folder(path: Path) -> Iterator[Path]:
    """The folder itself; that of another working tree is named by a file."""
    if path.is_dir():
        yield path
    elif path.is_file() and (text := _read(path)).startswith("gitdir: "):
        yield path.parent / text.removeprefix("gitdir: ").strip()


def _head(git: Path) -> str:
    head = _read(git / "HEAD").strip()
    if _COMMIT.fullmatch(head):
        return head
    name = head.removeprefix("ref: ")
    if name == head or not name.startswith("refs/") or ".." in name:
        return ""
    common = git / (_read(git / "commondir").strip() or ".")
    for folder in (git, common):
        if _COMMIT.fullmatch(commit := _read(folder / name).strip()):
            return commit
    for line in _read(common / "packed-refs").splitlines():
        commit, _, packed = line.partition(" ")
        if packed == name and _COMMIT.fullmatch(commit):
            return commit
    return ""


def _read(path: Path) -> str:
    with contextlib.suppress(OSError, ValueError), open_regular(path) as file:
        return file.read(_MOST_BYTES).decode("utf-8", "replace")
    return ""
