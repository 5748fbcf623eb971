"""Requests about the agents of a stage, their budgets and their usage."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from helix.core.request_fields import PAGE, BaseRequest, Limit, Name, SessionRequest


class GetBudgets(SessionRequest):
    """Read the budgets that apply to a session, in their current windows.

    Result: `{"session_id", "budgets"}`. A budget's `run` is the amount that the session's current run has spent and
    reserved. Only operators see the amounts of a budget that spans all users or a whole agent.
    """

    action: Literal["get_budgets"]
    """The name of this action."""


class ChangeBudget(BaseRequest):
    """Change the limit of a budget. Operators only. Result: `{"budget", "unit", "limit"}`.

    The new limit applies from the next model call. The rest of the budget's definition is unchanged.
    """

    action: Literal["change_budget"]
    """The name of this action."""
    budget: Name
    """The name of the budget, as `get_budgets` lists it."""
    limit: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    """The new limit, in the budget's unit: US dollars or tokens."""


class GetFleet(BaseRequest):
    """Read the limits, queues, health and scaling decisions of the agents. Operators only.

    Result: `helix.core.reports.FleetFound`, with the agents sorted by name.
    """

    action: Literal["get_fleet"]
    """The name of this action."""
    limit: Limit = 20
    """The maximum number of agents on the page."""
    after: Name | None = None
    """The `cursor` of the previous page. None for the first page."""
    agent: Name | None = None
    """The agent to read. None: all agents."""
    waiting: Annotated[int, Field(ge=0, le=PAGE)] = 5
    """The maximum number of waiting runs to return for each agent."""
    decisions: Annotated[int, Field(ge=0, le=PAGE)] = 5
    """The maximum number of scaling decisions to return for each agent."""


class GetUsage(BaseRequest):
    """Read the usage of a user. Result: `{"user", "since", "usd", "lines"}`."""

    action: Literal["get_usage"]
    """The name of this action."""
    user: Name | None = None
    """The user. None: the caller. Only operators may name another user, and they must name one."""
    hours: Annotated[int, Field(ge=1, le=168)] | None = None
    """The number of hours to include, counting the current hour. None: all usage so far."""


class ListAgents(BaseRequest):
    """List the agents that `run` accepts, sorted by name. Result: `{"agents", "cursor"}`.

    Each agent has a `name`, a `description` and a `kind` (`chat` or `function`). `input` is the JSON schema of the
    fields that `run` accepts besides `agent`, and `output` that of the result's output.
    """

    action: Literal["list_agents"]
    """The name of this action."""
    limit: Limit = 20
    """The maximum number of agents on the page."""
    after: Name | None = None
    """The `cursor` of the previous page. None for the first page."""
