"""Functions need exactly the rights that they have. The operations recorded on deployed stages are compared with the
templates.

`tests/fixtures/operations.json` has the operations by verb, and `tests/support/operations.py` describes how they are
recorded. An operation without a right fails here, and at the end of each deployed stage. A right that no function was seen
to use has a probe, or a documented reason.
"""

from __future__ import annotations

import json
import re

import pytest
from tests.e2e import iam_probes, iam_probes_direct, iam_probes_fleet, iam_probes_sockets, iam_probes_triggers
from tests.e2e.iam_bench import PROBES
from tests.e2e.iam_roles import EVERYTHING, UNSEEN, Right, is_unseen
from tests.infra.conftest import Synth
from tests.infra.templates import Assembly, Template, listed, text
from tests.infra.test_roles import named
from tests.infra.test_triggers import THEIRS, TRIGGERS
from tests.support.operations import known, pairs
from tests.support.rights import SECRET

from helix.infra.verbs import SIZES, TRIGGER_SIZES

pytestmark = pytest.mark.timeout(400)  # the first test waits for the synthesis

PROBED = (iam_probes, iam_probes_fleet, iam_probes_sockets, iam_probes_triggers)
"""The modules that fill `PROBES`."""
NAMES = {
    "bucket/overflow/*": "objects",
    "bucket/blobs/*": "files",
    "bucket/failed/*": "failed",
    "bucket/aws/lambda/*": "given up",
    "consumer": "chunks",
}
"""Names of resources that differ between the templates and the stages."""


OUTSIDE = ("bedrock", SECRET, "arn:<AWS::Partition>:s3:::scans")
"""Resources without a record: models and their keys, because the model of the scenes is a program, and the bucket of a
trigger that attaches objects, which tests/e2e/test_triggers.py plays on a stage of its own."""


@pytest.fixture(scope="module")
def held(deployed: Assembly, synth: Synth) -> set[Right]:
    triggered = synth({"triggers": json.dumps(TRIGGERS)}).main
    places = [(deployed.main, verb) for verb in SIZES] + [(triggered, verb) for verb in TRIGGER_SIZES]
    found = {right for template, verb in places for right in rights_of(template, verb)}
    return {right for right in found if not right.what.startswith(OUTSIDE)}


def rights_of(template: Template, verb: str) -> set[Right]:
    statements = template.statements(template.role_of(template.function(verb)))
    return {
        Right(verb, _what(template, text(resource), action), action)
        for statement in statements
        for resource in listed(statement["Resource"])
        for action in listed(statement["Action"])
    }


def _what(template: Template, arn: str, action: str) -> str:
    if arn == "*":
        return EVERYTHING[action.partition(":")[0]]
    if arn.endswith(".StreamArn>"):
        return "changes"
    queues = {id_: str(p["QueueName"]) for id_, p in template.of("SQS::Queue").items()}
    for id_, name in queues.items():
        if arn == f"<{id_}.Arn>":
            return {"undelivered": "undelivered", "trigger-failures": "failures"}.get(name.split("-", 2)[-1], "queues")
    found = "queues" if arn == THEIRS else named(template, arn)
    return NAMES.get(found, found)


@pytest.fixture(scope="module")
def held_without_kinesis(synth: Synth) -> set[Right]:
    template = synth({"streaming": "direct"}).main
    return {right for verb in SIZES for right in rights_of(template, verb)}


def recorded(streaming: str = "kinesis") -> set[Right]:
    return {Right(verb, what, action) for verb, what, action in pairs(known(streaming))}


def test_what_functions_do_they_may_do(held: set[Right]) -> None:
    missing = sorted(map(str, recorded() - held))
    assert not missing, f"grant these in infra/functions.py: {missing}"


def test_what_functions_may_do_they_do(held: set[Right]) -> None:
    probed = {Right(probe.verb, what, action) for probe in PROBES.values() for what, action in probe.rights}
    unused = sorted(str(right) for right in held - recorded() - probed if not is_unseen(right))
    assert PROBED and UNSEEN
    assert not unused, f"no function was seen to use these; add a probe or a reason, or take them away: {unused}"


ALIKE = ("sessions", "control", "streams", "objects", "files", "machines", "tokens")
"""The resources on which all functions except `project_stream` perform the same operations with any streaming."""


def test_what_functions_do_without_kinesis_they_may_do(held_without_kinesis: set[Right]) -> None:
    same = {r for r in recorded() if r.function in SIZES and r.function != "project_stream" and r.what in ALIKE}
    # The stages give agents provisioned concurrency, which this template does not have.
    found = {right for right in recorded("direct") if right.what != "aliases"}
    missing = sorted(map(str, (found | same) - held_without_kinesis))
    assert found and not missing, f"grant these in infra/functions.py or streaming.py: {missing}"


def test_what_functions_may_do_without_kinesis_they_do(held: set[Right], held_without_kinesis: set[Right]) -> None:
    """This covers all operations of `project_stream`, and the operations that other functions have only without Kinesis.
    tests/e2e/test_direct.py plays the probes."""
    probed = {Right(p.verb, what, action) for p in iam_probes_direct.DIRECT for what, action in p.rights}
    own = {right for right in held_without_kinesis if right not in held or right.function == "project_stream"}
    seen = probed | recorded("direct")
    unused = sorted(str(r) for r in own - seen if not is_unseen(r) and not iam_probes_direct.is_unseen(r))
    assert not unused, f"no function was seen to use these; add a probe or a reason, or take them away: {unused}"
    for pattern in iam_probes_direct.UNSEEN:
        assert any(re.fullmatch(pattern, str(right)) for right in own), f"nobody holds {pattern!r}"


def test_the_recorded_operations_have_every_verb() -> None:
    assert set(known()) <= {*SIZES, *TRIGGER_SIZES}
    assert set(SIZES) <= set(known()), "the scenes on deployed stages reach every function"
