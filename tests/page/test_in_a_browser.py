"""The page in a real Chromium: every screen, by keyboard, live, without scripts, and with hostile names."""

from collections.abc import Mapping
from typing import Any

import pytest
from doubles import replies
from doubles.gateway import InProcessGateway, StartGateway
from doubles.script import full
from doubles.upstream import FaultUpstream
from doubles.vocabulary import C0, S0, ask
from kit.browsing import DESK, PHONE, Browsing
from playwright.async_api import Page, expect

KEY = ("authorization", "Bearer gw-key-0123456789")
SMALL = ("authorization", "Bearer gw-key-small-00001")
SCREENS = (
    "/",
    "/upstreams",
    "/models",
    "/keys",
    "/calls",
    "/calls/went-well",
    "/calls/moved",
    "/calls/refused",
    "/try",
)


async def lively(start: StartGateway, config: Mapping[str, Any], upstream: FaultUpstream) -> InProcessGateway:
    """A gateway after a few calls: one went well, one moved on after a failure, one was refused."""
    gateway = await start(config)
    assert (await ask(gateway.port, S0, [KEY, ("x-request-id", "went-well")])).status == 200
    upstream.reply(replies.error(500, "The engine fell over."))
    assert (await ask(gateway.port, C0, [KEY, ("x-request-id", "moved")])).status == 200
    await ask(gateway.port, C0, [SMALL])
    assert (await ask(gateway.port, C0, [SMALL, ("x-request-id", "refused")])).status == 429
    return gateway


def admin(gateway: InProcessGateway, path: str = "/") -> str:
    return f"http://127.0.0.1:{gateway.admin_port}{path}"


async def fits(page: Page) -> bool:
    return bool(await page.evaluate("document.documentElement.scrollWidth <= innerWidth"))


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_every_screen_at_desk_and_phone_width(
    scheme: str,
    browsing: Browsing,
    busy: Mapping[str, Any],
    upstream: FaultUpstream,
    start_gateway: StartGateway,
) -> None:
    gateway = await lively(start_gateway, busy, upstream)
    locales = {"light": "en-US", "dark": "ko-KR"}
    for size in (DESK, PHONE):
        page = await browsing.open(admin(gateway), viewport=size, color_scheme=scheme, locale=locales[scheme])
        for path in SCREENS:
            await page.goto(admin(gateway, path))
            await expect(page.locator("h1")).to_be_visible()
            assert await fits(page), (path, size)
            assert await page.locator("html").get_attribute("lang") == locales[scheme][:2]


@pytest.mark.parametrize(("scheme", "size"), [("light", DESK), ("dark", DESK), ("light", PHONE)])
async def test_axe_finds_nothing_serious(
    scheme: str,
    size: dict[str, int],
    browsing: Browsing,
    busy: Mapping[str, Any],
    upstream: FaultUpstream,
    start_gateway: StartGateway,
) -> None:
    gateway = await lively(start_gateway, busy, upstream)
    page = await browsing.open(admin(gateway), viewport=size, color_scheme=scheme)
    for path in SCREENS:
        await page.goto(admin(gateway, path))
        await browsing.accessible(page)


async def test_the_page_is_used_by_keyboard_alone(
    browsing: Browsing, busy: Mapping[str, Any], upstream: FaultUpstream, start_gateway: StartGateway
) -> None:
    gateway = await lively(start_gateway, busy, upstream)
    page = await browsing.open(admin(gateway), viewport=DESK)
    await page.keyboard.press("Tab")
    await expect(page.locator(".skip")).to_be_focused()
    await page.keyboard.press("Enter")
    await expect(page.locator("main")).to_be_focused()
    await reach(page, "Calls")
    await page.keyboard.press("Enter")
    await page.wait_for_url("**/calls")
    await reach(page, "moved")
    await page.keyboard.press("Enter")
    await page.wait_for_url("**/calls/moved")
    await expect(page.locator(".why li").first).to_contain_text("server_error 500")


async def reach(page: Page, text: str) -> None:
    """Press Tab until the link with this text has the focus."""
    for _ in range(80):
        await page.keyboard.press("Tab")
        if await page.evaluate("document.activeElement.textContent") == text:
            return
    raise AssertionError(f"no Tab reaches {text}")


async def test_what_happens_shows_without_a_reload_and_keeps_the_focus(
    browsing: Browsing, busy: Mapping[str, Any], upstream: FaultUpstream, start_gateway: StartGateway
) -> None:
    gateway = await lively(start_gateway, busy, upstream)
    page = await browsing.open(admin(gateway, "/calls"), viewport=DESK)
    await page.get_by_role("link", name="moved").focus()
    await ask(gateway.port, C0, [KEY, ("x-request-id", "brand-new")])
    await expect(page.get_by_role("link", name="brand-new")).to_be_visible(timeout=20_000)
    await expect(page.get_by_role("link", name="moved")).to_be_focused()


async def test_without_scripts_it_is_a_snapshot_that_can_be_filtered(
    browsing: Browsing, busy: Mapping[str, Any], upstream: FaultUpstream, start_gateway: StartGateway
) -> None:
    gateway = await lively(start_gateway, busy, upstream)
    page = await browsing.open(admin(gateway, "/calls"), viewport=DESK, java_script_enabled=False)
    await expect(page.get_by_text("A snapshot")).to_be_visible()
    await page.get_by_label("Status").fill("429")
    await page.get_by_role("button", name="Show").click()
    await expect(page.get_by_role("link", name="refused")).to_be_visible()
    await expect(page.get_by_role("link", name="went-well")).to_have_count(0)
    await page.get_by_label("Find a request").fill("moved")
    await page.get_by_role("button", name="Find").click()
    await expect(page.locator(".why li").first).to_contain_text("local/up-small failed")
    await page.goto(admin(gateway, "/try"))
    await expect(page.locator("pre").first).to_contain_text("curl -s")


@pytest.mark.parametrize("stream", [True, False])
async def test_the_chat_box_shows_the_answer_and_how_it_went(
    stream: bool, browsing: Browsing, busy: Mapping[str, Any], upstream: FaultUpstream, start_gateway: StartGateway
) -> None:
    gateway = await lively(start_gateway, busy, upstream)
    page = await browsing.open(admin(gateway, "/try"), viewport=DESK)
    await page.get_by_label("Key").fill("gw-key-0123456789")
    await page.get_by_label("Message").fill("Hello <b>there</b>")
    await page.get_by_label("Stream").set_checked(stream)
    await page.get_by_role("button", name="Send").click()
    await expect(page.locator("#answer")).to_have_text("pong")
    await expect(page.locator("#went")).to_contain_text("Where the time went")
    await expect(page.locator("#went")).to_contain_text("Hello <b>there</b>")
    assert await page.evaluate("Object.keys(localStorage).length + Object.keys(sessionStorage).length") == 0
    assert await page.context.cookies() == []


EVIL = "<script>window.pwned=1</script><img src=x onerror=window.pwned=2>\"'><svg onload=window.pwned=3>{{7*7}}"


async def test_markup_of_others_is_text_everywhere(
    browsing: Browsing, busy: Mapping[str, Any], upstream: FaultUpstream, start_gateway: StartGateway
) -> None:
    config: dict[str, Any] = {**busy}
    config["keys"] = [{**config["keys"][0], "name": EVIL[:60]}, *config["keys"][1:]]
    models = {**config["models"], EVIL[:60]: config["models"]["m-large"]}
    config["models"] = models
    gateway = await start_gateway(config)
    told = {"messages": [{"role": EVIL, "content": EVIL}, {"role": "user", "content": [{"type": EVIL, "x": EVIL}]}]}
    await ask(gateway.port, {"model": EVIL[:60], **told}, [KEY, ("x-request-id", "evil")])
    upstream.always(replies.error(400, EVIL))
    await ask(gateway.port, {"model": "m-small", **told}, [KEY, ("x-request-id", "evil-error")])
    upstream.always([full(EVIL.encode(), 500, content_type="text/html")])
    await ask(gateway.port, {"model": "m-small", **told}, [KEY, ("x-request-id", "evil-upstream")])
    await ask(gateway.port, {"model": EVIL * 3, **told}, [KEY, ("x-request-id", "evil-model")])
    calls = [f"/calls/{id}" for id in ("evil", "evil-error", "evil-upstream", "evil-model")]
    page = await browsing.open(admin(gateway), viewport=DESK)
    for path in ("/", "/upstreams", "/models", "/keys", "/calls", "/try", *calls, f"/calls?status={EVIL}&key={EVIL}"):
        await page.goto(admin(gateway, path))
        assert await page.evaluate("window.pwned ?? null") is None, path
        assert await page.locator("script").count() == 1, path
        assert await page.locator("img, main svg:not(.bar)").count() == 0, path
    await page.goto(admin(gateway, "/calls/evil"))
    assert EVIL in await page.inner_text("main")
