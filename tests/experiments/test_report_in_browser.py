"""The page as a browser shows it: nothing runs, nothing is cut off, everything can be read."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from bertsmith.experiments.report import report
from bertsmith.recipes.config import ReportConfig

LIGHT, DARK = "1", "0"
MEASURE = """<script>
const numbers = color => color.match(/[\\d.]+/g).map(Number);
const over = (color, below) => {
  const [alpha, parts] = [color.length > 3 ? color[3] : 1, color.slice(0, 3)];
  return parts.map((value, place) => alpha * value + (1 - alpha) * below[place]);
};
const behind = element => element === null ? [255, 255, 255]
  : over(numbers(getComputedStyle(element).backgroundColor), behind(element.parentElement));
const luminance = color => {
  const parts = color.map(value => value / 255)
    .map(value => value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4);
  return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2];
};
const contrast = element => {
  const style = getComputedStyle(element), back = behind(element);
  const color = over(numbers(element.closest("svg") ? style.fill : style.color), back);
  const [high, low] = [luminance(color), luminance(back)].sort((a, b) => b - a);
  return (high + 0.05) / (low + 0.05);
};
const all = selector => [...document.querySelectorAll(selector)];
const read = all("p, td, th, dt, dd, h1, h2, h3, li, pre, .value, .name, .beside, .badge, svg text");
const faint = read.map(one => [contrast(one), one.textContent.slice(0, 30)]).sort((a, b) => a[0] - b[0]);
const cut = all(".tile .value, h1, h2, .tile .name").filter(one => one.scrollWidth > one.clientWidth + 1);
document.title = JSON.stringify({
  title: document.title, scripts: document.scripts.length - 1, images: document.images.length,
  width: document.documentElement.scrollWidth, window: innerWidth,
  figures: all("figure svg").map(one => one.getBoundingClientRect().height),
  letters: Math.min(...all("svg text").map(one => one.getBoundingClientRect().height)),
  cut: cut.map(one => one.textContent),
  faintest: faint[0],
  back: getComputedStyle(document.body).backgroundColor,
});
</script></body>"""


@pytest.fixture(scope="module")
def chromium() -> str:
    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if found is None:
        pytest.skip("no Chromium on this machine: apt-get install chromium")
    return found


def opened(chromium: str, page: Path, profile: Path, width: int = 1280, scheme: str = LIGHT) -> str:
    """Return the page's document as the browser has it after loading."""
    command = [chromium, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
    command += ["--no-first-run", f"--user-data-dir={profile}", f"--window-size={width},900"]
    command += [f"--blink-settings=preferredColorScheme={scheme}", "--dump-dom", page.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    return done.stdout


def measured(chromium: str, page: Path, profile: Path, width: int, scheme: str) -> dict[str, Any]:
    """Return what a script that is added to the page, and allowed in it, measures."""
    text = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", page.read_text(encoding="utf-8"))
    copy = page.with_name("measured.html")
    copy.write_text(text.replace("</body>", MEASURE), encoding="utf-8")
    document = opened(chromium, copy, profile, width, scheme)
    title = re.search(r"<title>(.*?)</title>", document, re.DOTALL)
    assert title is not None
    values: dict[str, Any] = json.loads(unescape(title[1]))
    return values


@pytest.fixture(scope="module")
def page(classified: Path, pretrained: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("page") / "report.html"
    report(ReportConfig(runs=[str(classified), str(pretrained)], out=str(out)))
    return out


def test_scripts_of_the_data_do_not_run(chromium: str, page: Path, tmp_path: Path) -> None:
    document = opened(chromium, page, tmp_path)
    assert "<title>2 runs</title>" in document
    assert "&lt;script&gt;document.title = 'owned'&lt;/script&gt;" in document
    assert "坏的句子，不是好的 good 𠮷" in document


def test_the_policy_stops_what_escaping_would_let_through(chromium: str, page: Path, tmp_path: Path) -> None:
    attacked = tmp_path / "attacked.html"
    attack = "<script>document.title = 'owned'</script><img src=x onerror=\"document.title='owned'\">"
    attacked.write_text(
        page.read_text(encoding="utf-8").replace("</body>", f"{attack}</body>"), encoding="utf-8"
    )
    assert "<title>2 runs</title>" in opened(chromium, attacked, tmp_path)
    free = re.sub(
        r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", attacked.read_text(encoding="utf-8")
    )
    attacked.write_text(free, encoding="utf-8")
    assert "<title>owned</title>" in opened(chromium, attacked, tmp_path), "the attack is one"


@pytest.mark.parametrize(("width", "scheme"), [(1280, LIGHT), (1280, DARK), (500, LIGHT)])
def test_everything_can_be_read(chromium: str, page: Path, tmp_path: Path, width: int, scheme: str) -> None:
    found = measured(chromium, page, tmp_path, width, scheme)
    assert (found["title"], found["scripts"], found["images"]) == ("2 runs", 0, 0)
    assert found["width"] <= found["window"], "the page does not scroll sideways"
    assert found["cut"] == []
    assert len(found["figures"]) > 10
    assert min(found["figures"]) > 120
    assert found["letters"] > 9
    assert found["faintest"][0] > 4.5, f"WCAG AA: {found['faintest']}"
    brightness = sum(map(int, re.findall(r"\d+", found["back"])[:3])) / 3
    assert brightness > 200 if scheme == LIGHT else brightness < 50
