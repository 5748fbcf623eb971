"""AWS durable execution SDK: a durable function that loops over `context.step` for the model and each tool, two at once
by `context.parallel`. It runs in the SDK's own local runner (`aws-durable-execution-sdk-python-testing`) on its SQLite
or memory store. A dead function is invoked again as the service does it; the local runner has no public method for that.
It has no agents, no sessions, and no stream."""

from __future__ import annotations

import asyncio
import json
import logging
from functools import partial
from typing import Any

from aws_durable_execution_sdk_python import DurableContext, durable_execution
from aws_durable_execution_sdk_python_testing.runner import DurableFunctionTestRunner
from aws_durable_execution_sdk_python_testing.stores.memory import InMemoryExecutionStore
from aws_durable_execution_sdk_python_testing.stores.sqlite import SQLiteExecutionStore
from work import Script, database, main

TIME_OUT_S = 600


class DurableFunction:
    PACKAGES = ("aws-durable-execution-sdk-python", "aws-durable-execution-sdk-python-testing")

    def __init__(self, place: str, script: Script) -> None:
        self.place, self.script = place, script

    async def open(self) -> None:
        logging.disable(logging.CRITICAL)
        script = self.script

        def model(results: int, _: Any) -> list[Any]:
            if script.streams:
                answer = script.ask(results)
                asyncio.run(drain(script, answer))
            else:
                answer = asyncio.run(script.think(results))
            return [answer.text, [[c.id, c.n, c.branch] for c in answer.calls]]

        @durable_execution
        def turn(event: Any, context: DurableContext) -> list[Any]:
            messages: list[Any] = [["user", event["message"]]]
            results = 0
            while True:
                said, calls = context.step(partial(model, results), name=f"model-{results}")
                messages.append(["assistant", said, [call[0] for call in calls]])
                if not calls:
                    return messages
                steps = [tool_step(script, call) for call in calls]
                if len(steps) == 1:
                    steps[0](context)
                else:
                    context.parallel(steps, name=f"tools-{results}")
                messages += [["tool", call[0]] for call in calls]
                results += len(calls)

        store: Any = InMemoryExecutionStore()
        if self.place != "memory":
            store = SQLiteExecutionStore.create_and_initialize(database(self.place))
        self.store = store
        self.runner = DurableFunctionTestRunner(turn, store=store, poll_interval=0.01, skip_time=False)
        self.count(self.runner._service_client)

    def count(self, client: Any) -> None:
        """Record each call to the service with its bytes and the step for which the script was last called."""
        self.counted: list[list[Any]] = []
        checkpoint, get_state = client.checkpoint, client.get_execution_state

        def counting_checkpoint(*args: Any, updates: Any, **kwargs: Any) -> Any:
            size = sum(len(json.dumps(update.to_dict(), default=str)) for update in updates)
            self.counted.append([len(self.script.asked), "checkpoint", size])
            return checkpoint(*args, updates=updates, **kwargs)

        def counting_get_state(*args: Any, **kwargs: Any) -> Any:
            self.counted.append([len(self.script.asked), "state", 0])
            return get_state(*args, **kwargs)

        client.checkpoint, client.get_execution_state = counting_checkpoint, counting_get_state

    async def turn(self, session: str, message: str) -> None:
        given = json.dumps({"message": message})
        result = await asyncio.to_thread(
            self.runner.run, input=given, execution_name=session, execution_timeout=TIME_OUT_S
        )
        assert result.status.value == "SUCCEEDED", result

    async def resume(self, session: str) -> None:
        (execution,) = self.store.list_all()
        arn = execution.durable_execution_arn
        self.runner._executor._launch_execution(execution, TIME_OUT_S)
        result = await asyncio.to_thread(self.runner.wait_for_result, arn, 60)
        assert result.status.value == "SUCCEEDED", result.error
        self.found = json.loads(result.result)

    async def history(self, session: str) -> list[list[Any]]:
        return self.found

    async def close(self) -> None:
        self.runner.close()


def tool_step(script: Script, call: list[Any]) -> Any:
    name, n, branch = call
    return lambda context: context.step(lambda _: script.work(n, branch), name=name)


async def drain(script: Script, answer: Any) -> None:
    async for _ in script.deltas(answer):
        pass


if __name__ == "__main__":
    main(DurableFunction)
