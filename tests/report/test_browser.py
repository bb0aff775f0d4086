"""The page in a real browser: it renders without an error, and what should move moves. Skipped where there is none."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dsal.report.page import build_report

webdriver = pytest.importorskip("selenium.webdriver")
from selenium.webdriver.common.action_chains import ActionChains  # noqa: E402
from selenium.webdriver.common.by import By  # noqa: E402
from selenium.webdriver.common.keys import Keys  # noqa: E402
from selenium.webdriver.support.ui import Select, WebDriverWait  # noqa: E402

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")
pytestmark = pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="no chromium with its driver")
FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-dev-shm-usage",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--window-size=1200,900",
    "--force-prefers-reduced-motion",
)  # fmt: skip


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    yield driver
    driver.quit()


def opened(browser: Any, report: Path) -> Any:
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    browser.get(report.as_uri())
    WebDriverWait(browser, 60).until(
        lambda _: "Confusion matrix" in (attribute(browser, "#matrix", "aria-label") or "")
    )
    return browser


@pytest.fixture
def page(browser: Any, report: Path) -> Iterator[Any]:
    """The page, freshly loaded; no test may leave an error in the console."""
    yield opened(browser, report)
    assert browser.get_log("browser") == []


def one(page: Any, selector: str) -> Any:
    return page.find_element(By.CSS_SELECTOR, selector)


def attribute(page: Any, selector: str, name: str) -> Any:
    return one(page, selector).get_attribute(name)


def pixels(page: Any) -> list[int]:
    """How many cells of the matrix are drawn, and their sum of shades."""
    script = """
      const canvas = document.getElementById("matrix");
      const copy = new OffscreenCanvas(canvas.width, canvas.height).getContext("2d");
      copy.drawImage(canvas, 0, 0);
      const { data } = copy.getImageData(0, 0, canvas.width, canvas.height);
      let drawn = 0, shade = 0;
      for (let i = 0; i < data.length; i += 4) if (data[i + 3]) { drawn++; shade += data[i]; }
      return [canvas.width, drawn, shade];
    """
    return list(page.execute_script(script))


def test_runs_toggle_in_all_charts(page: Any) -> None:
    line = one(page, '#figure-accuracy .wide [data-run="1"]')
    elsewhere = one(page, '#figure-timing .wide [data-run="1"]')
    other = one(page, '#figure-accuracy .wide [data-run="0"]')
    button = one(page, '#figure-accuracy [data-toggle="1"]')
    assert line.is_displayed()
    button.click()
    assert not line.is_displayed()
    assert not elsewhere.is_displayed()
    assert other.is_displayed()
    assert attribute(page, '#figure-timing [data-toggle="1"]', "aria-pressed") == "false"
    button.click()
    assert line.is_displayed()
    assert button.get_attribute("aria-pressed") == "true"
    assert one(page, "#figure-accuracy .wide .paper use").is_displayed()
    one(page, '[data-toggle="paper"]').click()
    assert not one(page, "#figure-accuracy .wide .paper use").is_displayed()


def test_curves_read_out_by_pointer(page: Any, runs: dict[str, Path]) -> None:
    plot, readout = one(page, "#figure-accuracy .wide svg"), one(page, "#figure-accuracy .readout")
    page.execute_script("arguments[0].scrollIntoView({block: 'center'})", plot)
    assert not readout.is_displayed()
    left, right, *_ = map(float, plot.get_attribute("data-plot").split())
    scale = plot.size["width"] / page.execute_script("return arguments[0].viewBox.baseVal.width", plot)
    end = round(right * scale - plot.size["width"] / 2)  # selenium counts from the middle
    ActionChains(page).move_to_element_with_offset(plot, end, 0).perform()
    assert readout.is_displayed()
    assert "100 classes seen" in readout.text
    assert "DS-AL, K = 25, phase 25" in readout.text
    assert "DS-AL, K = 5, phase 5" in readout.text
    assert len(plot.find_elements(By.CSS_SELECTOR, ".cursor circle")) == 3
    start = round(left * scale - plot.size["width"] / 2)
    ActionChains(page).move_to_element_with_offset(plot, start, 0).perform()
    assert "phase 0, 50 classes seen" in readout.text
    box, outer = readout.rect, one(page, "#figure-accuracy").rect
    assert box["x"] >= outer["x"]
    assert box["x"] + box["width"] <= outer["x"] + outer["width"]


def test_curves_read_out_by_keys(page: Any) -> None:
    plot, readout = one(page, "#figure-timing .wide svg"), one(page, "#figure-timing .readout")
    plot.send_keys(Keys.END)
    assert "100 classes seen" in readout.text
    plot.send_keys(Keys.ARROW_LEFT)
    assert "phase 24, 98 classes seen" in readout.text
    plot.send_keys(Keys.ESCAPE)
    assert not readout.is_displayed()


def test_phase_and_run_change_the_matrix(page: Any) -> None:
    width, drawn, shade = pixels(page)
    assert (width, drawn) == (100, 100 * 100)
    pairs = one(page, "#pairs").text
    slider = one(page, "#matrix-phase")
    slider.send_keys(Keys.HOME)
    WebDriverWait(page, 30).until(lambda _: "0 of 25, 50 classes" in one(page, "#matrix-phase-name").text)
    assert pixels(page)[:2] == [100, 50 * 50]
    assert one(page, "#pairs").text != pairs
    assert page.find_elements(By.CSS_SELECTOR, "#matrix-marks .border-x") == []
    slider.send_keys(Keys.ARROW_RIGHT)
    WebDriverWait(page, 30).until(lambda _: pixels(page)[1] == 52 * 52)
    assert len(page.find_elements(By.CSS_SELECTOR, "#matrix-marks .border-x")) == 1
    Select(one(page, "#matrix-run")).select_by_visible_text("ACIL, K = 25")
    WebDriverWait(page, 30).until(lambda _: "ACIL" in attribute(page, "#matrix", "aria-label"))
    assert pixels(page)[1] == 100 * 100
    assert pixels(page)[2] != shade


def test_matrix_reads_out_classes_and_counts(page: Any) -> None:
    canvas, readout = one(page, "#matrix"), one(page, "#matrix-readout")
    page.execute_script("arguments[0].scrollIntoView({block: 'center'})", canvas)
    half = canvas.size["width"] / 2
    ActionChains(page).move_to_element_with_offset(canvas, round(half * 0.99), round(-half * 0.99)).perform()
    assert "class 0 (0) taken for class 99 (99): " in readout.text
    assert "of 20 images" in readout.text  # ten test images, two seeds
    canvas.send_keys(Keys.ARROW_DOWN)
    assert "class 1 (1) taken for class 99 (99)" in readout.text
    canvas.send_keys(Keys.ARROW_UP, Keys.ARROW_UP, *[Keys.ARROW_LEFT] * 99)
    assert "class 0 (0) recognised: " in readout.text


def test_tables_sort(page: Any) -> None:
    def column(number: int) -> list[str]:
        cells = page.find_elements(By.CSS_SELECTOR, f"#summary .sortable:first-of-type tbody tr > :nth-child({number})")
        return [cell.text for cell in cells if cell.is_displayed()]

    heads = page.find_elements(By.CSS_SELECTOR, "#summary .scroll:first-of-type thead button")
    before = column(1)
    heads[1].click()
    assert attribute(page, "#summary thead th:nth-child(2)", "aria-sort") == "descending"
    values = [float(text.split(" ")[0]) for text in column(2)]
    assert values == sorted(values, reverse=True)
    assert column(1) != before
    heads[1].click()
    assert [float(text.split(" ")[0]) for text in column(2)] == values[::-1]
    heads[3].click()  # the paper's rows have no value here and stay below
    assert "paper" in column(1)[-1]
    heads[3].click()
    assert "paper" in column(1)[-1]
    heads[0].click()
    assert [text for text in column(1) if "paper" not in text] == ["ACIL, K = 25", "DS-AL, K = 5", "DS-AL, K = 25"]


def test_only_differences(page: Any) -> None:
    rows = page.find_elements(By.CSS_SELECTOR, "#configuration tbody tr")
    assert all(row.is_displayed() for row in rows)
    one(page, "#only-differences").click()
    shown = [row.text.split(" ")[0] for row in rows if row.is_displayed()]
    assert {"method", "phases", "seeds"} <= set(shown)
    assert len(shown) < len(rows)


def test_a_phone_shows_narrow_charts_and_never_scrolls_sideways(page: Any) -> None:
    page.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride", {"width": 360, "height": 740, "deviceScaleFactor": 2, "mobile": True}
    )
    assert page.execute_script("return document.documentElement.scrollWidth") == 360
    assert one(page, "#figure-accuracy .narrow svg").is_displayed()
    assert not one(page, "#figure-accuracy .wide svg").is_displayed()
    one(page, "#figure-accuracy .narrow svg").send_keys(Keys.END)
    assert "100 classes seen" in one(page, "#figure-accuracy .readout").text


def test_dark_mode_redraws_the_matrix(page: Any) -> None:
    light = pixels(page)[2]
    page.execute_cdp_cmd(
        "Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": "dark"}]}
    )
    try:
        WebDriverWait(page, 30).until(lambda _: pixels(page)[2] < light / 2)
        assert page.execute_script("return getComputedStyle(document.body).backgroundColor") == "rgb(21, 23, 27)"
    finally:
        page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def test_names_from_files_cannot_run(browser: Any, runs: dict[str, Path], tmp_path: Path) -> None:
    evil = "</script><img src=x onerror=window.pwned=1><script>window.pwned=1</script>"
    run = tmp_path / "run"
    shutil.copytree(runs["k5"], run)
    text = (run / "results.json").read_text()
    (run / "results.json").write_text(
        text.replace('"class 0"', f'"{evil}"').replace('"method": "ds-al"', f'"method": "{evil}"')
    )
    page = opened(browser, build_report([run], tmp_path / "out"))
    one(page, "#matrix").send_keys(Keys.ARROW_DOWN)
    assert evil in one(page, "#matrix-readout").text
    assert evil in one(page, "h1").text
    assert page.execute_script("return window.pwned") is None
    assert page.get_log("browser") == []


def test_omniglot_names_groups_of_classes(browser: Any, omniglot_run: Path, tmp_path: Path) -> None:
    page = opened(browser, build_report([omniglot_run], tmp_path))
    assert pixels(page)[0] == 125
    one(page, "#matrix").send_keys(Keys.ARROW_DOWN)
    assert "(0 to 12) recognised" in one(page, "#matrix-readout").text
    assert "merges 13 × 13" in one(page, "#matrix-caption").text
    assert page.get_log("browser") == []
