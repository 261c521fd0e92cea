"""Runs pytest with the plugin as users do: in a process of its own, with crashkit found by the entry point that pyproject.toml declares."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.collect.conftest import ROOT, Crashkit, runner_in

DEADLINE = 280
"""Seconds: five crashes are analyzed, one after the other, with the lowest priority."""


class Done:
    """One run of pytest that has ended."""

    def __init__(self, process: subprocess.CompletedProcess[str], folder: Path) -> None:
        self.status = process.returncode
        self.out = process.stdout
        self.err = process.stderr
        self._folder = folder

    @property
    def outcomes(self) -> dict[str, str]:
        """What the JUnit file says of each test, by name."""
        cases = ElementTree.parse(self._folder / "junit.xml").getroot().iter("testcase")
        return {case.get("name", ""): "+".join(child.tag for child in case) or "passed" for case in cases}

    def said_in_junit(self, name: str) -> str:
        root = ElementTree.parse(self._folder / "junit.xml").getroot()
        # pytest-xdist's own report of a crash knows no name but that of the file.
        (case,) = (case for case in root.iter("testcase") if name in (case.get("name"), case.get("classname")))
        return "".join(child.text or "" for child in case)

    @property
    def summary(self) -> list[str]:
        """The paragraphs of crashkit's own summary, each in one line."""
        _, _, rest = self.out.partition("\ncrashkit: ")
        return [" ".join(paragraph.split()) for paragraph in re.split(r"\n\n|\n(?=\S)", rest) if paragraph.strip()]

    @property
    def ran(self) -> list[str]:
        """The tests that ran, in their order, each as often as it did."""
        return (self._folder / "ran").read_text().split()


class Pytest:
    """A folder of tests, and pytest to run them."""

    def __init__(self, tmp_path: Path, runner: Crashkit) -> None:
        self.runner = runner
        self.folder = runner.cwd
        site = tmp_path / "site" / "crashkit-0.dist-info"
        site.mkdir(parents=True)
        (site / "METADATA").write_text("Metadata-Version: 2.1\nName: crashkit\nVersion: 0\n")
        declared = re.search(r"\[project\.entry-points\.pytest11\]\n(.*?)\n\n", (ROOT / "pyproject.toml").read_text(), re.S)
        assert declared is not None
        (site / "entry_points.txt").write_text("[pytest11]\n" + declared[1].replace('"', ""))
        runner.environment["PYTHONPATH"] = ":".join(map(str, [site.parent, ROOT, *os.environ.get("PYTHONPATH", "").split(":")])).rstrip(":")
        runner.environment.pop("PYTEST_ADDOPTS", None)
        (self.folder / "pytest.ini").write_text("[pytest]\n")  # not the one of the repository
        self.write(
            "conftest.py",
            "import pytest\n@pytest.fixture(autouse=True)\ndef ran(request):\n    print(request.node.name, file=open('ran', 'a'))",
        )

    def write(self, name: str, code: str) -> None:
        (self.folder / name).write_text(textwrap.dedent(code))

    def __call__(self, *options: str, tests: str | None = None, command: tuple[str, ...] = ("-m", "pytest")) -> Done:
        if tests is not None:
            self.write("test_it.py", tests)
        argv = [sys.executable, *command, "-p", "no:cacheprovider", "--junitxml=junit.xml", *options]
        process = subprocess.Popen(
            argv,
            cwd=self.folder,
            env=self.runner.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.runner._started.append(process)
        out, err = process.communicate(timeout=DEADLINE)
        return Done(subprocess.CompletedProcess(argv, process.returncode, out, err), self.folder)


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Pytest]:
    with runner_in(tmp_path) as runner:
        yield Pytest(tmp_path, runner)
