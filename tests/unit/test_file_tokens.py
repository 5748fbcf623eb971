"""The tokens of files: as the providers publish them, and never less than that in a reservation."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.request_files import archive, audio, csv, image, link, part, pdf

from helix import LLMConfig
from helix.adapters.models.catalog import LitellmCatalog
from helix.adapters.models.pricing import Tokens, price
from helix.adapters.models.token_count import TokenCounter
from helix.core.caching import digest, last_question, sent_parts
from helix.core.context_policy import ShownContext
from helix.core.estimating import PER_MESSAGE, estimate_request, estimate_text
from helix.core.file_tokens import file_tokens, most_file_tokens
from helix.core.files import FilePart
from helix.core.messages import AnyMessage, ToolResultMessage, UserMessage, files_of
from helix.engine.engine import Settings
from helix.engine.money.bounds import LARGEST_WINDOW, bounded, prompt_tokens
from helix.ports.catalog import ModelInfo
from helix.ports.model import LLMGenerateInput

MODELS = [
    *("openai/gpt-4o", "openai/gpt-4o-mini", "openai/gpt-4.1-nano", "openai/gpt-5", "openai/gpt-5.6", "openai/o4-mini"),
    *("anthropic/claude-sonnet-4-5", "bedrock/us.amazon.nova-pro-v1:0", "gemini/gemini-2.5-pro", "xai/grok-4.3", ""),
]


def sized(width: int, height: int) -> FilePart:
    return image(width=width, height=height)


@pytest.mark.parametrize(
    ("model", "width", "height", "tokens"),
    [
        ("openai/gpt-4o", 1024, 1024, 765),
        ("openai/gpt-4o", 2048, 4096, 1105),
        ("openai/gpt-4o-mini", 1024, 1024, 2833 + 4 * 5667),
        ("openai/gpt-5", 1024, 1024, 70 + 4 * 140),
        ("openai/gpt-4.1-mini", 1024, 1024, 1659),
        ("openai/gpt-5.6", 320, 320, 100),
        ("anthropic/claude-sonnet-4-5", 200, 200, 54),
        ("anthropic/claude-sonnet-4-5", 1000, 1000, 1334),
        ("anthropic/claude-sonnet-4-5", 60_000, 60_000, 1600),
        ("gemini/gemini-2.5-pro", 300, 300, 258),
        ("gemini/gemini-2.5-pro", 960, 540, 6 * 258),
    ],
)
def test_the_providers_own_examples(model: str, width: int, height: int, tokens: int) -> None:
    assert file_tokens(sized(width, height), model) == tokens


SIDES = st.integers(1, 60_000)


@given(width=SIDES, height=SIDES, model=st.sampled_from(MODELS))
def test_an_image_is_never_more_than_its_bound(width: int, height: int, model: str) -> None:
    """An image of unknown size has the bound of the largest one."""
    found, most = file_tokens(sized(width, height), model), most_file_tokens(sized(width, height), [model])
    assert 1 <= found <= most <= most_file_tokens(image(), [model]) <= 50_000
    assert most_file_tokens(sized(width, height), MODELS) >= most


@given(
    size=st.integers(0, 50_000_000),
    pages=st.none() | st.integers(1, 1000),
    kind=st.sampled_from([pdf(), audio(), csv(), archive()]),
)
def test_other_files_are_never_more_than_their_bound(size: int, pages: int | None, kind: FilePart) -> None:
    file = kind.model_copy(update={"size": size, "pages": pages})
    for model in MODELS:
        assert 0 <= file_tokens(file, model) <= most_file_tokens(file, [model])


def test_pages_and_seconds_count() -> None:
    claude, gemini = "anthropic/claude-sonnet-4-5", "gemini/gemini-2.5-pro"
    assert file_tokens(pdf(pages=10), claude) == 30_000 and file_tokens(pdf(pages=10), gemini) == 2580
    minute = part(b"", "audio", "audio/wav").model_copy(update={"size": 60 * 32_000})
    assert file_tokens(minute, "openai/gpt-audio") == 600 and file_tokens(minute, gemini) == 1920
    film = archive().model_copy(update={"media_type": "video/mp4", "size": 10 * 250_000})
    assert file_tokens(film) == 2880


ASKED: list[AnyMessage] = [
    UserMessage(content="see", files=[sized(1000, 1000)]),
    ToolResultMessage(tool_call_id="c", tool_name="t", content="x", files=[pdf(pages=2)]),
]
PLAIN: list[AnyMessage] = [message.model_copy(update={"files": []}) for message in ASKED]


def test_estimates_count_the_files_of_users_and_tools() -> None:
    claude = "anthropic/claude-sonnet-4-5"
    assert estimate_request(ASKED, [], claude) == estimate_request(PLAIN, [], claude) + 1334 + 6000
    counter = TokenCounter()
    assert counter.count_messages_tokens(ASKED, claude) == counter.count_messages_tokens(PLAIN, claude) + 1334 + 6000


def test_a_context_counts_the_files_that_are_shown() -> None:
    """The files before `cleared` are not shown any more, and neither is anything that is hidden."""

    def length(hidden: int = 0, cleared: int = 0, upto: int = len(ASKED)) -> int:
        return ShownContext(ASKED, hidden, cleared, 0, None).length(upto)

    texts = sum(PER_MESSAGE + estimate_text(message.content or "") for message in ASKED)
    tokens = [sum(map(file_tokens, files_of([message]))) for message in ASKED]
    place = next(i for i, found in enumerate(tokens) if found)
    assert sum(tokens) > 1000 and length() == texts + sum(tokens)
    assert length(cleared=place + 1) == length() - tokens[place]
    assert length(cleared=len(ASKED)) == texts and length(hidden=len(ASKED)) == 0
    assert ShownContext(ASKED, 0, 0, 0, None).freed(len(ASKED)) == sum(tokens)


def test_reservations_count_the_files_up_to_the_window() -> None:
    """What does not fit in the model's window is refused by the provider, and costs nothing."""
    infos = [ModelInfo("anthropic/claude-sonnet-4-5", 200_000)]
    more = prompt_tokens(ASKED, [], infos) - prompt_tokens(PLAIN, [], infos)
    assert more == sum(most_file_tokens(file, [infos[0].model]) for file in files_of(ASKED))
    unknown: list[AnyMessage] = [UserMessage(content="see", files=[link(0, "document", "application/pdf")])]
    plain: list[AnyMessage] = [UserMessage(content="see")]
    assert prompt_tokens(unknown, [], infos) == prompt_tokens(plain, [], infos) + 200_000
    assert prompt_tokens(unknown, []) == prompt_tokens(plain, []) + LARGEST_WINDOW


def test_audio_is_reserved_at_its_own_price() -> None:
    engine: Any = SimpleNamespace(catalog=LitellmCatalog(), settings=Settings())

    def dearest(*files: FilePart) -> float:
        messages = [UserMessage(content="hear", files=list(files))]
        config = LLMConfig(model="openai/gpt-audio")
        return bounded(engine, LLMGenerateInput(messages, [], config, "a", "a"))[1].input_micros

    assert dearest() == pytest.approx(2.5) and dearest(audio()) == pytest.approx(32)


def test_audio_is_billed_at_its_own_price() -> None:
    """A model without such a price bills audio as text."""
    heard, read = Tokens(1000, 0, audio=600), Tokens(1000, 0)
    assert price("openai/gpt-audio", heard, {}).cost_micros == round(400 * 2.5 + 600 * 32)
    assert price("openai/gpt-4o", heard, {}) == price("openai/gpt-4o", read, {})


def test_files_are_part_of_the_response_caches_key() -> None:
    """The hash, the place and the name change the answer. The keys of messages without files are those of earlier
    releases."""
    said = UserMessage(content="see", files=[image()])
    others = [
        *(
            [],
            [image(data=b"other")],
            [image(1)],
            [image(name="dog.png")],
            [image(), pdf()],
            [pdf(), image()],
            [link()],
        ),
    ]
    keys = {digest(sent_parts(said.model_copy(update={"files": files}))) for files in others}
    assert len(keys) == len(others) and digest(sent_parts(said)) not in keys
    assert sent_parts(UserMessage(content="see")) == {"role": "user", "content": "see"}
    result = ToolResultMessage(tool_call_id="c", tool_name="t", content="x")
    assert "files" not in sent_parts(result)
    assert sent_parts(result) != sent_parts(result.model_copy(update={"files": [image()]}))
    assert last_question([said]) is None, "a file belongs to its place in this wording"
