"""Terminal output with rich: columns, colour. Commands import it only when they draw."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from typing import TextIO

import click
from rich.cells import cell_len
from rich.console import Console, Group, OverflowMethod, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from crashkit.cli.stream import has_color, width
from crashkit.report import safe

GAP = 2
LEAST = 24
"""Minimum width in cells of a table's last column."""
_PLACE = 20
"""Cells that a place takes on a terminal of which its part is less."""
_NAME = 8
"""Cells that a function's name keeps before the name of its file is cut."""


def console(stream: TextIO) -> Console:
    """A rich console with explicit settings instead of guesses from the environment."""
    return Console(
        file=stream,
        width=width(stream),
        height=shutil.get_terminal_size().lines,
        force_terminal=stream.isatty(),
        force_jupyter=False,
        color_system="standard" if has_color(stream) else None,
        no_color=not has_color(stream),
        legacy_windows=False,
        markup=False,
        emoji=False,
        highlight=False,
    )


def show(*renderables: RenderableType, err: bool = False) -> None:
    """Print the renderables one below the other."""
    stream = sys.stderr if err else sys.stdout
    drawing = console(stream)
    with drawing.capture() as captured:
        for renderable in renderables:
            drawing.print(renderable)
    for row in captured.get().splitlines():
        click.echo(row.rstrip(), err=err, color=has_color(stream))


def line(text: str, style: str = "") -> Text:
    """Untrusted text with control characters escaped; it wraps at the width of the terminal."""
    return Text(safe.line(text), style=style)


def paragraph(text: str, style: str = "") -> RenderableType:
    """Like `line`, but wrapped rows keep the indentation of the first."""
    words = text.lstrip(" ")
    return _indented(line(words, style), len(text) - len(words) if words else 0)


def fits(rows: Sequence[Sequence[Text]], indent: int = 0, least: int = LEAST) -> bool:
    """Whether the last column fits beside the others with `least` cells, or with its full width if that is less."""
    *others, wanted = _widths(rows)
    return _room(others, indent) >= min(least, wanted)


def show_rows(
    rows: Sequence[Sequence[Text]],
    dispensable: Sequence[int],
    least: int,
    short: Sequence[Text] = (),
    whole: Sequence[Sequence[Text]] = (),
    ample: Sequence[int] = (),
) -> None:
    """Print a table, one line per row, the first of which are the headings.

    Where the last column has less than `least` cells beside the others, `short` takes the place of the first column, and the columns of
    these indices are left out, one after the other; where that is not enough, each row is stacked in lines without headings, which have
    the cells of `whole`, where those of `rows` were cut to stand beside each other. `ample` are the cells of the last column
    beside all columns, beside them and a short first one, and beside all but one, two, ... of the dispensable: less are too few for those.
    """
    narrow = [[first, *rest] for first, (_, *rest) in zip(short, rows, strict=True)] if short else rows
    tables = [rows, *(_without(narrow, dispensable[:number]) for number in range(len(dispensable) + 1))]
    for number, kept in enumerate(tables):
        if fits(kept, least=ample[number] if number < len(ample) else least):
            show(clipped_columns(kept))
            return
    if max(row[0].cell_len for row in rows) > width(sys.stdout):
        rows = narrow
    for (first, *_), (_, *cells) in zip(rows[1:], (whole or rows)[1:], strict=True):
        show(stacked([(first, Text("\n").join(_filled(cells, width(sys.stdout) - GAP)))]))


def _filled(cells: Sequence[Text], room: int) -> list[Text]:
    """Lines of whole cells, the last one on its own; only what is longer than a line is cut."""
    *facts, last = cells
    lines: list[Text] = []
    for cell in facts:
        cell.truncate(room, overflow="ellipsis")
        if lines and lines[-1].cell_len + GAP + cell.cell_len <= room:
            lines[-1] = Text(" " * GAP).join((lines[-1], cell))
        else:
            lines.append(cell)
    last.truncate(room, overflow="ellipsis")
    return [*lines, last]


def _without(rows: Sequence[Sequence[Text]], left_out: Sequence[int]) -> list[list[Text]]:
    return [[cell for index, cell in enumerate(row) if index not in left_out] for row in rows]


def part(text: str, share: int) -> Text:
    """Untrusted text, truncated at this part of the terminal's width; whole elsewhere."""
    shown = line(text)
    shown.truncate(max(_share(share), GAP), overflow="ellipsis")
    return shown


def _share(share: int) -> int:
    """Cells of that part of the terminal's width; beside a margin, where it is all of it."""
    whole = width(sys.stdout)
    return whole // share if share > 1 else whole - GAP


def place(text: str, share: int) -> Text:
    """Untrusted `function (file:line)` in this part of the terminal's width: the function is cut first, then the file, never the line."""
    shown = line(text)
    room = max(_share(share), min(_PLACE, _share(1)), GAP)
    name, opening, at = shown.plain.rpartition(" (")
    file, colon, number = at.rpartition(":")
    if shown.cell_len <= room or not (opening and colon):
        return part(text, share)
    rest = room - cell_len(f"{opening}{colon}{number}")
    function = Text(name)
    function.truncate(max(rest - cell_len(file), min(_NAME, rest - 1), 1), overflow="ellipsis")
    return Text(f"{function.plain}{opening}{_end(file, rest - function.cell_len)}{colon}{number}")


def _end(text: str, room: int) -> str:
    """The end of a text that has no room for all of it."""
    if cell_len(text) <= room:
        return text
    while text and cell_len(text) >= room:
        text = text[1:]
    return f"…{text}"


def columns(rows: Sequence[Sequence[Text]], indent: int = 0) -> RenderableType:
    """Columns at their natural width, the last one wrapped; it moves below the others if it does not fit beside them."""
    if not fits(rows, indent):
        return stacked([(Text(" " * GAP).join(heads), value) for *heads, value in rows], indent)
    return _indented(_grid(rows, indent, "fold"), indent)


def clipped_columns(rows: Sequence[Sequence[Text]]) -> RenderableType:
    """Like `columns`, but one line per row: the last column is truncated at the width of the terminal."""
    return _grid(rows, 0, "ellipsis")


def stacked(rows: Sequence[tuple[Text, Text]], indent: int = 0) -> RenderableType:
    """Each value below its heading."""
    return Group(*(_indented(part, before) for head, value in rows for part, before in ((head, indent), (value, indent + 2)) if part))


def _grid(rows: Sequence[Sequence[Text]], indent: int, overflow: OverflowMethod) -> Table:
    *others, wanted = _widths(rows)
    table = Table.grid(padding=(0, GAP, 0, 0))
    for cells in others:
        table.add_column(no_wrap=True, width=cells)
    # Set the width explicitly: rich would take some from the others.
    table.add_column(no_wrap=overflow == "ellipsis", overflow=overflow, width=min(wanted, _room(others, indent)))
    for row in rows:
        table.add_row(*row)
    return table


def _indented(part: RenderableType, cells: int) -> RenderableType:
    return Padding(part, (0, 0, 0, cells), expand=False) if cells else part


def _widths(rows: Sequence[Sequence[Text]]) -> list[int]:
    return [max(row[column].cell_len for row in rows) for column in range(len(rows[0]))]


def _room(widths: Sequence[int], indent: int) -> int:
    """Cells left beside columns of these widths."""
    return width(sys.stdout) - indent - sum(cells + GAP for cells in widths)
