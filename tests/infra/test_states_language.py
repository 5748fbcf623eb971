"""Every definition of a synthesis satisfies AWS's published schemas and the service's limits.

Three tools check it: AWS's language service for Amazon States Language, the schema of cfn-lint, and moto's grammar.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import botocore.session
import pytest
from moto.stepfunctions.parser.asl.parse.asl_parser import AmazonStateLanguageParser, ASLParserException
from tests.infra.conftest import DEPLOYED, OFFLINE, PRODUCTION, Synth
from tests.infra.templates import Assembly
from tests.support.front_ends import JS, install

from helix.adapters.system import SystemIds
from helix.infra.config import Settings
from helix.infra.definition import definition
from helix.ports.launcher import Part, execution_name

pytestmark = pytest.mark.timeout(400)  # the first test waits for the synthesis
MODES = {
    "deployed": DEPLOYED,
    "production": PRODUCTION,
    "offline": OFFLINE,
    "direct": {"streaming": "direct"},
    "both": {"streaming": "both", "retain": "true"},
    "sam, shortest": {"endpoint": "http://127.0.0.1:4999", "run_days": "1", "child_hours": "1"},
    "longest": {"run_days": "365", "child_hours": "8760"},
    "many": {"agents": "hundred_agents", "provision_agents": "true"},
}
QUICK = ("deployed", "production", "offline")
MACHINE = "AWS::StepFunctions::StateMachine"
API = botocore.session.get_session().get_service_model("stepfunctions")
YEAR_S = 366 * 24 * 3600
Asl = dict[str, Any]


def limit(shape: str) -> int:
    """Return the maximum length of a value, from the service's API model."""
    found: int = API.shape_for(shape).metadata["max"]
    return found


def machines(assembly: Assembly) -> Iterator[tuple[str, Asl, str]]:
    """Yield the name, the definition, and the text that CloudFormation sends, with ARNs of maximum length."""
    for template in assembly.templates:
        for machine in template.of("StepFunctions::StateMachine").values():
            text: str = machine["DefinitionString"]
            for name in machine["DefinitionSubstitutions"]:
                text = text.replace(f"${{{name}}}", "aws" if name == "Partition" else "a" * limit("Arn"))
            assert "${" not in text, "each placeholder is filled in"
            yield machine["StateMachineName"], json.loads(machine["DefinitionString"]), text


def states(machine: Asl) -> Iterator[tuple[str, Asl]]:
    for name, state in machine["States"].items():
        yield name, state
        if "ItemProcessor" in state:
            yield from states(state["ItemProcessor"])


def language_service(texts: list[str]) -> list[list[str]]:
    """Return the problems that AWS's language service finds in each."""
    install()
    command: list[str | Path] = [JS / "node_modules" / ".bin" / "node", "states_language.mjs"]
    done = subprocess.run(command, cwd=JS, input=json.dumps(texts), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found: list[list[str]] = json.loads(done.stdout)
    return found


def linter(text: str) -> list[str]:
    from cfnlint.api import ManualArgs, lint  # this takes a second, which each collection of the tests would wait for

    properties = {"RoleArn": "arn:aws:iam::123456789012:role/helix", "DefinitionString": text}
    template = {"Resources": {"Machine": {"Type": MACHINE, "Properties": properties}}}
    return [str(match.message) for match in lint(json.dumps(template), config=ManualArgs(regions=["us-east-1"]))]


def grammar(text: str) -> list[str]:
    try:
        AmazonStateLanguageParser.parse(text)
    except (ASLParserException, ValueError) as error:
        return [repr(error)]
    return []


def beyond(name: str, machine: Asl, text: str) -> set[str]:
    """Return the limits that a machine exceeds.

    https://docs.aws.amazon.com/step-functions/latest/dg/service-quotas.html, and the API model for sizes. For retries:
    https://docs.aws.amazon.com/step-functions/latest/dg/concepts-error-handling.html. AWS's language service checks the
    largest numbers of attempts and seconds.
    """
    found = set[str]()
    if len(name) > limit("Name") or not name.isascii() or set(name) & set(' ?*<>{}[]"#%\\^|~`$&,;:/'):
        found.add("name")
    if len(text.encode()) > limit("Definition"):
        found.add("size")
    if machine["TimeoutSeconds"] > YEAR_S:
        found.add("year")
    for word, state in states(machine):
        if len(word) > limit("StateName"):
            found.add("state name")
        if state.get("TimeoutSeconds", 0) > machine["TimeoutSeconds"]:
            found.add("task longer than execution")
        if len(state.get("Error", "")) > limit("SensitiveError") or len(state.get("Cause", "")) > limit(
            "SensitiveCause"
        ):
            found.add("cause")
        for rule in state.get("Retry", []):
            if not 0 < rule["IntervalSeconds"] < rule["MaxDelaySeconds"] < YEAR_S or rule["BackoffRate"] < 1:
                found.add("delay")
        for rules in (state.get("Retry", []), state.get("Catch", [])):
            wild = [n for n, rule in enumerate(rules) if "States.ALL" in rule["ErrorEquals"]]
            if wild and (wild != [len(rules) - 1] or rules[-1]["ErrorEquals"] != ["States.ALL"]):
                found.add("States.ALL is alone and last")
    return found


@pytest.mark.parametrize(
    "mode", [pytest.param(mode, marks=() if mode in QUICK else pytest.mark.slow) for mode in MODES]
)
def test_every_definition_passes_the_linter_and_the_limits(mode: str, synth: Synth) -> None:
    made = list(machines(synth(MODES[mode])))
    assert made
    for name, machine, text in made:
        assert beyond(name, machine, text) == set(), name
    for text in {text for _, _, text in made}:
        assert linter(text) + grammar(text) == []


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_every_definition_passes_the_language_service(synth: Synth) -> None:
    texts = sorted({text for mode in MODES.values() for _, _, text in machines(synth(mode))})
    assert len(texts) >= 3, "of the shortest, the usual and the longest runs"
    assert language_service(texts) == [[] for _ in texts]


def test_the_modes_reach_the_bounds_of_what_a_definition_depends_on() -> None:
    """A new bound needs a new mode."""
    for setting in ("run_days", "child_hours"):
        least, most = Settings.model_fields[setting].metadata
        assert (str(least.ge), str(most.le)) == (MODES["sam, shortest"][setting], MODES["longest"][setting])


BROKEN: dict[str, Callable[[Asl], Any]] = {
    "no such start": lambda m: m.update(StartAt="Nowhere"),
    "no such next": lambda m: m["States"]["CallTool"].update(Next="Nowhere"),
    "no such next of an item": lambda m: m["States"]["Calls"]["ItemProcessor"]["States"]["Kind"]["Choices"][0].update(
        Next="Nowhere"
    ),
    "unknown field": lambda m: m["States"]["CallModel"]["Retry"][0].update(MaxDelay=7),
    "unknown jitter": lambda m: m["States"]["CallModel"]["Retry"][0].update(JitterStrategy="HALF"),
    "too many attempts": lambda m: m["States"]["CallModel"]["Retry"][0].update(MaxAttempts=100_000_000),
    "too long a pause": lambda m: m["States"]["CallModel"]["Retry"][0].update(MaxDelaySeconds=31_622_401),
    "too long a task": lambda m: m["States"]["CallModel"].update(TimeoutSeconds=100_000_000),
    "no path": lambda m: m["States"]["CallModel"]["Parameters"]["Payload"].update({"step.$": "step"}),
    "unreached": lambda m: m["States"].update(Lost={"Type": "Succeed"}),
}


@pytest.mark.slow
def test_the_language_service_sees_what_is_wrong() -> None:
    texts = []
    for break_it in BROKEN.values():
        machine = definition(run_s=86_400, child_s=3600)
        break_it(machine)
        texts.append(json.dumps(machine))
    assert [name for name, found in zip(BROKEN, language_service(texts), strict=True) if not found] == []


@pytest.mark.parametrize("name", ["no such start", "too long a task"])
def test_the_linter_sees_what_is_wrong(name: str) -> None:
    machine = definition(run_s=86_400, child_s=3600)
    BROKEN[name](machine)
    assert linter(json.dumps(machine))


@pytest.mark.parametrize(
    "broken", [{"Resource": None}, {"Retry": [{"IntervalSeconds": 1}]}, {"Next": 7}, {"Nxt": "Route"}]
)
def test_the_grammar_sees_what_is_wrong(broken: Any) -> None:
    machine = definition(run_s=86_400, child_s=3600)
    machine["States"]["CallModel"] |= broken
    assert grammar(json.dumps(machine))


@pytest.mark.parametrize(
    ("problem", "break_it"),
    [
        ("year", lambda m: m.update(TimeoutSeconds=YEAR_S + 1)),
        ("state name", lambda m: m["States"].update({"S" * 81: {"Type": "Succeed"}})),
        ("task longer than execution", lambda m: m["States"]["StartRun"].update(TimeoutSeconds=86_401)),
        ("cause", lambda m: m["States"]["Failed"].update(Cause="c" * 32_769)),
        ("delay", lambda m: m["States"]["CallModel"]["Retry"][0].update(MaxDelaySeconds=1)),
        ("delay", lambda m: m["States"]["CallModel"]["Retry"][0].update(BackoffRate=0.5)),
        ("States.ALL is alone and last", lambda m: m["States"]["CallModel"]["Catch"].append({"ErrorEquals": ["E"]})),
        ("States.ALL is alone and last", lambda m: m["States"]["CallModel"]["Catch"][0]["ErrorEquals"].append("E")),
    ],
)
def test_a_limit_that_is_not_kept_is_seen(problem: str, break_it: Callable[[Asl], Any]) -> None:
    machine = definition(run_s=86_400, child_s=3600)
    assert beyond("helix-dev-default", machine, "") == set()
    break_it(machine)
    assert beyond("helix-dev-default", machine, "") == {problem}


def test_names_and_sizes_have_limits() -> None:
    machine = definition(run_s=86_400, child_s=3600)
    assert beyond("n" * 81, machine, "") == beyond("a name", machine, "") == {"name"}
    assert beyond("name", machine, "x" * 2**20) == set()
    assert beyond("name", machine, "x" * (2**20 + 1)) == {"size"}


def test_the_name_of_an_execution_is_short_enough() -> None:
    part = Part("default", "ses_1", SystemIds().new("run"), 99_999, 1)
    assert len(execution_name(part)) <= limit("Name")
