"""`crashkit run` as a batch system starts it: many side by side, each for one rank of a job, or for a launcher that is a rank itself."""

from __future__ import annotations

import platform
import re
import shlex
import subprocess
import sys

import pytest

from crashkit.environment import is_given_a_rank, is_one_of_several
from tests.collect.conftest import DEADLINE, SEGFAULT, Crashkit
from tests.collect.test_incident import RAISES, WAITS, ended, wait_for

LIVES = "import sys; sys.stdin.readline()"


def test_two_runs_in_one_process_group(crashkit: Crashkit) -> None:
    """As SLURM starts the tasks of a step, and a script two programs with `&`: they see each other's cores in the folder."""
    runs = [shlex.join(crashkit.argv("run", "--no-analyze", "--", sys.executable, "-c", code)) for code in (SEGFAULT, LIVES)]
    script = f"exec 3<&0; {runs[0]} </dev/null & {runs[1]} <&3 & wait"
    process = subprocess.Popen(
        ["/bin/sh", "-c", script], stdin=subprocess.PIPE, cwd=crashkit.cwd, env=crashkit.environment, start_new_session=True
    )
    wait_for(lambda: bool(crashkit.crashes()))
    process.communicate(b"\n", timeout=60)
    (crash,) = crashkit.crashes()
    assert crash["is_command"] and (crash["folder"] / "core").is_file()


NEVER_LOOKS = """
from crashkit.cli import main
from crashkit.collect.supervise.process_tree import ProcessTree

ProcessTree.walk = ProcessTree.refresh = lambda *_: None
main()
"""


@pytest.mark.slow
def test_a_rank_that_ends_before_it_is_looked_at(crashkit: Crashkit) -> None:
    """As on a busy machine: what it was started with is known all the same."""
    crashkit.environment.update({"RANK": "1", "WORLD_SIZE": "3"})
    command = [sys.executable, "-c", NEVER_LOOKS, *crashkit.argv("run", "--", sys.executable, "-c", "raise ValueError('bad sample')")[3:]]
    done = subprocess.run(command, cwd=crashkit.cwd, env=crashkit.environment, capture_output=True, text=True, timeout=DEADLINE)
    (crash,) = crashkit.crashes()
    assert done.returncode == crash["exit_status"] == 1, done.stderr
    assert crash["argv"][-1] == "raise ValueError('bad sample')"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("variables", "kept"),
    [
        ({"SLURM_PROCID": "1", "SLURM_STEP_NUM_TASKS": "3"}, True),
        ({"RANK": "1", "WORLD_SIZE": "3"}, True),
        ({"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "2"}, True),
        ({"RANK": "0", "WORLD_SIZE": "1"}, False),
        # sbatch sets these for its script, which is no rank.
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "4"}, False),
        ({}, False),
    ],
)
def test_an_exception_of_a_rank(variables: dict[str, str], kept: bool, crashkit: Crashkit) -> None:
    """`srun crashkit run python train.py`: the exception of one rank, known failure or not, explains the ends of all."""
    crashkit.environment.update(variables)
    done = crashkit.python("raise ValueError('bad sample')", options=())
    assert done.returncode == 1
    crashes = crashkit.crashes()
    assert len(crashes) == kept, done.stderr
    if kept:
        assert re.search(rf"\[\d+\] \(rank \d on {re.escape(platform.node())}\) exited with status 1", done.stderr), done.stderr
        assert crashes[0]["host"] == platform.node()
        assert crashes[0]["exit_status"] == 1 and "ValueError: bad sample" in (crashes[0]["folder"] / "stderr.log").read_text()
        assert (crashes[0]["folder"] / "report.json").is_file()


@pytest.mark.slow
@pytest.mark.parametrize(
    "variables",
    [
        {"SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "2", "SLURM_JOB_ID": "7"},  # srun torchrun: a task a node
        {"RANK": "0", "WORLD_SIZE": "2"},  # PyTorchJob: a pod a node
    ],
    ids=["srun", "PyTorchJob"],
)
def test_a_launcher_that_is_a_rank_itself(variables: dict[str, str], crashkit: Crashkit) -> None:
    manifest, _ = ended(crashkit, RAISES, WAITS, options=("--no-analyze",), **variables)
    assert manifest["exit_status"] == 1 and manifest["environment"]["RANK"] == "0"
    assert [name.split("-")[0] for name in manifest["others"]] == ["rank1"]


def test_who_is_given_a_rank() -> None:
    pod = {"RANK": "1", "WORLD_SIZE": "2"}
    worker = {**pod, "RANK": "5", "LOCAL_RANK": "1"}
    assert is_given_a_rank(worker, pod) and not is_given_a_rank(worker, worker) and is_given_a_rank(pod, {})
    assert not is_given_a_rank({"LOCAL_RANK": "0"}, {}) and not is_given_a_rank({}, {})
    assert is_one_of_several(pod) and not is_one_of_several({"WORLD_SIZE": "2"})
