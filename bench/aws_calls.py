"""Measure a tool step on AWS: calls and bytes on the wire, transitions, invocations, and list-price dollars.

    python bench/aws_calls.py              prints the tables and saves them to bench/results/aws_calls.md (4 minutes)
    python bench/aws_calls.py --quick      prints them for 108 steps

A step is one model answer with one tool call whose result has 1 KB. The deployed handlers run on moto, each with the memory
of a separate process, and the deployed state machine's definition drives them. Calls are counted where they leave botocore.
`bench/aws/wire.py` explains how bytes and units are counted, and `helix.core.aws_prices` has the prices. Steps with an
inline tool share an invocation, so their numbers are averages over a run of ten steps, including the answer.
"""

from __future__ import annotations

import asyncio
import math
import platform
import statistics
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from aws.cloud import cloud, text
from aws.waiting import idle_table, waiting_table
from aws.wire import Call
from pydantic import BaseModel

from helix import Agent, LLMConfig, define_tool
from helix.core import aws_prices as prices
from helix.core.registry import default_registry
from helix.core.steps import AnyStepResult, ParsedToolCall, TextStepResult, ToolCallsStepResult
from helix.core.usage import Usage
from helix.fleet.budgets import BudgetManager
from helix.ports.model import LLMGenerateInput

QUICK = "--quick" in sys.argv
STEPS = (1, 10, 100) if QUICK else (1, 10, 100, 1000)
AROUND = 2
COLD = (20, 105) if QUICK else (20, 105, 1005)
RESULT_BYTES = 1024
WORDS, WORD_S = 60, 0.02
SHORT, THINKS_S = 10, 0.35
"""The run with an inline tool: its steps, and its model's response time, which is longer than the wait before chunks are
put."""
MODEL_S, TOOL_S, OWN_S = 2.0, 0.2, 0.05
"""Assumptions for charges by time: the duration of the model call, of the tool, and of the rest of an invocation."""
ENGINE = ("call_model", "call_tool")
VERBS = (*ENGINE, "project_stream")
MACHINE = (*ENGINE, "finish_run")


class Nothing(BaseModel):
    n: int = 0


class Model:
    """A model that requests one call at a time, `steps` times. With `words` it also writes text first, about as fast as
    real models. `thinks_s` is the time that each answer takes."""

    steps, words, thinks_s = 0, 0, 0.0

    async def generate_step(self, request: LLMGenerateInput) -> AnyStepResult:
        await asyncio.sleep(self.thinks_s)
        done = sum(1 for message in request.messages if message.role == "tool")
        usage = Usage(prompt_tokens=1200, completion_tokens=80, cost_micros=400, calls=1)
        if self.words and request.callbacks is not None and request.callbacks.on_text_delta is not None:
            for _ in range(self.words):
                await asyncio.sleep(WORD_S)
                request.callbacks.on_text_delta("word ")
        if done >= self.steps:
            return TextStepResult(content="done", usage=usage, model="bench")
        call = ParsedToolCall(id=f"call_{done:05d}", name="work", arguments={"n": done})
        said = "word " * self.words or None
        return ToolCallsStepResult(content=said, tool_calls=[call], usage=usage, model="bench")


def work(arguments: Nothing, context: Any) -> str:
    return text(RESULT_BYTES, arguments.n)


def agent(name: str, *, inline: bool = False) -> Agent[Any, Any]:
    tool = define_tool(name="work", description="Give 1 KB.", input_schema=Nothing, execute=work, inline=inline)
    return Agent(name=name, system_prompt="Work.", tools=[tool], llm_config=LLMConfig(model="bench"), max_steps=None)


# The deployed functions import their agents and the model from here.
MODEL = Model()
PLAIN, INLINE = agent("plain"), agent("inline", inline=True)
for made in (PLAIN, INLINE):
    default_registry.replace(made)


# --- runs ---------------------------------------------------------------------------------------------------------


class Run:
    """Execute a run with `steps` tool steps, and return what each step did. At `cold` steps both functions are new
    processes. `bound`: two budgets apply to the run. With `words`, or a model that thinks, the run takes real time."""

    def __init__(
        self,
        who: Agent[Any, Any],
        steps: int,
        *,
        words: int = 0,
        thinks_s: float = 0.0,
        cold: Sequence[int] = (),
        bound: bool = False,
    ) -> None:
        MODEL.steps, MODEL.words, MODEL.thinks_s = steps, words, thinks_s
        with cloud(__name__, stretch=1 if words or thinks_s else 20) as self.cloud:
            if bound:
                self.cloud.caller(_bind, "budgets", 0)
            handle = self.cloud.caller(lambda executor: executor.execute(who, "go"), "claim", 0)
            self.cloud.watch(handle.session_id)
            restarted: set[tuple[str, int]] = set()

            def before(verb: str, event: Any) -> None:
                step = event["call"]["step"] if "call" in event else event.get("step", 0)
                if step in cold and (verb, step) not in restarted:
                    restarted.add((verb, step))
                    self.cloud.restart(verb)

            place = {"session_id": handle.session_id, "run_id": handle.run_id}
            self.execution = self.cloud.play(place, before=before)

    def calls(self, step: int, verbs: Iterable[str] = VERBS) -> list[Call]:
        return [call for call in self.cloud.wire.calls if call.where in [(verb, step) for verb in verbs]]

    def averages(self, steps: int) -> dict[str, float]:
        """The totals of all steps of the run. They include the transitions and invocations that end it."""
        first = {name: MEASURES[name](self, 1) for name in MEASURES if name not in ("transitions", "invocations")}
        starts = self.execution.states.count("CallModel")
        assert starts == 1, f"{starts} invocations took the steps"
        every = sum(1 for where, _ in self.cloud.invocations if where and where[0] in MACHINE)
        whole = {**first, "transitions": len(self.execution.states), "invocations": every}
        return {name: whole[name] / steps for name in MEASURES}

    def transitions(self, step: int) -> int:
        """The calls from the step's CallModel to the next."""
        starts = [place for place, state in enumerate(self.execution.states) if state == "CallModel"]
        return starts[step] - starts[step - 1]

    def invocations(self, step: int, *verbs: str) -> int:
        return sum(1 for where, _ in self.cloud.invocations if where in [(verb, step) for verb in verbs])

    def logged(self, step: int) -> int:
        sizes = [size for where, size in self.cloud.invocations if where in [(verb, step) for verb in VERBS]]
        return sum(sizes) + len(sizes) * prices.PLATFORM_LOG_BYTES

    def posts(self, step: int) -> list[int]:
        return [size for where, size in self.cloud.posts if where == ("project_stream", step)]


async def _bind(executor: Any) -> None:
    """Set budgets in both units, with ample room."""
    budgets = BudgetManager(executor.store)
    await budgets.set_budget(1_000_000_000, "total")
    await budgets.set_budget(10_000, "month", "plain", unit="usd")


def resumed(steps: int) -> tuple[list[Call], list[Call]]:
    """Interrupt a session after `steps` steps and end every process. Return the reads of the resuming caller, and those
    of the first `call_model`."""
    MODEL.steps, MODEL.words, MODEL.thinks_s = steps + 3, 0, 0.0
    with cloud(__name__) as made:
        handle = made.caller(lambda executor: executor.execute(PLAIN, "go"), "claim", 0)
        session = handle.session_id

        def before(verb: str, event: Any) -> None:
            if verb == "call_model" and event["step"] == steps + 1:
                made.caller(lambda executor: executor.interrupt(session), "interrupt", 0)

        made.play({"session_id": session, "run_id": handle.run_id}, before=before)
        for process in list(made.processes):
            made.restart(process)
        handle = made.caller(lambda executor: executor.resume(PLAIN, session), "resume", 0)
        before_it = len(made.wire.calls)
        made.play({"session_id": session, "run_id": handle.run_id, "step": steps + 1})
        later = [call for call in made.wire.calls[before_it:] if call.where == ("call_model", steps + 1)]
        claim = [call for call in made.wire.calls if call.where == ("resume", 0)]
    return [call for call in claim if call.reads], [call for call in later if call.reads]


# --- tables -------------------------------------------------------------------------------------------------------


def around(run: Run, step: int, measure: Callable[[int], float]) -> float:
    """Return the mean of the steps around this one, or the values of the first step alone."""
    steps = [step] if step == 1 else range(step - AROUND, step + AROUND + 1)
    return statistics.mean(measure(k) for k in steps)


Measure = Callable[[Run, int], float]
MEASURES: dict[str, Measure] = {
    "write calls": lambda run, k: sum(c.writes for c in run.calls(k, ENGINE)),
    "KB written": lambda run, k: sum(c.written("sessions") for c in run.calls(k, ENGINE)) / 1024,
    "read calls": lambda run, k: sum(c.reads for c in run.calls(k, ENGINE)),
    "KB read": lambda run, k: sum(c.read_bytes for c in run.calls(k, ENGINE)) / 1024,
    "transitions": lambda run, k: run.transitions(k),
    "invocations": lambda run, k: run.invocations(k, *ENGINE),
    "Kinesis puts": lambda run, k: sum(bool(c.data) for c in run.calls(k, ENGINE)),
    "KB put": lambda run, k: sum(c.data for c in run.calls(k, ENGINE)) / 1024,
    "log: writes": lambda run, k: sum(c.writes for c in run.calls(k, ["project_stream"])),
    "log: KB": lambda run, k: sum(c.written("streams") for c in run.calls(k, ["project_stream"])) / 1024,
    "log: reads": lambda run, k: sum(c.reads for c in run.calls(k, ["project_stream"])),
}


def counts(run: Run, steps: Sequence[int]) -> list[str]:
    lines = ["| step | " + " | ".join(MEASURES) + " |", "|---:" * (len(MEASURES) + 1) + "|"]
    for step in steps:
        found = [around(run, step, lambda k, m=measure: m(run, k)) for measure in MEASURES.values()]
        lines.append(line(str(step), found))
    return lines


def line(name: str, values: Iterable[float]) -> str:
    return f"| {name} | " + " | ".join(f"{value:.2f}".removesuffix(".00") for value in values) + " |"


def targets(plain: Run, inline: dict[str, float], price: float, cold: int) -> list[str]:
    """The limits of a step and its measured values. `inline` and `price` are those of a step with an inline tool."""

    def most(run: Run, name: str, steps: Sequence[int] = STEPS) -> float:
        return max(around(run, step, lambda k: MEASURES[name](run, k)) for step in steps)

    written = [around(plain, step, lambda k: MEASURES["KB written"](plain, k)) for step in STEPS]
    rows = [
        ("DynamoDB write calls a tool step", most(plain, "write calls"), 4.0),
        ("KB written to the sessions table", max(written), 3.0),
        (f"the same, step {STEPS[-1]} over step 10", written[-1] / written[1], 1.05),
        ("transitions", most(plain, "transitions"), 3.0),
        ("Lambda invocations", most(plain, "invocations"), 2.0),
        ("DynamoDB write calls a step, inline tool", inline["write calls"], 3.0),
        ("KB written, inline tool", inline["KB written"], 3.0),
        ("transitions, inline tool", inline["transitions"], 0.3),
        ("Lambda invocations, inline tool", inline["invocations"], 0.3),
        ("$ for 1,000 steps, inline tool, streaming included", price, 0.05),
        ("DynamoDB reads of a resumed 100-step session's first call_model", cold, 3.0),
    ]
    lines = ["| | measured | at most | |", "|---|---:|---:|---|"]
    for name, value, bound in rows:
        text = f"{value:.3f}" if bound < 1 else f"{value:.2f}"
        lines.append(f"| {name} | {text} | {bound:g} | {'met' if value <= bound else 'MISSED'} |")
    return lines


def listing(calls: Iterable[Call]) -> list[str]:
    """List each DynamoDB call of these records."""
    lines = ["| function | call | rows | KB | units |", "|---|---|---|---:|---:|"]
    for call in calls:
        if call.reads or call.writes:
            about = call.about or ", ".join(f"{short(sort)} ({size} B)" for _, sort, size in call.rows)
            size = call.read_bytes if call.reads else sum(size for _, _, size in call.rows)
            units = call.read_units or call.write_units
            lines.append(
                f"| {call.where[0] if call.where else ''} | {call.verb} | {short(about)} | {size / 1024:.2f} | {units} |"
            )
    return lines


def short(text: str) -> str:
    """Shorten ids to the part that makes them unique."""
    return " ".join(word[:11] + "..." if word.startswith(("r#run_", "x#run_")) else word for word in text.split(" "))


def dollars(run: Run, steps: Sequence[int], inline: int = 0) -> dict[str, float]:
    """Return the price of 1,000 steps, by AWS charge. `inline`: the number of steps that one invocation executed, all
    but the last with an inline tool. The price then includes the transitions and invocations that end the run."""
    taken = [1] if inline else steps
    calls = [call for step in taken for call in run.calls(step) if not call.looks_for_a_stop]
    own = [call for call in calls if call.where[0] in ENGINE]
    log = [call for call in calls if call.where[0] == "project_stream"]
    models, tools, projections = (sum(run.invocations(step, verb) for step in taken) for verb in VERBS)
    posted = [size for step in taken for size in run.posts(step)]
    asked, ends = inline or models, 1 if inline else 0
    in_model_s = asked * (MODEL_S + OWN_S) + max(0, inline - 1) * TOOL_S
    # 1 GB for call_model, and half of that for the others.
    waiting_gb_s = in_model_s + tools * (TOOL_S + OWN_S) / 2 + ends * OWN_S / 2
    looks = 2 * (in_model_s + tools * TOOL_S)
    transitions = len(run.execution.states) if inline else sum(run.transitions(step) for step in steps)
    told = {
        "DynamoDB": units(own) + looks * prices.DYNAMODB_READ_UNIT,
        "Step Functions": transitions * prices.TRANSITION,
        "Lambda, requests": (models + tools + ends) * prices.LAMBDA_REQUEST,
        f"Lambda, time (model {MODEL_S:g} s, tool {TOOL_S:g} s)": waiting_gb_s * prices.LAMBDA_GB_S,
        "CloudWatch Logs": sum(run.logged(step) for step in taken) * prices.LOG_BYTE,
        "Streaming: Kinesis puts": sum(math.ceil(c.data / prices.PUT_UNIT_BYTES) for c in own)
        * prices.KINESIS_PUT_UNIT,
        "Streaming: project_stream": projections * (prices.LAMBDA_REQUEST + OWN_S / 2 * prices.LAMBDA_GB_S),
        "Streaming: DynamoDB": units(log),
        "Streaming: messages to one client": sum(math.ceil(size / prices.MESSAGE_BYTES) for size in posted)
        * prices.SOCKET_MESSAGE,
    }
    return {name: 1000 * value / (inline or len(steps)) for name, value in told.items()}


def units(calls: Iterable[Call]) -> float:
    return sum(c.write_units * prices.DYNAMODB_WRITE_UNIT + c.read_units * prices.DYNAMODB_READ_UNIT for c in calls)


def price_table(columns: dict[str, dict[str, float]]) -> list[str]:
    lines = ["| per 1,000 steps | " + " | ".join(columns) + " |", "|---|" + "---:|" * len(columns)]
    for name in next(iter(columns.values())):
        lines.append(f"| {name} | " + " | ".join(f"${column[name]:.4f}" for column in columns.values()) + " |")
    totals = [sum(column.values()) for column in columns.values()]
    return [*lines, "| **all of it** | " + " | ".join(f"**${total:.3f}**" for total in totals) + " |"]


THREE = 2 + 3 + 3 * 3
"""Return the table's lines: the heading, the reads of a new process, three steps."""

NOTES = """\
Written items are counted as DynamoDB counts them, without items that a transaction only checks. The result is random
text, which packing hardly shortens. `log` has the requests of `project_stream` if every Kinesis record is a separate
invocation. This is the maximum cost of streaming, because under load one invocation takes many records. Checks for a
stop (one small read each half second of waiting) are in the prices, not in the reads. The run with an inline tool has
nine steps with the tool and one answer, all in one invocation. Its averages include the transitions and invocations
that end it."""

PRICED = f"""\
{prices.REGION}, on demand, first tier, as published in {prices.DATE} (`helix.core.aws_prices`). It excludes the model,
storage, KMS, connection minutes, a Kinesis shard (${prices.KINESIS_SHARD_HOUR:g} an hour), a run's claim and the rows of
its end. The inline tool's time is charged at the memory of `call_model`."""


def main() -> None:
    plain = Run(PLAIN, STEPS[-1] + 8, cold=COLD)
    inline = Run(INLINE, SHORT - 1, thinks_s=THINKS_S)
    talking = Run(PLAIN, 8, words=WORDS)
    claim, resume = resumed(100)
    middle = range(30, 61)
    columns = {
        "a tool": dollars(plain, middle),
        "an inline tool": dollars(inline, [], inline=SHORT),
        f"a tool, and {WORDS} words before": dollars(talking, range(3, 8)),
    }
    lines = ["# Cost of a tool step with a 1 KB result on AWS", ""]
    lines += [f"Python {platform.python_version()}, moto; `python bench/aws_calls.py`.", ""]
    averages = inline.averages(SHORT)
    lines += [*targets(plain, averages, sum(columns["an inline tool"].values()), len(resume)), "", NOTES]
    lines += ["", "## Measurements by step", "", *counts(plain, STEPS)]
    lines += ["", f"## A run of {SHORT} steps with an inline tool, by step on average", "", *counts(inline, [])]
    lines += [line("all", averages.values())]
    lines += ["", "## One step, call by call", "", *listing(plain.calls(50, ENGINE))]
    lines += ["", "## Three steps with an inline tool, call by call", "", *listing(inline.calls(1, ENGINE))[:THREE]]
    lines += [
        "",
        "## Reads of `call_model`, in a new process, for a resumed session of 100 steps",
        "",
        *listing(resume),
    ]
    lines += ["", f"Its caller, also a new process, made {len(claim)} reads to claim the run."]
    for step in COLD:
        models, tools = (sum(c.reads for c in run) for run in (plain.calls(step, [verb]) for verb in ENGINE))
        lines.append(f"At step {step}, new processes: {models} reads of call_model, {tools} of call_tool.")
    from aws_short import SHORT_NOTES, short_table  # which imports this module

    lines += ["", "## A short run", "", SHORT_NOTES, "", *short_table()]
    lines += ["", "## List price", "", *price_table(columns), "", PRICED]
    lines += ["", "## Waiting for models, and at rest", "", *waiting_table(OWN_S), "", *idle_table()]
    lines += ["", "At rest: `helix cost --stage STAGE --idle` lists it for a deployed stage."]
    table = "\n".join(lines) + "\n"
    print(table)
    if not QUICK:
        (Path(__file__).parent / "results" / "aws_calls.md").write_text(table)


if __name__ == "__main__":
    main()
