"""Describe the outcome of a crash or a race in a few words, from the trace and the history."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

CRASHES = {
    "in a tool": {"steps": 3, "kill": ["tool", 2]},
    "in the second of two tools, the first done": {"steps": 3, "width": 2, "kill": ["tools", 2]},
    "in the stream of an answer": {"steps": 3, "kill": ["stream", 2]},
    "between a tool and the model": {"steps": 3, "kill": ["model", 3]},
}


def interrupted(script: dict[str, Any]) -> set[str]:
    """The tool call that the kill interrupted: no framework can know whether it completed."""
    return {f"tool {script['kill'][1]}.{1 if script['kill'][0] == 'tools' else 0}"} & {"tool 2.0", "tool 2.1"}


def after_crash(script: dict[str, Any], before: Sequence[str], after: Sequence[str], resumed: dict[str, Any]) -> str:
    """`before`, `after`: lines of the trace, of the process that died and of the one that resumed."""
    if "killed" not in before:
        return "was not killed"
    if "error" in resumed:
        return f"cannot resume: {resumed['error']}"
    hit = interrupted(script) if script["kill"][0] in ("tool", "tools") else set()
    done = {line for line in before if line.startswith("tool ")} - hit
    paid = {line for line in before if line.startswith("model ")}
    again = sorted({line for line in after if line in done})
    bought = sorted({line for line in after if line in paid})
    found = [f"{len(again)} finished tool{'s' * (len(again) > 1)} again"] if again else []
    found += [f"{len(bought)} answer{'s' * (len(bought) > 1)} bought again"] if bought else []
    found += faults(resumed["history"])
    return ", ".join(found) or "goes on"


def faults(history: Sequence[Sequence[Any]]) -> list[str]:
    """Return the defects of the history of one turn."""
    found = []
    users = sum(entry[0] == "user" for entry in history)
    if users != 1:
        found.append(f"{users} user messages")
    open_calls: set[str] = set()
    for entry in history:
        if entry[0] == "tool":
            if entry[1] not in open_calls:
                found.append("a result twice")
            open_calls.discard(entry[1])
            continue
        if open_calls:
            found.append("a call without its result")
        open_calls = set(entry[2]) if entry[0] == "assistant" else set()
    if not history or history[-1][0] != "assistant" or history[-1][2]:
        found.append("no last answer")
    return list(dict.fromkeys(found))


def after_race(first: dict[str, Any], second: dict[str, Any], history: Sequence[Sequence[Any]]) -> str:
    """Judge two turns at once: `one`, answered `A`, and `two`, answered `B`."""
    refused = [name for name, answer in (("first", first), ("second", second)) if "refused" in answer]
    said = {(entry[0], entry[1]) for entry in history if entry[0] != "tool"}
    wanted = {
        "first": {"message": ("user", "one"), "answer": ("assistant", "A")},
        "second": {"message": ("user", "two"), "answer": ("assistant", "B")},
    }
    lost = [
        f"the {turn}'s {part}"
        for turn, parts in wanted.items()
        if turn not in refused
        for part, entry in parts.items()
        if entry not in said
    ]
    found = [f"{' and '.join(refused)} refused, the caller told"] if refused else []
    found += [f"LOST: {' and '.join(lost)}"] if lost else ["nothing lost" if refused else "both kept"]
    return ", ".join(found)
