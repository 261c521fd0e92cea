"""The Python lines that torch.compile fused into a kernel: a real dump, inductor's real cache of that run, a real torch's log."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from crashkit.evidence.gpu.inductor import Fused, Known, lines_of, look_through
from crashkit.model import Crash, PythonFrame
from crashkit.pipeline import Options, analyze
from crashkit.report import markdown
from crashkit.report.html import render
from crashkit.report.json import decode, encode
from crashkit.report.text import summary

from .gpu_cores import DUMPS, data

KERNEL = "triton_poi_fused_add_index_mul_relu_0"
CACHE = "/tmp/dumps-k4gdjse0/compiled_assert/inductor"
PROGRAM = """\
import torch

def pick(table, index):
    doubled = table[index] * 2
    return torch.relu(doubled + 1)

torch.compile(pick, backend="aot_eager")(torch.arange(16.0), torch.tensor([1, 2, 3, 4] * 8))
"""

# As torch writes it for TORCH_LOGS=aot_graphs (2.13); the prefix of each line is shortened.
GRAPH = """\
I1122 01:19:24 20509 graph_capture.py] [0/0] [__aot_graphs]  /torch/fx/_lazy_graph_module.py class <lambda>(torch.nn.Module):
I1122 01:19:24 20509 graph_capture.py] [0/0] [__aot_graphs]     def forward(self, arg0_1: "f32[16][1]cpu", arg1_1: "i64[32][1]cpu"):
I1122 01:19:24 20509 graph_capture.py] [0/0] [__aot_graphs]         # File: /srv/model.py:4 in pick, code: doubled = table[index] * 2
I1122 01:19:24 20509 graph_capture.py] [0/0] [__aot_graphs]         index: "f32[32][1]cpu" = torch.ops.aten.index.Tensor(arg0_1, [])
I1122 01:19:24 20509 graph_capture.py] [0/0] [__aot_graphs]         mul: "f32[32]" = torch.ops.aten.mul.Tensor(index, 2);  index = None
I1122 01:19:24 20509 graph_capture.py] [0/0] [__aot_graphs]
I1122 01:19:24 20509 graph_capture.py] [0/0] [__aot_graphs]         # File: /srv/model.py:5 in pick, code: return torch.relu(doubled + 1)
I1122 01:19:24 20509 graph_capture.py] [0/0] [__aot_graphs]         add: "f32[32][1]cpu" = torch.ops.aten.add.Tensor(mul, 1);  mul = None
I1122 01:19:24 20509 graph_capture.py] [0/0] [__aot_graphs]         relu: "f32[32][1]cpu" = torch.ops.aten.relu.default(add);  add = None
"""


def crashed(folder: Path, *texts: str, cache: bool = True) -> Crash:
    """The dump of the compiled kernel with these logs."""
    paths = [folder / "x.nvcudmp"]
    paths[0].write_bytes(data("compiled_assert"))
    for number, text in enumerate(texts):
        paths.append(folder / f"{number}.log")
        paths[-1].write_text(text)
    maps = ((CACHE, DUMPS / "inductor"),) if cache else ()
    return analyze(paths, options=Options(path_maps=maps))


def test_the_lines_are_on_the_first_screen(tmp_path: Path) -> None:
    crash = crashed(tmp_path, GRAPH)
    exception = crash.gpu[0].exceptions[0]
    assert exception.operators == ("aten.index", "aten.mul", "aten.add", "aten.relu")
    assert [(one.file, one.line, one.function, one.source) for one in exception.fused_from] == [
        ("/srv/model.py", 4, "pick", "doubled = table[index] * 2"),
        ("/srv/model.py", 5, "pick", "return torch.relu(doubled + 1)"),
    ]
    assert decode(encode(crash)) == crash
    screen = "\n".join(list(summary(crash, tmp_path / "report.html", color=False, width=100))[:24])
    shown = ("fuses", "model.py:4 in pick: doubled = table[index] * 2", "model.py:5 in pick: return torch.relu(doubled + 1)")
    assert all(text in screen for text in shown)
    assert all(text in render(crash) for text in shown[1:])
    assert "model.py:4 in pick" in markdown.RENDERER.render(crash).decode()


def test_without_a_graph_the_operators_are_known(tmp_path: Path) -> None:
    exception = crashed(tmp_path).gpu[0].exceptions[0]
    assert exception.operators == ("aten.index", "aten.mul", "aten.add", "aten.relu")
    assert exception.fused_from == ()


def test_without_the_cache_a_log_with_the_code_tells(tmp_path: Path) -> None:
    """TORCH_LOGS=output_code prints what the cache holds."""
    (code,) = (path.read_text() for path in (DUMPS / "inductor" / "ir").iterdir())
    logged = "".join(f"V1122 01:19:25.000000 20509 graph.py:2400] [0/0] [__output_code] {line}\n" for line in code.split("\n"))
    assert [one.line for one in crashed(tmp_path, GRAPH + logged, cache=False).gpu[0].exceptions[0].fused_from] == [4, 5]
    assert crashed(tmp_path, GRAPH, cache=False).gpu[0].exceptions[0].operators == ()


def test_the_code_of_other_kernels_is_not_taken(tmp_path: Path) -> None:
    """A cache holds the code of many kernels, and other runs' kernels of the same name."""
    cache = tmp_path / "cache"
    for source in (DUMPS / "inductor").rglob("*.py"):
        place = cache / source.relative_to(DUMPS / "inductor")
        place.parent.mkdir(parents=True, exist_ok=True)
        text = source.read_text().replace(f"# kernel path: {CACHE}/7i/", f"# kernel path: {CACHE}/xx/")
        place.write_text(text)
    (tmp_path / "x.nvcudmp").write_bytes(data("compiled_assert"))
    crash = analyze(tmp_path / "x.nvcudmp", options=Options(path_maps=((CACHE, cache),)))
    assert crash.gpu[0].exceptions[0].operators == ()


def frame(line: int) -> PythonFrame:
    return PythonFrame(file="/srv/model.py", line=line)


def test_graphs_that_disagree_tell_nothing() -> None:
    """Every graph has a node `mul`: which one the kernel is of, only the other nodes tell."""
    fused = Fused(frozenset({"mul", "relu"}), frozenset({"mul", "relu"}), ("aten.mul", "aten.relu"))
    here = {"mul": frame(4), "relu": frame(5)}
    assert [one.line for one in lines_of(fused, [{"mul": frame(90)}, here])] == [4, 5]
    assert lines_of(fused, [here, dict(here)]) == lines_of(fused, [here])
    assert lines_of(fused, [here, {"mul": frame(40), "relu": frame(50)}]) == ()
    assert lines_of(fused, [{"mul": frame(4)}]) == ()
    assert lines_of(Fused(frozenset(), frozenset(), ()), [here]) == ()


def test_a_kernel_without_a_comment_has_no_nodes() -> None:
    text = """\
# Topologically Sorted Source Nodes: [mul], Original ATen: [aten.mul]
# Source node to ATen node mapping:
#   mul => mul_1, mul_2
triton_poi_fused_mul_0 = async_compile.triton('triton_poi_fused_mul_0', '''
triton_poi_fused_add_1 = async_compile.triton('triton_poi_fused_add_1', '''
"""
    lowered = frozenset({"mul_1", "mul_2"})
    assert look_through(text.split("\n")) == Known({"triton_poi_fused_mul_0": Fused(frozenset({"mul"}), lowered, ("aten.mul",))}, ())


@pytest.mark.torch
@pytest.mark.long
def test_real_logs_of_torch(tmp_path: Path) -> None:
    """Both kinds of graph name the lines of the program, whatever this torch's logs look like."""
    pytest.importorskip("torch", reason="torch is not installed")
    program = tmp_path / "model.py"
    program.write_text(PROGRAM)
    for kind in ("aot_graphs", "graph_code"):
        environment = {**os.environ, "TORCH_LOGS": kind}
        done = subprocess.run([sys.executable, str(program)], env=environment, capture_output=True, text=True, check=True, cwd=tmp_path)
        exception = crashed(tmp_path, done.stderr).gpu[0].exceptions[0]
        nodes = {"aot_graphs": [4, 5], "graph_code": []}[kind]  # there the product is called doubled, not mul
        assert [(one.file, one.line) for one in exception.fused_from] == [(str(program), line) for line in nodes]
