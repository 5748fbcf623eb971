"""Measure the time from a model's word to a reader: in the same process and from another one, on memory and on SQLite.

    python bench/words.py        prints the tables and saves them to bench/results/words.md (two minutes)

The model writes 40 and 200 words a second. Each word is the time at which it was written, and a reader records when it has
the word. Without pauses, a model writes 5,000 words and never yields to the event loop. CPU time with Helix includes a
reader of all words. It is compared with the package alone, used as its own guide recommends, against one server on loopback
in another process. The table also has Helix's adapter alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from openai import AsyncOpenAI

from helix import Agent, LLMConfig, LocalExecutor
from helix.adapters.models.adapter import ModelAdapter
from helix.adapters.models.litellm import load_litellm
from helix.core.steps import AnyStepResult, TextStepResult
from helix.core.wire import StreamMessage
from helix.ports.model import LLMGenerateInput, LLMStreamCallbacks
from helix.stream.reader import read_stream
from helix.testing.openai_server import ModelAnswer, OpenAIServer

RATES = (40, 200)
SECONDS = 4
UNPACED, REPEATS = 5000, 3
SESSION = "ses_words"
LIMITS = {"here": (3.0, 10.0), "there": (25.0, 25.0)}
FIRST_MS, CPU_RATIO = 20.0, 1.5
PACKAGES = {"litellm": "litellm", "openai": "native"}
"""The setting that selects each package."""


class Speaker:
    """A model that writes `count` words, each the time at which it is written, at `rate` a second or without ever
    yielding."""

    def __init__(self, count: int, rate: float | None) -> None:
        self.count, self.rate = count, rate

    async def generate_step(self, request: LLMGenerateInput) -> AnyStepResult:
        said: list[str] = []
        assert request.callbacks.on_text_delta is not None
        begun = time.monotonic()
        for n in range(self.count):
            if self.rate is not None:
                await asyncio.sleep(max(0.0, begun + n / self.rate - time.monotonic()))
            said.append(f"{time.monotonic():.6f} ")
            if (waiting := request.callbacks.on_text_delta(said[-1])) is not None:
                await waiting
        return TextStepResult(content="".join(said))


def agent(**options: Any) -> Agent[Any, Any]:
    return Agent(name="speaker", system_prompt="Speak.", llm_config=LLMConfig(**{"model": "none", **options}))


async def words(messages: AsyncIterator[StreamMessage]) -> list[tuple[float, str]]:
    """Return each word and its arrival time."""
    found: list[tuple[float, str]] = []
    async for message in messages:
        chunk = message.chunk or {}
        if chunk.get("type") == "text_delta":
            found.append((time.monotonic(), str(chunk["delta"])))
    return found


def delays(found: Sequence[tuple[float, str]]) -> list[float]:
    return [(came - float(word)) * 1000 for came, word in found]


# --- in this process --------------------------------------------------------------------------------------------------


async def here(store: str, count: int, rate: float | None) -> list[float]:
    async with LocalExecutor(store, model=Speaker(count, rate)) as executor:
        handle = await executor.execute(agent(), "go")
        found = await words(await handle.messages())
        assert (await handle.result()).status == "completed" and len(found) == count
    return delays(found)


# --- from another process ---------------------------------------------------------------------------------------------


async def speak(path: str, count: int, rate: float) -> None:
    async with LocalExecutor(path, model=Speaker(count, rate)) as executor:
        await (await executor.execute(agent(), "go", session_id=SESSION)).result()


async def there(path: str, count: int, rate: float) -> list[float]:
    async with LocalExecutor(path, model=Speaker(0, None)) as executor:
        other = await asyncio.create_subprocess_exec(sys.executable, __file__, "speak", path, str(count), str(rate))
        found = await words(read_stream(executor.streams, SESSION, until=lambda message: message.kind != "chunk"))
        assert await other.wait() == 0 and len(found) == count
    return delays(found)


# --- processor time ---------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def served(file: str) -> Iterator[str]:
    """The address that `python file serve` prints: a server in another process."""
    server = subprocess.Popen([sys.executable, file, "serve"], stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    try:
        yield server.stdout.readline().strip()
    finally:
        server.terminate()
        server.wait()


def serve() -> None:
    """A model that writes all words at once."""
    answer = ModelAnswer(text="".join(f"{n:07d} " for n in range(UNPACED)), delta_length=8)
    with OpenAIServer(lambda _: answer) as server:
        print(server.base_url, flush=True)
        while os.getppid() != 1:
            time.sleep(1)


async def package_alone(package: str, url: str) -> float:
    """Return the CPU seconds of the package for all words, without Helix."""
    asked: dict[str, Any] = {"messages": [{"role": "user", "content": "go"}], "stream": True}
    begun, found = time.process_time(), list[str]()
    if package == "openai":
        async with AsyncOpenAI(base_url=url, api_key="none") as client:
            async for chunk in await client.chat.completions.create(model="gpt-4o", **asked):
                found += [choice.delta.content or "" for choice in chunk.choices]
    else:
        options = {"api_base": url, "api_key": "none"}
        async for chunk in await load_litellm().acompletion(model="openai/gpt-4o", **asked, **options):
            found += [choice.delta.content or "" for choice in chunk.choices]
    assert len(list(filter(None, found))) == UNPACED
    return time.process_time() - begun


class Deaf:
    """An adapter that calls another and discards its answer."""

    def __init__(self, adapter: Any) -> None:
        self.adapter, self.cpu_s = adapter, 0.0

    async def generate_step(self, request: LLMGenerateInput) -> AnyStepResult:
        begun = time.process_time()
        callbacks = LLMStreamCallbacks(on_text_delta=lambda _: None)
        result: AnyStepResult = await self.adapter.generate_step(replace(request, callbacks=callbacks))
        self.cpu_s = time.process_time() - begun
        return result


async def alone(package: str, url: str) -> float:
    """Return the CPU seconds of the adapter for all words."""
    deaf = Deaf(ModelAdapter())
    async with LocalExecutor(":memory:", model=deaf) as executor:
        await (await executor.execute(speaks_at(package, url), "go")).result()
    return deaf.cpu_s


async def heard(store: str, package: str, url: str) -> float:
    """Return the CPU seconds of a run with those words, and of a reader."""
    async with LocalExecutor(store, model=ModelAdapter()) as executor:
        begun = time.process_time()
        handle = await executor.execute(speaks_at(package, url), "go")
        found = await words(await handle.messages())
        assert (await handle.result()).status == "completed" and len(found) == UNPACED
        return time.process_time() - begun


def speaks_at(package: str, url: str) -> Agent[Any, Any]:
    options = {"api_base": url, "api_key": "none"}
    return agent(model="openai/gpt-4o", adapter=PACKAGES[package], provider_options=options)


# --- the tables -------------------------------------------------------------------------------------------------------


def quantile(values: Sequence[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


def latency_row(name: str, rate: int, values: Sequence[float], limits: tuple[float, float]) -> str:
    p50, p95 = statistics.median(values), quantile(values, 0.95)
    met = "met" if p50 <= limits[0] and p95 <= limits[1] else "**missed**"
    worst = max(values)
    return f"| {name} | {rate} | {p50:.1f} | {p95:.1f} | {worst:.1f} | {limits[0]:g} / {limits[1]:g} | {met} |"


def kinds(folder: str) -> dict[str, Iterator[str]]:
    """The locations of new stores."""
    files = (f"{folder}/{n}.db" for n in range(1000))
    return {"memory": iter(lambda: ":memory:", None), "SQLite": files}


async def table() -> list[str]:
    lines = [
        "# A model's word to its reader",
        "",
        f"Python {platform.python_version()}, {platform.machine()}, {os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f} "
        "before; `python bench/words.py`.",
        "",
        "| reader | words/s | p50, ms | p95, ms | most, ms | at most | |",
        "|---|---:|---:|---:|---:|---:|---|",
    ]
    with tempfile.TemporaryDirectory() as folder, served(__file__) as url:
        places = kinds(folder)
        for name, stores in places.items():
            await here(next(stores), 50, 200)
            for rate in RATES:
                found = await here(next(stores), SECONDS * rate, rate)
                lines.append(latency_row(f"same process, {name}", rate, found, LIMITS["here"]))
        for rate in RATES:
            found = await there(next(places["SQLite"]), SECONDS * rate, rate)
            lines.append(latency_row("another process, SQLite", rate, found, LIMITS["there"]))
        lines += [
            "",
            f"Unpaced, {UNPACED:,} words:",
            "",
            "| store | first word, ms | at most | CPU a word, us | package | alone, us | adapter | with Helix | ratio "
            "| at most | |",
            "|---|---:|---:|---:|---|---:|---:|---:|---:|---:|---|",
        ]
        for package in PACKAGES:
            await alone(package, url)
            await package_alone(package, url)
            for name, stores in places.items():
                first, cpu, bare, quiet, loud = (list[float]() for _ in range(5))
                for _ in range(REPEATS):
                    begun = time.process_time()
                    first.append((await here(next(stores), UNPACED, None))[0])
                    cpu.append((time.process_time() - begun) / UNPACED * 1e6)
                    bare.append(await package_alone(package, url) / UNPACED * 1e6)
                    quiet.append(await alone(package, url) / UNPACED * 1e6)
                    loud.append(await heard(next(stores), package, url) / UNPACED * 1e6)
                began, own, p, a, b = map(statistics.median, (first, cpu, bare, quiet, loud))
                met = "met" if began <= FIRST_MS and b / p <= CPU_RATIO else "**missed**"
                lines.append(
                    f"| {name} | {began:.1f} | {FIRST_MS:g} | {own:.0f} | {package} | {p:.0f} | {a:.0f} | {b:.0f} "
                    f"| {b / p:.2f} | {CPU_RATIO} | {met} |"
                )
    lines += ["", "The machine also had other load. CPU times are medians of runs side by side."]
    return lines


def main() -> None:
    match sys.argv[1:]:
        case ["speak", path, count, rate]:
            asyncio.run(speak(path, int(count), float(rate)))
        case ["serve"]:
            serve()
        case _:
            text = "\n".join(asyncio.run(table())) + "\n"
            print(text)
            (Path(__file__).parent / "results" / "words.md").write_text(text)


if __name__ == "__main__":
    main()
