"""The picture of a GPU kernel's grid: of real dumps, of grids that do not fit."""

from __future__ import annotations

import re

import pytest

from crashkit.model import Address, Crash, GpuBlock, GpuKernel, GpuLane
from crashkit.report.gpu_picture import MOST_CELLS, Cell, Picture, Stripe, picture, warp_picture
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


def test_stripes_of_a_block_stand_side_by_side() -> None:
    """Each as wide as it has warps; blocks one beside the other, in rows of 32."""
    blocks = [GpuBlock(index=(number, 0, 0), warps="ffr-") for number in range(34)]
    found = picture(GpuKernel(grid=(34, 1, 1), resident=tuple(blocks)))
    assert found.cells[1].stripes == (Stripe(27, 12, "failed"), Stripe(39, 6, "runs"), Stripe(45, 6, "gone"))
    assert found.cells[1].title == "block (1,0,0): warps: 2 failed, 1 running, 1 not on the GPU"
    assert [(cell.stripes[0].x, cell.y) for cell in found.cells[30:]] == [(810, 0), (837, 0), (0, 17), (27, 17)]
    assert (found.width, found.height) == (32 * 27, 2 * 17)
    assert found.states == (("failed", "failed"), ("runs", "running"), ("gone", "not on the GPU"))


@pytest.mark.parametrize(("grid", "rows"), [((32, 2, 1), 2), ((33, 2, 1), 3), ((1, 4, 2), 1), ((2, 2, 3), 6)])
def test_rows_are_those_of_the_grid_where_they_fit(grid: tuple[int, ...], rows: int) -> None:
    found = picture(GpuKernel(grid=grid, resident=(GpuBlock(index=(0, 0, 0), warps="r"),)))
    assert len({cell.y for cell in found.cells}) == rows and found.height == rows * 17
    titles = [cell.title for cell in found.cells]
    x, y, z = grid
    assert [title.split(":")[0] for title in titles] == [f"block ({i},{j},{k})" for k in range(z) for j in range(y) for i in range(x)]


def test_as_many_blocks_as_there_is_room_for() -> None:
    one = (GpuBlock(index=(0, 0, 0), warps="r"),)
    assert len(picture(GpuKernel(grid=(MOST_CELLS, 1, 1), resident=one)).cells) == MOST_CELLS
    assert len(picture(GpuKernel(grid=(MOST_CELLS + 1, 1, 1), resident=one)).cells) == 1


@pytest.mark.parametrize(
    ("kernel", "summary"),
    [
        (GpuKernel(grid=(1, 1, 1), resident=(GpuBlock(index=(0, 0, 0), warps="r"),)), "1 block: 1 on the GPU"),
        (GpuKernel(resident=(GpuBlock(index=(0,), warps="w"), GpuBlock(index=(1,), warps=""))), "2 blocks: 2 on the GPU"),
        (
            GpuKernel(grid=(9, 1, 1), blocks=5),
            "9 blocks: 5 on the GPU, 4 that had ended or had not begun; 5 of those on the GPU are not shown",
        ),
        (
            GpuKernel(grid=(3, 1, 1), blocks=3, resident=(GpuBlock(index=(0, 0, 0), warps="f"), GpuBlock(index=(1, 0, 0), warps="r"))),
            "3 blocks: 1 with failed warps, 2 more on the GPU; 1 of those on the GPU are not shown",
        ),
    ],
)
def test_what_the_picture_shows_in_one_sentence(kernel: GpuKernel, summary: str) -> None:
    assert picture(kernel).summary == summary


def test_each_thread_of_the_warp_is_a_cell() -> None:
    lanes = [
        GpuLane(thread_index=(0, 1, 2), failed=True, active=True, address=Address(0x10)),
        GpuLane(thread_index=(1, 1, 2), active=False),
        GpuLane(thread_index=(2, 1, 2), active=True),
        GpuLane(thread_index=(3, 1, 2)),
    ]
    found = warp_picture(lanes)
    assert found.cells == (
        Cell(0, (Stripe(0, 14, "failed"),), "thread (0,1,2): failed, 0x0000000000000010"),
        Cell(0, (Stripe(17, 14, "gone"),), "thread (1,1,2): did not run with the others"),
        Cell(0, (Stripe(34, 14, "runs"),), "thread (2,1,2): did not fail"),
        Cell(0, (Stripe(51, 14, "runs"),), "thread (3,1,2): did not fail"),
    )
    assert (found.summary, found.width, found.height) == ("4 threads of the faulting warp: 1 failed", 4 * 17, 17)
    assert len(warp_picture(lanes * 10).cells) == 32
    assert (warp_picture(()).cells, warp_picture(()).width) == ((), 17)
