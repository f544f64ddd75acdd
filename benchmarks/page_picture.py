"""`python -m benchmarks.page_picture ADMIN`: docs/page.png, the page of a running gateway in a real browser.

ADMIN is the admin port's address, such as the one that `make run` prints. Streams four chats at once through the way of
the page's chat box, and takes a picture of the slowest one.
"""

import asyncio
import json
import shutil
import sys
from pathlib import Path

import aiohttp
from playwright.async_api import async_playwright

from benchmarks.arguments import arguments

PICTURE = Path(__file__).parents[1] / "docs" / "page.png"
PROMPTS = ("What is a sluice?", "Name three rivers.", "Why is the sky blue?", "Count to twenty.")
SIZE = {"width": 1100, "height": 900}


async def chats(session: aiohttp.ClientSession, admin: str) -> None:
    """Send the prompts at once to the first model."""
    async with session.get(f"{admin}/admin/config") as answer:
        model = next(iter((await answer.json())["models"]))

    async def ask(prompt: str) -> None:
        messages = [{"role": "user", "content": prompt}]
        body = {"model": model, "messages": messages, "stream": True, "max_tokens": 64}
        async with session.post(f"{admin}/try", json=body) as answer:
            answer.raise_for_status()
            await answer.read()

    await asyncio.gather(*map(ask, PROMPTS))


async def run(admin: str) -> int:
    """Ask, and take the picture."""
    async with aiohttp.ClientSession() as session:
        await chats(session, admin)
        async with session.get(f"{admin}/admin/calls?outcome=ok") as answer:
            calls = json.loads(await answer.text())["calls"]
    slowest = max(calls, key=lambda call: call["total_ms"])["id"]
    async with async_playwright() as driver:
        browser = await driver.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = await browser.new_page(viewport=SIZE, device_scale_factor=1.5, locale="en-US")
        await page.goto(f"{admin}/calls/{slowest}")
        await page.screenshot(path=PICTURE)
        await browser.close()
    return 0


if __name__ == "__main__":
    [address] = arguments(__doc__, admin=str)
    sys.exit(asyncio.run(run(address.rstrip("/"))))
