"""The page of `pullback view` in Chromium: clicks, keys, search, and the time to open.

`make browser` runs this file; it needs Selenium, Model Explorer, and Debian's chromium and
chromium-driver.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import jax.numpy as jnp
import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

import pullback as pb

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "rules.py"
MOST_SECONDS = 3.0
FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run "
    "--disable-background-networking --disable-component-update --disable-sync"
).split()
LONG = """
import jax
import jax.numpy as jnp


def loss(w, x):
    for _ in range(1000):
        h = jnp.tanh(x @ w)
        x = x * 1.01 + jax.nn.softplus(h) * jnp.sin(h) - jnp.cos(x)
    return jnp.sum(x)


example_args = (jnp.ones((8, 8)), jnp.ones((4, 8)))
"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    paths = {name: shutil.which(name) for name in ("chromium", "chromedriver")}
    missing = [name for name, path in paths.items() if path is None]
    assert not missing, f"no {missing}: apt-get install chromium chromium-driver"
    options = webdriver.ChromeOptions()
    for flag in (*FLAGS, "--window-size=1500,900"):
        options.add_argument(flag)
    options.add_argument(f"--user-data-dir={tmp_path_factory.mktemp('profile')}")
    options.binary_location = paths["chromium"]
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options, webdriver.ChromeService(paths["chromedriver"]))
    yield driver
    driver.quit()


def written(target, folder) -> Path:
    page = folder / "page.html"
    command = [sys.executable, "-m", "pullback", "view", target, "-o", str(page)]
    subprocess.run(command, check=True, cwd=ROOT)
    return page


@pytest.fixture(scope="module")
def page(tmp_path_factory) -> Path:
    return written(f"{EXAMPLE}:train_step", tmp_path_factory.mktemp("page"))


@pytest.fixture
def opened(browser, page):
    """The browser with the page, in a wide window, that has written no error at the end."""
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    browser.get(page.as_uri())
    assert browser.execute_script("return document.documentElement.dataset.ready") == "true"
    yield browser
    assert browser.get_log("browser") == []


def rows(browser, pane, mark=""):
    """The rows of a pane in the document, by what they show."""
    selector = f"#pane-{pane} .row{mark and '.'}{mark}"
    return {row.text: row for row in browser.find_elements(By.CSS_SELECTOR, selector)}


def row(browser, pane, text):
    found = [each for shown, each in rows(browser, pane).items() if text in shown]
    assert found, f"no {text!r} in {pane}"
    return found[0]


def find(browser, text):
    """Search a text by keys, as a reader does, and return what is said of the hits."""
    body = browser.find_element(By.TAG_NAME, "body")
    body.send_keys("/")
    box = browser.switch_to.active_element
    assert box.get_attribute("id") == "query"
    if box.get_attribute("value") != text:
        box.clear()
        box.send_keys(text)
    box.send_keys(Keys.ENTER)
    return browser.find_element(By.ID, "hits").text


def line_of(text: str) -> int:
    return next(i for i, line in enumerate(EXAMPLE.read_text().splitlines(), 1) if text in line)


def test_a_click_on_a_line_marks_the_ops_of_each_stage(opened):
    assert find(opened, "slope = -label").startswith("1 of ")
    row(opened, "source", "slope = -label").click()
    (own,) = rows(opened, "source", "own")
    assert str(line_of("slope = -label")) in own
    for pane in ("program", "vjp", "stablehlo"):
        marked = rows(opened, pane, "of")
        assert any("stablehlo.negate" in text for text in marked), pane
        assert all(text.startswith("▸") for text in marked)  # not by colour alone
    assert "comes of it" in opened.find_element(By.ID, "panel").text
    assert not rows(opened, "program", "from")


def test_a_click_on_a_backward_op_marks_its_primal_op_and_line(opened):
    find(opened, "stablehlo.divide %arg6")  # the cotangent of the loss over the count
    row(opened, "vjp", "stablehlo.divide %arg6").click()
    (own,) = rows(opened, "vjp", "own")
    assert "stablehlo.divide %arg6" in own
    assert any("stablehlo.divide" in text for text in rows(opened, "program", "from"))
    assert any("jnp.mean(losses)" in text for text in rows(opened, "source", "from"))
    assert any("stablehlo.divide %arg6" in text for text in rows(opened, "stablehlo", "of"))
    assert "example" in opened.find_element(By.ID, "panel").text


def test_a_click_on_a_cotangent_marks_its_maker_and_takers(opened):
    find(opened, "stablehlo.divide %arg6")
    op = row(opened, "vjp", "stablehlo.divide %arg6")
    result, ct, count = op.find_elements(By.CLASS_NAME, "nv")
    assert "carries" in ct.get_attribute("class")
    assert "carries" in result.get_attribute("class")
    assert "carries" not in count.get_attribute("class")
    name = result.text
    result.click()
    assert f"{name}: carries tangents or cotangents" in opened.find_element(By.ID, "selected").text
    assert any(f"broadcast_in_dim {name}," in text for text in rows(opened, "vjp", "of"))
    assert opened.find_elements(By.CSS_SELECTOR, "#pane-vjp .value-own")


def test_a_click_on_a_rule_marks_its_functions_calls_and_derived_ops(opened):
    opened.find_element(By.ID, "tab-rules").click()
    panel = opened.find_element(By.ID, "panel")
    panel.find_element(By.XPATH, ".//button[text()='@clip_cotangent']").click()
    assert opened.find_element(By.ID, "selected").text == "rule of @clip_cotangent: bwd, fwd"
    assert any("@clip_cotangent.bwd" in text for text in rows(opened, "program", "own"))
    find(opened, 'custom_vjp_call"')
    assert any("@clip_cotangent" in text for text in rows(opened, "program", "from"))
    while not any("stablehlo.minimum" in text for text in rows(opened, "vjp", "found")):
        find(opened, "stablehlo.minimum")
    assert any("stablehlo.minimum" in text for text in rows(opened, "vjp", "of"))


def test_a_click_on_the_def_of_a_rule_marks_its_functions_and_calls(opened):
    find(opened, "def clip_cotangent_bwd")
    row(opened, "source", "def clip_cotangent_bwd").click()
    (own,) = rows(opened, "source", "own")
    assert str(line_of("def clip_cotangent_bwd")) in own
    assert any("@clip_cotangent.bwd" in text for text in rows(opened, "program", "own"))
    assert opened.find_element(By.ID, "selected").text == "rule of @clip_cotangent: bwd, fwd"


def test_a_wide_page_shows_fifty_characters_of_source(opened):
    code = row(opened, "source", "import jax.numpy").find_element(By.CLASS_NAME, "code")
    pane = opened.find_element(By.ID, "pane-source")
    width = pane.rect["x"] + pane.rect["width"] - code.rect["x"]
    assert width / (code.rect["width"] / (len(code.text) + 1)) >= 50  # the padding is a letter


def test_the_name_of_a_derivative_op_selects_its_rule(opened):
    find(opened, 'composite "pullback.linear_call"')
    call = row(opened, "program", '"pullback.linear_call"')
    call.find_element(By.CLASS_NAME, "nd").click()
    assert opened.find_element(By.ID, "selected").text == "rule of @divide: transpose"


def test_functions_loops_and_calls_fold(opened):
    assert "closed_call" in row(opened, "program", "func.func private @closed_call").text
    assert not any("stablehlo.logistic" in text for text in rows(opened, "program"))
    before = len(opened.execute_script("return panes[1].visible"))
    loop = row(opened, "program", "stablehlo.while")
    loop.find_element(By.CLASS_NAME, "fold").click()
    after = len(opened.execute_script("return panes[1].visible"))
    assert after < before
    assert row(opened, "program", "stablehlo.while").get_attribute("aria-expanded") == "false"
    row(opened, "program", "stablehlo.while").find_element(By.CLASS_NAME, "fold").click()
    call = row(opened, "program", "call @closed_call")
    call.find_element(By.CLASS_NAME, "fold").click()
    assert len(opened.execute_script("return panes[1].visible")) > before + 20
    assert any("stablehlo.dot_general" in text for text in rows(opened, "program"))


def test_it_works_by_keys_alone(opened):
    opened.find_element(By.ID, "query").click()
    seen = set()
    for _ in range(12):
        opened.switch_to.active_element.send_keys(Keys.TAB)
        seen.add(opened.switch_to.active_element.get_attribute("id"))
    assert {"rows-source", "rows-program", "rows-vjp", "rows-stablehlo"} <= seen
    opened.execute_script("document.getElementById('rows-program').focus()")
    keys = opened.switch_to.active_element
    keys.send_keys(Keys.HOME, Keys.ARROW_DOWN, Keys.ARROW_DOWN, Keys.ENTER)
    (own,) = rows(opened, "program", "own")
    assert "stablehlo.constant" in own
    keys.send_keys(Keys.ARROW_UP, Keys.ARROW_LEFT)
    assert row(opened, "program", "@main").get_attribute("aria-expanded") == "false"
    keys.send_keys(Keys.ESCAPE)
    assert not rows(opened, "program", "own")


def test_search_goes_round_and_says_when_there_is_nothing(opened):
    first = find(opened, "stablehlo.tanh nowhere")
    assert first == "not found"
    shown = find(opened, "@logistic_loss")
    number = int(shown.split(" of ")[1])
    box = opened.find_element(By.ID, "query")
    assert number > 1
    for _ in range(number - 1):
        box.send_keys(Keys.ENTER)
    assert opened.find_element(By.ID, "hits").text == f"{number} of {number}"
    box.send_keys(Keys.ENTER)
    assert opened.find_element(By.ID, "hits").text == f"1 of {number}"


def test_tables_of_lines_functions_and_what_is_stored(opened):
    shown = {}
    for name in ("lines", "functions", "rules", "stored"):
        opened.find_element(By.ID, f"tab-{name}").click()
        shown[name] = opened.find_element(By.ID, "panel").text
    assert f"rules.py:{line_of('slope = -label')} " in shown["lines"]
    assert "@main vjp" in shown["functions"]
    assert "@clip_cotangent bwd, fwd 1" in shown["rules"]
    assert "stored for the backward sweep: " in shown["stored"]
    assert "loop 16 × " in shown["stored"]


def test_the_pattern_of_a_sparse_derivative(browser, tmp_path):
    program = pb.trace(lambda x: jnp.sum((x[1:] - x[:-1]) ** 3))(jnp.ones(300)).sparse_hessian()
    program.save(tmp_path / "hessian.mlirbc")
    browser.get(written(str(tmp_path / "hessian.mlirbc"), tmp_path).as_uri())
    browser.find_element(By.ID, "tab-pattern").click()
    panel = browser.find_element(By.ID, "panel")
    assert panel.text.startswith("300 x 300, 898 non-zeros, 3 colors (symmetric); a square")
    assert panel.find_element(By.CSS_SELECTOR, "svg path").size["width"] == 400


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1500, 420])
def test_nothing_overlaps_and_text_has_contrast(opened, width, scheme):
    metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    opened.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    feature = {"name": "prefers-color-scheme", "value": scheme}
    opened.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
    find(opened, "slope = -label")
    row(opened, "source", "slope = -label").click()
    assert opened.execute_script("return document.documentElement.scrollWidth") <= width
    panes = [each.rect for each in opened.find_elements(By.CLASS_NAME, "pane")]
    for one, other in zip(panes, panes[1:], strict=False):
        beside = one["x"] + one["width"] <= other["x"] + 1
        assert beside or one["y"] + one["height"] <= other["y"] + 1
    contrast, where = opened.execute_script(CONTRAST)
    assert contrast >= 4.5, where
    folder = ROOT / "out" / "browser"
    folder.mkdir(parents=True, exist_ok=True)
    opened.save_screenshot(str(folder / f"{width}-{scheme}.png"))


# The least contrast, as WCAG defines it, of any text on the ground behind it, and where it is.
CONTRAST = """
const light = (text) => {
  const [r, g, b] = text.match(/[\\d.]+/g).map(Number)
    .map((c) => (c /= 255) <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const ground = (node) => {
  for (; node; node = node.parentElement) {
    const colour = getComputedStyle(node).backgroundColor;
    if (colour !== "rgba(0, 0, 0, 0)") return colour;
  }
};
let least = [21, null];
for (const node of document.querySelectorAll("body *:not(script):not(noscript)")) {
  if (![...node.childNodes].some((n) => n.nodeType === 3 && n.data.trim())) continue;
  if (!node.offsetParent && getComputedStyle(node).position !== "fixed") continue;
  const [a, b] = [light(getComputedStyle(node).color), light(ground(node))].sort((x, y) => x - y);
  const contrast = (b + 0.05) / (a + 0.05);
  if (contrast < least[0]) least = [contrast, node.outerHTML];
}
return least;
"""


NOTEBOOK = """
import sys
from pathlib import Path

import pullback as pb
from examples import rules

program = pb.trace(rules.train_step)(*rules.example_args).stage_rules()
Path(sys.argv[1]).write_text(f"<!doctype html><meta charset=utf-8>{program._repr_html_()}")
"""


def test_in_a_notebook_the_link_from_a_call_opens_its_rule(browser, tmp_path):
    page = tmp_path / "output.html"
    subprocess.run([sys.executable, "-c", NOTEBOOK, str(page)], check=True, cwd=ROOT)
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    browser.get(page.as_uri())
    outer, *functions = browser.find_elements(By.TAG_NAME, "details")
    outer.find_element(By.TAG_NAME, "summary").click()
    named = {each.find_element(By.TAG_NAME, "code").text: each for each in functions}
    named["@closed_call"].find_element(By.TAG_NAME, "summary").click()
    assert named["@clip_cotangent.bwd"].get_attribute("open") is None
    link = named["@closed_call"].find_element(By.LINK_TEXT, "@clip_cotangent.bwd")
    browser.execute_script("arguments[0].click()", link)
    assert named["@clip_cotangent.bwd"].get_attribute("open") is not None


def test_model_explorer_shows_our_figures_beside_its_nodes(browser, tmp_path):
    """It prints its address when it serves; its figures are in tables, its graph on a canvas."""
    command = [sys.executable, "-m", "pullback", "view", f"{EXAMPLE}:train_step", "--explorer"]
    log = tmp_path / "log.txt"
    no_browser = {**os.environ, "BROWSER": "true"}
    with (
        log.open("w") as out,
        subprocess.Popen(command, cwd=ROOT, env=no_browser, stdout=out) as it,
    ):
        try:
            address = until(lambda: re.search(r"http://localhost:\S+", log.read_text()))[0]
            browser.get(address)
            body = browser.find_element(By.TAG_NAME, "body")
            text = until(lambda: "Node data\n" in body.text and body.text)
        finally:
            it.terminate()
    assert "program.mlir" in text
    for name in ("bytes of all runs", "flops of all runs", "line"):
        assert name in text
    line = line_of("jax.lax.scan(correct")
    assert re.search(rf"stablehlo.broadcast_in_dim\s+68\s+rules.py:{line}\b", text)


def until(found, seconds: float = 60.0):
    """Wait for what is true."""
    end = time.monotonic() + seconds
    while not (result := found()):
        assert time.monotonic() < end, "not there in time"
        time.sleep(0.2)
    return result


def test_a_program_of_ten_thousand_ops_opens_in_three_seconds(browser, tmp_path):
    (tmp_path / "long.py").write_text(LONG)
    page = written(f"{tmp_path / 'long.py'}:loss", tmp_path)
    start = time.perf_counter()
    browser.get(page.as_uri())
    assert browser.execute_script("return document.documentElement.dataset.ready") == "true"
    took = time.perf_counter() - start
    count = browser.execute_script("return ops.filter(op => op.stage === 0).length")
    assert count >= 10_000
    assert took < MOST_SECONDS, f"{took:.2f} s for {count} ops"
    clicked = browser.execute_script(
        "const start = performance.now(); selectOp(500); return performance.now() - start"
    )
    assert clicked < 1000 * MOST_SECONDS
    print(f"{count} ops, {page.stat().st_size / 1e6:.0f} MB, opened in {took:.2f} s")
