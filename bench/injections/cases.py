"""An app, the tasks of its users, and the injections of an attacker, regardless of where they come from."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel

from helix import Guard


@dataclass(frozen=True)
class Call:
    """A call that the scripted model makes, or that a tool executed."""

    name: str
    arguments: dict[str, Any]


@dataclass
class World:
    """The environment of one run, which its tools read and change."""

    environment: Any
    before: Any
    """A copy of the environment from before the run."""
    executed: dict[str, Call] = field(default_factory=dict)
    """The calls that a tool executed, by the call's id."""


@dataclass(frozen=True)
class AppTool:
    """A tool of the app."""

    name: str
    description: str
    schema: type[BaseModel]
    run: Callable[[Any, dict[str, Any]], Any]
    """A function of the environment and the arguments. It returns JSON."""


Judge = Callable[[str, World], bool]
"""A function of the answer and the world after the run, both of which it may change."""


@dataclass(frozen=True)
class Task:
    """A task of a user."""

    id: str
    request: str
    calls: Sequence[Call]
    """The calls that perform the task."""
    answer: str
    passed: Judge
    """Whether the task was performed."""


@dataclass(frozen=True)
class Injection:
    """A goal of an attacker, which text in a tool's result names."""

    id: str
    goal: str
    calls: Callable[[World], Sequence[Call]]
    """The calls that reach the goal in this world."""
    answer: str
    succeeded: Judge
    """Whether the goal was reached."""


@dataclass(frozen=True)
class App:
    """An app: its tools, and the settings that its owner chose."""

    name: str
    tools: Sequence[AppTool]
    changing: Collection[str]
    """The tools that change something or send something. With approvals, they need one."""
    guards: Sequence[Guard]


@dataclass(frozen=True)
class Configuration:
    """A row of the table."""

    name: str
    approvals: bool
    guards: bool
    reviewer: str
    """A key of `playing.REVIEWERS`: who answers when a call waits for a person."""
