"""Draw `docs/img/chat.svg`: python -m tests.support.chat_picture"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field
from tests.support.chat_screen import screen
from tests.support_gateway import executor_of
from tests.support_run import a_tool, agent, call, calls

from helix import create_sub_agent_tool
from helix.cli.chat.blocks import CallBlock, FoldHeading
from helix.core.usage import Usage

PICTURE = Path(__file__).parents[2] / "docs" / "img" / "chat.svg"


class Order(BaseModel):
    order: str


class Refund(BaseModel):
    order: str = Field(description="As on the invoice")
    euros: float = Field(description="At most 50")


class Task(BaseModel):
    question: str


class Found(BaseModel):
    answer: str


def used(entry: Any, prompt: int, completion: int) -> dict[str, Any]:
    cost = prompt * 3 + completion * 15
    usage = Usage(prompt_tokens=prompt, completion_tokens=completion, calls=1, cost_micros=cost)
    return {**(entry if isinstance(entry, dict) else {"content": entry}), "usage": usage}


PLAN = """I looked both up. The second parcel was lost:

| Order | Sent   | Arrived |
|-------|--------|---------|
| A7    | 3 Nov  | 6 Nov   |
| A8    | 9 Nov  | never   |

Rule **4.2** covers it, so I would refund `A8` in full.
"""


async def draw() -> None:
    look = a_tool(
        "look_up_order", lambda a, c: {"order": a.order, "sent": "9 Nov", "arrived": None}, input_schema=Order
    )
    rules = a_tool("search_rules", lambda a, c: "4.2 Lost parcels are refunded in full.", input_schema=Task)
    clerk = agent("rule_book", tools=[rules], output_schema=Found)
    refund = a_tool("refund_order", lambda a, c: "refunded", input_schema=Refund, require_approval=True)
    support = agent("support", tools=[look, refund, create_sub_agent_tool(clerk, Task)])
    asked = calls(call("look_up_order", order="A8"), call("subagent__rule_book", question="Are lost parcels refunded?"))
    script = {
        "support": [
            used({**asked, "thinking": "I need the order, and the rule for lost parcels."}, 812, 64),
            used(calls(call("refund_order", order="A8", euros=38.5), content=PLAN), 1204, 118),
        ],
        "rule_book": [
            {
                **used(calls(call("search_rules", question="lost parcels"), content="Rule 4.2 fits."), 390, 31),
                "delta_delay_s": 0.05,
            },
            used(calls(call("__finish__", answer="Yes, in full: rule 4.2.")), 455, 22),
        ],
    }
    async with screen(executor_of(script, support), "support", size=(96, 42)) as s:
        await s.type("My parcels A7 and A8: only one arrived. Can I have my money back?")
        await s.until("Approve refund_order?")
        for called in s.app.query(CallBlock):
            await called.open("rule_book" in str(called.query_one(FoldHeading).content))
        s.app.title = "helix chat support"
        await s.pilot.pause(0.5)
        PICTURE.write_text(s.app.export_screenshot(), encoding="utf-8")


if __name__ == "__main__":
    asyncio.run(draw())
