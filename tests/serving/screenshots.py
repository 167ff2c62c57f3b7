"""Pictures for docs/page.md: ``python -m tests.serving.screenshots URL docs`` with a server that runs."""

from __future__ import annotations

import io
import shutil
import sys
from pathlib import Path

from PIL import Image
from playwright.sync_api import Page, sync_playwright

from tests.serving.browsing import ANSWERED, go, opened

_WIDTH = 1100


def take(page: Page, path: Path) -> None:
    """Write a picture of the whole page in 64 colours."""
    page.locator(ANSWERED).wait_for()
    page.mouse.move(0, 0)
    page.wait_for_timeout(400)
    picture = Image.open(io.BytesIO(page.screenshot(full_page=True))).convert("RGB")
    picture.quantize(64, dither=Image.Dither.NONE).save(path, optimize=True)


def in_english(page: Page, out: Path) -> None:
    """Every tab, light."""
    page.locator("#tab-fill").click()
    page.get_by_role("button", name="Hide each in turn").click()
    page.get_by_text("Each word was hidden once").wait_for()
    take(page, out / "page-fill.png")
    go(page, "classify")
    page.get_by_role("button", name="Which words decide?").click()
    page.locator(".weighed").first.wait_for()
    take(page, out / "page-classify.png")
    for view in ("tag", "answer", "choose", "similarity", "rerank", "tokenize"):
        go(page, view)
        if view == "tag":
            page.get_by_text("Japan beat Syria").click()
        take(page, out / f"page-{view}.png")
    go(page, "attention")
    page.get_by_label("Model").select_option("minilm")
    page.get_by_role("button", name="one back").click()
    page.locator(".pieces button").nth(6).click()
    take(page, out / "page-attention.png")


def main(url: str, out: Path) -> None:
    """Take them all; one more is dark, in Chinese and narrow."""
    found = shutil.which("chromium")
    assert found is not None, "needs Chromium"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        with opened(browser, url, viewport={"width": _WIDTH, "height": 700}) as page:
            in_english(page, out)
        narrow = {"width": 420, "height": 800}
        with opened(browser, url, "zh-CN", viewport=narrow, color_scheme="dark") as page:
            go(page, "attention")
            page.get_by_label("模型").select_option("minilm")
            take(page, out / "page-narrow.png")
        browser.close()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
