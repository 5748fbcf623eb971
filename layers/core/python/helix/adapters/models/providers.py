"""The providers that a model's name may begin with, and a check for names that begin with none of them.

Law: nothing is imported for the decision. A provider that only a newer litellm knows is called like any other. The list
only decides which names look like mistakes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from helix.adapters.models.catalog import chat_models, entry_of
from helix.core.config import LLMConfig
from helix.core.spelling import did_you_mean

PROVIDERS: Final = frozenset(
    """
    a2a a2a_agent abliteration ai21 ai21_chat aihubmix aiml aiohttp_openai amazon_nova anthropic anthropic_text
    apertis assemblyai auto_router aws_polly aws_textract azure azure_ai azure_speech azure_text baseten bedrock
    bedrock_mantle black_forest_labs bytez cerebras charity_engine chatgpt chutes clarifai cloudflare codestral
    cognition cohere cohere_chat cometapi compactifai cortecs crusoe cursor custom custom_openai darkbloom dashscope
    databricks datarobot deepgram deepinfra deepseek docker_model_runner dotprompt edenai elevenlabs empiriolabs
    empower fal_ai featherless_ai fireworks_ai friendliai galadriel gdc gemini gigachat github github_copilot gmi
    gradient_ai groq helicone heroku hosted_vllm huggingface humanloop hyperbolic inception infinity jina_ai
    lambda_ai langflow langfuse langgraph lemonade libertai litellm_agent litellm_proxy llamafile llamagate
    lm_studio manus maritalk meta meta_llama milvus minimax mistral modelscope mongodb moonshot morph nadir nano-gpt
    nebius neosantara nlp_cloud novita nscale nvidia_nim nvidia_riva oci ollama ollama_chat oobabooga openai
    openai_like openrouter ovhcloud parasail perplexity petals pg_vector pinstripes poe predibase prism publicai
    qwen_ai_platform qwencloud ragflow recraft reducto reka replicate runwayml s3_vectors sagemaker sagemaker_chat
    sagemaker_nova sail sambanova sap sarvam scaleway scx-ai snowflake soniox stability strands_decider synthetic
    tencent tensormesh text-completion-codestral text-completion-inception text-completion-openai together_ai topaz
    transcribe triton typesafe v0 valkey veniceai vercel_ai_gateway vertex_ai vertex_ai_beta vllm volcengine voyage
    wandb watsonx watsonx_text xai xiaomi_mimo xinference zai
    """.split()  # noqa: SIM905
)
"""The names that litellm 1.80 and later use. `tests/unit/test_model_choice.py` compares them."""
FAMILIES: Final = {
    "gpt-": "openai",
    "chatgpt-": "openai",
    "o1": "openai",
    "o3": "openai",
    "o4": "openai",
    "claude": "anthropic",
    "gemini": "vertex_ai",
    "command": "cohere",
    "mistral": "mistral",
}
"""The provider that litellm assumes for a name without a provider, by the beginning of the name."""
_ELSEWHERE = ("custom_llm_provider", "api_base", "base_url")
"""The provider options that say where a model is, regardless of how its name begins."""


def provider_of(model: str) -> str:
    """Return the provider that a model's name contains before the slash, or that the name's family implies."""
    provider, slash, _ = model.partition("/")
    if slash:
        return provider.lower()
    return next((owner for start, owner in FAMILIES.items() if model.lower().startswith(start)), "openai")


def name_problem(model: str, config: LLMConfig, environment: Mapping[str, str]) -> str | None:
    """Return why the name is wrong, or None if it may be right. A name is wrong if it does not begin with a known
    provider, and nothing else suggests one. The config may suggest one, or a variable `<PROVIDER>_API_KEY` or
    `<PROVIDER>_API_BASE`."""
    if config.adapter == "litellm" or any(config.provider_options.get(name) for name in _ELSEWHERE):
        return None
    provider, slash, _ = model.partition("/")
    if slash:
        variable = provider.upper().replace("-", "_")
        set_up = any(environment.get(f"{variable}_{end}") for end in ("API_KEY", "API_BASE"))
        return None if set_up or provider.lower() in PROVIDERS or entry_of(model) else unknown_provider(model)
    family = any(model.lower().startswith(start) for start in (*FAMILIES, "ft:"))
    return None if family or entry_of(model) else unknown_provider(model)


def unknown_provider(model: str) -> str:
    """Return the message about a model whose provider is not known, with a suggestion."""
    provider, slash, rest = model.partition("/")
    if slash:
        hint = did_you_mean(provider, PROVIDERS, slash + rest)
        return f"{provider!r} is not a provider that Helix or litellm knows{hint}"
    similar = did_you_mean(model, chat_models())
    return f"{model!r} does not name a provider; write <provider>/<model>, such as openai/gpt-4o-mini{similar}"
