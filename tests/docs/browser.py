"""The site of the documentation in Chromium: what a search finds first, and pages on a phone.

`make browser` builds the site and runs this file; `out/browser` has screenshots of it.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

from tests.tools.browser import browser  # noqa: F401 -- a fixture

ROOT = Path(__file__).parents[2]
SITE = ROOT / "out" / "site"
PAGES = [path.relative_to(SITE) for path in sorted(SITE.rglob("*.html"))]
WIDTHS = {"wide": (1280, 900), "phone": (390, 844)}

OVERFLOWING = """
const scrolls = (each) => getComputedStyle(each).overflowX !== "visible"
const inside = (each) => each && (scrolls(each) || inside(each.parentElement))
return [...document.querySelectorAll(".md-content *")].filter((each) => {
  const box = each.getBoundingClientRect()
  return box.width && box.right > innerWidth + 1 && !inside(each.parentElement)
}).map((each) => each.outerHTML.slice(0, 80))
"""
"""The elements that reach beyond the window, and stand in nothing that scrolls by itself."""


@pytest.fixture
def site(browser):  # noqa: F811
    """Show a page of the site in a window of one of the widths."""

    def show(page: str | Path, window: str):
        width, height = WIDTHS[window]
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        browser.get((SITE / page).as_uri())
        return browser

    return show


def found_first(driver, words: str) -> str:
    """The page, with its heading, that the search lists first."""
    box = driver.find_element(By.CSS_SELECTOR, "input.md-search__input")
    box.click()
    box.send_keys(words)
    link = ".md-search-result__item .md-search-result__link"
    wait = WebDriverWait(driver, 30)
    wait.until(lambda _: "matching" in driver.find_element(By.CSS_SELECTOR, META).text)
    links = [each.get_attribute("href") for each in driver.find_elements(By.CSS_SELECTOR, link)]
    page, _, heading = links[0].rpartition("/")[2].partition("#")
    if not heading and links[1].partition("?")[0] == links[0].partition("?")[0]:
        heading = links[1].partition("#")[2]  # a page that is found by a section alone comes first
    return f"{page.partition('?')[0]}#{heading}"


META = ".md-search-result__meta"


@pytest.mark.parametrize(
    ("words", "place"),
    [
        ("tutorial", "tutorial.html#"),
        ("install", "install.html#"),
        ("custom_root", "api.html#implicit-solves"),
        ("scipy", "api.html#implicit-solves"),
        ("custom_vjp", "reference.html#pullback.custom_vjp"),
        ("pullback.custom_vjp", "reference.html#pullback.custom_vjp"),
        ("sparse", "sparse.html#"),
        ("gallery", "gallery.html#"),
        ("enzyme", "users_of.html#enzyme-and-enzyme-jax"),
    ],
)
def test_the_search_finds_the_page_of_a_word_first(site, words, place):
    assert found_first(site("index.html", "wide"), words).startswith(place)


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_a_page_fits_a_phone(site, page):
    """Wide tables and code scroll by themselves; the page does not."""
    driver = site(page, "phone")
    assert driver.execute_script("return document.scrollingElement.scrollWidth") <= 390
    assert driver.execute_script(OVERFLOWING) == []


def test_tables_of_benchmarks_need_no_scrolling_on_a_phone(site):
    driver = site("benchmarks.html", "phone")
    wide = driver.execute_script(
        "return [...document.querySelectorAll('.md-typeset__scrollwrap')]"
        ".filter((each) => each.scrollWidth > each.clientWidth + 1)"
        ".map((each) => each.textContent.trim().slice(0, 60))"
    )
    assert wide == []


@pytest.mark.parametrize("window", WIDTHS)
def test_screenshots_of_the_first_screen(site, window):
    folder = ROOT / "out" / "browser"
    folder.mkdir(parents=True, exist_ok=True)
    assert site("index.html", window).save_screenshot(str(folder / f"site_{window}.png"))
