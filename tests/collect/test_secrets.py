"""What `crashkit run` keeps of a crash holds no secret but in the core."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

from tests.collect.conftest import Crashkit
from tests.crashes import CRASHERS, compile_c, needs_gdb
from tests.secrets import planted

pytestmark = [needs_gdb, pytest.mark.slow]
COMMAND = (sys.executable, planted.PROGRAM, *planted.ARGUMENTS)


@pytest.fixture
def environment(crashkit: Crashkit) -> None:
    crashkit.environment.update(planted.ENVIRONMENT)


def test_neither_the_folder_nor_what_is_printed_holds_a_secret(crashkit: Crashkit, environment: None) -> None:
    result = crashkit.run(*COMMAND, options=())
    (crash,) = crashkit.crashes()
    folder = crash["folder"]
    assert crash["analysis"] == "done", (folder / "analysis.log").read_text()
    assert {"stderr.log", "manifest.json", "report.html", "report.json", "analysis.log"} <= {path.name for path in folder.iterdir()}
    assert planted.in_files(folder) == set()
    # The command's own stderr is passed through as it is.
    ours = [line for line in result.stderr.splitlines() if line.startswith("crashkit: ")]
    shown = [crashkit(*words).stdout for words in (["list"], ["list", "--json"], ["show"], ["show", "--json"])]
    assert planted.left([*ours, *shown]) == set()
    assert crash["environment"]["NCCL_PASS"] == "<masked>" and crash["argv"][-3:] == ["<masked>", "--api-token=<masked>", "<masked>"]
    assert json.loads((folder / "report.json").read_text())["masked"] > len(planted.ALL)


def test_they_are_kept_and_shown_if_asked(crashkit: Crashkit, environment: None) -> None:
    crashkit.run(*COMMAND, options=("--show-secrets",))
    (crash,) = crashkit.crashes()
    assert planted.in_files(crash["folder"]) >= planted.ALL - {"pl4ntModule01"}
    assert {"pl4ntLog15", "pl4ntEnv22"} <= planted.left([(crash["folder"] / "stderr.log").read_text()])
    # Shown again, it is masked by what the report itself tells: the variable of this one was not in it.
    assert planted.left([crashkit("show").stdout, crashkit("show", "--json").stdout]) <= {"pl4ntEnv22"}
    assert planted.left([crashkit("show", "--json", "--show-secrets").stdout]) >= planted.ALL - {"pl4ntModule01"}


def test_locals_can_be_left_out(crashkit: Crashkit) -> None:
    crashkit.run(*COMMAND, options=("--no-locals",))
    (crash,) = crashkit.crashes()
    assert "token_ids" in (crash["folder"] / "report.json").read_text()
    assert '[101, 2023, 102]"' not in (crash["folder"] / "report.json").read_text()


def test_stacks_that_gdb_saved_as_text_are_masked(crashkit: Crashkit, tmp_path: Path) -> None:
    compile_c(CRASHERS / "with_secrets.c", tmp_path / "program")
    result = crashkit.run(tmp_path / "program", options=("--capture", "ptrace", "--no-core"))
    (crash,) = crashkit.crashes()
    saved = crash["folder"] / "gdb.txt"
    assert saved.exists(), result.stderr
    assert planted.in_files(crash["folder"]) == set()
    assert re.search(r'password=\S*0x[0-9a-f]+ "<masked>", why=\S*0x[0-9a-f]+ "api_key=<masked>"', saved.read_text())
