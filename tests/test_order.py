"""All the paths of one call are evidence of one crash: their order on the command line does not change the answer."""

from __future__ import annotations

from itertools import permutations
from pathlib import Path

import pytest
from msgspec.structs import replace

from crashkit.model import Crash
from crashkit.pipeline import Options, analyze

from .crashes import an_interpreter, python_crash

TRACEBACK = """\
Traceback (most recent call last):
  File "/srv/{name}.py", line 3, in {name}
    raise ValueError({name!r})
ValueError: {name}
"""
LOGS = {
    "a": TRACEBACK.format(name="a") + "terminate called after throwing an instance of 'std::runtime_error'\n  what():  first\n",
    "b": TRACEBACK.format(name="b") + "  what():  second\ndouble free or corruption (out)\n",
    "dmesg.log": "python3[812]: segfault at 10 ip 00007f00 sp 00007ffe error 4 in libshop.so[7f00]\n",
    "stack.txt": "Fatal Python error: Segmentation fault\n\nCurrent thread 0x00007f0000000740 (most recent call first):\n"
    '  File "/srv/app.py", line 17 in decode\n',
}


def answer(paths: tuple[Path, ...]) -> Crash:
    return replace(analyze(list(paths), options=Options(gdb=None)), seconds={})


@pytest.mark.slow
@pytest.mark.parametrize("with_core", [False, True], ids=["logs", "core and logs"])
def test_any_order_gives_the_same_report(with_core: bool, tmp_path: Path) -> None:
    for name, text in LOGS.items():
        (tmp_path / name).write_text(text)
    paths = [tmp_path / name for name in LOGS]
    if with_core:
        paths = [python_crash("threads.py", python=an_interpreter()).core, *paths[::2]]
    orders = list(permutations(paths))
    first = answer(orders[0])
    assert first.findings or first.threads
    for order in orders[1:]:
        assert answer(order) == first
    assert answer((*paths, paths[0])) == first
