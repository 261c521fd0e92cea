"""The grid of a GPU kernel as a picture: which blocks and warps failed, which ran, and of which nothing is known. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import groupby

import msgspec

from crashkit.model import GpuBlock, GpuKernel, GpuLane
from crashkit.report import wording

MOST_CELLS = 512
"""Blocks that are drawn."""

STATES = {"f": "failed", "w": "waits", "r": "runs", "-": "gone"}
_WORDS = {"failed": "failed", "waits": "waiting", "runs": "running", "gone": "not on the GPU"}
_ROW, _BLOCK, _THREAD, _HIGH, _GAP = 32, 24, 14, 14, 3
"""Cells in a row; width of a block and of a thread, height and distance of both, in pixels."""


class Stripe(msgspec.Struct, frozen=True):
    """Neighbouring warps of the same state, or one thread: where it is drawn."""

    x: float
    width: float
    state: str


class Cell(msgspec.Struct, frozen=True):
    """One block, or one thread: where it is drawn, its stripes from the left to the right."""

    y: int
    stripes: tuple[Stripe, ...]
    title: str


class Picture(msgspec.Struct, frozen=True):
    """The blocks of a kernel, or the threads of a warp."""

    cells: tuple[Cell, ...]
    summary: str
    """What it shows, in one sentence."""
    states: tuple[tuple[str, str], ...]
    """Those that occur, each with a word for the legend."""
    width: int
    height: int


def picture(kernel: GpuKernel) -> Picture:
    """The grid of a kernel. Blocks that were not on the GPU are drawn only where all blocks of the grid fit."""
    resident = {block.index: block for block in kernel.resident}
    total = math.prod(kernel.grid) if kernel.grid else len(resident)
    blocks, row = list(kernel.resident[:MOST_CELLS]), _ROW
    if len(kernel.grid) == 3 and all(size > 0 for size in kernel.grid) and total <= MOST_CELLS:
        whole = _indices(kernel.grid)
        if set(resident) <= set(whole):
            # The rows are those of the grid, where they fit.
            blocks = [resident.get(index) or GpuBlock(index=index, warps="") for index in whole]
            row = kernel.grid[0] if 1 < kernel.grid[0] <= _ROW else _ROW
    cells = tuple(_cell(block, number % row, number // row) for number, block in enumerate(blocks))
    return _picture(cells, _summary(kernel, total), row, _BLOCK)


def warp_picture(lanes: Sequence[GpuLane]) -> Picture:
    """The threads of a warp."""
    cells = []
    for number, lane in enumerate(lanes[:_ROW]):
        state = "failed" if lane.failed else "gone" if lane.active is False else "runs"
        word = {"gone": "did not run with the others", "runs": "did not fail"}.get(state, state)
        title = f"thread ({','.join(map(str, lane.thread_index))}): {word}{f', {lane.address}' if lane.address is not None else ''}"
        cells.append(Cell(0, (Stripe(number * (_THREAD + _GAP), _THREAD, state),), title))
    failed = sum(lane.failed for lane in lanes)
    return _picture(tuple(cells), f"{wording.plural(len(lanes), 'thread')} of the faulting warp: {failed} failed", _ROW, _THREAD)


def _picture(cells: tuple[Cell, ...], summary: str, row: int, width: int) -> Picture:
    found = {stripe.state for cell in cells for stripe in cell.stripes}
    states = tuple((state, _WORDS[state]) for state in STATES.values() if state in found)
    return Picture(cells, summary, states, min(row, max(len(cells), 1)) * (width + _GAP), (cells[-1].y if cells else 0) + _HIGH + _GAP)


def _indices(grid: tuple[int, ...]) -> list[tuple[int, ...]]:
    x, y, z = grid
    return [(i, j, k) for k in range(z) for j in range(y) for i in range(x)]


def _cell(block: GpuBlock, column: int, row: int) -> Cell:
    letters = [letter if letter in STATES else "-" for letter in block.warps] or ["-"]
    at, each, stripes = float(column * (_BLOCK + _GAP)), _BLOCK / len(letters), []
    for letter, run in groupby(letters):
        width = each * len(list(run))
        stripes.append(Stripe(round(at, 2), round(width, 2), STATES[letter]))
        at += width
    told = ", ".join(f"{letters.count(letter)} {_WORDS[name]}" for letter, name in STATES.items() if letter in letters)
    index = f"({','.join(map(str, block.index))})"
    return Cell(row * (_HIGH + _GAP), tuple(stripes), f"block {index}: {f'warps: {told}' if block.warps else _WORDS['gone']}")


def _summary(kernel: GpuKernel, total: int) -> str:
    shown = len(kernel.resident)
    there = max(kernel.blocks or 0, shown)
    failed = sum("f" in block.warps for block in kernel.resident)
    text = f"{wording.plural(total, 'block')}: "
    text += f"{failed:,} with failed warps, {there - failed:,} more on the GPU" if failed else f"{there:,} on the GPU"
    if total > there:
        text += f", {total - there:,} that had ended or had not begun"
    if there > shown:
        text += f"; {there - shown:,} of those on the GPU are not shown"
    return text
