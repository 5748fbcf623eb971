"""Take the pictures of the front ends: python -m tests.support.door_pictures

The pages of the three front ends are shown twice, while their scenes wait for people and after the answers. The page of the
MCP client is shown once."""

from __future__ import annotations

import asyncio
import io
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

from PIL import Image
from tests.support.browser import ROOT
from tests.support.doors import Page, built, mcp_served, open_page, play_mcp
from tests.support.front_ends import install
from tests.support.people_desk import GATES, HOTEL, people_desk_served

PLACE: Final = ROOT / "docs" / "img"
CLIENT: Final = ROOT / "clients" / "js"
PAGES: Final = {"use_chat": "use-chat", "ag_ui": "ag-ui", "client": "client"}
"""The name in the pictures of each page."""


def packed(folder: Path) -> Path:
    """Build the TypeScript client, and return the folder of the package."""
    bins = CLIENT / "node_modules" / ".bin"
    if not bins.exists():
        sys.exit(f"install the packages of {CLIENT.relative_to(ROOT)} first: npm ci")
    variables = {**os.environ, "PATH": f"{bins}{os.pathsep}{os.environ['PATH']}"}
    command = ["npm", "pack", "--json", "--pack-destination", str(folder)]
    done = subprocess.run(command, cwd=CLIENT, env=variables, check=True, capture_output=True, text=True)
    shutil.unpack_archive(folder / json.loads(done.stdout)[0]["filename"], folder)
    (folder / "node_modules").symlink_to(CLIENT / "node_modules")
    return folder / "package"


async def wait_everywhere(page: Page) -> dict[str, Any]:
    """Bring each scene to the moment that is shown, those that stream last."""
    for name, text in {"page": "on your map", "handoff": "You paid", "guard": "I may not"}.items():
        await (await page.scene(name).begin()).shows(text)
    steps = (page.steer_and_queue, page.fill_in, page.ask_for_approval, page.hand_to_another_system)
    scenes = {step.__name__: await step() for step in steps}
    for step in (page.listen, page.grow):
        scenes[step.__name__] = await step()
    return scenes


async def end_everywhere(page: Page, scenes: dict[str, Any]) -> None:
    """Answer everything, and wait for the ends."""
    await scenes["listen"].press("Stop")
    steering = scenes["steer_and_queue"]
    await steering.panel.locator(".user.waits").filter(has_text=HOTEL).get_by_role("button", name="Withdraw").click()
    await steering.panel.locator(".user").filter(has_text=HOTEL).wait_for(state="detached")
    GATES[steering.session].open()
    await scenes["fill_in"].press("Answer")
    await scenes["ask_for_approval"].press("Approve")
    await page.report(scenes["hand_to_another_system"], "parcel 4711")
    for name, text in {
        "steer_and_queue": "Flight 12",
        "fill_in": "is booked",
        "ask_for_approval": "is refunded",
        "hand_to_another_system": "on its way",
        "grow": "Dinner",
        "listen": "stopped here",
    }.items():
        await scenes[name].shows(text)
        await scenes[name].at_rest()


async def save(page: Page, file: Path) -> None:
    """Save the page as a picture of 160 colours, a third of the size."""
    shot = Image.open(io.BytesIO(await page.tab.screenshot(full_page=True)))
    shot.convert("RGB").quantize(160, method=Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE).save(
        file, optimize=True
    )


async def take(place: Path) -> None:
    install()
    with tempfile.TemporaryDirectory() as folder:
        package = packed(Path(folder))
        for name, shown in PAGES.items():
            async with people_desk_served(built(name, package, Path(folder) / name)) as desk:
                async with open_page(desk, name) as page:
                    scenes = await wait_everywhere(page)
                    await save(page, place / f"door-{shown}-waits.png")
                    await end_everywhere(page, scenes)
                    await save(page, place / f"door-{shown}-done.png")
        async with people_desk_served(built("mcp", package, Path(folder) / "mcp")) as desk, mcp_served(desk) as address:
            async with open_page(desk, "mcp", mcp=address) as page:
                await play_mcp(page)
                await save(page, place / "door-mcp.png")


if __name__ == "__main__":
    asyncio.run(take(PLACE))
