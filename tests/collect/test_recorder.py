"""`crashkit run --cuda` switches torch's flight recorder on, and keeps what each rank dumped.

No GPU is needed: the ranks write dumps of real ones, which NCCL wrote on two GPUs, to where the variables say.
"""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import pytest
import zstandard

from crashkit.bundling import bundle
from crashkit.collect.host.cuda import variables
from crashkit.pipeline import analyze
from tests.collect.conftest import Crashkit
from tests.collect.test_incident import ended, others

DUMPS = Path(__file__).parent.parent.parent / "fixtures" / "jobs" / "nccl" / "fr-missed"
DUMPED = f"""
import os, shutil, signal, sys
rank = os.environ["RANK"]
shutil.copy({str(DUMPS)!r} + "/fr_" + rank, os.environ["TORCH_FR_DUMP_TEMP_FILE"] + rank)
"""
ABORTS = f"import sys; sys.stdin.readline()\n{DUMPED}os.abort()"
WAITS = f'{DUMPED}print("there", flush=True)\nsignal.pause()'


@pytest.mark.slow
def test_each_rank_keeps_its_dump(crashkit: Crashkit, tmp_path: Path) -> None:
    crash, _ = ended(crashkit, ABORTS, WAITS, options=("--cuda",))
    (other,) = others(crash)
    for rank, manifest in (("0", crash), ("1", other)):
        assert manifest["environment"]["RANK"] == rank
        assert [file["name"] for file in manifest["files"] if file["kind"] == "flight-recorder"] == [f"nccl_trace_rank_{rank}"]
    (collective,) = json.loads((crash["folder"] / "report.json").read_text())["job"]["collectives"]
    assert collective["missing"] == [1], collective
    # On another machine, the bundle tells the same.
    whole = bundle([crash["folder"]], tmp_path / "crash.tar.zst")
    with whole.path.open("rb") as packed, tarfile.open(fileobj=zstandard.ZstdDecompressor().stream_reader(packed), mode="r|") as archive:
        names = [member.name for member in archive]
    assert sum("nccl_trace_rank_" in name for name in names) == 2, names
    job = analyze(whole.path).job
    assert job is not None and [one.missing for one in job.collectives] == [(1,)]


@pytest.mark.parametrize("name", ["TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE"])
def test_what_the_user_set_stays(name: str) -> None:
    """By its old name, too."""
    added = variables({name: "10", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE": "/srv/fr_"}, Path("/run"))
    assert "TORCH_FR_BUFFER_SIZE" not in added and "TORCH_FR_DUMP_TEMP_FILE" not in added
    assert added["TORCH_NCCL_DUMP_ON_TIMEOUT"] == "1"
    assert variables({}, Path("/run"))["TORCH_FR_DUMP_TEMP_FILE"] == "/run/nccl_trace_rank_"
