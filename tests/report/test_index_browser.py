"""The index of one crash and of two thousand in a real browser."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from crashkit.batch.group import grouped
from crashkit.report.index import html
from crashkit.report.index.document import Entry, Index, Place
from tests.report.test_report_browser import as_wide_as, browser, load, pytestmark  # noqa: F401

selenium = pytest.importorskip("selenium", reason="selenium is not installed")
from selenium.webdriver.common.by import By  # noqa: E402
from selenium.webdriver.common.keys import Keys  # noqa: E402

SIGNALS = ("SIGSEGV", "SIGABRT", "SIGBUS")


def crash(number: int) -> Entry:
    kind = number % 60
    return Entry(
        number=number,
        report=f"crashes/{number:04d}/report.html",
        test=f"tests/test_{kind}.py::test_it[{number}]",
        signal=SIGNALS[kind % 3],
        what=f"Unmapped memory was read in decode_{kind}.",
        stack=(Place(file=f"/src/io_{kind}.py", line=kind + 1, function=f"parse_{kind}", own=True),),
        fingerprint=f"{kind:x}",
        evidence=(f"artifacts/core.{number}",),
    )


def opened(browser: Any, folder: Path, count: int) -> Any:  # noqa: F811
    browser.get_log("browser")
    path = folder / "index.html"
    path.write_bytes(html.render(grouped(Index(entries=tuple(map(crash, range(1, count + 1)))))))
    load(browser, path)
    return browser


def shown(page: Any, selector: str) -> int:
    return int(
        page.execute_script("return [...document.querySelectorAll(arguments[0])].filter((one) => one.checkVisibility()).length", selector)
    )


def search(page: Any, text: str) -> None:
    field = page.find_element(By.ID, "find")
    field.clear()
    field.send_keys(text)


def until(page: Any, condition: str) -> None:
    from selenium.webdriver.support.ui import WebDriverWait

    WebDriverWait(page, 20).until(lambda page: page.execute_script(f"return {condition}"))


def test_one(browser: Any, tmp_path: Path) -> None:  # noqa: F811
    page = opened(browser, tmp_path, 1)
    assert page.find_element(By.TAG_NAME, "h1").text == "1 crash" and shown(page, ".crash") == 1
    assert page.find_element(By.LINK_TEXT, "0001").get_attribute("href").endswith("/crashes/0001/report.html")
    assert page.get_log("browser") == []


@pytest.mark.slow
def test_two_thousand(browser: Any, tmp_path: Path) -> None:  # noqa: F811
    """Groups, search by what a crash alone says and by what its group says, kinds, keys, themes; nothing wider than the window."""
    page = opened(browser, tmp_path, 2000)
    assert page.find_element(By.TAG_NAME, "h1").text == "2,000 crashes in 60 groups" and shown(page, ".crash-group") == 60

    search(page, "test_it[77]")
    until(page, "document.getElementById('found').textContent === '1 of 2000'")
    assert shown(page, ".crash-group") == shown(page, ".crash") == 1

    search(page, "decode_5.")
    until(page, "document.getElementById('found').textContent === '34 of 2000'")
    search(page, "nothing like it")
    until(page, "!document.getElementById('none').hidden")
    page.find_element(By.ID, "find").send_keys(Keys.ESCAPE)
    assert shown(page, ".crash-group") == 60

    page.find_element(By.CSS_SELECTOR, ".tally button[data-kind=SIGABRT]").click()
    assert shown(page, ".crash-group") == 20
    page.find_element(By.CSS_SELECTOR, ".tally button[data-kind=SIGABRT]").click()

    page.find_element(By.TAG_NAME, "body").send_keys("jj")
    assert page.execute_script("return document.activeElement.closest('.crash-group').id") == "group1"
    before = page.execute_script("return getComputedStyle(document.body).backgroundColor")
    page.find_element(By.ID, "theme").click()
    assert page.execute_script("return getComputedStyle(document.body).backgroundColor") != before
    for width in (1300, 400):
        with as_wide_as(page, width):
            assert page.execute_script("return document.documentElement.scrollWidth <= innerWidth")
    assert page.get_log("browser") == []
