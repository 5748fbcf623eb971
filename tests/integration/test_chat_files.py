"""Files in `helix chat`, on its screen."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.integration.test_files import Looks
from tests.support.chat_screen import screen
from tests.support.sample_files import png
from tests.support_gateway import executor_of

pytestmark = pytest.mark.slow


async def test_a_file_is_attached_by_a_command(tmp_path: Path) -> None:
    photo = tmp_path / "my dog.png"
    photo.write_bytes(png(20, 10))
    model = Looks()
    async with screen(executor_of(model)) as s:
        await s.type(f'/attach "{photo}" Who is this?')
        await s.until("my dog.png (image/png, 20 x 10")
        await s.ended()
        assert "Who is this?" in s.text and model.seen == [[("image/png", png(20, 10))]]
        await s.type(f"/attach {tmp_path}/none.png")
        await s.until("cannot be read")
        assert s.app.prompt.text == f"/attach {tmp_path}/none.png"
