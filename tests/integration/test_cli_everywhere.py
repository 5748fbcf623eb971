"""The same commands on a store (`--db`), at a service (`--url`) and at a stage (`--stage`) give the same answers."""

from __future__ import annotations

import asyncio
import json
import re
import threading
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from tests.support import cli_agents
from tests.support.command_line import CommandLine, Done
from tests.support_gateway import key_for, keyed

from helix import LocalExecutor
from helix.adapters.system import SystemClock
from helix.core.registry import AgentRegistry
from helix.gateway.authoriser import Authoriser
from helix.gateway.backend import OperatorBackend
from helix.gateway.gateway import Gateway
from helix.gateway.loopback import LoopbackGateway, LoopbackSockets
from helix.runtime.models import choose_model

pytestmark = pytest.mark.slow

AGENTS = (cli_agents.desk, cli_agents.talker)


class Service:
    """A service in its own thread, on a store file. It is reached by its socket, and by the function of a stage."""

    def __init__(self, db: Path) -> None:
        self._db, self._ready = db, threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True)
        self._thread.start()
        assert self._ready.wait(30)

    async def _serve(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        registry = AgentRegistry()
        for agent in AGENTS:
            registry.register(agent)
        model = choose_model(cli_agents.desk, "demo", {}).adapter
        async with LocalExecutor(self._db, model=model, registry=registry) as executor:
            self.key = await key_for(executor, "ada")
            operator = OperatorBackend(executor, LoopbackSockets(), Authoriser(SystemClock(), anonymous=True))
            self._gateway = Gateway(operator)
            async with LoopbackGateway(executor, authoriser=keyed(executor)) as gateway:
                self.url = gateway.url
                self._ready.set()
                await self._stop.wait()

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    # --- boto3's clients of Lambda and CloudFormation ---

    def invoke(self, *, FunctionName: str, Qualifier: str, Payload: bytes) -> dict[str, Any]:
        assert (FunctionName, Qualifier) == ("helix-there-ws_message", "live")
        asked = self._gateway.respond(json.loads(Payload)["operator"])
        answer = asyncio.run_coroutine_threadsafe(asked, self._loop).result(30)
        return {"Payload": BytesIO(json.dumps({"statusCode": 200, "body": answer}).encode())}

    def describe_stacks(self, *, StackName: str) -> Any:
        assert StackName == "helix-there"
        return {"Stacks": [{"StackStatus": "CREATE_COMPLETE"}]}


class Place:
    """The place of a command: `--db`, `--url` or `--stage`. `forms` are the patterns of ids and places that are
    normalised."""

    def __init__(self, helix: CommandLine, words: list[str]) -> None:
        self.helix, self.words = helix, words

    def __call__(self, *arguments: str, stdin: str = "") -> Done:
        return self.helix(*arguments, *self.words, stdin=stdin)


@pytest.fixture(params=["db", "url", "stage"])
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    helix = CommandLine(tmp_path, HELIX_AGENTS="agents.py")
    if request.param == "db":
        yield Place(helix, ["--db", "there.db"])
        return
    service = Service(tmp_path / "service.db")
    for module in ("where", "sessions.cost"):
        monkeypatch.setattr(f"helix.cli.{module}.aws_client", lambda *_: service)
    words = ["--url", service.url, "--key", service.key] if request.param == "url" else ["--stage", "there"]
    yield Place(helix, words)
    service.stop()


def alike(text: str) -> str:
    """Remove what differs from run to run: ids, times, places and the cost of the demonstration model."""
    text = re.sub(r"ws://\S+|there\.db|stage there|stage 'there'|the store 'there\.db'", "PLACE", text)
    text = re.sub(r"run_\d+_\w+", "RUN", text)
    text = re.sub(r"-t\d+-", "-t-", text)
    text = re.sub(r"\d+ s ago", "AGO", text)
    return re.sub(r" +", " ", text)


SCRIPT: list[tuple[list[str], int, list[str]]] = [
    (["run", "talker", "Do you like trains?", "--session", "ada:t"], 0, ["session ada:t", "completed"]),
    (["run", "talker", "And ships?", "--session", "ada:t", "--json"], 0, ['"status": "completed"']),
    (["run", "desk", "Please refund order A7", "--session", "ada:a"], 4, ["asks for approval of refund_order"]),
    (["sessions", "--status", "paused", "--json"], 0, ['"session_id": "ada:a"', '"title": "Please refund order A7"']),
    (["sessions", "--waiting"], 0, ['refund_order(order="A7")', "answer desk ada:a call_0"]),
    (["sessions", "--agent", "talker", "--limit", "1"], 0, ["ada:t", "Do you like trains?"]),
    (["sessions", "--since", "1h", "--tag", "none"], 0, []),
    (["sessions", "--tool", "refund_order", "--text", "order REFUND", "--cost-to", "5"], 0, ["ada:a", "paused"]),
    (["sessions", "--cost-from", "-1"], 2, []),
    (["sessions", "--until", "yesterday"], 2, []),
    (["resume", "desk", "ada:a"], 2, []),
    (["answer", "desk", "ada:a", "call_0", "--arguments", "A8"], 2, []),
    (["answer", "desk", "ada:a", "call_0", "--arguments", '{"item": "A8"}'], 2, []),
    (["answer", "desk", "ada:a", "call_0", "--deny", "--arguments", '{"order": "A8"}'], 2, []),
    (["answer", "desk", "ada:a", "call_0", "--arguments", '{"order": "A8"}'], 0, ["← refunded A8", "completed"]),
    (["answer", "desk", "ada:a", "call_0"], 2, []),
    (["show", "ada:t"], 0, ["user Do you like trains?", "user And ships?", "step 2"]),
    (["show", "ada:t", "--last", "1"], 0, ["3 earlier messages", "earlier runs", "earlier checkpoints"]),
    (["show", "ada:t", "--html", "t.html"], 0, []),
    (["show", "ada:t", "--html", "t.html"], 2, []),
    (["show", "ada:t", "--context", "2"], 0, ["step 2", "the whole history was shown: 3 messages", "And ships?"]),
    (["show", "ada:t", "--context", "next", "--json"], 0, ['"step": 3', '"run_id": null']),
    (["show", "ada:t", "--context", "9"], 2, []),
    (["show", "ada:t", "--context", "last"], 2, []),
    (["compact", "ada:t", "--focus", "trains"], 0, ["the next step of session ada:t writes a summary first"]),
    (["compact", "ada:none"], 2, []),
    (["rename", "ada:t", "All about trains"], 0, ["session ada:t is titled 'All about trains'"]),
    (["show", "ada:t"], 0, ["All about trains"]),
    (["rename", "ada:t", "x" * 121], 2, []),
    (["rename", "ada:none", "x"], 2, []),
    (["rename", "ada:t", ""], 0, ["session ada:t has no title any more"]),
    (["tail", "ada:t"], 0, ["session ada:t", "completed"]),
    (["branch", "ada:t", "--step", "1", "--to", "ada:b"], 0, ["ada:b"]),
    (["show", "ada:b"], 0, ["user Do you like trains?", "copied from"]),
    (["branch", "ada:t", "--step", "9"], 2, []),
    (["clone", "ada:t", "ada:c", "--messages", "2"], 0, ["ada:c"]),
    (["run", "talker", "And cars?", "--session", "ada:c"], 0, ["completed"]),
    (["interrupt", "ada:c"], 2, []),
    (["abort", "ada:c"], 2, []),
    (["run", "desk", "Please refund order B1", "--session", "ada:d"], 4, []),
    (["abort", "ada:d", "--reason", "enough"], 0, ["ada:d was aborted"]),
    (["show", "ada:d"], 0, ["failed"]),
    (["retry", "desk", "ada:d"], 2, []),
    (["resume", "desk", "ada:t", "--message", "Again"], 2, []),
    (["delete", "ada:b"], 0, ["deleted session ada:b"]),
    (["delete", "ada:b"], 2, []),
    (["show", "ada:b"], 2, []),
    (["cost", "ada:t"], 0, ["in all"]),
]
MENTIONED = {
    ("resume", "desk", "ada:a"): "session 'ada:a' waits for an answer to call_0 (refund_order)",
    ("branch", "ada:t", "--step", "9"): "has no checkpoint of step 9; it has those of 0, 1, 2",
    ("show", "ada:t", "--context", "9"): "step 9 does not exist in session 'ada:t'; it has steps 1 to 2",
    ("show", "ada:t", "--context", "last"): "--context takes the number of a step, or next; it is 'last'",
    ("compact", "ada:none"): "there is no session 'ada:none' in PLACE",
    ("rename", "ada:none", "x"): "there is no session 'ada:none' in PLACE",
    ("rename", "ada:t", "x" * 121): "title has 121 characters; the limit is 120",
    ("interrupt", "ada:c"): "does not run: it is completed",
    ("abort", "ada:c"): "has ended already: it is completed",
    ("delete", "ada:b"): "there is no session 'ada:b' in PLACE",
    ("show", "ada:b"): "there is no session 'ada:b' in PLACE",
}


def test_a_script_of_commands_gives_the_same_output_everywhere(place: Place) -> None:
    for arguments, code, words in SCRIPT:
        done = place(*arguments)
        out = alike(done.out)
        assert done.code == code, (arguments, done)
        assert [word for word in words if word not in out] == [], (arguments, out)
        if code == 2:
            assert MENTIONED.get(tuple(arguments), "") in alike(done.refusal), arguments
    one, two = place("sessions", "--limit", "2", "--json"), place("sessions", "--json")
    ids = [json.loads(line)["session_id"] for line in two.out.splitlines()]
    assert ids == ["ada:t", "ada:d", "ada:c", "ada:a"]
    assert [json.loads(line)["session_id"] for line in one.out.splitlines()] == ids[:2]
    assert "--after ada:d" in one.err
    more = place("sessions", "--after", "ada:d", "--json")
    assert [json.loads(line)["session_id"] for line in more.out.splitlines()] == ids[2:]
    page = json.loads(place("show", "ada:t", "--json").out)
    assert [message["role"] for message in page["messages"]] == ["user", "assistant", "user", "assistant"]
    chunks = place("tail", "ada:t", "--json").chunks
    assert {"text_delta", "checkpoint_created"} <= {chunk["type"] for chunk in chunks}


def test_an_export_is_imported_with_the_same_history_checkpoints_and_stream(place: Place, tmp_path: Path) -> None:
    for text in ("Do you like trains?", "And ships?"):
        assert place("run", "talker", text, "--session", "ada:t").code == 0
    done = place("export", "ada:t", "--to", "t.jsonl")
    assert done.code == 0, done
    there = ["--db", "other.db"]
    assert place.helix("import", "t.jsonl", *there).out == "ada:t\n"
    before = json.loads(place("show", "ada:t", "--json").out)
    after = json.loads(place.helix("show", "ada:t", "--json", *there).out)
    for run in (*before["runs"], *after["runs"]):
        assert run.pop("effects") == "done"
    assert before == after
    assert place("tail", "ada:t", "--json").out == place.helix("tail", "ada:t", "--json", *there).out
    assert "exists here" in place.helix("import", "t.jsonl", *there).refusal
    assert place.helix("run", "talker", "And cars?", "--session", "ada:t", *there).code == 0
