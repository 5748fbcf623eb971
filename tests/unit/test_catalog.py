"""The catalog reads context windows and prices from litellm's table without importing litellm."""

from __future__ import annotations

import subprocess
import sys

import pytest

from helix.adapters.models.catalog import LitellmCatalog
from helix.core.errors import InvalidInputError
from helix.ports.catalog import ModelInfo

KNOWN = LitellmCatalog()


@pytest.mark.parametrize("name", ["gpt-4o", "openai/gpt-4o"])
def test_with_and_without_the_provider(name: str) -> None:
    info = KNOWN.info(name)
    assert (info.model, info.max_input_tokens, info.max_output_tokens) == (name, 128_000, 16_384)
    assert (info.input_usd, info.output_usd, info.cached_input_usd) == (2.5e-6, 1e-5, 1.25e-6)


@pytest.mark.parametrize(
    "name",
    ["anthropic/claude-sonnet-4-5", "bedrock/us.anthropic.claude-sonnet-4-5-20250929-v1:0", "vertex_ai/gemini-2.5-pro"],
)
def test_providers_whose_models_the_table_names_otherwise(name: str) -> None:
    assert KNOWN.info(name).priced and (KNOWN.info(name).max_input_tokens or 0) >= 200_000


@pytest.mark.parametrize("name", ["someproxy/gpt-4o", "anthropic/gpt-4o", "nobody-knows-me", "", "sample_spec"])
def test_what_is_not_known_has_no_price(name: str) -> None:
    """A name that matches another provider's model has no price either, because a wrong price is worse than none."""
    assert KNOWN.info(name) == ModelInfo(name)


def test_models_on_the_users_own_machine_are_free() -> None:
    info = KNOWN.info("ollama/whatever")
    assert info.cost_usd(1_000, 1_000) == 0 and info.max_input_tokens is None


def test_what_the_caller_says_wins() -> None:
    catalog = LitellmCatalog(
        prices={"openai/gpt-4o": (1e-6, 2e-6), "mine": (3e-6, 4e-6)}, limits={"mine": (9_000, None), "gpt-4": (7, 5)}
    )
    own = catalog.info("openai/gpt-4o")
    assert (own.input_usd, own.worst_input_usd, own.cached_input_usd) == (1e-6, 1e-6, None)
    assert own.max_input_tokens == 128_000
    assert catalog.info("gpt-4o").input_usd == 2.5e-6
    assert catalog.info("mine") == ModelInfo("mine", 9_000, None, 3e-6, 4e-6, None, 3e-6, 4e-6)
    assert (catalog.info("gpt-4").max_input_tokens, catalog.info("gpt-4").max_output_tokens) == (7, 5)


@pytest.mark.parametrize(
    ("name", "inputs"),
    [
        ("openai/gpt-4o", (True, True, False, False, False)),
        ("openai/gpt-3.5-turbo", (False, False, False, False, False)),
        ("openai/gpt-audio", (False, False, True, False, False)),
        ("anthropic/claude-sonnet-4-5", (True, True, False, False, False)),
        ("bedrock/us.amazon.nova-pro-v1:0", (True, True, False, True, True)),
        ("bedrock/us.amazon.nova-micro-v1:0", (False, None, False, False, False)),
        ("bedrock/us.mistral.pixtral-large-2502-v1:0", (None, None, False, False, False)),
        ("gemini/gemini-2.5-pro", (True, True, True, True, False)),
        ("xai/grok-4.3", (True, None, False, False, False)),
        ("someproxy/gpt-4o", (None, None, None, None, False)),
    ],
)
def test_what_a_model_takes(name: str, inputs: tuple[bool | None, ...]) -> None:
    """Images, PDF documents, audio, video, and files as S3 addresses. None is unknown, and is not refused."""
    info = KNOWN.info(name)
    assert (info.images, info.pdfs, info.audio, info.video, info.reads_s3) == inputs


def test_audio_has_a_price_of_its_own() -> None:
    assert KNOWN.info("openai/gpt-audio").audio_usd == 3.2e-5 and KNOWN.info("openai/gpt-4o").audio_usd is None


def test_the_worst_price_is_that_of_the_dearest_tier() -> None:
    """Gemini doubles its price from 200,000 tokens on. Anthropic charges more for cache writes, and most for those of one
    hour."""
    gemini = KNOWN.info("gemini/gemini-2.5-pro")
    assert (gemini.input_usd, gemini.worst_input_usd) == (1.25e-6, 2.5e-6)
    assert (gemini.output_usd, gemini.worst_output_usd) == (1e-5, 1.5e-5)
    claude = KNOWN.info("claude-sonnet-4-5")
    assert (claude.input_usd, claude.worst_input_usd) == (3e-6, 6e-6)
    assert all(
        (info.worst_input_usd or 0) >= (info.input_usd or 0) for info in map(KNOWN.info, ["gpt-5", "gpt-4o", "gpt-4"])
    )


def test_the_price_of_a_call() -> None:
    assert KNOWN.info("gpt-4o").cost_usd(1_000, 100, 400) == pytest.approx(600 * 2.5e-6 + 400 * 1.25e-6 + 100 * 1e-5)
    assert KNOWN.info("text-embedding-3-small").cost_usd(1_000, 0) == pytest.approx(2e-5)
    assert KNOWN.info("nobody-knows-me").cost_usd(1, 1) is None


def test_numbers_that_cannot_be() -> None:
    with pytest.raises(InvalidInputError, match="price of 'm'"):
        LitellmCatalog(prices={"m": (-1, 0)})
    with pytest.raises(InvalidInputError, match="limits of 'm'"):
        LitellmCatalog(limits={"m": (0, None)})


def run(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.strip()


def test_litellm_is_not_imported_and_nothing_read_before_the_first_question() -> None:
    code = """
import sys
from helix.adapters.models import catalog
known = catalog.LitellmCatalog(prices={"mine": (1, 2)}, limits={"mine": (3, 4)})
known.info("mine")
print(catalog._table.cache_info().currsize, end=" ")
known.info("gpt-4o")
print(catalog._table.cache_info().currsize, "litellm" in sys.modules)
"""
    assert run(code) == "0 1 False"


def test_without_litellm_nothing_is_known() -> None:
    """A deployment without litellm works without prices."""
    code = """
import importlib.util, sys
found = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name == "litellm" else found(name, *rest)
from helix.adapters.models.catalog import LitellmCatalog
from helix.ports.catalog import ModelInfo
print(LitellmCatalog().info("gpt-4o") == ModelInfo("gpt-4o"))
"""
    assert run(code) == "True"
