"""Servers on loopback that keep a prompt cache by each provider's published rules, and an agent that makes many calls.

Claude and Nova: an entry is written at each mark, if the prompt up to it has the model's minimum size. A mark finds the
entries at itself and, for Claude, at the 19 blocks before it. Reading an entry renews its lifetime. OpenAI: the first
256 tokens and the key choose a machine. More than 15 requests a minute go on to another one, which has its own cache.

Each block counts for the lookback. Anthropic's newest pages count a run of calls or results as one, Bedrock's do not.
"""

from __future__ import annotations

import hashlib
import json
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Any
from urllib.parse import unquote

from tests.support.model_dialects import ANTHROPIC, BEDROCK, OPENAI, Dialect, Fails, Says
from tests.support.responses_dialect import RESPONSES

from helix import Agent, LLMConfig, tool
from helix.adapters.models.catalog import entry_of
from helix.testing.loopback_server import LoopbackServer, RecordedRequest, Responder

LOOKBACK = 20
MOST_MARKS = 4
LIFETIMES = {"5m": 300.0, "1h": 3600.0}
LEAST_TOKENS = 1024
A_MINUTE, MOST_A_MINUTE = 60.0, 15
CHUNK, ROUTED = 128 * 4, 256 * 4
"""The characters of 128 and of 256 tokens, at four characters each."""
MOST_MATCHED = 80
"""The number of the latest breakpoints that GPT-5.6 compares."""
CALLS = 12
SYSTEM = "You look orders up, and answer with what you found. " * 120
Body = Mapping[str, Any]


@dataclass
class Block:
    """A block of the prompt, in the order in which it is cached. `mark` is the lifetime of the mark after it."""

    text: str
    mark: str | None = None
    breakpoint: bool = False

    @property
    def tokens(self) -> int:
        return max(1, len(self.text) // 4)


@dataclass(frozen=True)
class Counts:
    """The input tokens of one request: neither read nor written, read from the cache, written to it."""

    fresh: int
    read: int = 0
    written: int = 0
    hour: bool = False

    @property
    def total(self) -> int:
        return self.fresh + self.read + self.written


def _digests(texts: Iterator[str]) -> list[bytes]:
    """Return the digest of each prefix."""
    steps = accumulate(texts, lambda before, text: hashlib.sha256(before + text.encode()).digest(), initial=b"")
    return list(steps)[1:]


@dataclass
class MarkedCache:
    """The cache of Claude and Nova. `lookback`: the number of blocks that a mark compares, itself included."""

    least: int = LEAST_TOKENS
    lookback: int = LOOKBACK
    expires: dict[bytes, tuple[float, float]] = field(default_factory=dict)

    def count(self, blocks: list[Block], body: Body, now: float) -> Counts:
        prefixes, sizes = _digests(block.text for block in blocks), list(accumulate(block.tokens for block in blocks))
        marked = [at for at, block in enumerate(blocks) if block.mark and sizes[at] >= self.least]
        seen = (at for mark in marked for at in range(max(mark - self.lookback + 1, 0), mark + 1))
        found = max((at for at in seen if self.expires.get(prefixes[at], (0, 0))[0] > now), default=None)
        if found is not None:
            life = self.expires[prefixes[found]][1]
            self.expires[prefixes[found]] = (now + life, life)
        for at in marked:
            life = LIFETIMES[blocks[at].mark or "5m"]
            self.expires[prefixes[at]] = (now + life, life)
        read = sizes[found] if found is not None else 0
        end = max(sizes[marked[-1]], read) if marked else read
        hour = bool(marked) and all(blocks[at].mark == "1h" for at in marked)
        return Counts(sizes[-1] - end, read, end - read, hour)


@dataclass
class AutomaticCache:
    """OpenAI's cache. Before GPT-5.6 it compares 128 tokens at a time, and from then on breakpoints."""

    at_breakpoints: bool = False
    visits: dict[bytes, list[float]] = field(default_factory=lambda: defaultdict(list))
    machines: dict[tuple[bytes, int], dict[bytes, float]] = field(default_factory=lambda: defaultdict(dict))

    def count(self, blocks: list[Block], body: Body, now: float) -> Counts:
        text = "".join(block.text for block in blocks)
        route = hashlib.sha256(f"{body.get('prompt_cache_key')} {text[:ROUTED]}".encode()).digest()
        visits = self.visits[route] = [*(at for at in self.visits[route] if at > now - A_MINUTE), now]
        machine = self.machines[route, (len(visits) - 1) // MOST_A_MINUTE]
        places = self._places(blocks, text)
        read = max((size for digest, size in places if machine.get(digest, 0) > now), default=0)
        written = places[-1:] if self.at_breakpoints else places
        machine |= {digest: now + LIFETIMES["1h" if self.at_breakpoints else "5m"] for digest, _ in written}
        total, last = len(text) // 4, places[-1][1] if places else 0
        if not self.at_breakpoints:  # written without a price
            return Counts(total - read, read)
        return Counts(total - max(last, read), read, max(last - read, 0))

    def _places(self, blocks: list[Block], text: str) -> list[tuple[bytes, int]]:
        """Return the places at which an entry may end, as (digest, tokens)."""
        if self.at_breakpoints:
            digests, sizes = _digests(block.text for block in blocks), list(accumulate(len(b.text) for b in blocks))
            ends = [at for at, block in enumerate(blocks) if block.breakpoint][-MOST_MATCHED:]
            places = [(digests[at], sizes[at] // 4) for at in ends]
        else:
            whole = [text[at : at + CHUNK] for at in range(0, len(text) - CHUNK + 1, CHUNK)]
            places = [(digest, at * 128) for at, digest in enumerate(_digests(iter(whole)), 1)]
        return places[bisect_right(places, LEAST_TOKENS - 1, key=lambda place: place[1]) :]


# --- the blocks of each interface ---------------------------------------------------------------------------------------


def _key(*parts: Any) -> str:
    return json.dumps(parts, sort_keys=True)


def messages_blocks(body: Body) -> list[Block]:
    """Return the blocks of Anthropic's Messages. The tool choice and thinking change the messages' part of the cache."""
    settings = [body.get("tool_choice"), body.get("thinking")]
    found = [(_key("tool"), tool) for tool in body.get("tools", ())]
    found += [(_key("system"), block) for block in body.get("system", ())]
    for message in body["messages"]:
        content = message["content"]
        parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
        found += [(_key(message["role"], settings), part) for part in parts]
    blocks = [
        Block(place + _key({n: v for n, v in part.items() if n != "cache_control"}), _lifetime(part))
        for place, part in found
    ]
    if "cache_control" in body:
        blocks[-1].mark = body["cache_control"].get("ttl", "5m")
    return blocks


def _lifetime(part: Body) -> str | None:
    mark = part.get("cache_control")
    return mark.get("ttl", "5m") if mark else None


def converse_blocks(body: Body) -> list[Block]:
    """Return the blocks of Converse. A cache point is not a block; it marks the one before it."""
    config = body.get("toolConfig", {})
    lists = [("tool", config.get("tools", [])), ("system", body.get("system", []))]
    lists += [(_key(m["role"], config.get("toolChoice")), m["content"]) for m in body["messages"]]
    blocks: list[Block] = []
    for place, parts in lists:
        for part in parts:
            if "cachePoint" in part:
                blocks[-1].mark = part["cachePoint"].get("ttl", "5m")
            else:
                blocks.append(Block(place + _key(part)))
    return blocks


def responses_blocks(body: Body) -> list[Block]:
    items = [Block(_key(item), None, _may_break(item)) for item in body["input"]]
    return [Block(_key(tool)) for tool in body.get("tools", ())] + [Block(_key(body.get("instructions"))), *items]


def chat_blocks(body: Body) -> list[Block]:
    messages = [Block(_key(message), None, _may_break(message)) for message in body["messages"]]
    return [Block(_key(tool)) for tool in body.get("tools", ())] + messages


def _may_break(item: Body) -> bool:
    return item.get("role") in ("user", "tool") or item.get("type") == "function_call_output"


# --- the refusals of Converse -------------------------------------------------------------------------------------------


def converse_refusal(body: Body, model: str) -> str | None:
    """Return Bedrock's refusal of the cache points of a request, or None."""
    lists = [body.get("toolConfig", {}).get("tools", []), body.get("system", [])]
    lists += [message["content"] for message in body["messages"]]
    lifetimes: list[str] = []
    for parts in lists:
        for before, part in zip([None, *parts], parts, strict=False):
            if "cachePoint" not in part:
                continue
            if before is None or "cachePoint" in before:
                return "There is nothing available to cache."
            if before.keys() & {"document", "video"}:
                return "A cachePoint cannot directly follow a document or a video."
            if "ttl" in part["cachePoint"] and "cache_creation_input_token_cost_above_1hr" not in entry_of(model):
                return "The model does not support the ttl of a cachePoint."
            lifetimes.append(part["cachePoint"].get("ttl", "5m"))
            if lifetimes[-1] == "1h" and "5m" in lifetimes:
                return "a ttl='1h' cachePoint must not come after a ttl='5m' cachePoint."
    if "nova" in model and any("cachePoint" in tool for tool in lists[0]):
        return "The model does not support cachePoint in toolConfig."
    if len(lifetimes) > MOST_MARKS:
        return f"A maximum of {MOST_MARKS} blocks with cache_control may be provided. Found {len(lifetimes)}."
    return None


# --- the servers --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Provider:
    """An interface with its cache. `blocks` reads the prompt of a request."""

    name: str
    dialect: Dialect
    blocks: Callable[[Body], list[Block]]

    def cache(self) -> MarkedCache | AutomaticCache:
        """Return an empty cache by the model's rules."""
        model = self.dialect.model
        if self.dialect.name in ("openai", "responses"):
            return AutomaticCache(at_breakpoints="gpt-5.6" in model)
        least = entry_of(model).get("prompt_cache_min_tokens", LEAST_TOKENS)
        return MarkedCache(least, 1 if "nova" in model else LOOKBACK)


def _refuses_converse(request: RecordedRequest) -> Fails | None:
    name = unquote(request.path).removeprefix("/model/").removesuffix("/converse-stream")
    message = converse_refusal(request.json, f"bedrock/{name}")
    return None if message is None else Fails(400, "", "ValidationException", message)


CLAUDE = Provider("Anthropic Messages", ANTHROPIC, messages_blocks)
CONVERSE = Provider("Bedrock Converse", replace(BEDROCK, refuses=_refuses_converse), converse_blocks)
NOVA = replace(CONVERSE, dialect=replace(CONVERSE.dialect, model="bedrock/us.amazon.nova-pro-v1:0"))
OPENAI_RESPONSES = Provider("OpenAI Responses", RESPONSES, responses_blocks)
OPENAI_CHAT = Provider("OpenAI Chat", replace(OPENAI, model="openai/gpt-4.1", config={"api": "chat"}), chat_blocks)


class CachingServer(LoopbackServer):
    """A provider's server with a cache. Its clock advances by `seconds` before each request. `answer` returns what the
    model says to a request; its usage is counted here. `counts` has the counts of each accepted request."""

    def __init__(self, provider: Provider, answer: Callable[[Body], Says], seconds: float = 1.0) -> None:
        super().__init__(self._reply)
        self.provider, self.seconds, self.now = provider, seconds, 1_000_000.0
        self.counts: list[Counts] = []
        self._answer, self._cache = answer, provider.cache()

    @property
    def read_share(self) -> float:
        """The share of all input tokens that was read from the cache."""
        return sum(counts.read for counts in self.counts) / sum(counts.total for counts in self.counts)

    async def _reply(self, request: RecordedRequest, responder: Responder) -> None:
        dialect, self.now = self.provider.dialect, self.now + self.seconds
        if (refusal := dialect.refuses(request)) is not None:
            body, headers = dialect.failure(refusal)
            await responder.send_json(refusal.status, body, {**headers, **refusal.headers})
            return
        counts = self._cache.count(self.provider.blocks(request.json), request.json, self.now)
        self.counts.append(counts)
        says = replace(self._answer(request.json), usage=(counts.fresh, counts.read, counts.written, 100))
        await responder.start(200, {"content-type": dialect.content_type})
        for part in dialect.say(replace(says, hour=counts.hour)):
            await responder.send(part)
        await responder.end()


# --- the agent ----------------------------------------------------------------------------------------------------------


@tool
def look(number: int) -> str:
    """Look an order up."""
    return f"Order {number} was shipped on Monday."


def looking(steps: int) -> Callable[[Body], Says]:
    """Return a model that makes `CALLS` calls in each step but the last of `steps`, which it counts by their results."""

    def answer(body: Body) -> Says:
        made = json.dumps(body).count("was shipped on Monday") // CALLS
        if made % steps == steps - 1:
            return Says("All of them were sent.", stop="end_turn", size=100)
        numbers = range(made * CALLS, (made + 1) * CALLS)
        calls = tuple((f"call_{number}", "look", json.dumps({"number": number})) for number in numbers)
        return Says(calls=calls, stop="tool_use", size=100)

    return answer


def desk(server: CachingServer, **settings: Any) -> Agent[Any, Any]:
    """Return an agent that asks this server. `settings` are those of `LLMConfig`."""
    dialect = server.provider.dialect
    config = LLMConfig.model_validate(
        {
            "model": dialect.model,
            "adapter": "native",
            "provider_options": dialect.options(server.origin),
            "max_retries": 0,
            **dialect.config,
            **settings,
        }
    )
    return Agent(name="desk", system_prompt=SYSTEM, llm_config=config, tools=[look], max_steps=None)
