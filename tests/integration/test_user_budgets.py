"""Budgets of each user, declared in `[tool.helix.budgets]`."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.support_budgets import asks, bounded_executor, found, says, worker
from tests.support_run import Text, World, agent, call

from helix import LocalExecutor
from helix.cli.main import invoke
from helix.core.errors import InvalidInputError
from helix.core.tools import create_sub_agent_tool
from helix.core.user_budgets import parse_user_budgets
from helix.fleet.budgets import BudgetManager
from helix.runtime.project import ProjectError, read_project
from helix.services.budget_rows import Demand
from helix.services.row_budgets import RowBudgets

PROJECT = "[tool.helix]\nagents = ['desk']\n"
NOW = 1_800_000_000.0
SPENDS = 100
"""The tokens that each run uses, which are also its worst case."""


def spender(world: World, **options: Any) -> Any:
    return bounded_executor(world, [says("done", SPENDS)] * 20, **options)


async def run(executor: Any, user: str | None, session: str | None = None) -> str | None:
    handle = await executor.execute(agent(), "go", session_id=session, user_id=user)
    result = await handle.result(timeout_s=10)
    return result.error_code or result.status


async def test_every_user_has_the_declared_budget_and_no_other_is_charged(world: World) -> None:
    executor = spender(world, user_budgets={"day": {"tokens": 2 * SPENDS}})
    for user in ("ada", "bob"):
        assert [await run(executor, user) for _ in range(3)] == ["completed", "completed", "budget_exceeded"]
    assert await run(executor, None) == "completed"  # a session without a user has no user budget


async def test_runs_at_once_of_one_user_do_not_pass_it(world: World) -> None:
    executor = spender(world, user_budgets={"day": {"tokens": 5 * SPENDS}})
    ended = await asyncio.gather(*(run(executor, "ada") for _ in range(12)))
    assert sorted(map(str, ended)) == ["budget_exceeded"] * 7 + ["completed"] * 5


async def test_sub_agents_bill_the_user_of_their_root(world: World) -> None:
    script = {
        "boss": [asks(30, call("subagent__kid", message="help")), says("done", 30)],
        "kid": [found(40)],
    }
    executor = bounded_executor(world, script, user_budgets={"day": {"tokens": 1_000}})
    kid = worker("kid", output_schema=Text)
    handle = await executor.execute(worker("boss", tools=[create_sub_agent_tool(kid)]), "go", user_id="ada")
    assert (await handle.result(timeout_s=10)).output == "done"
    budgets = BudgetManager(executor.store, user_budgets=executor.engine.budgets.user_budgets)
    assert (await budgets.check_budget(tenant="ada"))["tenant:ada_daily"].get("current_tokens") == 100


async def test_a_divided_window_is_given_the_declared_limit(world: World) -> None:
    """Nothing changes if a budget was set since the definitions were read, as on a deployed stage."""
    store = spender(world).store

    def declared(tokens: int) -> RowBudgets:
        return RowBudgets(store, shards=48, user_budgets=parse_user_budgets({"user": {"day": {"tokens": tokens}}}))

    async def drawn(budgets: RowBudgets, run_id: str, version: int = 0) -> tuple[int, int]:
        (definition,) = await budgets.definitions(["tenant:ada"])
        await budgets.fit_windows([definition], NOW, version)
        name = definition.window(NOW)[0]
        assert await budgets.open(definition, NOW, version)
        await budgets.draw(run_id, 0, [Demand(name, "tokens", 10)])
        (state,) = await budgets.get([name])
        assert state is not None
        return state.limit, state.limit - state.remaining

    first, taken = await drawn(declared(100_000), "run1")
    assert first == 100_000
    second, more = await drawn(declared(200_000), "run2")
    assert second == 200_000 and more > taken
    third, _ = await drawn(declared(50_000), "run3")
    assert third == 50_000
    stale = declared(70_000)
    await BudgetManager(store).set_budget(9, "day", tenant="bob")
    (definition,) = await stale.definitions(["tenant:ada"])
    await stale.fit_windows([definition], NOW, 0)  # a budget was set since
    (state,) = await stale.get([definition.window(NOW)[0]])
    assert state is not None and state.limit == 50_000


async def test_a_changed_declaration_holds_in_the_present_window(world: World) -> None:
    """It holds in an open session and in a new one, raised and lowered, and the usage of the window counts."""
    small, large = ({"day": {"tokens": n * SPENDS}} for n in (1, 3))
    assert [await run(spender(world, user_budgets=small), "ada", "s") for _ in range(2)] == [
        "completed",
        "budget_exceeded",
    ]
    raised = spender(world, user_budgets=large)
    assert [await run(raised, "ada", s) for s in ("s", "new", "s")] == ["completed", "completed", "budget_exceeded"]
    assert await run(spender(world, user_budgets=small), "ada", "newest") == "budget_exceeded"
    assert await run(spender(world, user_budgets={}), "ada", "s") == "completed"


async def test_a_budget_of_the_user_takes_the_place_of_the_declared_one(world: World) -> None:
    executor = spender(world, user_budgets={"day": {"tokens": SPENDS}})
    budgets = BudgetManager(executor.store, user_budgets=executor.engine.budgets.user_budgets)
    assert await run(executor, "ada", "s") == "completed"
    await budgets.set_budget(2 * SPENDS, "day", tenant="ada")
    assert [await run(executor, "ada", "s") for _ in range(2)] == ["completed", "budget_exceeded"]
    assert await budgets.remove_budget("day", tenant="ada")
    assert await run(executor, "ada", "s") == "budget_exceeded"
    status = (await budgets.check_budget(tenant="ada"))["tenant:ada_daily"]
    assert (status["current_tokens"], status["budget_limit"]) == (2 * SPENDS, SPENDS)
    changed = await budgets.change_limit("tenant:bob/day/tokens", 7)  # as an operator does in the console
    assert changed.limit == 7


async def _make_store(name: str) -> None:
    async with LocalExecutor(name) as executor:
        await BudgetManager(executor.store).set_budget(1, "day")


@pytest.mark.parametrize("option", ["--tenant", "--agent", "--session"])
def test_a_star_is_refused_with_what_to_do(
    option: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    asyncio.run(_make_store("s.db"))
    assert invoke(["fleet", "set-budget", "1", "day", option, "*", "--db", "s.db"]) == 2
    assert "would limit no one" in (line := capsys.readouterr().err) and "[tool.helix.budgets.user]" in line


async def test_the_table_of_the_project_binds_runs_of_this_process(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "below").mkdir()
    monkeypatch.chdir(tmp_path / "below")
    assert await run(spender(world), "ada") == "completed"
    (tmp_path / "pyproject.toml").write_text(f"{PROJECT}[tool.helix.budgets]\nuser.day = {{tokens = {SPENDS}}}\n")
    executor = spender(world)
    assert [await run(executor, "ada") for _ in range(2)] == ["completed", "budget_exceeded"]
    (tmp_path / "pyproject.toml").write_text(f"{PROJECT}[tool.helix.budgets]\nuser.dya = 1\n")
    with pytest.raises(ProjectError, match="did you mean 'day'"):
        spender(world)


@pytest.mark.parametrize(
    ("table", "told"),
    [
        ("users.day = 1", "tool.helix.budgets has the unknown key 'users'; its only key is the table user"),
        ("day = 1", "tool.helix.budgets has the unknown key 'day'; its only key is the table user"),
        ("user = 3", "tool.helix.budgets.user must be a table of periods, not 3"),
        ("user.daily = 1", "tool.helix.budgets.user.daily: no such period; .*; did you mean 'day'"),
        ("user.day = 0", "tool.helix.budgets.user.day: amount 0 must be at least"),
        ("user.day = '1'", "tool.helix.budgets.user.day: amount '1' is not a number"),
        ("user.day = {}", "tool.helix.budgets.user.day has no limit: give usd or tokens"),
        (
            "user.day = {token = 1}",
            "tool.helix.budgets.user.day has the unknown key 'token'; .*; did you mean 'tokens'",
        ),
        ("user.day = {usd = 1, on_exceeded = 'stop'}", "on_exceeded is 'stop'; it must be 'fail' or 'pause'"),
        ("user.hour = {tokens = 1.5}", "amount 1.5 must be at least 1 token"),
    ],
)
def test_a_wrong_table_is_named(table: str, told: str, tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(f"{PROJECT}[tool.helix.budgets]\n{table}\n")
    with pytest.raises(ProjectError, match=told):
        read_project(tmp_path)


def test_a_table_is_read_as_definitions_of_each_user() -> None:
    table = {"user": {"day": 2.5, "month": {"usd": 20, "tokens": 7, "on_exceeded": "pause"}}}
    found = [(d.name, d.limit, d.on_exceeded) for d in parse_user_budgets(table)]
    assert found == [
        ("tenant:*/day/micros", 2_500_000, None),
        ("tenant:*/month/tokens", 7, "pause"),
        ("tenant:*/month/micros", 20_000_000, "pause"),
    ]
    with pytest.raises(InvalidInputError, match="must be a table"):
        parse_user_budgets([])
