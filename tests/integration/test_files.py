"""Files in messages and tool results: stored once by content, named by rows, and read by model calls."""

from pathlib import Path
from typing import Any

import pytest
from tests.support.sample_files import pdf, png

from helix import Agent, Audio, Document, Image, LLMConfig, LocalExecutor, ScriptedModel, SQLiteStateStore, Text, tool
from helix.core.context_policy import Context
from helix.core.errors import FileMissingError, InvalidFileError, InvalidInputError, SessionNotFoundError
from helix.core.files import Content, FilePart
from helix.core.initial import AgentInput
from helix.core.messages import AnyMessage, ToolResultMessage, UserMessage, files_of
from helix.core.steps import AnyStepResult
from helix.ports.model import LLMGenerateInput
from helix.ports.state_store import Delete, StateStore
from helix.runtime.edits import edit, present_run
from helix.services.file_inputs import read_input
from helix.testing.invariants import check_session

S = "ses"


class Looks:
    """A model that records the messages that it gets, with the bytes of their files."""

    def __init__(self, *answers: Any) -> None:
        self.seen: list[list[tuple[str, bytes | str]]] = []
        self.messages: list[list[AnyMessage]] = []
        self._scripted = ScriptedModel([*answers, "done"], repeat=True, record=False)

    async def generate_step(self, request: LLMGenerateInput) -> AnyStepResult:
        files = files_of(request.messages)
        self.messages.append(list(request.messages))
        self.seen.append([(f.media_type, f.url or await request.files.read(f)) for f in files])
        return await self._scripted.generate_step(request)


def agent(**more: Any) -> Agent:
    return Agent(name="desk", system_prompt="Look.", llm_config=LLMConfig(model="scripted"), **more)


async def rows_of(store: StateStore) -> list[tuple[str, int]]:
    from helix.core.json import dumps

    return [(row.key.sort, len(dumps(row.value))) for row in await store.query("sessions", S)]


async def test_a_message_with_files_reaches_the_model_in_order(tmp_path: Path) -> None:
    photo = tmp_path / "photo.png"
    photo.write_bytes(png(20, 10))
    model = Looks()
    async with LocalExecutor(tmp_path / "helix.db", model=model) as executor:
        content: Content = [
            "What is on",
            Image(photo),
            Text("and in"),
            Document(pdf(3)),
            Image("https://example.com/a.png"),
        ]
        result = await (await executor.execute(agent(), content, session_id=S)).result()
        assert result.status == "completed", result.error
        (first,) = model.seen
        assert first == [
            ("image/png", photo.read_bytes()),
            ("application/pdf", pdf(3)),
            ("image/png", "https://example.com/a.png"),
        ]
        message = model.messages[0][1]
        assert isinstance(message, UserMessage) and message.content == "What is on\nand in"
        assert [file.after_text for file in message.files] == [10, 17, 17]
        assert (message.files[0].name, message.files[0].width, message.files[1].pages) == ("photo.png", 20, 3)
        await check_session(executor.store, executor.streams, S, at_rest=True)
        assert await executor.read_file(S, message.files[0]) == photo.read_bytes()
        assert max(size for _, size in await rows_of(executor.store)) < 4_000


async def test_a_message_may_have_only_a_file_but_not_nothing(tmp_path: Path) -> None:
    model = Looks()
    async with LocalExecutor(":memory:", model=model) as executor:
        assert (await (await executor.execute(agent(), png(2, 2), session_id=S)).result()).status == "completed"
        await check_session(executor.store, executor.streams, S, at_rest=True)
        assert model.seen[0] == [("image/png", png(2, 2))]
        with pytest.raises(InvalidInputError, match="message is empty"):
            await executor.execute(agent(), [])
        with pytest.raises(InvalidFileError, match="is text/html"):
            await executor.execute(agent(), ["Look", Image(b"<!doctype html><html></html>")])


async def test_a_tool_returns_files() -> None:
    @tool
    def camera() -> Any:
        """Take a photo."""
        return ["Here it is:", Image(png(4, 4), name="door.png")]

    model = Looks({"tool_calls": [{"name": "camera", "arguments": {}}]})
    async with LocalExecutor(":memory:", model=model) as executor:
        handle = await executor.execute(agent(tools=[camera]), "Who is at the door?", session_id=S)
        assert (await handle.result()).status == "completed"
        result = model.messages[1][-1]
        assert isinstance(result, ToolResultMessage) and result.content == "Here it is:"
        assert [file.name for file in result.files] == ["door.png"] and model.seen[1] == [("image/png", png(4, 4))]
        await check_session(executor.store, executor.streams, S, at_rest=True)


async def test_a_tool_that_returns_a_bad_file_fails_its_call() -> None:
    @tool
    def camera() -> Any:
        """Take a photo."""
        return Audio(png(4, 4))

    model = Looks({"tool_calls": [{"name": "camera", "arguments": {}}]})
    async with LocalExecutor(":memory:", model=model) as executor:
        assert (await (await executor.execute(agent(tools=[camera]), "Go.")).result()).status == "completed"
        result = model.messages[1][-1]
        assert isinstance(result, ToolResultMessage) and not result.success and "image/png" in result.content


async def test_retry_resume_and_branch_keep_the_files(tmp_path: Path) -> None:
    model = Looks(ValueError("broken"), "done", "done")
    desk = Agent(name="desk", system_prompt="Look.", llm_config=LLMConfig(model="scripted", max_retries=0))
    async with LocalExecutor(tmp_path / "helix.db", model=model) as executor:
        assert (await (await executor.execute(desk, ["Look", png(3, 3)], session_id=S)).result()).status == "failed"
        again = await executor.retry(desk, S, mode="from_start")
        assert (await again.result()).status == "completed"
        assert model.seen[-1] == [("image/png", png(3, 3))]
        copy = await executor.branch(S)
        assert await executor.delete(S)
        assert (
            await (await executor.execute(desk, "And now?", session_id=copy.session_id)).result()
        ).status == "completed"
        assert model.seen[-1] == [("image/png", png(3, 3))]


async def test_a_branch_without_a_user_names_the_files_of_its_history() -> None:
    """Without a user each session owns its files, so a branch holds files of another owner."""
    model = Looks()
    async with LocalExecutor(":memory:", model=model) as executor:
        given = AgentInput(message="Look", metadata={"id": "m1"})
        await (await executor.execute(agent(), ["Hi", png(5, 5)], session_id="first")).result()
        (file,) = files_of(model.messages[-1])
        await (await executor.execute(agent(), given, session_id="first")).result()
        await executor.branch("first", session_id=S)
        await (await executor.execute(agent(), ["Again", file, png(6, 6)], session_id=S)).result()
        assert model.seen[-1] == [("image/png", png(5, 5))] * 2 + [("image/png", png(6, 6))]
        edited = given.model_copy(update={"message": "Compare", "files": [file]})
        handle = await edit(executor, agent(), S, edited, user_id=None, key="k")  # of a copied message
        assert (await handle.result()).status == "completed" and model.seen[-1] == [("image/png", png(5, 5))] * 2
        assert [message.content for message in await said(executor)] == ["Hi", "Compare"]
        await check_session(executor.store, executor.streams, S, at_rest=True)


async def test_a_tool_of_a_branch_returns_a_file_of_the_history() -> None:
    shown: list[FilePart] = []

    @tool
    def crop() -> Any:
        """Crop the picture."""
        return shown

    model = Looks("done", {"tool_calls": [{"name": "crop", "arguments": {}}]})
    async with LocalExecutor(":memory:", model=model) as executor:
        desk = agent(tools=[crop])
        await (await executor.execute(desk, png(5, 5), session_id="first")).result()
        shown += files_of(model.messages[-1])
        await executor.branch("first", session_id=S)
        await (await executor.execute(desk, "Crop it", session_id=S)).result()
        assert model.seen[-1] == [("image/png", png(5, 5))] * 2


async def test_another_session_of_the_user_names_the_file_and_another_user_cannot() -> None:
    model = Looks()
    async with LocalExecutor(":memory:", model=model) as executor:
        await (await executor.execute(agent(), png(5, 5), session_id=S, user_id="ann")).result()
        message = model.messages[0][1]
        assert isinstance(message, UserMessage)
        (file,) = message.files
        second = await executor.execute(agent(), ["Again", file], user_id="ann")
        assert (await second.result()).status == "completed" and model.seen[-1] == [("image/png", png(5, 5))]
        with pytest.raises(FileMissingError):
            await executor.execute(agent(), ["Mine?", file], user_id="bob")


async def test_a_message_to_another_users_session_stores_nothing_and_tells_nothing() -> None:
    """The error is the same whether the owner of the session has these bytes or not."""
    model = Looks()
    async with LocalExecutor(":memory:", model=model) as executor:
        await (await executor.execute(agent(), ["Hers", png(5, 5)], session_id=S, user_id="ann")).result()
        held = await executor.store.query("sessions", S, start="b#", end="b$")
        (file,) = files_of(model.messages[0])
        other = file.model_copy(update={"sha256": "0" * 64})
        for content in (["Look", file], ["Look", other], ["Look", png(6, 6)]):
            with pytest.raises(SessionNotFoundError):
                await executor.execute(agent(), content, session_id=S, user_id="bob")  # type: ignore[arg-type]
        assert await executor.store.query("sessions", S, start="b#", end="b$") == held


async def test_a_url_in_a_file_part_is_checked_like_any_other() -> None:
    async with LocalExecutor(":memory:", model=Looks()) as executor:
        local = FilePart(kind="image", media_type="image/png", url="file:///etc/hosts")
        for content in (local, Image(local)):
            with pytest.raises(InvalidFileError, match="not an https URL"):
                await executor.execute(agent(), ["Look", content])


async def test_an_imported_session_goes_on_without_the_files_that_it_does_not_hold() -> None:
    model = Looks()
    async with LocalExecutor(":memory:", model=model) as executor:
        assert (
            await (await executor.execute(agent(), ["Look", png(3, 3)], session_id=S)).result()
        ).status == "completed"
        for row in await executor.store.query("sessions", S, start="b#", end="b$"):
            await executor.store.transact("lose_hold", [Delete(row.key)])
        assert (await (await executor.execute(agent(), "And now?", session_id=S)).result()).status == "completed"
    assert model.seen[-1] == [] and "[The image image/png is not available.]" in str(model.messages[-1][1].content)


async def test_old_files_are_cleared_from_the_view() -> None:
    model = Looks()
    desk = agent(context=Context(window=6_000, keep_steps=1))
    async with LocalExecutor(":memory:", model=model) as executor:
        for number in range(8):
            content: Content = ["Look at this", Image(png(1000, 1000 + number), name=f"photo {number}.png")]
            assert (await (await executor.execute(desk, content, session_id=S)).result()).status == "completed"
    shown = model.messages[-1]
    assert len(files_of(shown)) < 8 and "photo 0.png is no longer shown" in str([m.content for m in shown])


async def test_an_opened_sqlite_store_has_the_same_place_for_files(tmp_path: Path) -> None:
    model = Looks()
    async with LocalExecutor(SQLiteStateStore(tmp_path / "helix.db"), model=model) as executor:
        assert (
            await (await executor.execute(agent(), ["Look", png(2, 2)], session_id=S)).result()
        ).status == "completed"
        (file,) = files_of(model.messages[0])
    async with LocalExecutor(tmp_path / "helix.db", model=model) as executor:
        assert await executor.read_file(S, file) == png(2, 2)


async def test_a_store_without_a_place_for_files_refuses_them() -> None:
    from helix.adapters.memory import MemoryStateStore

    class Own(MemoryStateStore):
        pass

    executor = LocalExecutor(Own(), model=Looks())
    executor.engine.files = None
    with pytest.raises(InvalidFileError, match="no place for files"):
        await executor.execute(agent(), ["Look", png(2, 2)])


def test_a_file_part_is_public() -> None:
    assert FilePart(kind="image", media_type="image/png", url="https://example.com/a.png").size == 0


async def test_files_that_are_stored_are_named_by_their_position_in_the_text(tmp_path: Path) -> None:
    model = Looks()
    async with LocalExecutor(tmp_path / "helix.db", model=model) as executor:
        first = await executor.execute(agent(), ["See", Image(png(20, 10)), "please"], session_id=S)
        await first.result()
        stored = (await said(executor))[0].files[0]
        wrong = stored.model_copy(update={"size": 1, "media_type": "text/html", "after_text": 99})
        given = AgentInput(message="Again", files=[wrong])
        await (await executor.execute(agent(), given, session_id=S)).result()
        point = (await executor.sessions.list_checkpoints(S, limit=1)).items[0].id
        await (await executor.resume(agent(), S, message=given, checkpoint_id=point)).result()
        again = (await said(executor))[-1]
        assert again.content == "Again"
        assert again.files == [stored.model_copy(update={"after_text": 5})], "the metadata is the blob's"
        mapped = {"message": "Once more", "files": [stored.model_dump()]}
        await (await executor.execute(agent(), mapped, session_id=S)).result()
        assert (await said(executor))[-1].files[0].sha256 == stored.sha256
        with pytest.raises(InvalidInputError, match="takes no state"):
            await executor.resume(agent(), S, message=AgentInput(message="x", state={"a": 1}))
        with pytest.raises(InvalidFileError, match="not an https URL"):
            bad = FilePart(kind="image", media_type="image/png", url="http://example.com/a.png")
            await executor.execute(agent(), AgentInput(message="x", files=[bad]), session_id=S)


async def test_the_sizes_of_stored_files_are_those_of_their_blobs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A caller may name stored files with a size of 0, which must not lift the limit of a message."""
    async with LocalExecutor(tmp_path / "helix.db", model=Looks()) as executor:
        await (await executor.execute(agent(), [png(20, 10), pdf(3)], session_id=S)).result()
        stored = [file.model_copy(update={"size": 0}) for file in (await said(executor))[0].files]
        monkeypatch.setattr("helix.core.file_checks.MAX_MESSAGE_BYTES", 200)
        with pytest.raises(InvalidFileError, match="bytes together"):
            await executor.execute(agent(), AgentInput(message="Both", files=stored), session_id=S)


async def test_an_edit_may_change_only_the_files(tmp_path: Path) -> None:
    async with LocalExecutor(tmp_path / "helix.db", model=Looks()) as executor:
        await (await executor.execute(agent(), ["Hi", png(20, 10)], session_id=S)).result()
        (image,) = (await said(executor))[0].files
        given = AgentInput(message="Look", files=[image], metadata={"id": "m1"})
        await (await executor.execute(agent(), given, session_id=S)).result()
        run = (await executor.engine.history.existing(S)).run_id
        same = await edit(executor, agent(), S, given, user_id=None, key="k1")
        assert same.run_id == run
        beyond = given.model_copy(update={"files": [image.model_copy(update={"after_text": 99})]})
        moved = await edit(executor, agent(), S, beyond, user_id=None, key="k3")
        await moved.result()
        assert moved.run_id != run and (await said(executor))[-1].files[0].after_text == 4
        same = await edit(executor, agent(), S, beyond, user_id=None, key="k4")
        assert same.run_id == moved.run_id, "a repeat"
        _, read = await read_input(agent(), beyond)
        assert await present_run(executor, S, beyond, read) == moved.run_id
        other = given.model_copy(update={"files": []})
        await (await edit(executor, agent(), S, other, user_id=None, key="k2")).result()
        last = (await said(executor))[-1]
        assert last.content == "Look" and last.files == [] and len(await said(executor)) == 2


async def said(executor: LocalExecutor) -> list[UserMessage]:
    found = await executor.sessions.load_conversation_messages(S)
    return [message for message in found if isinstance(message, UserMessage)]
