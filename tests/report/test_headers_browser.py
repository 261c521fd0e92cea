"""The headers of tables in a real browser: a word is broken at its hyphen only, however narrow its column is."""

from __future__ import annotations

from typing import Any

import pytest

from crashkit.model import Crash
from tests.gpu_cores import gpu
from tests.report import samples
from tests.report.test_report_browser import as_wide_as, browser, opened, pytestmark  # noqa: F401

BROKEN = """
document.querySelectorAll('details').forEach(details => details.open = true);
const found = [];
for (const header of document.querySelectorAll('thead:not(.quiet) th')) {
  const texts = document.createTreeWalker(header, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    for (const word of texts.currentNode.data.matchAll(/[^\\s-]+-?/g)) {
      const range = document.createRange();
      range.setStart(texts.currentNode, word.index);
      range.setEnd(texts.currentNode, word.index + word[0].length);
      found.push([word[0], new Set([...range.getClientRects()].map(box => box.top)).size]);
    }
  }
}
return found;
"""


@pytest.mark.parametrize("width", [1300, 500])
@pytest.mark.parametrize("name", ["gpu", *sorted(samples.ALL)])
def test_words_of_headers_are_whole(browser: Any, opened: Any, name: str, width: int) -> None:  # noqa: F811
    crash = Crash(gpu=(gpu("native_hang"), gpu("torch_hang"), gpu("triton_beyond"))) if name == "gpu" else samples.ALL[name]()
    with as_wide_as(browser, width):
        page = opened(crash)
        words = page.execute_script(BROKEN)
        assert words or name != "gpu"
        assert [word for word, lines in words if lines != 1] == []
        assert page.execute_script("return document.documentElement.scrollWidth <= innerWidth")
