"""Every view of the console has no finding of axe, in both themes and two widths. Nothing scrolls sideways at 200 % zoom,
and nothing moves if a person asks for less motion."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from tests.support.browser import Watched, go, problems
from tests.support.console_pictures import VIEWS, attach, opened

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("browser"), pytest.mark.asyncio(loop_scope="module")]
SCHEMES = ("light", "dark")
WIDTHS = (1280, 390)
OTHERS = {
    "empty list": ("", ".sidebar .row"),
    "choose": ("compare/crashed", ".choices a"),
    "no session": ("sessions/nothing/chat", ".empty"),
    "no comparison": ("compare/crashed/nothing", ".empty"),
}
EVERY_VIEW = {**VIEWS, **OTHERS}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def console() -> AsyncIterator[Watched]:
    async with opened(viewport={"width": 1280, "height": 900}) as browser:
        yield browser


async def too_wide(page: Any) -> int:
    """Return by how many pixels the page scrolls sideways."""
    return int(await page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth"))


async def checked(page: Any, name: str) -> list[Any]:
    """Return the findings in both themes and widths."""
    found: list[Any] = []
    for scheme in SCHEMES:
        await page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
        for width in WIDTHS:
            await page.set_viewport_size({"width": width, "height": 900})
            found += [(name, scheme, width, *one) for one in await problems(page)]
            if (wide := await too_wide(page)) > 0:
                found.append((name, scheme, width, f"wider by {wide} px"))
    return found


async def shown(page: Any, path: str, drawn: str) -> None:
    await go(page, path)
    await page.locator(drawn).first.wait_for(state="attached")
    await page.wait_for_load_state("networkidle")


@pytest.mark.parametrize("name", EVERY_VIEW)
async def test_axe_finds_nothing_in_a_view(console: Watched, name: str) -> None:
    page = await console.page()
    if name == "files":
        await attach(page)
    await shown(page, *EVERY_VIEW[name])
    await page.locator("main").evaluate("main => main.querySelectorAll('details').forEach(one => { one.open = true })")
    await page.wait_for_load_state("networkidle")
    assert await checked(page, name) == []
    await page.close()


async def test_axe_finds_nothing_in_dialogs(console: Watched) -> None:
    page = await console.page("sessions/crashed/chat")
    await page.locator(".item.step").first.wait_for()
    await page.keyboard.press("Escape")
    for key in ("Control+k", "?", "b"):
        await page.keyboard.press(key)
        await page.get_by_role("dialog").wait_for()
        assert await checked(page, key) == []
        await page.keyboard.press("Escape")
        await page.get_by_role("dialog").wait_for(state="detached")
    await page.close()


@pytest.mark.parametrize("sign_in", [["key"], ["key", "oidc"], []])
async def test_axe_finds_nothing_before_one_is_signed_in(console: Watched, sign_in: list[str]) -> None:
    site: dict[str, Any] = {"url": "ws://127.0.0.1:1", "place": "stage prod", "sign_in": sign_in}
    if "oidc" in sign_in:
        site["oidc"] = {"issuer": "https://id.example.com/", "client_id": "console"}
    page = await console.context.new_page()
    if sign_in:
        await page.route("**/config.json", lambda route: route.fulfill(body=json.dumps(site)))
    else:
        await page.route("**/config.json", lambda route: route.fulfill(status=500, body="no"))
    await page.goto(console.console.address.partition("#")[0])
    await page.locator("main, form").first.wait_for()
    assert await checked(page, str(sign_in)) == []
    console.errors.clear()  # the browser reports the refused requests
    await page.close()


async def test_nothing_scrolls_sideways_at_200_per_cent_zoom(console: Watched) -> None:
    page = await console.page()
    await attach(page)
    await page.set_viewport_size({"width": 640, "height": 450})  # 1280 x 900 at 200 %
    for name, (path, drawn) in EVERY_VIEW.items():
        await shown(page, path, drawn)
        assert await too_wide(page) <= 0, name
    await page.close()


MOVING = """
() => {
  const bad = [];
  for (const element of document.querySelectorAll('*')) {
    for (const pseudo of [null, '::before', '::after']) {
      const style = getComputedStyle(element, pseudo);
      if (style.animationName !== 'none' || style.transitionDuration.split(', ').some(one => parseFloat(one) > 0)) {
        bad.push(element.outerHTML.slice(0, 100));
      }
    }
  }
  return bad;
}
"""


async def test_nothing_moves_if_less_motion_is_wanted(console: Watched) -> None:
    page = await console.page()
    await page.emulate_media(reduced_motion="reduce")
    await attach(page)
    for name, (path, drawn) in EVERY_VIEW.items():
        await shown(page, path, drawn)
        await page.evaluate(
            "document.querySelector('main').insertAdjacentHTML('beforeend', '<p class=\\'status run\\'>')"
        )
        assert await page.evaluate(MOVING) == [], name
    await page.close()
