"""The shell steps of the GitHub action and of the GitLab component, taken out of their YAML and run. Their uploads are not tried."""

from __future__ import annotations

import os
import re
import resource
import shlex
import shutil
import subprocess
import sys
import venv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from crashkit.cli import COMMANDS
from tests import crashes
from tests.report.schemas import check_junit, check_sarif

yaml = pytest.importorskip("yaml", reason="PyYAML is not installed: pip install '.[dev]'")

ROOT = Path(__file__).parent.parent
ACTION = yaml.safe_load((ROOT / "action.yml").read_text())
SPEC, COMPONENT = yaml.safe_load_all((ROOT / "ci/gitlab/crashkit.yml").read_text())
SHELL_STEPS = {step["name"]: step["run"] for step in ACTION["runs"]["steps"] if "run" in step}
BASH = shutil.which("bash") or "/bin/bash"
UNSET = "\0"
DEADLINE = 200
CRASHES = 'echo "it\'s $(echo here)"\npython3 app.py\necho never'
APP = "import ctypes\ndef handle():\n    ctypes.string_at(0)\nhandle()\n"


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Path]:
    """A checked-out repository, and a `crashkit` and a `python3` in PATH that are the tests' own."""
    if "ci" not in COMMANDS:
        pytest.skip("this crashkit has no command `ci`")
    (tmp_path / "bin").mkdir()
    for name, command in {"crashkit": f"{shlex.quote(sys.executable)} -m crashkit", "python3": shlex.quote(sys.executable)}.items():
        script = tmp_path / "bin" / name
        script.write_text(f'#!/bin/sh\nexec {command} "$@"\n')
        script.chmod(0o755)
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "app.py").write_text(APP)
    with crashes.lock(crashes.PATTERN_LOCK, shared=True):
        if not crashes.leaves_core_in_cwd(crashes.PATTERN.read_text()):
            pytest.skip(crashes.CORES_GO_ELSEWHERE)
        if resource.getrlimit(resource.RLIMIT_CORE)[1] == 0:
            pytest.skip(crashes.NO_CORES)
        yield tmp_path / "project"


def environment(project: Path, **more: str) -> dict[str, str]:
    path = f"{project.parent / 'bin'}:{os.environ['PATH']}"
    return {name: value for name, value in {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT), **more}.items() if value != UNSET}


def without(project: Path, *names: str) -> str:
    """A PATH with the tests' own programs and all others of this machine, but for these."""
    folder = project.parent / "tools"
    folder.mkdir()
    for place in os.environ["PATH"].split(":"):
        for program in Path(place).iterdir() if Path(place).is_dir() else ():
            if program.name not in names and not (folder / program.name).exists():
                (folder / program.name).symlink_to(program)
    return f"{project.parent / 'bin'}:{folder}"


class Action:
    """Runs the steps as GitHub's runner does: the shell, the expressions of `if` and `env`, the files for outputs and the summary."""

    def __init__(self, project: Path, **inputs: str) -> None:
        self.project = project
        self.temp = project.parent / "temp"
        self.temp.mkdir()
        self.values = {"runner.temp": str(self.temp), "github.action_path": str(ROOT), "github.workspace": str(project)}
        for name, declared in ACTION["inputs"].items():
            self.values[f"inputs.{name}"] = self.expand(inputs.get(name, declared.get("default", "")))
        self.said: dict[str, subprocess.CompletedProcess[str]] = {}
        self.used: dict[str, dict[str, str]] = {}
        """The steps that are other people's actions, with what they are given."""
        self.summary = ""
        self.variables: dict[str, str] = {}
        """For all steps."""

    def expand(self, text: str) -> str:
        return re.sub(r"\$\{\{ *([\w.-]+) *\}\}", lambda match: self.values.get(match[1], ""), str(text))

    def holds(self, condition: str) -> bool:
        """Of `always() && a != '' && b > 0`; without always() a step is skipped after a failure."""
        terms = [term.strip() for term in condition.split("&&")]
        if "always()" not in terms and any(done.returncode for done in self.said.values()):
            return False
        return all(self._compare(term) for term in terms if term not in ("always()", ""))

    def _compare(self, term: str) -> bool:
        match = re.fullmatch(r"([\w.-]+) (==|!=|>) ('([^']*)'|\d+)", term)
        assert match, f"{term!r} is no comparison that this test knows"
        value, literal = self.values.get(match[1], ""), match[4] if match[4] is not None else match[3]
        if match[2] == ">":
            return int(value or 0) > int(literal)
        return (value == literal) == (match[2] == "==")

    def run(self) -> int:
        """The status of the job: that of the first step that fails."""
        for step in ACTION["runs"]["steps"]:
            if not self.holds(step.get("if", "")):
                continue
            if "run" in step:
                self._run(step)
            else:
                self.used[step["name"]] = {name: self.expand(value) for name, value in step["with"].items()}
        summary = self.temp / "summary"
        self.summary = summary.read_text() if summary.exists() else ""
        return next((done.returncode for done in self.said.values() if done.returncode), 0)

    def _run(self, step: dict[str, Any]) -> None:
        output, script = self.temp / "output", self.temp / "step.sh"
        output.write_text("")
        script.write_text(step["run"])
        variables = {name: self.expand(value) for name, value in step.get("env", {}).items()} | self.variables
        files = {"GITHUB_OUTPUT": str(output), "GITHUB_STEP_SUMMARY": str(self.temp / "summary"), "GITHUB_ACTIONS": "true"}
        self.said[step["name"]] = subprocess.run(
            [BASH, "--noprofile", "--norc", "-eo", "pipefail", str(script)],
            cwd=self.project / self.expand(step.get("working-directory", ".")),
            env=environment(self.project, **variables, **files),
            capture_output=True,
            text=True,
            timeout=DEADLINE,
        )
        for line in output.read_text().splitlines():
            name, _, value = line.partition("=")
            self.values[f"steps.{step['id']}.outputs.{name}"] = value


def test_no_input_of_the_action_becomes_code() -> None:
    """Expressions in a script would be; GitHub puts them in before the shell reads it."""
    assert [step["name"] for step in ACTION["runs"]["steps"] if "${{" in step.get("run", "")] == []
    (job,) = COMPONENT.values()
    assert "$[[" not in "".join(job["script"] + job["before_script"])


def test_each_output_and_step_that_is_named_exists() -> None:
    text = (ROOT / "action.yml").read_text()
    steps = {step["id"]: step["run"] for step in ACTION["runs"]["steps"] if "id" in step}
    named = set(re.findall(r"steps\.([\w-]+)\.outputs\.([\w-]+)", text))
    assert named and all(f'echo "{output}=' in steps[step] for step, output in named)
    assert set(re.findall(r"inputs\.([\w-]+)", text)) == set(ACTION["inputs"])
    assert set(re.findall(r"\$\[\[ inputs\.([\w-]+) \]\]", (ROOT / "ci/gitlab/crashkit.yml").read_text())) == set(SPEC["spec"]["inputs"])


@pytest.mark.slow
def test_the_action_reports_a_crash_and_exits_as_the_commands_did(project: Path) -> None:
    action = Action(project, run=CRASHES)
    assert action.run() == 139, action.said
    commands = action.said["Run the commands"]
    assert commands.stdout == "it's here\n" and "died of SIGSEGV" in commands.stderr
    assert action.values["steps.report.outputs.crashes"] == "1"
    assert "SIGSEGV" in action.summary and "app.py" in action.summary
    assert set(action.said) == set(SHELL_STEPS), "each shell step ran"
    assert action.used == {"Upload the report": {"name": "crash-report", "path": "crash-report"}}
    report = project / "crash-report"
    assert (report / "index.html").exists() and "app.py" in (report / "crashes.sarif").read_text()
    assert list(report.rglob("core*")) == [], "no core is uploaded"
    assert "::error file=app.py,line=3" in action.said["Report the crashes"].stdout
    assert sorted(path.name for path in project.iterdir()) == ["app.py", "crash-report"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("commands", "fail_on", "status"), [("exit 3", "never", 3), ("true", "crash", 0), ("python3 app.py || true", "crash", 1)]
)
def test_the_action_fails_where_it_is_to(commands: str, fail_on: str, status: int, project: Path) -> None:
    action = Action(project, run=commands, **{"fail-on": fail_on})
    assert action.run() == status, action.said
    assert list(action.said)[-1] == "Exit as the commands did", "the report is written and uploaded before the job fails"
    assert list(action.used) == (["Upload the report"] if "app.py" in commands else [])


@pytest.mark.slow
def test_the_action_uploads_alerts_where_it_is_to(project: Path) -> None:
    """Also of a run without crashes, which closes those of earlier ones; the file is what the standard says."""
    action = Action(project, run="true", sarif="true", artifact="", out="elsewhere")
    assert action.run() == 0, action.said
    assert action.used == {"Upload code-scanning alerts": {"sarif_file": "elsewhere/crashes.sarif", "category": "crashkit"}}
    check_sarif((project / "elsewhere" / "crashes.sarif").read_bytes())


@pytest.mark.slow
@pytest.mark.network
def test_the_action_installs_crashkit_where_there_is_none(project: Path) -> None:
    """In an environment of its own, from the folder of the action; nothing of the tests' environment helps."""
    (project.parent / "bin" / "crashkit").unlink()
    action = Action(project, run=CRASHES, install=str(ROOT))
    action.variables = {"PYTHONPATH": UNSET, "PIP_NO_COMPILE": "1"}
    assert action.run() == 139, action.said
    program = Path(action.values["steps.install.outputs.program"])
    assert program == action.temp / "crashkit-venv" / "bin" / "crashkit" and program.exists()
    assert "SIGSEGV" in action.summary and "app.py" in action.summary
    assert set(action.said) == set(SHELL_STEPS)


@pytest.mark.slow
def test_the_action_does_without_gdb(project: Path) -> None:
    """Where it is neither installed nor to be had."""
    tools = without(project, "gdb", "apt-get", "sudo")
    action = Action(project, run=CRASHES)
    action.variables = {"PATH": tools}
    assert action.run() == 139, action.said
    assert "gdb is not installed: reports have fewer native frames" in action.said["Enable cores"].stdout
    assert "SIGSEGV" in action.summary and "app.py" in action.summary


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("sysctl") is None, reason="not root, or no sysctl here")
@pytest.mark.parametrize(
    ("before", "after"), [("|/usr/share/apport/apport %p", "core.%p"), ("core", "core"), ("/var/crash/%e", "/var/crash/%e")]
)
def test_the_action_changes_core_pattern_only_where_it_is_a_pipe(before: str, after: str) -> None:
    (step,) = (step["run"] for step in ACTION["runs"]["steps"] if step["name"] == "Enable cores")
    with crashes.lock(crashes.PATTERN_LOCK):
        own = crashes.PATTERN.read_text()
        try:
            crashes.PATTERN.write_text(before)
            subprocess.run(["bash", "-eo", "pipefail", "-c", step], check=True, timeout=DEADLINE, stdout=subprocess.DEVNULL)
            assert crashes.PATTERN.read_text().strip() == after
        finally:
            crashes.PATTERN.write_text(own)


def gitlab(project: Path, command: str, more: dict[str, str] | None = None, **inputs: str) -> subprocess.CompletedProcess[str]:
    values = {name: declared.get("default", "") for name, declared in SPEC["spec"]["inputs"].items()} | {"command": command, **inputs}

    def expand(text: Any) -> str:
        return re.sub(r"\$\[\[ inputs\.([\w-]+) \]\]", lambda match: values[match[1]], str(text)).replace("$CI_PROJECT_DIR", str(project))

    (job,) = COMPONENT.values()
    variables = {name: expand(value["value"] if isinstance(value, dict) else value) for name, value in job["variables"].items()}
    script = "set -e\n" + "\n".join(job["before_script"] + job["script"])
    return subprocess.run(
        ["/bin/sh", "-c", script],
        cwd=project,
        env=environment(project, **variables, CI_PROJECT_DIR=str(project), **(more or {})),
        capture_output=True,
        text=True,
        timeout=DEADLINE,
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "fail_on", "status"),
    [(CRASHES, "never", 139), ("exit 3", "never", 3), ("true", "crash", 0), ("python3 app.py || true", "crash", 1)],
)
def test_the_gitlab_component(command: str, fail_on: str, status: int, project: Path) -> None:
    done = gitlab(project, command, **{"fail-on": fail_on})
    assert done.returncode == status, done.stdout + done.stderr
    crashed = "app.py" in command
    (job,) = COMPONENT.values()
    for path in job["artifacts"]["reports"].values():
        assert (project / path.replace("$[[ inputs.out ]]", "crash-report")).exists()
    assert ("app.py" in (project / "crash-report/gl-code-quality-report.json").read_text()) == crashed
    assert list((project / "crash-report").rglob("core*")) == []


@pytest.mark.slow
@pytest.mark.network
def test_the_gitlab_component_installs_crashkit_where_there_is_none(project: Path) -> None:
    """Into the Python of the image; here that of a virtual environment."""
    venv.create(project.parent / "image", with_pip=True)
    for name in ("crashkit", "python3"):
        (project.parent / "bin" / name).unlink()
    path = f"{project.parent / 'image' / 'bin'}:{without(project, 'gdb', 'apt-get', 'crashkit')}"
    done = gitlab(project, CRASHES, {"PATH": path, "PYTHONPATH": UNSET, "PIP_NO_COMPILE": "1"}, install=str(ROOT))
    assert done.returncode == 139, done.stdout + done.stderr
    assert "gdb is not installed" in done.stdout and "app.py" in (project / "crash-report/summary.md").read_text()
    check_junit((project / "crash-report/junit.xml").read_bytes())


@pytest.mark.parametrize("name", [*SHELL_STEPS, "GitLab"])
def test_shellcheck(name: str, tmp_path: Path) -> None:
    program = shutil.which("shellcheck", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    if program is None:
        pytest.skip("shellcheck is not installed: pip install '.[dev]'")
    (job,) = COMPONENT.values()
    text = SHELL_STEPS.get(name) or "\n".join(job["before_script"] + job["script"])
    done = subprocess.run([program, "--shell", "sh" if name == "GitLab" else "bash", "-"], input=text, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
