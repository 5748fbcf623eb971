"""`helix run --url` and `helix chat --url`: agents that run in another process are shown as if they ran here."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from tests.integration.test_files import Looks
from tests.support.command_line import CommandLine
from tests.support.sample_files import png
from tests.support_gateway import executor_of, key_for, keyed
from tests.support_run import Gate, a_tool, agent, call, calls, gated

from helix import LocalExecutor, create_sub_agent_tool
from helix.adapters.models.demo import DemonstrationModel
from helix.gateway.loopback import LoopbackGateway


class Receipt(BaseModel):
    paid: bool


class Service:
    """A service in its own thread, in place of its own process."""

    def __init__(self, executor: LocalExecutor) -> None:
        self._executor, self._ready = executor, threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True)
        self._thread.start()
        self._ready.wait()

    async def _serve(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        async with self._executor:
            self.key = await key_for(self._executor, "ada")
            async with LoopbackGateway(self._executor, authoriser=keyed(self._executor)) as gateway:
                self.url = gateway.url
                self._ready.set()
                await self._stop.wait()

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()


@pytest.fixture
def serve() -> Iterator[Any]:
    made: list[Service] = []

    def service(script: Any, *agents: Any) -> Service:
        made.append(Service(executor_of(script, *agents)))
        return made[-1]

    yield service
    for one in made:
        one.stop()


@pytest.fixture
def helix(tmp_path: Path) -> CommandLine:
    return CommandLine(tmp_path)


def test_one_message_is_shown_with_what_the_agent_does(helix: CommandLine, serve: Any) -> None:
    tool = a_tool("look", lambda args, ctx: "It rains.")
    service = serve([calls(call("look")), "Take a coat.", "Still raining."], agent("helper", tools=[tool]))
    done = helix("run", "helper", "May I go out?", "--url", service.url, "--key", service.key, "--session", "ada:out")
    assert done.code == 0, done
    seen = [
        f"helper · the service's model · {service.url}",
        "session ada:out",
        "→ look()",
        "← It rains.",
        "Take a coat.",
    ]
    assert [words for words in seen if words not in done.out] == []
    assert f"chat helper --url {service.url} --session ada:out" in done.out and service.key not in done.out
    more = ["run", "helper", "And now?", "--url", service.url, "--session", "ada:out", "--json"]
    done = helix(*more, environment={"HELIX_KEY": service.key})
    assert (done.code, done.result["status"], done.result["output"]) == (0, "completed", "Still raining.")
    assert done.chunks[-1]["type"] == "checkpoint_created"
    assert os.listdir(helix.folder) == ["agents.py"]  # no store is created here


def test_a_file_is_sent_with_the_message(helix: CommandLine, serve: Any) -> None:
    (helix.folder / "dog.png").write_bytes(png(20, 10))
    model = Looks()
    service = serve(model, agent("helper"))
    asked = ["run", "helper", "Who is this?", "--attach", "dog.png", "--url", service.url, "--key", service.key]
    assert helix(*asked).code == 0 and model.seen == [[("image/png", png(20, 10))]]
    (helix.folder / "none.txt").write_bytes(b"")
    empty = helix("run", "helper", "Look", "--attach", "none.txt", "--url", service.url, "--key", service.key)
    assert empty.code == 2 and "file 'none.txt' is empty" in empty.err, empty


def test_the_model_that_answered_is_named(helix: CommandLine, serve: Any) -> None:
    """Each model is named once, as the service's answers name it. This process cannot know it earlier."""
    service = serve(DemonstrationModel(), agent("helper", tools=[a_tool("look", lambda args, ctx: "It rains.")]))
    done = helix("run", "helper", "look", "--url", service.url, "--key", service.key)
    assert done.code == 0 and "its own model" not in done.out, done
    assert done.out.count("model: the demonstration model: a program, not a language model") == 1


def test_a_chat_asks_what_the_agent_asks(helix: CommandLine, serve: Any) -> None:
    tools = [a_tool("refund", lambda a, c: "refunded", require_approval=True), a_tool("where", "client")]
    script = [calls(call("refund"), call("where")), "All is well.", "Goodbye."]
    service = serve(script, agent("helper", tools=tools))
    said = 'refund it\ny\n"at home"\nbye\n'
    done = helix("chat", "helper", "--url", service.url, "--key", service.key, stdin=said)
    assert done.code == 0, done
    seen = ["? asks for approval of refund()", "← refunded", "All is well.", "Goodbye.", "go on"]
    assert [words for words in seen if words not in done.out] == []
    assert done.out.count("? asks for approval of refund()") == 1


def test_what_waits_for_an_answer_is_asked_when_the_chat_goes_on(helix: CommandLine, serve: Any) -> None:
    refund = a_tool("refund", lambda a, c: "refunded", require_approval=True)
    child = agent("clerk", tools=[refund], output_schema=Receipt)
    paid = [calls(call("refund")), calls(call("__finish__", paid=True))]
    script = [calls(call("subagent__clerk", message="Pay it.")), *paid, "All is well.", "Goodbye."]
    service = serve(script, agent("helper", tools=[create_sub_agent_tool(child)]), child)
    there = ["--url", service.url, "--key", service.key]
    done = helix("run", "helper", "refund it", *there, "--session", "ada:kettle")
    assert done.code == 4 and "answer" in done.out
    assert f"chat helper --url {service.url} --session ada:kettle" in done.out
    assert "resume helper" not in done.out, "a command for sessions that are here"
    done = helix("chat", "helper", *there, "--session", "ada:kettle", stdin="y\nbye\n")
    assert done.code == 0, done
    assert [words for words in ("← refunded", "All is well.", "Goodbye.") if words not in done.out] == []


def test_a_new_session_s_id_begins_with_the_user_s_prefix(helix: CommandLine, serve: Any) -> None:
    service = serve(["Hello."])
    done = helix("run", "helper", "hi", "--url", service.url, "--key", service.key, "--session", "kettle")
    assert done.code == 2 and "'kettle'" in done.err and "'ada:'" in done.err and "--db" not in done.err


def test_what_cannot_be_is_one_line(helix: CommandLine, serve: Any) -> None:
    service = serve(["Hello."])
    there = ["--url", service.url, "--key", service.key]
    assert "'nobody'" in helix("run", "nobody", "hi", *there).refusal
    assert "token" in helix("run", "helper", "hi", "--url", service.url, "--key", "helix_wrong").refusal
    assert "--model" in helix("run", "helper", "hi", *there, "--model", "demo").refusal
    assert "wss://" in helix("chat", "helper", "--url", "https://example.com").refusal
    chat = helix("chat", "helper", *there, "--session", "bobs:notes", stdin="hi\n")
    assert "bobs:notes" in chat.err and chat.code == 0


def test_the_first_ctrl_c_asks_the_run_over_there_to_stop(helix: CommandLine, serve: Any) -> None:
    import signal

    gate = Gate()
    service = serve([gated(gate, "never")])
    with helix.started(
        "run", "helper", "hi", "--url", service.url, "--key", service.key, "--session", "ada:x"
    ) as running:
        running.until("session ada:x")
        running.until("■")
        running.signal(signal.SIGINT)
        running.until("interrupted")
        assert running.end() == 4
