"""Files that a model does not take, or that its provider refuses."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.integration.test_model_files import Ask, ask, servers, user
from tests.support.model_dialects import ANTHROPIC, BEDROCK, OPENAI, Dialect, DialectServer, Fails
from tests.support.request_files import Stored, archive, audio, csv, image
from tests.support_budgets import manager
from tests.support_litellm import request
from tests.support_run import World, agent, play

from helix import LLMConfig, ScriptedModel
from helix.adapters.models.adapter import ModelAdapter
from helix.adapters.models.catalog import LitellmCatalog
from helix.core.files import FilePart
from helix.core.periods import TokenPeriod
from helix.core.steps import ErrorStepResult
from helix.ports.catalog import ModelCatalog
from helix.ports.model import BaseAdapter, LLMGenerateInput

__all__ = ["ask", "servers"]


class Choosy(ScriptedModel):
    """A program with the capabilities of the model that its config names."""

    def unsupported(self, request: LLMGenerateInput, catalog: ModelCatalog | None) -> str | None:
        given = replace(request, messages=user("see", image()))
        return BaseAdapter.unsupported(self, given, catalog)


async def test_a_run_is_refused_before_anything_is_bought(tmp_path: Path) -> None:
    """The model is not asked and no budget is charged. A model that takes the file goes on with the same session."""
    world = World("memory", tmp_path)
    model = Choosy(["fine", "fine"])
    executor = world.executor(model, catalog=LitellmCatalog())
    await manager(executor).set_budget(1_000_000, TokenPeriod.TOTAL)
    handle, result, _ = await play(executor, agent(llm_config=LLMConfig(model="openai/gpt-3.5-turbo")))
    assert (result.status, result.error_code) == ("failed", "invalid_file") and result.usage.calls == 0
    assert result.error is not None and "file 'cat.png' (image/png) cannot be sent to model" in result.error
    assert model.requests == []
    assert (await manager(executor).check_budget())["global_total"]["current_tokens"] == 0
    again = await executor.retry(agent(llm_config=LLMConfig(model="openai/gpt-4o")), handle.session_id)
    assert (await again.result(timeout_s=10)).status == "completed"
    await world.close()


def test_only_a_request_that_no_model_takes_is_refused() -> None:
    def problem(model: str, *files: FilePart, **config: Any) -> str | None:
        asked = replace(request(user("see", *files), model=model, **config), files=Stored())
        return ModelAdapter().unsupported(asked, LitellmCatalog())

    old, new = "openai/gpt-3.5-turbo", "openai/gpt-4o"
    assert problem(old, image()) is not None and problem(new, image()) is None and problem(old) is None
    assert problem(old, image(), fallbacks=[new]) is None and problem(old, image(), fallbacks=[old]) is not None
    assert problem("openai/unheard-of", image()) is None and problem(old, archive(), csv()) is None
    assert problem("anthropic/unheard-of", audio()) is not None, "its interface takes no audio"


@pytest.mark.parametrize(
    ("dialect", "fails"),
    [
        (
            ANTHROPIC,
            "messages.0.content.0.image.source.base64: image exceeds 5 MB maximum: 9000000 bytes > 5242880 bytes",
        ),
        (ANTHROPIC, "messages.38.content.0.pdf.source.base64.data: A maximum of 100 PDF pages may be provided."),
        (ANTHROPIC, "Could not process image"),
        (ANTHROPIC, "Unable to download the file. Please verify the URL and try again."),
        (OPENAI, "Error while downloading https://example.com/cat.png."),
        (OPENAI, "You uploaded an unsupported image. Please make sure your image is below 20 MB in size"),
        (OPENAI, "Invalid content type. image_url is only supported by certain models."),
        (BEDROCK, "Messages can't contain duplicate document names. Rename the document and retry your request."),
        (BEDROCK, "You can't include more than 5 documents in a request."),
        (BEDROCK, "This model doesn't support the image content block that you provided."),
    ],
)
async def test_a_provider_that_refuses_the_file(
    ask: Ask, servers: list[DialectServer], dialect: Dialect, fails: str
) -> None:
    """The error has a code of its own, and the call is not repeated. Without files the same words are a bad request."""
    entry = Fails(400, "invalid_request_error", "ValidationException", fails)
    result = await ask(dialect, user("see", image()), entry, max_retries=3)
    assert isinstance(result, ErrorStepResult)
    assert (result.code, result.retryable, len(servers[0].requests)) == ("invalid_file", False, 1)
    plain = await ask(dialect, user("see"), entry)
    assert plain.code == "bad_request"


async def test_openais_codes_about_files(ask: Ask) -> None:
    entry = Fails(400, "invalid_request_error", "", "no", param="url")
    dialect = replace(OPENAI, failure=lambda fails: ({"error": {"message": "no", "code": "invalid_image_url"}}, {}))
    assert (await ask(dialect, user("see", image()), entry)).code == "invalid_file"
