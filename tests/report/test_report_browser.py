"""The report in a real browser, opened from its file."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from crashkit import analyze
from crashkit.model import Crash, LogLine, Module, NativeFrame, PythonFrame, Thread
from crashkit.naming.machinery import handler_end
from crashkit.report import html
from crashkit.report.json import decode, encode
from tests.crashes import an_interpreter, python_crash
from tests.report import samples

selenium = pytest.importorskip("selenium", reason="selenium is not installed")
from selenium import webdriver  # noqa: E402
from selenium.webdriver.common.by import By  # noqa: E402
from selenium.webdriver.common.keys import Keys  # noqa: E402
from selenium.webdriver.support.ui import WebDriverWait  # noqa: E402

DRIVER = shutil.which("chromedriver")
BROWSER = shutil.which("chromium") or shutil.which("google-chrome") or shutil.which("chrome")
FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--window-size=1300,900",
)

# A Chromium from a snap (Ubuntu's) may not read the temporary folder.
CONFINED = any((program or "").startswith("/snap/") for program in (DRIVER, BROWSER))
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(not (DRIVER and BROWSER) or CONFINED, reason="no Chromium and chromedriver that can read the tests' files"),
]

Open = Callable[[Crash], Any]


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    options = webdriver.ChromeOptions()
    options.binary_location = str(BROWSER)
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(executable_path=str(DRIVER)))
    yield driver
    driver.quit()


def load(browser: Any, page: Path) -> None:
    """Open the page and wait until it is there to its end: `get` can return earlier, with the page's last rows still to come."""
    browser.get(page.as_uri())
    complete = "return location.href === arguments[0] && document.readyState === 'complete'"
    WebDriverWait(browser, 60).until(lambda _: browser.execute_script(complete, page.as_uri()))


@pytest.fixture
def opened(browser: Any, tmp_path: Path) -> Open:
    def open_(crash: Crash) -> Any:
        for log in ("browser", "performance"):
            browser.get_log(log)
        path = tmp_path / "report.html"
        path.write_text(html.render(crash), encoding="utf-8")
        load(browser, path)
        return browser

    return open_


@contextmanager
def as_wide_as(browser: Any, width: int) -> Iterator[None]:
    """A page of this width in pixels. It learns of it some time after the browser: what it is asked at once may be told of the old one."""
    size = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": False}
    before = browser.execute_script("return innerWidth")
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    try:
        _wait_for_width(browser, width)
        yield
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
        _wait_for_width(browser, before)


def _wait_for_width(browser: Any, width: int) -> None:
    WebDriverWait(browser, 60).until(lambda _: browser.execute_script("return innerWidth") == width)
    # Its media queries change, and so say its scripts, as the next frame is drawn (HTML, 8.1.7.3: before animation frames).
    browser.execute_async_script("requestAnimationFrame(arguments[0])")


def requests(browser: Any) -> list[str]:
    """What was requested for the page that is open."""
    events = (json.loads(entry["message"])["message"] for entry in browser.get_log("performance"))
    sent = [event["params"] for event in events if event["method"] == "Network.requestWillBeSent"]
    # The browser's own start page may still be loading: only what our document loads counts.
    page = browser.current_url
    assert page.startswith("file://"), "the page sent the browser elsewhere"
    ours = {request["loaderId"] for request in sent if request["request"]["url"] == page}
    return [request["request"]["url"] for request in sent if request["loaderId"] in ours or request["documentURL"] == page]


def visible(browser: Any, selector: str) -> int:
    script = "return [...document.querySelectorAll(arguments[0])].filter(e => e.checkVisibility()).length"
    return int(browser.execute_script(script, selector))


@pytest.mark.parametrize("name", sorted(samples.ALL))
def test_no_error_and_no_request(opened: Open, name: str) -> None:
    browser = opened(samples.ALL[name]())
    assert browser.execute_script("return document.querySelector('.tools').hidden") is False, "the script did not run"
    assert browser.get_log("browser") == []
    assert requests(browser) == [browser.current_url]


def test_hostile_strings_make_no_element_and_run_nothing(opened: Open) -> None:
    browser = opened(samples.hostile())
    made = browser.execute_script("return [document.scripts.length, document.images.length, document.querySelectorAll('[onerror]').length]")
    assert made == [1, 0, 0]
    assert browser.execute_script("return document.documentElement.scrollWidth <= innerWidth"), "a long string widens the page"
    assert not [link for link in browser.find_elements(By.TAG_NAME, "a") if (link.get_attribute("href") or "").startswith("javascript:")]


def test_an_injected_script_would_not_run(opened: Open) -> None:
    browser = opened(samples.flask_lstm())
    browser.execute_script("const s = document.createElement('script'); s.textContent = 'window.ran = 1'; document.body.append(s)")
    assert browser.execute_script("return window.ran") is None
    assert "Content Security Policy" in browser.get_log("browser")[0]["message"]


def test_search_shows_matches_counts_and_clears(opened: Open) -> None:
    browser = opened(samples.flask_lstm())
    before = visible(browser, ".frame")
    browser.find_element(By.TAG_NAME, "body").send_keys("/")
    field = browser.switch_to.active_element
    assert field.get_attribute("id") == "find"
    field.send_keys("serve_FOREVER")
    assert browser.find_element(By.ID, "found").text == "1 of 1"
    assert visible(browser, ".frame") == 1, "the match lies in a folded thread, which must open"
    assert visible(browser, ".group") == 1
    assert browser.execute_script("return CSS.highlights.get('found').size") == 1
    field.send_keys("!")
    assert browser.find_element(By.ID, "found").text == "nothing found" and visible(browser, ".frame") == 0
    field.send_keys(Keys.ESCAPE)
    assert field.get_attribute("value") == "" and browser.find_element(By.ID, "found").text == ""
    assert visible(browser, ".frame") == before and visible(browser, ".group[open]") == 0
    assert browser.execute_script("return CSS.highlights.has('found')") is False


@pytest.mark.parametrize(
    ("query", "shown"), [("libtorch_cpu", "#modules tbody tr"), ("terminate called", ".log > li"), ("worker_7", ".group")]
)
def test_search_goes_to_the_first_hit_wherever_it_is(opened: Open, query: str, shown: str) -> None:
    browser = opened(_searchable())
    browser.find_element(By.ID, "find").send_keys(query)
    assert visible(browser, shown) == 1
    box = browser.execute_script("return document.querySelector(arguments[0] + ':not([hidden])').getBoundingClientRect()", shown)
    assert box["top"] >= 0 and box["bottom"] <= browser.execute_script("return innerHeight")


def _searchable() -> Crash:
    threads = tuple(Thread(tid=number, name=f"worker_{number}", frames=(NativeFrame(function=f"f{number}"),)) for number in range(1, 40))
    modules = tuple(Module(path=f"/usr/lib/{name}.so") for name in ("libc", "libtorch_cpu", *(f"lib{number}" for number in range(30))))
    return Crash(threads=threads, modules=modules, log=(LogLine(text="terminate called without an active exception"),))


def test_only_mine(opened: Open) -> None:
    browser = opened(samples.flask_lstm())
    own = len(browser.find_elements(By.CSS_SELECTOR, "#crashed .frame.own"))
    assert 0 < own < visible(browser, "#crashed .frame")
    browser.find_element(By.ID, "mine").click()
    assert visible(browser, "#crashed .frame.own") == own
    assert visible(browser, "#crashed .frame:not(.own):not(.is-cited)") == 0
    browser.find_element(By.ID, "mine").click()
    assert visible(browser, "#crashed .frame") > own


def test_j_and_k_walk_the_frames(opened: Open) -> None:
    browser = opened(samples.flask_lstm())
    body = browser.find_element(By.TAG_NAME, "body")
    focused = "return document.activeElement.closest('.frame')?.id"
    seen = []
    for key in "jjjk":
        body.send_keys(key)
        seen.append(browser.execute_script(focused))
    assert seen == ["t0.0", "t0.1", "t0.2", "t0.1"]
    field = browser.find_element(By.ID, "find")
    field.send_keys("jk")
    assert field.get_attribute("value") == "jk"


def test_a_recursion_is_folded_with_its_count(opened: Open) -> None:
    frames = [PythonFrame(file="/srv/app.py", line=line, function=name) for _ in range(500) for name, line in (("even", 3), ("odd", 7))]
    crash = Crash(threads=(Thread(tid=1, crashed=True, frames=(NativeFrame(function="f"), *frames)),))
    browser = opened(crash)
    assert visible(browser, "#crashed .frame") == 3
    assert browser.find_element(By.CSS_SELECTOR, ".rounds").text.endswith("The 2 frames above occur 500 times in a row")


def test_search_finds_runtime_frames_that_are_hidden(opened: Open) -> None:
    browser = opened(samples.flask_lstm())
    browser.find_element(By.ID, "runtime").click()
    browser.find_element(By.ID, "find").send_keys("slot_tp_call")
    assert visible(browser, ".frame") > 0


def test_folding(opened: Open) -> None:
    browser = opened(samples.flask_lstm())
    folded = len(browser.find_elements(By.CSS_SELECTOR, "main details:not([open])"))
    assert folded > 5
    browser.find_element(By.ID, "expand").click()
    assert browser.find_elements(By.CSS_SELECTOR, "main details:not([open])") == []
    browser.find_element(By.ID, "collapse").click()
    assert browser.find_elements(By.CSS_SELECTOR, "main details[open]") == []
    group = browser.find_element(By.CSS_SELECTOR, ".group > summary")
    group.send_keys(Keys.ENTER)
    assert len(browser.find_elements(By.CSS_SELECTOR, ".group[open]")) == 1


def test_the_switch_hides_runtime_frames(opened: Open) -> None:
    browser = opened(samples.flask_lstm())
    assert visible(browser, "#crashed .runtime") > 5
    switch = browser.find_element(By.ID, "runtime")
    switch.send_keys(Keys.SPACE)
    assert visible(browser, "#crashed .runtime") == 0 and visible(browser, "#crashed .python") == 9


def test_evidence_opens_the_folded_frame(opened: Open) -> None:
    browser = opened(samples.flask_lstm())
    assert visible(browser, "[id='t1.0']") == 0
    browser.find_element(By.LINK_TEXT, "the same launch path in thread 5881").click()
    assert (
        browser.execute_async_script(
            "const done = arguments[0]; requestAnimationFrame(() => setTimeout(() => done(document.querySelector(':target').id)))"
        )
        == "t1.0"
    )
    assert visible(browser, "[id='t1.0']") == 1


def test_the_theme_follows_the_system_and_then_the_reader(opened: Open) -> None:
    browser = opened(samples.flask_lstm())
    background = "return getComputedStyle(document.body).backgroundColor"
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": "dark"}]})
    dark = browser.execute_script(background)
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": "light"}]})
    light = browser.execute_script(background)
    assert dark != light
    browser.find_element(By.ID, "theme").click()
    assert browser.execute_script(background) == dark
    browser.find_element(By.ID, "theme").click()
    assert browser.execute_script(background) == light


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_text_has_the_contrast_of_wcag_aa(opened: Open, theme: str) -> None:
    browser = opened(samples.flask_lstm())
    browser.execute_script("document.documentElement.dataset.theme = arguments[0]", theme)
    browser.find_element(By.ID, "expand").click()
    assert browser.execute_script(CONTRAST) == []


# Every element with text of its own: its color against the nearest opaque background, WCAG 2.2 section 1.4.3.
CONTRAST = """
const part = c => { c /= 255; return c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4; };
const light = c => { const [r, g, b] = c.match(/[\\d.]+/g).map(Number); return 0.2126 * part(r) + 0.7152 * part(g) + 0.0722 * part(b); };
const own = e => getComputedStyle(e).backgroundColor;
const back = e => own(e) !== 'rgba(0, 0, 0, 0)' ? own(e) : back(e.parentElement);
const texts = e => [...e.childNodes].some(n => n.nodeType === 3 && n.data.trim());
const poor = new Set();
for (const e of document.querySelectorAll('body *')) {
  if (!texts(e) || !e.checkVisibility() || e.closest('.quiet, script, textarea')) continue;
  const a = light(getComputedStyle(e).color), b = light(back(e));
  const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  if (ratio < 4.5) poor.add(`${e.tagName}.${e.className} ${ratio.toFixed(2)}`);
}
return [...poor];
"""


@pytest.mark.parametrize("width", [380, 820])
@pytest.mark.parametrize("crash", ["sample", "real"])
def test_narrow_windows_do_not_scroll_sideways(opened: Open, width: int, crash: str) -> None:
    if crash == "sample":
        browser = opened(samples.flask_lstm())
    else:
        found = analyze(python_crash("threads.py", python=an_interpreter()).core)
        # Paths that have no place to break.
        assert any(len(word) > 40 for step in found.next_steps for word in step.split())
        browser = opened(found)
    with as_wide_as(browser, width):
        if width < 640:
            assert visible(browser, "nav li") == 0 and not browser.find_element(By.ID, "expand").is_displayed()
            browser.find_element(By.ID, "more").click()
            browser.find_element(By.CSS_SELECTOR, "#sections summary").click()
        browser.find_element(By.ID, "expand").click()
        assert browser.execute_script("return document.documentElement.scrollWidth") <= width


def test_every_control_has_a_name_a_screen_reader_can_say(opened: Open) -> None:
    browser = opened(samples.flask_lstm())
    browser.execute_cdp_cmd("Accessibility.enable", {})
    nodes = browser.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]
    roles = {node.get("role", {}).get("value") for node in nodes if not node["ignored"]}
    assert {"main", "navigation", "banner", "search", "switch"} <= roles
    controls = [
        node for node in nodes if not node["ignored"] and node.get("role", {}).get("value") in ("button", "link", "searchbox", "switch")
    ]
    assert controls and all(node.get("name", {}).get("value") for node in controls)


def test_the_fix_is_copied(opened: Open) -> None:
    browser = opened(samples.flask_lstm())
    browser.execute_cdp_cmd("Browser.grantPermissions", {"permissions": ["clipboardReadWrite", "clipboardSanitizedWrite"]})
    browser.find_element(By.CSS_SELECTOR, ".fixes .copy").click()
    read = "const done = arguments[0]; navigator.clipboard.readText().then(done, e => done('error: ' + e))"
    assert browser.execute_async_script(read) == samples.flask_lstm().findings[0].fix[0]


def test_print_leaves_out_the_tools_and_holds_the_stacks(opened: Open) -> None:
    browser = opened(samples.flask_lstm())
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    browser.execute_script("dispatchEvent(new Event('beforeprint'))")
    assert visible(browser, "nav") == 0 and visible(browser, "button") == 0
    assert visible(browser, ".group[open]") == 2
    browser.execute_script("dispatchEvent(new Event('afterprint'))")
    assert visible(browser, ".group[open]") == 0
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})


def test_200_threads_are_searched_and_unfolded(opened: Open) -> None:
    browser = opened(samples.crowd(200))
    field, found = browser.find_element(By.ID, "find"), browser.find_element(By.ID, "found")
    field.send_keys("worker.py:88")
    assert found.text == "1 of 2"  # the thread and its frame
    for at in (2, 1):
        field.send_keys(Keys.ENTER)
        assert found.text == f"{at} of 2"
    field.send_keys(Keys.SHIFT, Keys.ENTER)
    assert found.text == "2 of 2"
    assert visible(browser, ".group") == 1
    assert browser.get_log("browser") == []


def test_a_real_crash(opened: Open) -> None:
    crash = analyze(python_crash("threads.py", python=an_interpreter()).core)
    assert decode(encode(crash)) == crash
    browser = opened(crash)
    assert browser.get_log("browser") == [] and requests(browser) == [browser.current_url]
    assert crash.thread
    handled = handler_end(crash.thread.frames)
    assert handled > 1 and visible(browser, "#crashed .frame") == len(crash.thread.frames) - handled
    browser.find_element(By.CSS_SELECTOR, "#crashed .rounds summary").click()
    assert visible(browser, "#crashed .frame") == len(crash.thread.frames)
    browser.find_element(By.ID, "expand").click()
    shown = browser.find_element(By.TAG_NAME, "main").text
    assert all(frame.function in shown for thread in crash.threads for frame in thread.pythons() if frame.function)
