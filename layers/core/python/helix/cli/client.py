"""`helix client`: the TypeScript client, which is part of the wheel and not on the npm registry."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path
from typing import Annotated

import typer

from helix.cli.output import RefusedError, write

PACKED = Path(__file__).parents[1] / "client" / "typescript.tgz"
"""The npm package of clients/js. `npm run pack:wheel` in that folder creates it."""


def client(
    pack: Annotated[bool, typer.Option("--pack", help="Write the package to the current folder")] = False,
) -> None:
    name = _file_name()
    if not pack:
        write(f"helix client --pack writes {name} to the current folder. Then: npm install ./{name}")
        return
    place = Path.cwd() / name
    content = PACKED.read_bytes()
    if place.exists() and place.read_bytes() != content:
        raise RefusedError(f"{name} exists and is another package: delete it, and run this again")
    place.write_bytes(content)
    write(f"{name} is written. Install it: npm install ./{name}")


def _file_name() -> str:
    """Return the file name that `npm pack` would give the package."""
    with tarfile.open(PACKED) as packed:
        about = packed.extractfile("package/package.json")
        assert about is not None
        described = json.load(about)
    return f"{described['name'].removeprefix('@').replace('/', '-')}-{described['version']}.tgz"
