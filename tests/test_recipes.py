"""The recipes of docs/ci.md and docs/recipes.md, as they stand there, run on a project whose tests crash.

What a recipe needs of a CI service is played: its variables, its conditions, the rights of `sudo`, and the programs of a cloud.
"""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import lz4.frame
import pytest

from crashkit.report.index.document import decode
from tests.crashes import python_crash
from tests.report.schemas import check_junit, check_sarif
from tests.test_ci_steps import DEADLINE, ROOT, UNSET, environment, project  # noqa: F401 (a fixture)

yaml = pytest.importorskip("yaml", reason="PyYAML is not installed: pip install '.[dev]'")
pytestmark = pytest.mark.slow

DOCS = Path(__file__).parent.parent / "docs"
TESTS = """
import ctypes

def parse(text):
    ctypes.string_at(0)

def test_fine():
    pass

def test_parses():
    parse("x")

def test_fine_too():
    pass
"""
PLAYED = {
    "sudo": 'exec "$@"',
    "python": f'exec {shlex.quote(sys.executable)} "$@"',
    "pytest": f'exec {shlex.quote(sys.executable)} -m pytest "$@"',
}


def recipe(page: str, title: str) -> str:
    """The section of a page, to the next title."""
    text = (DOCS / page).read_text()
    found = re.search(rf"(?ms)^## {re.escape(title)}\n(.*?)(?=^## |\Z)", text)
    assert found, f"{page} has no {title!r}"
    return found[1]


def blocks(page: str, title: str) -> list[str]:
    return re.findall(r"(?ms)^```\w*\n(.*?)^```", recipe(page, title))


@pytest.fixture
def repository(project: Path) -> Iterator[Path]:  # noqa: F811
    """The project, with tests of which one crashes, and what is played in PATH."""
    (project / "tests").mkdir()
    (project / "tests" / "test_parser.py").write_text(TESTS)
    for name, command in PLAYED.items():
        play(project, name, command)
    yield project


def play(repository: Path, name: str, command: str) -> None:
    script = repository.parent / "bin" / name
    script.write_text(f"#!/bin/bash\n{command}\n")
    script.chmod(0o755)


def shell(repository: Path, commands: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """As GitHub's and GitLab's runners do it: it ends at the first error, also one within a pipe."""
    return subprocess.run(
        ["/bin/bash", "-eo", "pipefail", "-c", commands],
        cwd=repository,
        env=environment(repository, CRASHKIT_INDEX="none", **variables),
        capture_output=True,
        text=True,
        timeout=DEADLINE,
    )


def index(repository: Path, folder: str = "crash-report") -> Any:
    return decode((repository / folder / "index.json").read_bytes())


def named(path: Path) -> list[str]:
    """The tests of a JUnit file that did not pass."""
    return [
        case.get("name", "")
        for case in ElementTree.parse(path).iter("testcase")
        if case.find("error") is not None or case.find("failure") is not None
    ]


def test_github_actions(repository: Path, tmp_path: Path) -> None:
    (block,) = blocks("ci.md", "GitHub Actions")
    install, run, report, *uploads = yaml.safe_load(block)
    assert "pip install" in install["run"] and [step["if"] for step in (report, *uploads)] == ["failure()"] * 3
    (tmp_path / "summary").touch()
    # sysctl is for the machine of a job: here others need the pattern as it is.
    play(repository, "sysctl", 'echo "$@" > sysctl.txt')
    first = shell(repository, run["run"])
    assert first.returncode != 0 and (repository / "sysctl.txt").read_text() == "-w kernel.core_pattern=core.%p\n"
    (core,) = repository.glob("core*")
    core.rename(repository / "core.4711")  # as that pattern names it
    second = shell(repository, report["run"], GITHUB_STEP_SUMMARY=str(tmp_path / "summary"), GITHUB_ACTIONS="true")
    assert second.returncode == 0, second.stderr
    (entry,) = index(repository, "crashes").entries
    assert (entry.signal, entry.test) == ("SIGSEGV", "tests/test_parser.py::test_parses") and (entry.own.path, entry.own.line) == (
        "tests/test_parser.py",
        5,
    )
    assert {Path(name).name for name in entry.evidence} >= {"core.4711", "pytest.log"}, "the core and the log of the run are of one crash"
    assert (
        "test_parser.py:5" in (tmp_path / "summary").read_text().replace("\\", "")
        and "::error file=tests/test_parser.py,line=5" in second.stdout
    )
    assert all((repository / step["with"].get("path", "crashes")).is_dir() for step in uploads)
    check_sarif((repository / uploads[1]["with"]["sarif_file"]).read_bytes())


def test_gitlab(repository: Path) -> None:
    (block,) = blocks("ci.md", "GitLab")
    (job,) = yaml.safe_load(block).values()
    assert shell(repository, "\n".join(job["script"])).returncode == 139
    done = shell(repository, "\n".join(job["after_script"]))
    assert done.returncode == 0, done.stderr
    (entry,) = index(repository, "crashes").entries
    assert entry.own.line == 5 and {Path(name).name for name in entry.evidence} >= {"core", "pytest.log"}
    check_junit((repository / job["artifacts"]["reports"]["junit"]).read_bytes())
    assert "test_parser.py" in (repository / job["artifacts"]["reports"]["codequality"]).read_text()


@pytest.mark.parametrize(
    ("title", "tests"),
    [
        ("pytest-xdist says `worker 'gw0' crashed`", {"test_parses"}),
        ("Segmentation faults are missing from the JUnit file", {"test_parses"}),
    ],
)
def test_pytest(title: str, tests: set[str], repository: Path) -> None:
    (command,) = blocks("recipes.md", title)
    done = shell(repository, command, CRASHKIT_HOME=str(repository.parent / "home"))
    assert done.returncode == 1 and "test_parser.py:5" in done.stdout, done.stdout + done.stderr
    assert set(named(repository / "junit.xml")) == tests and "null pointer" in (repository / "junit.xml").read_text()


def test_object_storage(repository: Path) -> None:
    """The bucket is a folder."""
    run, report = blocks("recipes.md", "Workers' crashes to object storage")
    bucket = repository.parent / "bucket"
    play(repository, "gcloud", f'[ "$1 $2 $3" = "storage cp -r" ] && mkdir -p {bucket}/crashes && cp -r "$4" {bucket}/crashes/')
    (repository / "worker.py").write_text("import ctypes\ndef work():\n    ctypes.string_at(0)\nwork()\n")
    home = repository.parent / "home"
    assert shell(repository, run, CRASHKIT_HOME=str(home)).returncode == 139
    shutil.rmtree(home)
    done = shell(repository, report.replace("gs://BUCKET", f"file://{bucket}"))
    assert done.returncode == 0, done.stderr
    (entry,) = index(repository).entries
    assert entry.signal == "SIGSEGV" and entry.stack[0].function == "string_at"


def test_systemd_coredump(repository: Path) -> None:
    (command,) = blocks("recipes.md", "Cores of systemd-coredump")
    folder = repository.parent / "coredump"
    folder.mkdir()
    with (folder / "core.python.1000.0123456789abcdef.4711.1795311279000000.lz4").open("wb") as file:
        file.write(lz4.frame.compress(python_crash("threads.py").core.read_bytes()))
    done = shell(repository, command.replace("/var/lib/systemd/coredump", str(folder)))
    assert done.returncode == 0 and "SIGSEGV" in done.stdout and "threads.py" in done.stdout, done.stdout + done.stderr


def test_jenkins(repository: Path) -> None:
    (block,) = blocks("recipes.md", "Jenkins")
    run, report = re.findall(r"sh '([^']*)'", block)
    play(repository, "make", "exec python app.py")
    home = str(repository.parent / "tmp" / "crashes")
    assert shell(repository, run, CRASHKIT_HOME=home).returncode == 139
    assert shell(repository, report, CRASHKIT_HOME=home).returncode == 0
    assert [entry.own.path for entry in index(repository).entries] == ["app.py"]
    check_junit((repository / "crash-report" / "junit.xml").read_bytes())


def test_buildkite(repository: Path) -> None:
    (block,) = blocks("recipes.md", "Buildkite")
    (step,) = yaml.safe_load(block)["steps"]
    (hook,) = re.findall(r"with `([^`]*)`", recipe("recipes.md", "Buildkite"))
    play(repository, "make", "exec python app.py")
    play(repository, "buildkite-agent", '[ "$*" = "annotate --style error" ] && cat > annotation.md')
    assert shell(repository, step["command"], **step["env"]).returncode == 139
    done = shell(repository, hook, **step["env"])
    assert done.returncode == 0 and "app.py" in (repository / "annotation.md").read_text(), done.stderr
    assert list(repository.glob(step["artifact_paths"]))


NOXFILE = """
import nox

@nox.session
def tests(session):
    session.install("pytest")
    {recipe}
    session.run("pytest", "--crashkit-rerun")
"""


@pytest.mark.network
@pytest.mark.parametrize("tool", ["tox", "nox"])
def test_tox_and_nox(tool: str, repository: Path) -> None:
    """crashkit is what is tested, in place of the one that is published; the tests do not see it but by that installation."""
    pytest.importorskip(tool, reason=f"{tool} is not installed: pip install '.[tests]'")
    (configuration,) = blocks("recipes.md", "tox and nox")
    (install,) = re.findall(r"`(session\.install\(.*?\))`", recipe("recipes.md", "tox and nox"))
    written = configuration.replace("    crashkit\n", f"    {ROOT}\n") + "[tox]\nskipsdist = true\n"
    (repository / "tox.ini").write_text(written)
    (repository / "noxfile.py").write_text(NOXFILE.replace("{recipe}", install.replace('"crashkit"', repr(str(ROOT)))))
    home = repository.parent / "home"
    variables = {"CRASHKIT_HOME": str(home), "PYTHONPATH": UNSET, "PIP_NO_COMPILE": "1"}
    done = shell(repository, f"{shlex.quote(sys.executable)} -m {tool}", **variables)
    assert done.returncode == 1 and "test_parser.py:5" in done.stdout, done.stdout + done.stderr
    assert "1 failed, 2 passed" in done.stdout and len(list(home.glob("*/report.html"))) == 1
