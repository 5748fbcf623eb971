"""The tables of the outcomes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

Outcome = Mapping[str, Any]
"""An `Outcome` as JSON."""
HEAD = (
    "| configuration | injections that reached their goal | tasks done under attack | tasks done without attack | "
    "questions per task under attack | without attack |\n|---|---:|---:|---:|---:|---:|"
)


def tables(outcomes: Sequence[Outcome]) -> str:
    """Return the tables as Markdown. `outcomes` has every case in every configuration, the first of which has neither
    approvals nor guards."""
    configurations = list(dict.fromkeys(one["configuration"] for one in outcomes))
    by = {name: [one for one in outcomes if one["configuration"] == name] for name in configurations}
    lines = ["## All suites", "", HEAD, *(_line(name, by[name]) for name in configurations), ""]
    lines += ["## Injections that reached their goal, by suite", "", *_suites(by), ""]
    lines += ["## Injections that reached their goal, by the attacker's task", "", *_remaining(by), ""]
    lines += ["## Tasks that pass without approvals and guards, and fail with them", "", *_lost(by), ""]
    lines += ["## Verdicts of guards, under attack and without attack", "", *_verdicts(by)]
    return "\n".join(lines) + "\n"


def _line(name: str, outcomes: Sequence[Outcome]) -> str:
    attacked = [one for one in outcomes if one["injection"]]
    benign = [one for one in outcomes if not one["injection"]]
    reached = sum(one["succeeded"] for one in attacked)
    return (
        f"| {name} | {reached} of {len(attacked)} | {_passed(attacked)} | {_passed(benign)} | "
        f"{_questions(attacked)} | {_questions(benign)} |"
    )


def _passed(outcomes: Sequence[Outcome]) -> str:
    return f"{sum(one['passed'] for one in outcomes)} of {len(outcomes)}"


def _questions(outcomes: Sequence[Outcome]) -> str:
    return f"{sum(one['questions'] for one in outcomes) / max(1, len(outcomes)):.2f}"


def _suites(by: Mapping[str, Sequence[Outcome]]) -> Iterable[str]:
    first = next(iter(by.values()))
    pairs = Counter(one["app"] for one in first if one["injection"])
    yield f"| configuration | {' | '.join(f'{app} ({count})' for app, count in pairs.items())} |"
    yield f"|---|{'---:|' * len(pairs)}"
    for name, outcomes in by.items():
        reached = Counter(one["app"] for one in outcomes if one["succeeded"])
        yield f"| {name} | {' | '.join(str(reached[app]) for app in pairs)} |"


def _remaining(by: Mapping[str, Sequence[Outcome]]) -> Iterable[str]:
    for name, outcomes in list(by.items())[1:]:
        reached = Counter(f"{one['app']} {one['injection'].rpartition('_')[2]}" for one in outcomes if one["succeeded"])
        yield f"- {name}: {', '.join(f'{key} ({count})' for key, count in sorted(reached.items())) or 'none'}"


def _lost(by: Mapping[str, Sequence[Outcome]]) -> Iterable[str]:
    first, *others = by
    passed = {_key(one) for one in by[first] if one["passed"]}
    for name in others:
        lost = sorted((one for one in by[name] if not one["passed"] and _key(one) in passed), key=_place(by[first]))
        tasks = [f"{one['app']} {one['task'].rpartition('_')[2]}" for one in lost if not one["injection"]]
        named = f" ({', '.join(tasks)})" if tasks else ""
        yield f"- {name}: {len(lost) - len(tasks)} under attack, {len(tasks)} without attack{named}"


def _place(outcomes: Sequence[Outcome]) -> Callable[[Outcome], tuple[int, int]]:
    """Return a key that sorts outcomes by the app and the number of their task. Packages list tasks in any order."""
    apps = list(dict.fromkeys(one["app"] for one in outcomes))
    return lambda one: (apps.index(one["app"]), int(one["task"].rpartition("_")[2]))


def _key(one: Outcome) -> tuple[str, str, str]:
    return one["app"], one["task"], one["injection"]


def _verdicts(by: Mapping[str, Sequence[Outcome]]) -> Iterable[str]:
    """Yield the verdicts other than allow in the first configuration with any."""
    guarded = next((found for found in by.values() if any(one["verdicts"] for one in found)), [])
    counts = {True: Counter[str](), False: Counter[str]()}
    for one in guarded:
        counted = {f"{one['app']}, {verdict}": count for verdict, count in one["verdicts"].items()}
        counts[bool(one["injection"])].update(counted)
    for key in sorted({*counts[True], *counts[False]}):
        yield f"- {key}: {counts[True][key]} and {counts[False][key]}"
