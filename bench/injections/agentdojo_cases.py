"""The suites of the package `agentdojo` as cases. Utility and security are judged by the package's own functions."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from typing import Any

import yaml
from agentdojo.agent_pipeline.ground_truth_pipeline import GroundTruthPipeline
from agentdojo.attacks.important_instructions_attacks import ImportantInstructionsAttackNoNames
from agentdojo.functions_runtime import FunctionCall, FunctionsRuntime
from agentdojo.task_suite.load_suites import get_suites
from pydantic_core import to_jsonable_python

from injections.cases import App, AppTool, Call, Injection, Task, World
from injections.settings import CHANGING, GUARDS
from injections.unscripted import UNSCRIPTED

BENCHMARK = "v1.2.2"
"""The version of the benchmark's tasks in the package. It has 949 pairs."""


yaml.safe_load = partial(
    yaml.load, Loader=yaml.CSafeLoader
)  # the package reads 1,046 environments, each in half a second


@cache
def suites() -> dict[str, Any]:
    return dict(get_suites(BENCHMARK))


def tasks() -> Iterator[tuple[str, str]]:
    """Yield each pair of a suite and a user's task."""
    for name, suite in suites().items():
        for task in suite.user_tasks:
            yield name, task


def app_of(name: str) -> App:
    suite = suites()[name]
    runtime = FunctionsRuntime(suite.tools)
    return App(name, [_tool(runtime, one) for one in suite.tools], CHANGING[name], GUARDS[name])


def _tool(runtime: Any, function: Any) -> AppTool:
    def run(environment: Any, arguments: dict[str, Any]) -> Any:
        result, _ = runtime.run_function(environment, function.name, arguments, raise_on_error=True)
        return to_jsonable_python(result)

    return AppTool(function.name, function.description, function.parameters, run)


def cases_of(name: str, task_id: str) -> Iterator[tuple[Task, Injection | None, Callable[[], Any]]]:
    """Yield the user's task without an injection, and then with each injection of the suite. The third value makes the
    environment."""
    suite = suites()[name]
    found = suite.user_tasks[task_id]
    for injection in (None, *suite.injection_tasks.values()):
        injected = {} if injection is None else _attack(name).attack(found, injection)
        environment = found.init_environment(suite.load_and_inject_default_environment(injected))
        made = None if injection is None else _injection(name, injection)
        yield _task(found, environment), made, partial(pickle.loads, pickle.dumps(environment))


@cache
def _attack(name: str) -> Any:
    """Return the attack that writes the injections. It puts the goal into each text that an attacker controls and that
    the user's task reads. The name of the model does not matter, because the attack leaves it out."""
    pipeline = GroundTruthPipeline(None)
    pipeline.name = "gpt-4o-2024-05-13"
    return ImportantInstructionsAttackNoNames(suites()[name], pipeline)


def _task(found: Any, environment: Any) -> Task:
    def passed(answer: str, world: World) -> bool:
        before, after = world.before, world.environment
        traced = found.utility_from_traces(answer, before, after, _traces(world))
        return bool(found.utility(answer, before, after) if traced is None else traced)

    calls = _calls(found.ground_truth(copy.deepcopy(environment)))
    return Task(found.ID, found.PROMPT, calls, found.GROUND_TRUTH_OUTPUT, passed)


def _injection(name: str, found: Any) -> Injection:
    def calls(world: World) -> Sequence[Call]:
        own = UNSCRIPTED.get((name, found.ID))
        if own is not None:
            return own(copy.deepcopy(world.environment))
        return _calls(found.ground_truth(copy.deepcopy(world.environment)))

    def succeeded(answer: str, world: World) -> bool:
        before, after = world.before, world.environment
        traced = found.security_from_traces(answer, before, after, _traces(world))
        return bool(found.security(answer, before, after) if traced is None else traced)

    return Injection(found.ID, found.GOAL, calls, found.GROUND_TRUTH_OUTPUT, succeeded)


def _calls(found: Sequence[Any]) -> list[Call]:
    return [Call(call.function, to_jsonable_python(dict(call.args))) for call in found]


def _traces(world: World) -> list[Any]:
    return [FunctionCall(function=call.name, args=call.arguments) for call in world.executed.values()]
