"""Compute the limits of a stage at 10 to 100,000 concurrent runs, and the cost of 1,000 runs, from measured counts and
quotas.

    python bench/scale_model.py            prints the tables and saves them to bench/results/scale_model.md and the guide

Counts come from `bench/results/aws_calls.md` and `aws_short.md`, prices from `helix.core.aws_prices`, shards from the code.
A run is `STEPS` model answers of 60 words, all but the last with a tool call. Quotas are the defaults of us-east-1.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from helix.core import aws_prices as prices
from helix.infra.config import NEW_TABLE_WRITES, Settings
from helix.services.budget_rows import COPIES
from helix.services.budget_shards import SHARDS as BUDGET_SHARDS
from helix.services.open_runs import PARTITIONS
from helix.services.slot_shards import shards_for
from helix.services.usage_counters import SHARDS

HERE = Path(__file__).parent
RESULTS, GUIDE = HERE / "results" / "scale_model.md", HERE.parent / "docs" / "guide" / "scaling.md"
BEGIN, END = "<!-- bench/scale_model.py -->\n", "<!-- end -->"
SIZES = (10, 100, 1_000, 10_000, 100_000)
STEPS, STEP_S, RUN_S = 6, 2.3, 13.6
"""Model 2 s, tool 0.2 s, invocations 0.1 s, as `aws_calls.py` assumes; the last step has no tool."""
ITEM_PER_S = 100
"""The number of sequential transactions of about 10 ms on one item in a second; concurrent ones are rejected."""
DOCS = "https://docs.aws.amazon.com"
SOURCES = {
    "lambda": f"{DOCS}/lambda/latest/dg/gettingstarted-limits.html",
    "scaling": f"{DOCS}/lambda/latest/dg/scaling-behavior.html",
    "states": f"{DOCS}/step-functions/latest/dg/service-quotas.html",
    "gateway": f"{DOCS}/apigateway/latest/developerguide/limits.html",
    "kinesis": f"{DOCS}/streams/latest/dev/service-sizes-and-limits.html",
    "tables": f"{DOCS}/amazondynamodb/latest/developerguide/ServiceQuotas.html",
    "new table": f"{DOCS}/amazondynamodb/latest/developerguide/warm-throughput-scenarios.html",
    "item": f"{DOCS}/amazondynamodb/latest/developerguide/bp-partition-key-design.html",
    "conflicts": f"{DOCS}/amazondynamodb/latest/developerguide/transaction-apis.html#transaction-conflict-handling",
}


@dataclass(frozen=True, slots=True)
class Counts:
    """Measured counts of a step with a tool and words. `run_writes`: the units of a deployed run's claim and end."""

    transitions: float
    invocations: float
    messages: float
    writes: float
    log_writes: float
    run_writes: float
    dollars: float


FIRST = ("request heads", "activity of the stage")
"""The rows that the first run of a stage writes, in the table of `aws_short.py`."""


def measured(calls: str, short: str) -> Counts:
    """Read the counts from the tables that the two benches saved. Rows that a run writes only if it is the first of its
    stage are left out."""
    step = _row(calls, "1000 ")
    price = {row[0]: row[-1] for row in _rows(calls) if row[-1].startswith("$")}
    words = {name: float(value.strip("$")) for name, value in price.items()}
    units = _row(short, "**all**")
    per_step = float(units[-1].strip("*")) - float(units[-2].strip("*"))
    once = sum(float(_row(short, name)[-2]) for name in FIRST)
    return Counts(
        transitions=float(step[5]),
        invocations=float(step[6]),
        messages=words["Streaming: messages to one client"] / 1000 / prices.SOCKET_MESSAGE,
        writes=per_step,
        log_writes=words["Streaming: DynamoDB"] / 1000 / prices.DYNAMODB_WRITE_UNIT,
        run_writes=float(units[-2].strip("*")) - once,
        dollars=float(_row(calls, "**all of it**")[-1].strip("*$")),
    )


@dataclass(frozen=True, slots=True)
class Limit:
    """`needs`: the use by this many concurrent runs. `source`: "" for a setting of the stage. `ours`: a limit of Helix,
    not a quota of the account."""

    what: str
    unit: str
    needs: Callable[[int], float]
    quota: float
    source: str
    raised_by: str
    ours: bool = False

    @property
    def runs(self) -> int:
        """Return the number of concurrent runs that the limit allows."""
        return int(self.quota / self.needs(1_000_000) * 1_000_000)


def limits(counts: Counts) -> list[Limit]:
    def steps(runs: int) -> float:
        return runs / STEP_S

    def ends(runs: int) -> float:
        return runs / RUN_S

    def messages(runs: int) -> float:
        return steps(runs) * counts.messages

    def writes(runs: int) -> float:
        """Count all rows of a run in one table."""
        return steps(runs) * counts.writes + ends(runs) * counts.run_writes

    ask = "Service Quotas"
    return [
        Limit(
            "Lambda, concurrency",
            "environments",
            lambda n: 1.0 * n,
            1_000,
            "lambda",
            f"{ask}; a new account may have 10",
        ),
        Limit(
            "Lambda, runs that begin at once",
            "environments in 10 s",
            lambda n: 1.0 * n,
            1_000,
            "scaling",
            "a queue (`max_runs`); provisioned environments",
        ),
        Limit(
            "Step Functions, transitions",
            "a second",
            lambda n: steps(n) * counts.transitions,
            5_000,
            "states",
            f"{ask}; less in a new account; `inline` tools take 2 a step",
        ),
        Limit("Step Functions, `StartExecution`", "a second", ends, 300, "states", f"{ask}; the bucket holds 1,300"),
        Limit("Step Functions, open executions", "executions", lambda n: 1.0 * n, 1_000_000, "states", ask),
        Limit(
            "API Gateway, `PostToConnection`", "a second", messages, 10_000, "gateway", f"{ask}; shared with all APIs"
        ),
        Limit(
            "API Gateway, messages of clients",
            "a second",
            ends,
            Settings.model_fields["socket_messages"].default,
            "",
            "the setting `socket_messages`",
        ),
        Limit("Kinesis, one shard", "records a second", messages, 1_000, "kinesis", "the setting `shards`"),
        Limit(
            "DynamoDB, a new table",
            "write units a second",
            writes,
            NEW_TABLE_WRITES,
            "new table",
            "the setting `warm_writes`; by itself, to twice the last peak within 30 minutes",
        ),
        Limit("DynamoDB, a table", "write units a second", writes, 40_000, "tables", ask),
        Limit(
            "DynamoDB, index of open runs",
            "write units a second and partition",
            lambda n: ends(n) * 4 / PARTITIONS,
            1_000,
            "item",
            "`PARTITIONS` in `services/open_runs.py`",
            ours=True,
        ),
        Limit(
            "DynamoDB, usage of one agent",
            "transactions a second and item",
            lambda n: ends(n) / SHARDS,
            ITEM_PER_S,
            "conflicts",
            "`SHARDS` in `services/usage_counters.py`",
            ours=True,
        ),
        Limit(
            "DynamoDB, slots under one limit",
            "transactions a second and item",
            lambda n: 2 * ends(n) / shards_for(n),
            ITEM_PER_S,
            "conflicts",
            "`MOST` in `services/slot_shards.py`",
            ours=True,
        ),
        Limit(
            "DynamoDB, one budget for all runs",
            "transactions a second and item",
            lambda n: 2 * ends(n) / BUDGET_SHARDS,
            ITEM_PER_S,
            "conflicts",
            "`SHARDS` in `services/budget_shards.py`",
            ours=True,
        ),
        Limit(
            "DynamoDB, the count of definitions",
            "read units a second and item",
            lambda n: steps(n) / COPIES,
            3_000,
            "item",
            "`COPIES` in `services/budget_rows.py`",
            ours=True,
        ),
    ]


def tables(counts: Counts) -> str:
    found = limits(counts)
    lines = [
        "| Component | It is measured in | "
        + " | ".join(f"{n:,}" for n in SIZES)
        + " | Quota | Enough for | Raised by |",
        "|---|---|" + "---:|" * len(SIZES) + "---:|---:|---|",
    ]
    for limit in found:
        needs = [_cell(limit.needs(n), limit.quota) for n in SIZES]
        quota = f"{limit.quota:,.0f}"
        quota = f"[{quota}]({SOURCES[limit.source]})" if limit.source else quota
        ours = " (Helix's)" if limit.ours else ""
        cells = [limit.what + ours, limit.unit, *needs, quota, _runs(limit.runs), limit.raised_by]
        lines.append(f"| {' | '.join(cells)} |")
    first = [
        "",
        "| Concurrent runs | Limits that they pass, the lowest first | Steps a second | Runs a second | $ per 1,000 runs |",
        "|---:|---|---:|---:|---:|",
    ]
    for n in SIZES:
        passed = [limit for limit in found if limit.needs(n) > limit.quota]
        names = "; ".join(limit.what for limit in sorted(passed, key=lambda limit: limit.runs)) or "none"
        shards = max(1, -(-int(n / STEP_S * counts.messages) // 1000))
        first.append(f"| {n:,} | {names} | {n / STEP_S:,.0f} | {n / RUN_S:,.1f} | ${_dollars(counts, n, shards):.2f} |")
    return "\n".join([*lines, *first]) + "\n"


def _dollars(counts: Counts, runs: int, shards: int) -> float:
    """Price the steps, the claim and end of the run, and its share of the shards, without the model."""
    own = counts.run_writes * prices.DYNAMODB_WRITE_UNIT + 2 * prices.TRANSITION + prices.LAMBDA_REQUEST
    rest = shards * prices.KINESIS_SHARD_HOUR / 3600 / (runs / RUN_S)
    return 1000 * (STEPS * counts.dollars / 1000 + own + rest)


def _cell(value: float, quota: float) -> str:
    text = f"{value:,.0f}" if value >= 10 else f"{value:,.1f}"
    return f"**{text}**" if value > quota else text


def _runs(number: int) -> str:
    digits = max(0, len(str(number)) - 2)
    return f"{round(number, -digits):,}"


def _rows(text: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("|")]


def _row(text: str, start: str) -> list[str]:
    return next(row for row in _rows(text) if row[0].startswith(start.strip()) and len(row) > 3)


def table() -> str:
    return tables(measured(*((HERE / "results" / name).read_text() for name in ("aws_calls.md", "aws_short.md"))))


def in_guide(guide: str, text: str) -> str:
    before, _, rest = guide.partition(BEGIN)
    return f"{before}{BEGIN}\n{text}\n{END}{rest.partition(END)[2]}"


def main() -> None:
    text = table()
    print(text)
    RESULTS.write_text(f"# What limits a stage\n\n{text}")
    GUIDE.write_text(in_guide(GUIDE.read_text(), text))


if __name__ == "__main__":
    main()
