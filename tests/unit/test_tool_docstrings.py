"""Docstrings of tools: sections about parameters describe them in the schema, and leave the tool's description."""

import functools
from collections.abc import Callable
from enum import Enum
from typing import Annotated, Any

import pytest
from pydantic import Field

from helix import AgentClient, AgentRegistry, ToolContext, tool
from helix.adapters.models.strict_schema import strict_schema


class Unit(Enum):
    CELSIUS = "C"
    KELVIN = "K"


def google(city: str, days: int = 1) -> str:
    """Forecast the weather.

    Cheap to call.

    Args:
        city: The city, for example "Oslo": a name.
        days (int, optional): How many days.
            At most 7.

    Returns:
        The forecast.
    """
    return f"{city} {days}"


def numpy(city: str, days: int = 1) -> str:
    """Forecast the weather.

    Cheap to call.

    Parameters
    ----------
    city : str
        The city, for example "Oslo": a name.
    days : int, optional
        How many days.
        At most 7.

    Returns
    -------
    str
        The forecast.
    """
    return f"{city} {days}"


def sphinx(city: str, days: int = 1) -> str:
    """Forecast the weather.

    Cheap to call.

    :param city: The city, for example "Oslo": a name.
    :type city: str
    :param int days: How many days.
        At most 7.
    :returns: The forecast.
    """
    return f"{city} {days}"


RETURNS = {
    google: "Returns:\n    The forecast.",
    numpy: "Returns\n-------\nstr\n    The forecast.",
    sphinx: ":returns: The forecast.",
}


def described(made: Any) -> dict[str, str | None]:
    return {name: schema.get("description") for name, schema in made.parameters["properties"].items()}


@pytest.mark.parametrize("function", RETURNS, ids=lambda function: function.__name__)
def test_a_section_about_parameters_describes_them_and_leaves_the_description(function: Callable[..., str]) -> None:
    made = tool(function)
    assert described(made) == {"city": 'The city, for example "Oslo": a name.', "days": "How many days.\nAt most 7."}
    assert made.description == f"Forecast the weather.\n\nCheap to call.\n\n{RETURNS[function]}"
    assert made.parameters["required"] == ["city"]
    assert made("Oslo", days=2) == "Oslo 2"


def test_the_description_of_a_field_takes_precedence() -> None:
    @tool(description="Given.")
    def find(
        a: Annotated[str, Field(description="from the annotation")],
        b: Annotated[str, Field(min_length=2)],
        json: str,
        unit: Unit | None = None,
        c: int = Field(default=1, description="from the default"),
        d: int = Field(default=1, ge=1),
    ) -> str:
        """Find.

        Args:
            a: doc a
            b: doc b
            json: doc json
            unit: doc unit
            c: doc c
            d: doc d
        """
        return a

    wanted = {"a": "from the annotation", "b": "doc b", "json": "doc json", "unit": "doc unit"}
    assert described(find) == {**wanted, "c": "from the default", "d": "doc d"}
    properties: Any = find.parameters["properties"]
    assert (find.description, properties["b"]["minLength"], properties["d"]["minimum"]) == ("Given.", 2, 1)


def test_hidden_parameters_may_be_described() -> None:
    def find(topic: str, limit: int, ctx: ToolContext) -> str:
        """Find.

        Args:
            topic: What to find.
            limit: How many.
            ctx: The context.
        """
        return topic

    assert described(tool(find)) == {"topic": "What to find.", "limit": "How many."}
    bound = tool(name="find", description="Find.")(functools.partial(find, limit=3))
    assert described(bound) == {"topic": None}  # a partial function has no docstring of its own


def test_an_unknown_parameter_warns_and_names_it() -> None:
    def find(topic: str) -> str:
        """Find.

        Args:
            topics: What to find.
        """
        return topic

    with pytest.warns(UserWarning, match=r"tool 'find': the docstring describes 'topics'") as caught:
        made = tool(find)
    assert caught[0].filename == __file__
    assert described(made) == {"topic": None}
    with pytest.warns(UserWarning) as caught:
        tool(name="other")(find)
    assert caught[0].filename == __file__


def test_a_section_that_cannot_be_parsed_stays_in_the_description() -> None:
    @tool
    def find(topic: str) -> str:
        """Find.

        Args:
            whatever you look for
        """
        return topic

    assert (find.description, described(find)) == ("Find.\n\nArgs:\n    whatever you look for", {"topic": None})


def test_a_docstring_without_any_other_text_stays_the_description() -> None:
    @tool
    def find(topic: str) -> str:
        """
        Args:
            topic: What to find.
        """
        return topic

    assert find.description == "Args:\n    topic: What to find."
    assert described(find) == {"topic": "What to find."}


def test_words_of_a_section_elsewhere_change_nothing() -> None:
    @tool
    def find(topic: str) -> str:
        """Find. Args: none are special.

        Parameters: see the manual.
        """
        return topic

    assert find.description == "Find. Args: none are special.\n\nParameters: see the manual."


async def test_a_function_agent_reads_its_docstring_too() -> None:
    client = AgentClient(registry=AgentRegistry())

    @client.agent(name="quote")
    async def quote(article: str) -> float:
        """Price an order.

        Args:
            article: What is bought.
        """
        return 1.0

    @client.agent(name="silent")
    async def silent(article: str) -> float:
        return 1.0

    assert quote.function is not None and described(quote.function) == {"article": "What is bought."}
    assert (quote.description, silent.description) == ("Price an order.", "Runs the function agent 'silent'.")


def test_strict_schemas_have_nothing_beside_a_reference() -> None:
    @tool(strict=True)
    def convert(unit: Unit) -> str:
        """Convert.

        Args:
            unit: The unit.
        """
        return unit.value

    strict: Any = strict_schema(convert.parameters)
    assert strict["properties"]["unit"] == {"anyOf": [{"$ref": "#/$defs/Unit"}], "description": "The unit."}
