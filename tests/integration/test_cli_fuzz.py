"""Any arguments and settings: one line says what is wrong, and there is never a traceback."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from tests.support.command_line import CommandLine

from helix.cli.main import Fleet, Helix, Keys

NOT_HERE = {"dev", "console", "mcp", "demo", "deploy", "check", "destroy", "init", "fleet", "keys", "serve"}
"""Commands that start servers or create projects. Their own tests cover wrong settings."""
COMMANDS = [
    *([name] for name in Helix.table if name not in NOT_HERE),
    *(["keys", name] for name in Keys.table),
    *(["fleet", name] for name in Fleet.table if name not in NOT_HERE),
]
OPTIONS = [
    "--db",
    "--url",
    "--key",
    "--stage",
    "--profile",
    "--region",
    "--json",
    "--limit",
    "--after",
    "--user",
    "--status",
    "--agent",
    "--tag",
    "--since",
    "--waiting",
    "--last",
    "--all",
    "--checkpoint",
    "--step",
    "--to",
    "--messages",
    "--message",
    "--approve",
    "--deny",
    "--data",
    "--reason",
    "--model",
    "--fleet",
    "--session",
    "--from-start",
    "--idle",
    "--logs",
    "--yes",
    "--abort",
    "--tenant",
    "--name",
    "--days",
    "--unit",
    "--level",
    "--on-exceeded",
    "--force",
    "--nonsense",
]


def values(folder: Path) -> list[str]:
    (folder / "folder").mkdir()
    (folder / "empty").touch()
    (folder / "binary").write_bytes(bytes(range(256)) * 40)
    (folder / "broken.py").write_text("import nothing_of_this_name\n")
    (folder / "raises.py").write_text("raise ValueError('no')\n")
    (folder / "exits.py").write_text("raise SystemExit(3)\n")
    (folder / "head.jsonl").write_text(json.dumps({"helix_export": 1, "session_id": "a"}) + "\n")
    (folder / "newer.jsonl").write_text(json.dumps({"helix_export": 9, "session_id": "a"}) + "\n")
    return [
        *(
            "a",
            "nobody",
            "desk",
            "agents.py:desk",
            "agents.py:none",
            "broken.py:a",
            "raises.py:a",
            "exits.py:a",
            "folder",
        ),
        *("empty", "binary", "head.jsonl", "newer.jsonl", "helix.db", "missing.db", "folder/x/y.db", "/dev/null", "/"),
        *(
            "",
            " ",
            "-1",
            "0",
            "1",
            "999999999999999999999",
            "1e999",
            "nan",
            "true",
            "[]",
            "{",
            "null",
            "day",
            "usd",
            "hour",
        ),
        *("http://127.0.0.1:9", "ws://", "ws://127.0.0.1:99999", "wss://[", "ws://a b", "redis://127.0.0.1:1/0", "://"),
        *(
            "call_0",
            "cpv1-a-s1-t1-000001",
            "\x00",
            "\n",
            "ü" * 300,
            "\U0001f600",
            "x" * 2000,
            "%s",
            "$(x)",
            "'",
            "--",
            "-",
        ),
        *("2h", "2026-11-23", "2026-99-99", "99999999999d", "paused", "deleting", "completed", "\ud800", "a/b", "../a"),
    ]


VARIABLES = {
    "HELIX_DB": ("folder", "binary", "/", ""),
    "HELIX_LEASE_SECONDS": ("no", "-1", "nan", "inf"),
    "HELIX_LOG": ("loud", "", "debug "),
    "HELIX_AGENTS": ("nothing_here", "broken.py", "raises.py", ",,"),
    "HELIX_KEY": ("", "x" * 9000, "ü"),
    "HELIX_LOG_CONTENT": ("maybe",),
    "AWS_PROFILE": ("nobody",),
    "AWS_ENDPOINT_URL": ("nonsense", "http://127.0.0.1:1"),
}


@pytest.mark.parametrize("seed", range(6))
def test_no_command_line_and_no_setting_is_a_defect(seed: int, tmp_path: Path) -> None:
    chance = random.Random(f"helix {seed}")
    helix = CommandLine(tmp_path, AWS_EC2_METADATA_DISABLED="true", AWS_CONFIG_FILE="none", AWS_MAX_ATTEMPTS="1")
    pool = values(tmp_path)
    assert helix("run", "agents.py:talker", "Hello there", "--session", "a").code == 0
    for number in range(40):
        words = list(chance.choice(COMMANDS))
        words += [chance.choice(pool) for _ in range(chance.randint(0, 3))]
        for option in chance.sample(OPTIONS, chance.randint(0, 3)):
            words += [option, *([chance.choice(pool)] if chance.random() < 0.7 else [])]
        chosen = chance.sample(sorted(VARIABLES), chance.choice((0, 0, 0, 1, 2)))
        environment = {name: chance.choice(VARIABLES[name]) for name in chosen}
        done = helix(*words, environment=environment)
        assert done.code in (0, 2, 3, 4), (number, words, environment, done)
        assert "Traceback" not in done.err and "internal error" not in done.err, (words, environment, done)
        assert done.code != 2 or done.err.startswith("helix: ") or "\nhelix: " in done.err, (words, environment, done)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "is incomplete"),
        ("nonsense\n", "line 1 is not a JSON object"),
        ('{"session_id": "a"}\n', "line 1 is not the head"),
        ('{"helix_export": 3, "helix": "9.0", "session_id": "a"}\n', "has format 3, made by Helix 9.0"),
        ('{"helix_export": 1, "session_id": "a"}\n', "is incomplete"),
        ('{"helix_export": 1, "session_id": "a"}\n{"end": true, "rows": 1}\n', "says that it has 1 rows"),
        ('{"helix_export": 1, "session_id": "a"}\n{"end": true, "rows": 0}\n', "does not have the row of session 'a'"),
        ('{"helix_export": 1, "session_id": "a#b"}\n{"end": true, "rows": 0}\n', "session_id 'a#b'"),
    ],
)
def test_a_file_that_is_no_export_is_refused(tmp_path: Path, text: str, says: str) -> None:
    helix = CommandLine(tmp_path)
    (tmp_path / "file").write_text(text)
    assert says in helix("import", "file").refusal
    assert not (tmp_path / "helix.db").exists()


def test_rows_of_a_session_of_others_are_not_imported(tmp_path: Path) -> None:
    helix = CommandLine(tmp_path)
    helix("run", "agents.py:talker", "Hello there", "--session", "a")
    helix("export", "a", "--to", "a.jsonl")
    lines = (tmp_path / "a.jsonl").read_text().splitlines()
    (tmp_path / "b.jsonl").write_text("\n".join(lines).replace('"partition": "a"', '"partition": "b"'))
    assert "'b'" in helix("import", "b.jsonl", "--db", "new.db").refusal
    row = json.dumps({"table": "sessions", "partition": "index#x", "sort": "session", "value": {"a": 1}})
    (tmp_path / "c.jsonl").write_text(
        "\n".join([lines[0], row, *lines[1:-1], json.dumps({"end": True, "rows": len(lines) - 1})])
    )
    assert "does not belong to one of its sub-agents" in helix("import", "c.jsonl", "--db", "new.db").refusal
