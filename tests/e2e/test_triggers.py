"""Each kind of trigger, deployed offline: an event starts a run, and its second delivery starts none."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.e2e.cloud_executor import AdminApplication
from tests.support.cloud_agents.plans import call, plan, say, use
from tests.support.offline_cloud import CloudForTests, deployed, until

from helix.core.messages import UserMessage

pytestmark = pytest.mark.timeout(300)

BUCKET = "incoming-files"
ECHO = json.dumps([{"say": "{word}"}]).replace("{", "{{").replace("}", "}}").replace("{{word}}", "{word}")
TRIGGERS: dict[str, Any] = {
    "nightly": {"agent": "talker", "schedule": "cron(0 2 * * ? *)", "session": "nightly", "user": "ops"},
    "morning": {"agent": "talker", "schedule": "cron(0 8 * * ? *)", "timezone": "Asia/Tokyo", "prompt": "{time}"},
    "orders": {"agent": "talker", "queue": True, "prompt": ECHO, "session": "order-{id}"},
    "uploads": {
        "agent": "talker",
        "bucket": BUCKET,
        "prefix": "in/",
        "suffix": ".txt",
        "prompt": "{detail.object.key}",
    },
    "letters": {"agent": "talker", "bucket": BUCKET, "prefix": "letters/", "prompt": "Look.", "attach": True},
    "paid": {"agent": "talker", "event": {"source": ["my.shop"], "detail": {"paid": [True]}}, "prompt": "{detail.who}"},
    "jobs": {"event": {"source": ["my.jobs"]}, "calls": True},
    "api": {"http": True, "agent": "talker"},
}


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CloudForTests]:
    with deployed(tmp_path_factory.mktemp("triggers"), context={"triggers": json.dumps(TRIGGERS)}) as made:
        yield made


def sent(stage: CloudForTests, queue: str, *bodies: Any) -> None:
    client = stage.aws("sqs")
    url = client.get_queue_url(QueueName=f"helix-test-{queue}")["QueueUrl"]
    for body in bodies:
        client.send_message(QueueUrl=url, MessageBody=body if isinstance(body, str) else json.dumps(body))


def started(stage: CloudForTests, trigger: str) -> list[dict[str, Any]]:
    """Return the log entries of the trigger's messages that started a run."""
    lines = [json.loads(line) for line in stage.log.of("start_triggered") if line.startswith("{")]
    return [line for line in lines if line.get("message") == f"trigger {trigger} started a run"]


def runs(stage: CloudForTests, trigger: str, deliveries: int) -> dict[str, str]:
    """Wait until that many deliveries have started a run and the runs have ended. Return the sessions by run."""
    until(lambda: len(started(stage, trigger)) >= deliveries, f"{deliveries} deliveries of {trigger}")
    found = {line["run_id"]: line["session_id"] for line in started(stage, trigger)}
    for run, session in found.items():
        until(partial(done, stage, session, run), f"end of {run}")
    return found


def done(stage: CloudForTests, session: str, run: str) -> bool:
    return any(run in e["input"] for e in stage.executions(session, status="SUCCEEDED"))


def test_a_schedule_runs_its_agent_once_a_tick(stage: CloudForTests) -> None:
    stage.cloud.tick()
    (found,) = runs(stage, "nightly", 1).values()
    assert found == "ops:nightly"
    tick = {"detail-type": "Scheduled Event", "source": "aws.events", "id": "x", "time": "2026-01-01T02:00:17Z"}
    sent(stage, "triggers", *({"trigger": "nightly", "event": {**tick, "id": ident}} for ident in "ab"))
    assert len(runs(stage, "nightly", 3)) == 2, "the same minute is the same tick"


def test_a_schedule_with_a_time_zone_runs_its_agent_too(stage: CloudForTests) -> None:
    stage.cloud.tick()
    assert runs(stage, "morning", 1)
    asked = stage.aws("scheduler").get_schedule(Name="helix-test-trigger-morning")
    assert asked["ScheduleExpressionTimezone"] == "Asia/Tokyo"


def test_a_bad_message_goes_aside_and_the_others_go_on(stage: CloudForTests) -> None:
    sent(stage, "trigger-orders", {"id": "1", "word": "kettle"}, {"id": "2"}, "no JSON", {"id": "3", "word": "cup"})
    assert sorted(runs(stage, "orders", 2).values()) == ["order-1", "order-3"]
    assert taken(stage, "no JSON")["error"]["StringValue"] == "invalid_input"
    assert "no field 'word'" in taken(stage, json.dumps({"id": "2"}))["reason"]["StringValue"]


LETTERS: dict[str, Any] = {}
"""The attributes of the messages that were taken from the dead-letter queue, by body."""


def taken(stage: CloudForTests, body: str) -> Any:
    """Wait for a message in the dead-letter queue, and return its attributes."""
    client, url = stage.aws("sqs"), stage.cloud.outputs["TriggerFailuresUrl"]

    def look() -> bool:
        got = client.receive_message(QueueUrl=url, MaxNumberOfMessages=10, MessageAttributeNames=["All"])
        LETTERS.update({m["Body"]: m["MessageAttributes"] for m in got.get("Messages", [])})
        return body in LETTERS

    until(look, f"the dead letter {body}")
    return LETTERS[body]


def test_an_object_and_an_event_run_their_agents(stage: CloudForTests) -> None:
    storage = stage.aws("s3")
    storage.create_bucket(Bucket=BUCKET)
    storage.put_bucket_notification_configuration(
        Bucket=BUCKET, NotificationConfiguration={"EventBridgeConfiguration": {}}
    )
    for key in ("in/a.txt", "in/b.pdf", "out/c.txt", "letters/d.txt"):
        storage.put_object(Bucket=BUCKET, Key=key, Body=b"text")
    entry = {"Source": "my.shop", "DetailType": "order"}
    details = ({"paid": True, "who": "ada"}, {"paid": False, "who": "bob"})
    stage.aws("events").put_events(Entries=[{**entry, "Detail": json.dumps(detail)} for detail in details])
    assert len(runs(stage, "uploads", 1)) == len(runs(stage, "paid", 1)) == 1
    (session,) = runs(stage, "letters", 1).values()
    with closing(AdminApplication(stage)) as app:
        (message, *_) = app.run(app.executor.sessions.get_messages(session)).messages
        assert isinstance(message, UserMessage) and [file.name for file in message.files] == ["d.txt"]
        assert app.run(app.executor.read_file(session, message.files[0])) == b"text"


def test_a_deleted_object_goes_aside_although_its_role_may_not_read_it(stage: CloudForTests) -> None:
    """On AWS, S3 answers a role that may not list the whole bucket that access is denied. The emulator does not, so the
    role is denied the object."""
    storage, iam = stage.aws("s3"), stage.aws("iam")
    with suppress(storage.exceptions.BucketAlreadyOwnedByYou):
        storage.create_bucket(Bucket=BUCKET)
    storage.put_object(Bucket=BUCKET, Key="letters/there.txt", Body=b"text")
    function = stage.aws("lambda").get_function_configuration(FunctionName=stage.cloud.function("start_triggered"))
    place = {"RoleName": function["Role"].rsplit("/", 1)[1], "PolicyName": "deny"}
    denied = {"Effect": "Deny", "Action": "s3:GetObject", "Resource": f"arn:aws:s3:::{BUCKET}/*"}
    iam.put_role_policy(**place, PolicyDocument=json.dumps({"Version": "2012-10-17", "Statement": [denied]}))
    bodies = [json.dumps({"trigger": "letters", "event": created(f"letters/{name}.txt")}) for name in ("gone", "there")]
    sent(stage, "triggers", *bodies)
    letter = taken(stage, bodies[0])
    assert letter["error"]["StringValue"] == "file_missing" and "'gone.txt'" in letter["reason"]["StringValue"]
    until(lambda: any("yet: access_denied" in line for line in stage.log.of("start_triggered")), "denial")
    iam.delete_role_policy(**place)


def created(key: str) -> dict[str, Any]:
    detail = {"bucket": {"name": BUCKET}, "object": {"key": key, "sequencer": "0F"}}
    return {"detail-type": "Object Created", "source": "aws.s3", "id": "1", "detail": detail}


@pytest.mark.parametrize("door", ["http", "event"])
def test_another_system_ends_a_call(stage: CloudForTests, door: str, tmp_path: Path) -> None:
    url, place = stage.cloud.http_url, tmp_path / "token"
    assert url and stage.cloud.outputs["CallsUrl"] == f"{url}/calls"
    ada = {"Authorization": f"Bearer {stage.key('ada')}"}
    with httpx.Client(base_url=url, trust_env=False, timeout=40) as client:
        steps = plan(use(call("ship", place=str(place))), say("Shipped."))
        begun = client.post("/run?wait=25", json={"message": steps}, headers=ada)
        assert begun.json()["status"] == "paused", begun.text
        token = place.read_text("utf-8")
        assert client.post(f"/calls/{token[:-1]}", json=1).status_code == 403
        assert client.post(f"/calls/{token}/heartbeat").json()["expires_at"] > 0
        if door == "http":
            assert client.post(f"/calls/{token}", json={"parcel": 7}).status_code == 200
        else:
            detail = json.dumps({"token": token, "data": {"parcel": 7}})
            entry = {"Source": "my.jobs", "DetailType": "ended", "Detail": detail}
            stage.aws("events").put_events(Entries=[entry])
        session = f"/sessions/{begun.json()['session_id']}"
        until(lambda: client.get(session, headers=ada).json()["run"]["status"] == "completed", "the run's end")
        assert client.post(f"/calls/{token}", json={"parcel": 7}).status_code == 200
        assert client.post(f"/calls/{token}", json={"parcel": 8}).status_code == 409


def test_http_starts_answers_and_pages(stage: CloudForTests) -> None:
    url = stage.cloud.http_url
    assert url
    ada, bob = ({"Authorization": f"Bearer {stage.key(name)}"} for name in ("ada", "bob"))
    body = {"message": plan(say("Hello over HTTP."))}
    with httpx.Client(base_url=url, trust_env=False, timeout=40) as client:
        assert client.post("/run", json=body).status_code == 401
        once = {**ada, "Idempotency-Key": "k1"}
        first = client.post("/run", json=body, headers=once)
        answered = client.post("/run?wait=25", json=body, headers=once)
        assert first.status_code == 202, first.text
        assert answered.status_code == 200, answered.text
        found = answered.json()
        assert found["run_id"] == first.json()["run_id"] and "Hello over HTTP." in found["text"]
        place = f"/sessions/{found['session_id']}"
        looked = client.get(place, headers=ada, params={"messages": 10}).json()
        assert looked["session"]["status"] == looked["run"]["status"] == "completed" and looked["messages"]
        page = client.get(f"{place}/stream", headers=ada).json()
        assert page["status"] == "completed" and page["next"] == page["messages"][-1]["sequence"]
        rest = client.get(f"{place}/stream", headers=ada, params={"after": page["next"]}).json()
        assert rest["messages"] == [] and rest["next"] == page["next"]
        for path in (place, f"{place}/stream"):
            assert client.get(path, headers=bob).status_code == 404
        named = client.post("/run", json={**body, "session_id": "ada:mine"}, headers=ada)
        assert named.status_code == 202
        assert (
            client.get("/sessions/ada%3Amine", headers=ada, params={"wait": 20}).json()["run"]["status"] == "completed"
        )
        assert client.post("/run", json={**body, "agent": "nobody"}, headers=ada).status_code == 404
        assert client.post("/run", content=b"[]", headers=ada).json()["error"]["code"] == "invalid_input"
