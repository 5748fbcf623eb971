"""Scenes of `helix check --live` that use interfaces other than the WebSocket: alarms, the schedule, queues and HTTP."""

from __future__ import annotations

import asyncio
import json
import urllib.error
import urllib.request

from helix.cli.cloud.checks import CheckError, Probe, set_off_alarm
from helix.cli.cloud.live.scenes import SINGLE, end, expect
from helix.engine.history import session_key
from helix.services.activity import read_beats


async def alarm(probe: Probe) -> str:
    """Set an alarm, and verify that CloudWatch publishes it to the topic and `govern` receives it."""
    await set_off_alarm(probe, f"{probe.at.stack}-queue-depth-{SINGLE}")
    return ""


async def minute(probe: Probe) -> str:
    """Check that the schedule starts `govern`, which starts `sweep`."""
    since = probe.clock.now()

    async def swept() -> bool:
        return ((await read_beats(probe.store)).swept_at or 0.0) > since

    await probe.wait_until(swept)
    return ""


async def trigger(probe: Probe) -> str:
    """Check that a message in the queue starts a run in the session that it names."""
    session = f"live-{probe.clock.now():.0f}"
    body = json.dumps({"id": session, "prompt": json.dumps([end("triggered")])})
    await probe.aws("sqs", "send_message", QueueUrl=probe.at.outputs["LiveQueueUrl"], MessageBody=body)

    async def ran() -> bool:
        (row,) = await probe.store.get([session_key(session)])
        return row is not None and row["status"] == "completed"

    await probe.wait_until(ran)
    return ""


async def http(probe: Probe) -> str:
    """Start a run by POST, and wait for its result."""
    body = json.dumps({"message": json.dumps([end("over HTTP")])}).encode()
    status, text = await page(f"{probe.at.outputs['HttpUrl']}/run?wait=20", probe.key, body)
    expect((status, json.loads(text)["text"]), (200, "over HTTP"))
    probe.sessions.append(json.loads(text)["session_id"])
    return ""


async def console(probe: Probe) -> str:
    status, text = await page(probe.at.outputs["ConsoleUrl"])
    expect((status, "<title>Helix</title>" in text), (200, True))
    return ""


async def health(probe: Probe) -> str:
    """Check the health endpoints. The stage reports ready after its first sweep."""
    base = probe.at.outputs["HealthUrl"].removesuffix("/health")

    async def ready() -> bool:
        return (await page(f"{base}/ready"))[0] == 200

    await probe.wait_until(ready)
    expect([(await page(f"{base}/{path}"))[0] for path in ("live", "health")], [200, 200])
    return ""


async def page(url: str, key: str | None = None, body: bytes | None = None) -> tuple[int, str]:
    headers = {"content-type": "application/json", **({"authorization": f"Bearer {key}"} if key else {})}

    def read() -> tuple[int, str]:
        try:
            with urllib.request.urlopen(urllib.request.Request(url, body, headers), timeout=40) as answer:
                return int(answer.status), answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode(errors="replace")

    return await asyncio.to_thread(read)


async def no_kinesis(probe: Probe) -> str:
    if "ChunkStream" in probe.at.outputs:
        raise CheckError("the stage still has its stream of Kinesis")
    return ""
