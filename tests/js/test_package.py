"""The TypeScript client is checked, tested and small, and its package has only what a user needs."""

from __future__ import annotations

import asyncio
import gzip
import json
import re
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest
from tests.js.conftest import CLIENT, Npm
from tests.support_gateway import executor_of, served
from typer.testing import CliRunner

from helix.cli.client import PACKED
from helix.cli.main import app

pytestmark = pytest.mark.slow
MOST_BYTES = 15_000
NODE = subprocess.run(["node", "--version"], capture_output=True, text=True, check=True).stdout


def test_generated_parts_and_types_are_right(npm: Npm) -> None:
    npm("run", "check")


def test_its_own_tests_pass(npm: Npm) -> None:
    npm("test")


def test_the_whole_client_is_small(npm: Npm, package: Path) -> None:
    """Its size counts bundled, minified and compressed, as a page loads it."""
    esbuild = str(CLIENT / "node_modules" / ".bin" / "esbuild")
    bundle = [esbuild, "dist/index.js", "--bundle", "--minify", "--format=esm"]
    done = subprocess.run(bundle, cwd=package, capture_output=True, check=True)
    assert 1_000 < len(gzip.compress(done.stdout, 9)) < MOST_BYTES


def test_the_package_has_its_entry_points_and_one_dependency(package: Path) -> None:
    about = json.loads((package / "package.json").read_text())
    assert set(about["dependencies"]) == {"partial-json"}
    for entry in about["exports"].values():
        assert all((package / path).is_file() for path in entry.values())
    files = {path.relative_to(package).parts[0] for path in package.rglob("*") if path.is_file()}
    assert files == {"LICENSE", "README.md", "dist", "package.json"}


def test_it_runs_from_where_it_is_installed(npm: Npm, package: Path, tmp_path: Path) -> None:
    """A project depends on it and imports it by name."""
    (tmp_path / "package.json").write_text('{"type": "module"}')
    target = tmp_path / "node_modules" / "@helix-agents" / "client"
    target.parent.mkdir(parents=True)
    target.symlink_to(package)
    script = 'import { HelixClient } from "@helix-agents/client"; console.log(typeof HelixClient.connect);'
    node = CLIENT / "node_modules" / ".bin" / "node"
    done = subprocess.run([node, "--input-type=module", "-e", script], cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "function\n"), done.stderr


def test_the_wheel_has_what_the_sources_give(package: Path) -> None:
    fresh = {str(path.relative_to(package)): path.read_bytes() for path in package.rglob("*") if path.is_file()}
    with tarfile.open(PACKED) as packed:
        members = {one.name.removeprefix("package/"): packed.extractfile(one) for one in packed.getmembers()}
        stored = {name: file.read() for name, file in members.items() if file is not None}
    assert stored == fresh, "in clients/js: npm run pack:wheel"


def test_its_readme_has_no_links_that_leave_the_package(package: Path) -> None:
    readme = (package / "README.md").read_text()
    assert re.findall(r"\]\((?!https?://)([^)]*)\)", readme) == []


@pytest.fixture
def project(npm: Npm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project that has installed the package written by `helix client --pack`."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "package.json").write_text('{"type": "module"}')
    done = CliRunner().invoke(app, ["client", "--pack"])
    assert done.exit_code == 0 and "npm install ./helix-agents-client-" in done.output
    (packed,) = tmp_path.glob("helix-agents-client-*.tgz")
    npm("install", "--offline", "--no-audit", "--no-fund", f"./{packed.name}", cwd=tmp_path)
    return tmp_path


def test_its_types_are_those_that_strict_projects_want(project: Path) -> None:
    (project / "page.ts").write_text(
        'import type { StatePatchChunk } from "@helix-agents/client";\n'
        "export const paths = ({ patches }: StatePatchChunk): string[] =>\n"
        '  patches.flatMap(({ op, path }) => (op === "add" || op === "replace" ? [path] : []));\n'
        "// @ts-expect-error: there is no such operation\n"
        'export const wrong = ({ patches }: StatePatchChunk) => patches.some(({ op }) => op === "ad");\n'
    )
    words = ["--strict", "--noEmit", "--exactOptionalPropertyTypes", "--module", "nodenext", "--target", "es2022"]
    tsc = [str(CLIENT / "node_modules" / ".bin" / "tsc"), *words, "--lib", "es2022,dom,dom.asynciterable", "page.ts"]
    done = subprocess.run(tsc, cwd=project, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


async def test_it_runs_on_the_node_that_helix_asks_for(project: Path) -> None:
    """It runs on the Node of this machine, which is version 20 or later. Version 20 has a WebSocket behind a flag."""
    node = shutil.which("node")
    assert node is not None
    flags = ["--experimental-websocket"] if NODE.startswith(("v20.", "v21.")) else []
    (project / "play.mjs").write_text(
        'import { HelixClient } from "@helix-agents/client";\n'
        "const client = await HelixClient.connect(process.argv[2]);\n"
        'const run = await client.run("helper", "Hello");\n'
        "console.log((await run.result()).text);\n"
        "client.close();\n"
    )
    async with served(executor_of(["Hello yourself."])) as (gateway, _):

        async def play(*words: str) -> str:
            process = await asyncio.create_subprocess_exec(
                *(node, *words, "play.mjs", gateway.url),
                cwd=project,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
            )
            return (await process.communicate())[0].decode()

        if flags:
            assert "no_websocket" in await play() and "settings.webSocket" in await play()
        assert (await play(*flags)).splitlines()[-1] == "Hello yourself."
