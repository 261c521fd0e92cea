"""crashkit installed as users install it: the built wheel, in an environment of its own, by pip, pipx and uv."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.crashes import CRASHERS, cores_land_in_cwd, every_interpreter, lock, python_crash

pytestmark = pytest.mark.network

ROOT = Path(__file__).parent.parent
DEADLINE = 240
OLDEST = (3, 10)

_BY_VERSION = {one.version[:2]: one for [one] in (parameter.values for parameter in every_interpreter()) if one and one.version >= OLDEST}
SUPPORTED = [pytest.param(one, id=one.name) for one in _BY_VERSION.values()]


def run(*command: str | Path, **environment: str | Path) -> str:
    variables = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=DEADLINE, cwd="/", env={**variables, **{k: str(v) for k, v in environment.items()}}
    )
    assert done.returncode == 0, f"{command}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
    return done.stdout


@pytest.fixture(scope="module")
def wheel() -> Path:
    """Built once in a test session, from a copy: a build leaves nothing in the checkout."""
    folder = Path(os.environ["CRASHKIT_TEST_CRASHES"]) / "wheel"
    with lock(folder.with_suffix(".lock")):
        if not folder.exists():
            source = folder.with_name("wheel-source")
            source.mkdir()
            for part in ("crashkit", "gdb_scripts"):
                shutil.copytree(ROOT / part, source / part, ignore=shutil.ignore_patterns("__pycache__"))
            for part in ("pyproject.toml", "README.md", "LICENSE"):
                shutil.copy(ROOT / part, source)
            run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", folder, source)
    (built,) = folder.glob("*.whl")
    return built


def check(crashkit: Path, tmp_path: Path) -> None:
    """The installed command analyzes a core with gdb and with PyStack."""
    assert run(crashkit, "--version").startswith("crashkit, version ")
    core = python_crash(CRASHERS / "threads.py", python=Path(sys.executable)).core
    report = json.loads(run(crashkit, "analyze", core, "--json"))
    assert "gdb" in report["debugger"]
    crashed = next(thread for thread in report["threads"] if thread.get("crashed"))
    assert "read" in [frame.get("function") for frame in crashed["frames"] if frame["kind"] == "python"]
    assert any(frame.get("trust") == "cfi" for frame in crashed["frames"])
    run(crashkit, "analyze", core, "--out", tmp_path / "report")
    assert (tmp_path / "report" / "report.html").stat().st_size > 10_000
    crash = [crashkit, "run", "--", sys.executable, "-I", "-c", "import ctypes; ctypes.string_at(0)"]
    (tmp_path / "cwd").mkdir()
    with cores_land_in_cwd():
        done = subprocess.run(crash, cwd=tmp_path / "cwd", env={**os.environ, "CRASHKIT_HOME": str(tmp_path / "store")}, timeout=DEADLINE)
    assert done.returncode == 139
    (written,) = (tmp_path / "store").glob("*/report.json")
    assert "gdb" in json.loads(written.read_text())["debugger"], "the isolated analysis found this very crashkit"


def test_the_wheel_holds_the_package_and_the_scripts_for_gdb(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    for folder in ("crashkit/gdb_scripts", "crashkit/diagnose/catalog", "crashkit/report/templates"):
        assert any(name.startswith(folder) for name in names), folder
    assert {name.split("/")[0].split("-")[0] for name in names} == {"crashkit"}
    assert not any("__pycache__" in name or "tests" in name for name in names)


@pytest.mark.parametrize("python", SUPPORTED)
def test_pip_in_an_empty_environment(python, wheel, tmp_path):
    environment = tmp_path / "environment"
    made = subprocess.run([python.path, "-I", "-m", "venv", environment], capture_output=True, text=True, timeout=DEADLINE)
    if made.returncode:
        run("uv", "venv", "--quiet", "--seed", "--python", python.path, environment, PATH=tools())
    run(environment / "bin/python", "-m", "pip", "install", "--quiet", "--no-compile", wheel)
    check(environment / "bin/crashkit", tmp_path)


def test_pipx(wheel, tmp_path):
    run("pipx", "install", "--python", sys.executable, wheel, PATH=tools(), PIPX_HOME=tmp_path / "home", PIPX_BIN_DIR=tmp_path / "bin")
    check(tmp_path / "bin/crashkit", tmp_path)


def test_uv_tool(wheel, tmp_path):
    folders = {"UV_TOOL_DIR": tmp_path / "tools", "UV_TOOL_BIN_DIR": tmp_path / "bin", "UV_CACHE_DIR": tmp_path / "cache"}
    run("uv", "tool", "install", "--quiet", "--python", sys.executable, wheel, PATH=tools(), **folders)
    check(tmp_path / "bin/crashkit", tmp_path)


def tools() -> str:
    """The search path, with the programs beside the test's own interpreter first."""
    return f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
