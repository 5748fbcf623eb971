"""The agents that this deployment runs. Replace them with yours: whatever is registered here can be run by name.

A module may define as many as it likes, and import others of this folder. An agent with `resources={...}` gets functions
and a state machine of its own; the others share theirs. This one works at a small shop's desk: it looks things up in the
handbook, has a colleague check the answer, and asks a person before it pays anything back.
"""

import re

from pydantic import BaseModel, Field

from helix import Agent, LLMConfig, ToolContext, create_sub_agent_tool, default_registry, tool

HANDBOOK = {
    "returns": "Goods can be returned within 30 days of delivery. Opened software and perishable goods are excluded.",
    "refunds": "A refund goes back to the card that paid. It needs a colleague's approval and takes five working days.",
    "shipping": "Orders placed before noon leave the same day. Delivery takes two days, and four days to islands.",
    "damaged goods": "Damaged goods are replaced at once. A photograph is enough; nothing is sent back first.",
    "warranty": "Every device has a warranty of two years. Batteries are covered for six months.",
    "opening hours": "The shop opens at nine and closes at six, and stays closed on Sundays.",
}


class Desk(BaseModel):
    """The notes that the agent keeps within a session."""

    looked_up: list[str] = []
    refunded: list[str] = []


class Passage(BaseModel):
    title: str
    text: str


class Passages(BaseModel):
    passages: list[Passage]


class Claim(BaseModel):
    claim: str = Field(description="One statement to check against the handbook.")


class Verdict(BaseModel):
    supported: bool
    evidence: str = Field(description="The sentence that decides it, quoted.")


class Answer(BaseModel):
    summary: str = Field(description="The answer, in a few sentences.")
    sources: list[str] = Field(description="Titles of the passages that the answer rests on.")


def stems(text: str) -> set[str]:
    return {word[:6] for word in re.findall(r"[a-z]{4,}", text.lower())}


@tool
def search_handbook(query: str, ctx: ToolContext[Desk]) -> Passages:
    """Find the passages of the shop's handbook that fit the query, the best first."""
    ctx.update_state(lambda desk: desk.looked_up.append(query))
    wanted = stems(query)
    ranked = sorted(
        ((len(wanted & stems(f"{title} {text}")), Passage(title=title, text=text)) for title, text in HANDBOOK.items()),
        key=lambda pair: -pair[0],
    )
    return Passages(passages=[passage for hits, passage in ranked[:3] if hits])


@tool(require_approval=True)
def refund_order(order: str, ctx: ToolContext[Desk]) -> str:
    """Pay an order back. A person approves it first; the same call never pays twice."""
    ctx.update_state(lambda desk: desk.refunded.append(order))
    return f"Order {order} is refunded, under the reference {ctx.idempotency_key[-8:]}."


colleague = Agent(
    name="colleague",
    description="Checks one claim against the shop's handbook and quotes what decides it.",
    system_prompt="Check the claim against the handbook. Search before you judge; quote the deciding sentence.",
    tools=[search_handbook],
    state_schema=Desk,
    output_schema=Verdict,
    llm_config=LLMConfig(model="openai/gpt-4o-mini"),
    max_steps=6,
)

desk = Agent(
    name="desk",
    description="Answers customers from the shop's handbook, and refunds orders.",
    system_prompt=(
        "Answer customers from the handbook only: search it first, and have your colleague check what you will say. "
        "Refund an order only when the customer asks for it."
    ),
    tools=[search_handbook, refund_order, create_sub_agent_tool(colleague, Claim)],
    state_schema=Desk,
    output_schema=Answer,
    llm_config=LLMConfig(model="openai/gpt-4o-mini"),
    max_steps=12,
)

default_registry.register(desk)
