"""The picture of a GPU kernel's grid: of real dumps, of grids that do not fit."""

from __future__ import annotations

import re

import pytest

from crashkit.model import Crash, GpuBlock, GpuKernel
from crashkit.report.gpu_picture import MOST_CELLS, Picture, picture, warp_picture
from crashkit.report.html import render
from tests.gpu_cores import CORES, gpu


def drawn(name: str) -> Picture:
    return picture(gpu(name).kernels[0])


def states(found: Picture) -> list[list[str]]:
    return [[stripe.state for stripe in cell.stripes] for cell in found.cells]


def test_failed_and_running_warps() -> None:
    found = drawn("triton_beyond")
    assert found.summary == "4 blocks: 4 with failed warps, 0 more on the GPU"
    assert states(found) == [["runs", "failed", "runs"], ["runs", "failed"], ["runs", "failed", "runs"], ["runs", "failed", "runs"]]
    assert found.cells[0].title == "block (0,0,0): warps: 1 failed, 3 running"
    assert dict(found.states) == {"failed": "failed", "runs": "running"}


def test_waiting_warps() -> None:
    found = drawn("native_hang")
    assert found.summary == "2 blocks: 2 on the GPU"
    assert states(found) == [["runs", "waits"]] * 2


def test_blocks_that_are_not_there() -> None:
    kernel = GpuKernel(grid=(3, 2, 1), block=(64, 1, 1), blocks=1, resident=(GpuBlock(index=(1, 1, 0), warps="f-"),))
    found = picture(kernel)
    assert states(found) == [["gone"], ["gone"], ["gone"], ["gone"], ["failed", "gone"], ["gone"]]
    assert found.cells[0].title == "block (0,0,0): not on the GPU"
    assert found.summary == "6 blocks: 1 with failed warps, 0 more on the GPU, 5 that had ended or had not begun"
    # A row of the picture is a row of the grid.
    assert [cell.y for cell in found.cells] == [0, 0, 0, 17, 17, 17]


def test_a_grid_that_does_not_fit_shows_the_blocks_that_were_there() -> None:
    resident = tuple(GpuBlock(index=(number, 0, 0), warps="r") for number in range(MOST_CELLS))
    found = picture(GpuKernel(grid=(1 << 30, 1, 1), block=(32, 1, 1), blocks=4000, resident=resident))
    assert len(found.cells) == MOST_CELLS
    assert found.summary.endswith("that had ended or had not begun; 3,488 of those on the GPU are not shown")


@pytest.mark.parametrize("grid", [(), (0, 0, 0), (1,), (1, 1, 1, 1), (2, 2, 2)])
def test_grids_and_blocks_that_disagree(grid: tuple[int, ...]) -> None:
    """What a hostile dump may say."""
    kernel = GpuKernel(grid=grid, resident=(GpuBlock(index=(9, 9, 9), warps="x?f"), GpuBlock(index=(), warps="")))
    assert states(picture(kernel)) == [["gone", "failed"], ["gone"]]


@pytest.mark.parametrize("name", CORES)
def test_stripes_fill_their_cells(name: str) -> None:
    described = gpu(name)
    for kernel in described.kernels:
        found = picture(kernel)
        for cell in found.cells:
            assert sum(stripe.width for stripe in cell.stripes) == pytest.approx(24, abs=0.1)
            assert all(stripe.x >= 0 and stripe.x + stripe.width <= found.width + 0.1 for stripe in cell.stripes)
            assert cell.y + 14 <= found.height
    for exception in described.exceptions:
        assert len(warp_picture(exception.warp).cells) == len(exception.warp)


def test_threads_of_the_warp() -> None:
    found = warp_picture(gpu("compiled_assert").exceptions[0].warp)
    assert found.summary.endswith("of the faulting warp: 8 failed")
    assert [cell.stripes[0].state for cell in found.cells].count("failed") == 8


def test_the_page_has_what_the_picture_says() -> None:
    page = render(Crash(gpu=(gpu("beyond"),)))
    assert "4 blocks: 4 with failed warps" in page
    assert page.count('class="failed"') >= 4 + 32
    assert not re.search(r"<svg[^>]*style=", page)


def test_a_kernel_without_blocks() -> None:
    assert picture(GpuKernel()).cells == ()
