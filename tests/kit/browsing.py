"""Pages in a real browser that remember what went wrong in them."""

from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.async_api import Browser, ConsoleMessage, Page

AXE = Path(__file__).resolve().parents[2] / "build" / "axe-core" / "axe.min.js"
PHONE = {"width": 360, "height": 740}
DESK = {"width": 1280, "height": 800}


class Browsing:
    """A browser. `complaints` are errors in the console, broken scripts, dialogs, and requests to other hosts."""

    def __init__(self, browser: Browser) -> None:
        self._browser = browser
        self.complaints: list[str] = []

    async def open(self, url: str, **options: Any) -> Page:
        """A new page at this address; `options` as for Playwright's contexts."""
        context = await self._browser.new_context(**options)
        page = await context.new_page()
        host = urlsplit(url).netloc

        def heard(message: ConsoleMessage) -> None:
            if message.type in ("error", "warning"):
                self.complaints.append(f"{page.url}: {message.text}")

        page.on("console", heard)
        page.on("pageerror", lambda error: self.complaints.append(f"{page.url}: {error}"))
        page.on("dialog", lambda dialog: self.complaints.append(f"{page.url}: a dialog: {dialog.message}"))
        page.on(
            "request",
            lambda request: urlsplit(request.url).netloc == host or self.complaints.append(f"asked {request.url}"),
        )
        await page.goto(url)
        return page

    @staticmethod
    async def accessible(page: Page) -> None:
        """Fails on a serious finding of axe-core; skips the test where axe-core is not there."""
        if not AXE.exists():
            pytest.skip("axe-core is not there (make chromium, which needs npm)")
        await page.evaluate(AXE.read_text(encoding="utf-8"))
        found = await page.evaluate("axe.run()")
        serious = [
            (one["id"], [node["html"][:200] for node in one["nodes"]][:3])
            for one in found["violations"]
            if one["impact"] in ("serious", "critical")
        ]
        assert serious == [], page.url
