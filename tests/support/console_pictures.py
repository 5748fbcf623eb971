"""Take the pictures of the console, with each view in two widths, light and dark: python -m
tests.support.console_pictures"""

from __future__ import annotations

import asyncio
import math
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel, Field
from tests.support.browser import Watched, browsing, go
from tests.support.sample_files import pdf, png
from tests.support_run import a_tool, agent, call, calls, text_of

from helix import Agent, Confirmation, Image, LocalExecutor, ScriptedModel, ToolContext, create_sub_agent_tool
from helix.adapters.system import SystemClock, SystemIds
from helix.console.here import serve_console
from helix.console.server import ConsoleServer
from helix.core.files import Content
from helix.core.health import HealthResult, HealthStatus
from helix.core.registry import AgentRegistry
from helix.core.scaling import ScalingDecision
from helix.core.usage import Usage
from helix.engine.engine import Settings
from helix.fleet import health_rows
from helix.fleet.budgets import BudgetManager
from helix.fleet.decisions import DecisionLog
from helix.services.row_slots import RowSlots

PLACE: Final = Path(__file__).parents[2] / "docs" / "img"
WIDTHS: Final[Mapping[str, tuple[int, int]]] = {"": (1280, 800), "-phone": (390, 844)}
SCHEMES: Final = {"": "light", "-dark": "dark"}
View = Callable[[Any], Awaitable[None]]


class Order(BaseModel):
    order: str


class Refund(BaseModel):
    order: str = Field(description="As on the invoice")
    euros: float = Field(description="At most 200")
    reason: str = ""


class Question(BaseModel):
    question: str


class Rule(BaseModel):
    rule: str


class Case(BaseModel):
    """The state of the desk's sessions."""

    orders: list[str] = []
    refunded: float = 0


def used(answer: Any, prompt: int, completion: int) -> dict[str, Any]:
    """Return a script entry with usage, at prices of a medium model."""
    cost = prompt * 3 + completion * 15
    usage = Usage(prompt_tokens=prompt, completion_tokens=completion, calls=1, cost_micros=cost)
    entry = answer if isinstance(answer, dict) else {"content": answer}
    return {"model": "anthropic/claude-sonnet", **entry, "usage": usage}


def look_up(given: Order, ctx: ToolContext[Case]) -> dict[str, Any]:
    ctx.update_state(lambda case: case.orders.append(given.order))
    return {"order": given.order, "total": 84.5, "sent": "2026-11-09", "arrived": None}


def refund(given: Refund, ctx: ToolContext[Case]) -> str:
    def add(case: Case) -> None:
        case.refunded += given.euros

    ctx.update_state(add)
    return f"{given.euros:.2f} euros for {given.order} are on their way."


def desk() -> Agent[Any, Any]:
    rules = a_tool("search_rules", lambda given, ctx: "4.2 Lost parcels are refunded in full.", input_schema=Question)
    clerk = agent("rule_book", tools=[rules], output_schema=Rule, description="Knows the rules of the shop.")
    tools = [
        a_tool("look_up_order", look_up, input_schema=Order),
        a_tool("refund", refund, input_schema=Refund, require_approval=lambda given: f"{given.euros:g} euros leave us"),
        create_sub_agent_tool(clerk, Question, description="Ask for a rule."),
    ]
    return agent("desk", tools=tools, state_schema=Case, description="Answers the customers of the shop.")


LOOKS = used(
    calls(
        call("look_up_order", order="A8"),
        call("subagent__rule_book", question="Do we refund parcels that got lost?"),
        content="I look the order up, and what our rules say of lost parcels.",
    )
    | {"thinking": "The customer writes of A8. I need the order, and the rule for lost parcels."},
    1_240,
    96,
)
CLERK = [
    used(calls(call("search_rules", question="lost parcels")), 310, 24),
    used(calls(call("__finish__", rule="4.2: lost parcels are refunded in full.")), 402, 31),
]
REFUNDS = used(
    calls(
        call("refund", order="A8", euros=84.5, reason="lost parcel"),
        content="Rule **4.2** covers it: `A8` was sent on 9 November and never arrived.",
    ),
    1_733,
    88,
)
DONE = used(
    "Done. **84.50 euros** are on their way.\n\n| Order | Sent | Arrived |\n|---|---|---|\n| A8 | 9 Nov | never |",
    1_894,
    52,
)
ASKED = "My parcel A8 never came. Please refund it."


def kettle() -> bytes:
    """Return a drawing of a red kettle, as a PNG."""

    def colour(x: int, y: int) -> tuple[int, int, int]:
        lid = abs(x - 180) < 16 and 52 < y < 74
        body = (x - 180) ** 2 / 78**2 + (y - 138) ** 2 / 70**2 < 1 and y < 186
        spout = 222 < x < 300 and abs(y - 190 + (x - 200) * 0.95) < 15 and y > 92
        handle = 34 < math.hypot(x - 112, y - 130) < 46 and x < 116
        if lid or handle:
            return 52, 56, 66
        if body or spout:
            shine = max(0.0, 1 - math.hypot(x - 150, y - 104) / 60)
            return min(255, int(196 + 59 * shine)), int(54 + 120 * shine), int(48 + 120 * shine)
        return (226, 217, 200) if y > 186 else (241, 238, 230)

    return png(360, 240, colour)


async def fill(db: str, registry: AgentRegistry) -> None:
    """Create the sessions that the pictures show."""

    def opened(*script: Any) -> LocalExecutor:
        plan = {"desk": list(script), "rule_book": CLERK}
        return LocalExecutor(db, model=ScriptedModel(plan), registry=registry, settings=Settings(claim_s=1))

    who = registry.resolve("desk")
    asked: Content = ["Do you have this kettle in blue?", Image(kettle(), name="kettle.png")]
    questions: list[tuple[str, Content, str]] = [
        ("hours", "When are you open on Sundays?", "From 10 to 16 o'clock."),
        ("colours", asked, "Yes, 12 of them."),
    ]
    for session, message, answer in questions:
        async with opened(used(answer, 640, 18)) as executor:
            await (await executor.execute(who, message, session_id=session)).result()

    # A worker dies while the model answers, and another one takes over.
    slow = used(
        {
            "content": "Rule 4.2 covers it, so I would say that we refund it, but let me look at the order again, since",
            "delta_delay_s": 0.3,
        },
        1_733,
        12,
    )
    async with opened(LOOKS, slow) as executor:
        await BudgetManager(executor.store).set_budget(20, "daily", agent_id="desk", unit="usd")
        handle = await executor.execute(who, ASKED, session_id="crashed")
        shown = ""
        async for chunk in await handle.stream():
            shown += text_of([chunk])
            if "that we" in shown:
                break
    async with opened(REFUNDS, DONE) as executor:
        handle = await executor.resume(who, "crashed")
        call_id = (await handle.result()).pending[0].call_id
        handle = await executor.resume(who, "crashed", confirmation=Confirmation(call_id, by="ada"))
        await handle.result()
        points = (await executor.sessions.list_checkpoints("crashed")).items
        first = next(point for point in points if point.step == 1)
        await executor.branch("crashed", first.id, session_id="branch")
    other = used("The post searches for A8 until Friday. If it is not found, we refund 84.50 euros.", 1_690, 41)
    async with opened(other) as executor:
        await (await executor.execute(who, "Ask the post first, please.", session_id="branch")).result()
    async with opened(LOOKS, REFUNDS) as executor:
        await (await executor.execute(who, ASKED, session_id="refund")).result()
        await fleet(executor)


async def fleet(executor: LocalExecutor) -> None:
    await RowSlots(executor.store).set_limit("desk", 3)
    clock, signals = SystemClock(), {"queue": 7.0, "running": 4.0, "tokens_per_second": 910.0}
    log = DecisionLog(executor.store, clock, SystemIds())
    for decision in (
        ScalingDecision(
            before=2,
            after=4,
            rule="load",
            reason="7 runs wait, and all 2 instances are at work",
            signals=signals,
            trigger="alarm queue-depth",
        ),
        ScalingDecision(
            before=4,
            after=3,
            rule="quiet",
            reason="every signal was low for 5 minutes",
            signals={"queue": 0.0, "running": 1.0},
            trigger="schedule",
        ),
    ):
        await log.record("desk", decision)
    healthy = HealthResult(
        status=HealthStatus.HEALTHY, message="0 of 41 calls failed in 5 minutes", check="llm", checked_at=clock.now()
    )
    await health_rows.save(executor.store, "desk", "llm", lambda before: healthy)


VIEWS: Final[Mapping[str, tuple[str, str]]] = {
    "sessions": ("", ".sidebar"),
    "new": ("new/desk", "#composer"),
    "chat": ("sessions/refund/chat", "form"),
    "files": ("sessions/colours/chat", ".chips .file:nth-child(2)"),
    "timeline": ("sessions/crashed/timeline", ".span"),
    "state": ("sessions/crashed/state", "main"),
    "cost": ("sessions/crashed/cost", "main table"),
    "compare": ("compare/crashed/branch", ".step-pairs"),
    "fleet": ("fleet/desk", ".decision"),
}
"""The address of each view, and an element that exists once it is drawn."""


async def attach(page: Any) -> None:
    """Attach files to the draft that the view of files shows."""
    await go(page, VIEWS["files"][0])
    await page.locator("#composer").fill("And does it fit this order?")
    invoice = {"name": "invoice 2026-11-09.pdf", "mimeType": "application/pdf", "buffer": pdf(2)}
    photo = {"name": "kettle in the kitchen.png", "mimeType": "image/png", "buffer": kettle()}
    await page.get_by_label("Files to attach").set_input_files([invoice, photo])
    await page.get_by_text("2 files attached.").wait_for(state="attached")


@asynccontextmanager
async def opened(**options: Any) -> AsyncIterator[Watched]:
    """Open the console on the sessions that the pictures show. `options` are those of `browsing`."""
    registry = AgentRegistry()
    registry.replace(desk())
    async with AsyncExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        await fill(f"{folder}/helix.db", registry)
        executor = await stack.enter_async_context(
            LocalExecutor(f"{folder}/helix.db", registry=registry, model=ScriptedModel([]))
        )
        service = await stack.enter_async_context(serve_console(executor, "helix.db"))
        console = stack.enter_context(ConsoleServer(service))
        yield await stack.enter_async_context(browsing(console, **options))


async def take(place: Path) -> None:
    async with opened() as browser:
        page = await browser.page()
        await attach(page)
        for name, (path, drawn) in VIEWS.items():
            for suffix, (width, height) in WIDTHS.items():
                await page.set_viewport_size({"width": width, "height": height})
                for shade, scheme in SCHEMES.items():
                    await page.emulate_media(color_scheme=scheme)
                    await go(page, path)
                    await page.locator(drawn).first.wait_for(state="attached")
                    await page.wait_for_load_state("networkidle")
                    await page.wait_for_timeout(300)
                    await page.screenshot(path=place / f"console-{name}{suffix}{shade}.png")
        assert browser.errors == [], browser.errors


if __name__ == "__main__":
    asyncio.run(take(PLACE))
