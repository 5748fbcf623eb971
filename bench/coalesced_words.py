"""Measure the age of a word when a log that charges for each append has it, and the cost of the appends.

    python bench/coalesced_words.py     prints the table and saves it to bench/results/coalesced_words.md (a minute)

A model writes 40 words a second for ten seconds, and each word is the time at which it was written. The log is in memory
and asks for batches, as the logs on AWS do. The longest intervals are the earlier and the current one. The time from the
log to a client of the WebSocket API comes on top; `bench/latency.py` measures it. An append has its maximum price: its own
Kinesis record, an invocation of `project_stream` with the units that `bench/aws_calls.py` counts, and a message to one
client.
"""

from __future__ import annotations

import asyncio
import platform
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from words import Speaker, agent, delays, words

from helix import LocalExecutor, MemoryStateStore
from helix.core import aws_prices as prices
from helix.core.sequencer import StreamRecord
from helix.services import run_stream

RATE, SECONDS, RUNS = 40, 10, 3
INTERVALS_S = (0.25, run_stream.LONGEST_S)
MOST_MS = 100.0
TRANSPORT_MS = 13.0
"""The p50 from a model's first token to a client's first chunk (bench/results/latency.md). First words wait for no
interval."""
APPEND = (
    prices.KINESIS_PUT_UNIT
    + prices.LAMBDA_REQUEST
    + 0.025 * prices.LAMBDA_GB_S
    + 2 * prices.DYNAMODB_WRITE_UNIT
    + 1.5 * prices.DYNAMODB_READ_UNIT
    + prices.SOCKET_MESSAGE
)


async def speak() -> tuple[list[float], int]:
    """Return the ages of the words, and the number of appends with words."""
    async with LocalExecutor(MemoryStateStore(), model=Speaker(RATE * SECONDS, RATE)) as executor:
        streams: Any = executor.streams
        streams.coalesces, append, appends = True, streams.append, 0

        async def counted(stream_id: str, records: Sequence[StreamRecord]) -> Any:
            nonlocal appends
            appends += any(chunk["type"] == "text_delta" for record in records for chunk in record.chunks)
            return await append(stream_id, records)

        streams.append = counted
        handle = await executor.execute(agent(), "go")
        found = await words(await handle.messages())
    return delays(found), appends


async def measure(interval_s: float) -> tuple[list[float], float]:
    run_stream.LONGEST_S = interval_s
    results = await asyncio.gather(*(speak() for _ in range(RUNS)))
    return [age for ages, _ in results for age in ages], statistics.mean(appends for _, appends in results)


def main() -> None:
    lines = [
        "# Words on a log that charges for each append",
        "",
        f"Python {platform.python_version()}; `python bench/coalesced_words.py`. {RATE} words a second for {SECONDS} s.",
        "",
        "| longest interval, ms | p50, ms | p95, ms | p50 at a WebSocket client | appends a run | $ for 1,000 runs |",
        "|---:|---:|---:|---:|---:|---:|",
    ]
    for interval_s in INTERVALS_S:
        ages, appends = asyncio.run(measure(interval_s))
        p50, p95 = statistics.median(ages), statistics.quantiles(ages, n=20)[-1]
        client = f"{p50 + TRANSPORT_MS:.0f}"
        if interval_s == INTERVALS_S[-1]:
            client += f" (at most {MOST_MS:g}: {'met' if p50 + TRANSPORT_MS <= MOST_MS else 'MISSED'})"
        price = 1000 * appends * APPEND
        lines.append(f"| {interval_s * 1000:g} | {p50:.0f} | {p95:.0f} | {client} | {appends:.0f} | ${price:.3f} |")
    text = "\n".join(lines) + "\n"
    print(text)
    (Path(__file__).parent / "results" / "coalesced_words.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
