"""A process that imports its framework and makes one model call to a server on loopback: `ready.py WHO URL`.

The bench takes the time and the memory when the request arrives. Each contender uses the client that its documentation
recommends for an OpenAI-compatible endpoint; `bare` is an interpreter that opens a socket. The top of this file imports
only modules that every contender imports itself.
"""

import sys


def bare(url: str) -> None:
    import socket

    host, _, port = url.removeprefix("http://").removesuffix("/v1").partition(":")
    with socket.create_connection((host, int(port))) as connection:
        connection.sendall(b"POST / HTTP/1.1\r\nHost: bench\r\nContent-Length: 0\r\n\r\n")
        connection.recv(100)


def helix(url: str, model: str = "openai/gpt-4o-mini") -> None:
    import asyncio

    from helix import Agent, LLMConfig, LocalExecutor

    async def ask() -> None:
        agent = Agent(name="bench", system_prompt="Work.", llm_config=LLMConfig(model=model))
        async with LocalExecutor(":memory:") as executor:
            await (await executor.execute(agent, "go")).result()

    asyncio.run(ask())


def helix_bedrock(url: str) -> None:
    helix(url, "bedrock/anthropic.claude-3-5-haiku-20241022-v1:0")


def langgraph(url: str) -> None:
    from langchain_openai import ChatOpenAI
    from langgraph.checkpoint.memory import InMemorySaver
    from langgraph.graph import END, START, MessagesState, StateGraph

    model = ChatOpenAI(model="gpt-4o-mini", base_url=url)
    graph = StateGraph(MessagesState)
    graph.add_node("model", lambda state: {"messages": [model.invoke(state["messages"])]})
    graph.add_edge(START, "model")
    graph.add_edge("model", END)
    app = graph.compile(checkpointer=InMemorySaver())
    app.invoke({"messages": [("user", "go")]}, {"configurable": {"thread_id": "t"}})


def strands(url: str) -> None:
    from strands import Agent
    from strands.models.openai import OpenAIModel

    Agent(model=OpenAIModel(client_args={"base_url": url}, model_id="gpt-4o-mini"))("go")


def strands_bedrock(url: str) -> None:
    from strands import Agent

    Agent(model="anthropic.claude-3-5-haiku-20241022-v1:0")("go")


def openai(url: str) -> None:
    from agents import Agent, Runner, set_default_openai_api

    set_default_openai_api("chat_completions")
    Runner.run_sync(Agent(name="bench", instructions="Work.", model="gpt-4o-mini"), "go")


def pydantic(url: str) -> None:
    from pydantic_ai import Agent
    from pydantic_ai.models.openai import OpenAIChatModel

    Agent(OpenAIChatModel("gpt-4o-mini")).run_sync("go")


def dbos(url: str) -> None:
    from dbos import DBOS
    from openai import OpenAI

    DBOS(config={"name": "bench", "system_database_url": "sqlite:///ready.db", "run_admin_server": False})
    client = OpenAI()

    @DBOS.step()
    def model() -> None:
        client.chat.completions.create(model="gpt-4o-mini", messages=[{"role": "user", "content": "go"}])

    @DBOS.workflow()
    def turn() -> None:
        model()

    DBOS.launch()
    turn()


def durable(url: str) -> None:
    from aws_durable_execution_sdk_python import durable_execution
    from aws_durable_execution_sdk_python.lambda_service import LambdaClient
    from openai import OpenAI

    LambdaClient.initialize_client()
    client = OpenAI()

    @durable_execution
    def handler(event, context):  # type: ignore[no-untyped-def]
        return None

    client.chat.completions.create(model="gpt-4o-mini", messages=[{"role": "user", "content": "go"}])


if __name__ == "__main__":
    globals()[sys.argv[1]](sys.argv[2])
