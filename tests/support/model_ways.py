"""The ways to reach a model: each dialect of a provider, through its own package and through litellm."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from tests.support.model_dialects import ANTHROPIC, BEDROCK, OPENAI, Dialect, DialectServer, Entry
from tests.support.responses_dialect import RESPONSES
from tests.support_litellm import FakeClock, request

from helix.adapters.models.adapter import ModelAdapter
from helix.adapters.models.choice import PACKAGES, installed
from helix.adapters.models.litellm import load_litellm
from helix.core.steps import AnyStepResult
from helix.ports.model import LLMGenerateInput


@dataclass
class Way:
    """One way to a model: a dialect, and the package that speaks it. `start` plays a script on loopback."""

    dialect: Dialect
    adapter: str
    servers: list[DialectServer]

    def start(self, *script: Entry) -> DialectServer:
        self.servers.append(DialectServer(self.dialect, list(script)).start())
        return self.servers[-1]

    def request(self, **named: object) -> LLMGenerateInput:
        options = self.dialect.options(self.servers[-1].origin)
        asked = {"model": self.dialect.model, "adapter": self.adapter, **self.dialect.config, **named}
        return request(provider_options=options, **asked)


WAYS = [
    pytest.param((dialect, adapter), id=f"{dialect.name}-{adapter}")
    for dialect in (OPENAI, RESPONSES, ANTHROPIC, BEDROCK)
    for adapter in ("native", "litellm")
]


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> Iterator[Way]:
    dialect, adapter = request.param
    package = PACKAGES[dialect.model.partition("/")[0]]
    if adapter == "native" and not installed(package):
        pytest.skip(f"needs the package {package}")
    if adapter == "litellm":
        load_litellm()
    made = Way(dialect, adapter, [])
    yield made
    for server in made.servers:
        server.stop()


async def ask(way: Way, *script: Entry, clock: FakeClock | None = None, **named: object) -> AnyStepResult:
    way.start(*script)
    return await ModelAdapter(clock=clock).generate_step(way.request(**named))
