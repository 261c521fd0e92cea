"""A format of the report that crashkit does not know, added in one file: CSV, one line a frame of the crashed thread."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest

from crashkit.cli.analyze import write_report
from crashkit.model import Crash, PythonFrame
from crashkit.report import renderer as registry
from crashkit.report.renderer import Renderer, renderer
from tests.report import samples


def _render(crash: Crash) -> bytes:
    file = io.StringIO()
    table = csv.writer(file)
    table.writerow(("function", "file", "line"))
    for thread in crash.threads:
        if thread.crashed:
            table.writerows((frame.function, frame.file, frame.line) for frame in thread.frames if isinstance(frame, PythonFrame))
    return file.getvalue().encode()


RENDERER = Renderer("frames.csv", _render)


def test_it_is_found_by_its_name_and_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(KeyError):
        renderer("csv")
    monkeypatch.setitem(registry.RENDERERS, "csv", __name__)
    folder = write_report(samples.flask_lstm(), tmp_path / "report", ["csv", "json"])
    assert {path.name for path in folder.iterdir()} == {"frames.csv", "report.json"}
    rows = (folder / "frames.csv").read_text().splitlines()
    assert rows[0] == "function,file,line" and any(row.startswith("forward,") and "/srv/ocr/crnn.py" in row for row in rows)


@pytest.mark.parametrize("sample", sorted(samples.ALL))
@pytest.mark.parametrize("name", sorted(registry.RENDERERS))
def test_every_format_renders_every_crash(name: str, sample: str) -> None:
    one = renderer(name)
    document = one.render(samples.ALL[sample]())
    assert document.decode("utf-8") and document.endswith((b"\n", b"</html>"))


def test_each_has_a_file_of_its_own() -> None:
    files = [renderer(name).file for name in registry.RENDERERS]
    assert len(set(files)) == len(files) and all(Path(file).name == file for file in files)


def test_what_is_written_by_default() -> None:
    from crashkit.cli.analyze import WRITTEN

    assert [renderer(name).file for name in WRITTEN] == ["report.json", "report.html"]
