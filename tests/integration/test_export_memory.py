"""The memory that exports and imports of large files take."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.integration.test_export_files import BOSS, S
from tests.support.command_line import clean_environment

from helix import LocalExecutor, ScriptedModel

STATUS = "/proc/self/status"  # ru_maxrss would include the memory of this process, which started the other
MEASURED = f"""
STATUS = {STATUS!r}
import sys
from pathlib import Path
from helix.cli.main import invoke
code = invoke(sys.argv[1:])
(peak,) = [line.split()[1] for line in Path(STATUS).read_text().splitlines() if line.startswith("VmHWM:")]
print(code, peak)
"""


@pytest.mark.skipif(not Path(STATUS).exists(), reason="the system does not tell a process its peak memory")
async def test_one_large_file_at_a_time_is_in_memory(tmp_path: Path) -> None:
    for name, count, size in (("small", 1, 1_000), ("large", 3, 20_000_000)):
        async with LocalExecutor(tmp_path / f"{name}.db", model=ScriptedModel(["one"] * count)) as executor:
            for number in range(count):
                content: list[str | bytes] = ["Keep", bytes([0, number]) + bytes(size)]
                await (await executor.execute(BOSS, content, session_id=S)).result()

    def peak(*arguments: str) -> int:
        command = [sys.executable, "-c", MEASURED, *arguments]
        done = subprocess.run(
            command, cwd=tmp_path, env=clean_environment(), capture_output=True, text=True, timeout=60, check=True
        )
        code, kib = done.stdout.split()[-2:]
        assert code == "0", done
        return int(kib) // 1024

    for command in (["export", S, "--to", "{}.jsonl", "--db", "{}.db"], ["import", "{}.jsonl", "--db", "{}-2.db"]):
        small, large = (peak(*(word.format(name) for word in command)) for name in ("small", "large"))
        assert large - small < 100, (command, small, large)
    assert (tmp_path / "large.jsonl").stat().st_size > 80_000_000
