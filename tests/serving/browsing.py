"""A browser that looks at the page."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from playwright.sync_api import Browser, Page, Response

ANSWERED = "main > section:not(:has([aria-busy])) .status:not(:empty)"
"""The line below a view, once an answer is shown."""

MEASURE = """() => {
  const numbers = color => color.match(/[\\d.]+/g).map(Number);
  const over = ([r, g, b, alpha = 1], below) =>
    [r, g, b].map((value, place) => alpha * value + (1 - alpha) * below[place]);
  const behind = one => one === null ? [255, 255, 255]
    : over(numbers(getComputedStyle(one).backgroundColor), behind(one.parentElement));
  const luminance = color => {
    const parts = color.map(value => value / 255)
      .map(value => value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4);
    return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2];
  };
  const contrast = one => {
    const color = luminance(over(numbers(getComputedStyle(one).color), behind(one)));
    const back = luminance(behind(one));
    return (Math.max(color, back) + 0.05) / (Math.min(color, back) + 0.05);
  };
  const texts = [...document.querySelectorAll("body *")].filter(one => one.checkVisibility()
    && !one.closest("[disabled]")
    && [...one.childNodes].some(node => node.nodeType === 3 && node.data.trim()));
  const faintest = texts.map(one => [contrast(one), one.textContent]).sort((a, b) => a[0] - b[0])[0];
  return {
    faintest, texts: texts.length, width: document.documentElement.scrollWidth, window: innerWidth,
    brightness: behind(document.body).reduce((sum, value) => sum + value) / 3,
    unnamed: [...document.querySelectorAll("button, textarea, select, input")].filter(one =>
      !(one.textContent.trim() || one.getAttribute("aria-label") || one.labels?.length)).length,
  };
}"""
"""Contrast by WCAG 2 of the faintest text, widths, and fields without a name."""


@contextmanager
def opened(browser: Browser, url: str, locale: str = "en-GB", **settings: Any) -> Iterator[Page]:
    """Open the page in a fresh profile; fail at the end if it asked elsewhere or a script failed."""
    context = browser.new_context(locale=locale, reduced_motion="reduce", **settings)
    context.set_default_timeout(20_000)
    page = context.new_page()
    asked: list[str] = []
    failed: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.on("pageerror", lambda error: failed.append(str(error)))
    page.on(
        "console",
        lambda message: (
            failed.append(message.text)
            if message.type in ("error", "warning") and "Failed to load resource" not in message.text
            else None
        ),
    )
    page.goto(url)
    yield page
    origin = url.split("#")[0]
    context.close()
    assert failed == []
    assert [url for url in asked if not url.startswith(origin)] == []


def go(page: Page, view: str) -> None:
    """Open a tab, and wait for its first answer."""
    page.get_by_role("tab").and_(page.locator(f"#tab-{view}")).click()
    page.locator(f"#panel[aria-labelledby=tab-{view}] .status:not(:empty)").wait_for()
    page.locator(ANSWERED).wait_for()


def write(page: Page, label: str, text: str) -> None:
    """Write a text into a field, and wait for the answer to it."""
    last = json.dumps(text.rstrip().splitlines()[-1].strip(), ensure_ascii=False)[1:-1]

    def asks_it(response: Response) -> bool:
        body = response.request.post_data
        return body is not None and last in json.dumps(json.loads(body), ensure_ascii=False)

    with page.expect_response(asks_it):
        page.get_by_label(label, exact=True).fill(text)
    page.locator(ANSWERED).wait_for()
