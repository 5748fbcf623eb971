"""Guarantees of the DynamoDB store alone: callers do not notice its limits, and unknown outcomes are reported as
unknown."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import pytest
from botocore.exceptions import ClientError
from tests.support.aws_resources import BUCKET, CLOCK, fresh, make_store, make_tables, tables

from helix.adapters.aws.dynamodb import DynamoDBStateStore
from helix.adapters.aws.items import item_bytes
from helix.adapters.aws.overflow import Overflow
from helix.core.errors import ConditionFailedError, ContentionError, DamagedRowError, InvalidInputError, StoreError
from helix.ports.state_store import ABSENT, Delete, Key, Operation, Put, Update, When

S = "session/1"


@pytest.fixture
def prefix(aws: dict[str, Any]) -> str:
    found = fresh()
    make_tables(aws["dynamodb"], found)
    for one in objects(aws):
        aws["s3"].delete_object(Bucket=BUCKET, Key=one)
    return found


class Faulty:
    """A client that first runs one of `acts` before a call of one verb, each of them once."""

    def __init__(self, client: Any, verb: str, *acts: Callable[[], Any]) -> None:
        self._client, self._verb, self._acts = client, verb, list(acts)

    def __getattr__(self, verb: str) -> Any:
        if verb == "meta":
            return self._client.meta

        def call(**request: Any) -> Any:
            if verb == self._verb and self._acts:
                self._acts.pop(0)()
            return getattr(self._client, verb)(**request)

        return call


def refusal(code: str, *reasons: str, retried: int = 0) -> Callable[[], Any]:
    def fail() -> Any:
        answer: Any = {"Error": {"Code": code, "Message": code}, "ResponseMetadata": {"RetryAttempts": retried}}
        raise ClientError(answer | {"CancellationReasons": [{"Code": reason} for reason in reasons]}, "Write")

    return fail


def key(sort: str, partition: str = S) -> Key:
    return Key("sessions", partition, sort)


def noise(size: int, seed: int = 1) -> str:
    """Return a text that does not compress below half its size."""
    return random.Random(seed).randbytes(size // 2).hex()


def objects(aws: dict[str, Any]) -> list[str]:
    return [one["Key"] for one in aws["s3"].list_objects_v2(Bucket=BUCKET).get("Contents", [])]


def items(aws: dict[str, Any], prefix: str) -> list[Any]:
    found: list[Any] = []
    more: dict[str, Any] = {}
    while True:
        page = aws["dynamodb"].scan(TableName=tables(prefix)["sessions"], **more)
        found += page["Items"]
        if "LastEvaluatedKey" not in page:
            return found
        more = {"ExclusiveStartKey": page["LastEvaluatedKey"]}


# --- many keys ----------------------------------------------------------------------------------------------------------


class Partial:
    """A client that reads one key of each batch and reports the others as unprocessed."""

    def __init__(self, client: Any) -> None:
        self._client, self.batches = client, 0

    def __getattr__(self, verb: str) -> Any:
        return getattr(self._client, verb)

    def batch_get_item(self, *, RequestItems: dict[str, Any]) -> Any:
        self.batches += 1
        ((table, asked),) = RequestItems.items()
        first, *left = asked["Keys"]
        answer = self._client.batch_get_item(RequestItems={table: {**asked, "Keys": [first]}})
        return {**answer, "UnprocessedKeys": {table: {**asked, "Keys": left}} if left else {}}


async def test_keys_that_a_batch_left_unread_are_read_again(aws: dict[str, Any], prefix: str) -> None:
    partial = Partial(aws["dynamodb"])
    store = make_store(partial, aws["s3"], prefix)
    await store.transact("put", [Put(key(sort), {"is": sort}) for sort in "abc"])
    assert await store.get([key(sort) for sort in "abcd"]) == [{"is": "a"}, {"is": "b"}, {"is": "c"}, None]
    assert partial.batches == 4


# --- large rows ---------------------------------------------------------------------------------------------------------


async def test_a_row_over_an_items_limit_goes_to_s3(
    store: DynamoDBStateStore, aws: dict[str, Any], prefix: str
) -> None:
    """Fields that conditions read stay in the item."""
    value = {"status": "running", "state": {"text": noise(800_000)}}
    await store.transact("put", [Put(key("large"), value)])
    assert await store.get([key("large"), key("none"), key("large")]) == [value, None, value]
    (item,) = items(aws, prefix)
    assert item["status"] == {"S": "running"} and len(item["state"]["B"]) < 200
    await store.transact("touch", [Update(key("large"), set={"n": 1}, when=When(equal={"status": "running"}))])
    assert (await store.query("sessions", S))[0].value == value | {"n": 1}


async def test_a_session_over_an_items_limit_packs_rows(store: DynamoDBStateStore) -> None:
    """A field over the limit goes to S3, and rows packed earlier move to items of their own."""
    run = key("r#run_1")
    large = {"version": 2, "output": noise(1_000_000)}
    await store.transact("begin", [Put(key("session"), {"version": 1}, ABSENT), Put(run, {"n": 1}, new=True)])
    points = [key("c#0000000002"), key("m#000000#00000000")]
    new_rows = [Put(point, {"n": 2}, new=True) for point in points]
    await store.transact("end", [Put(key("session"), large, When(equal={"version": 1})), *new_rows])
    assert await store.get([key("session"), run, *points]) == [large, {"n": 1}, {"n": 2}, {"n": 2}]


@pytest.mark.parametrize("size", [300_000, 1_000_000, 3_000_000])
async def test_large_fields_by_update(store: DynamoDBStateStore, aws: dict[str, Any], prefix: str, size: int) -> None:
    """A tool's result may be added to a row that is already large."""
    before = {"kind": "call", "arguments": {"text": noise(600_000)}}
    await store.transact("put", [Put(key("call"), before)])
    await store.transact("record", [Update(key("call"), set={"state": "done", "content": noise(size, 2)})])
    assert await store.get([key("call")]) == [before | {"state": "done", "content": noise(size, 2)}]
    assert max(item_bytes(item) for item in items(aws, prefix)) < 400_000


async def test_a_transaction_over_its_limit_goes_to_s3_in_part(
    store: DynamoDBStateStore, aws: dict[str, Any], prefix: str
) -> None:
    """Only the largest fields go to S3, as few as possible; the rest stays in the table."""
    values = {f"m{n:02d}": {"text": noise(600_000, n), "n": n} for n in range(20)}
    await store.transact("copy", [Put(key(sort), value) for sort, value in values.items()])
    assert {row.key.sort: row.value for row in await store.query("sessions", S)} == values
    total = sum(item_bytes(item) for item in items(aws, prefix))
    assert 3_000_000 < total < 4_000_000 and len(objects(aws)) < 15


async def test_three_megabytes_of_conversation(store: DynamoDBStateStore) -> None:
    """Rows of a tenth of a megabyte are read back in order, page by page, from both ends."""
    rows = {f"m{n:03d}": {"content": noise(100_000, n)} for n in range(30)}
    for sort, value in rows.items():
        await store.transact("put", [Put(key(sort), value)])
    found = await store.query("sessions", S, start="m", end="n")
    assert [(row.key.sort, row.value) for row in found] == list(rows.items())
    last = await store.query("sessions", S, end="m025", limit=15, reverse=True)
    assert [row.key.sort for row in last] == [f"m{n:03d}" for n in range(24, 9, -1)]


async def test_without_a_bucket_what_is_too_large_is_refused(aws: dict[str, Any], prefix: str) -> None:
    """The error names the transaction or the missing bucket, and nothing is written."""
    bare = DynamoDBStateStore(aws["dynamodb"], tables(prefix), clock=CLOCK)
    with pytest.raises(InvalidInputError, match="no bucket"):
        await bare.transact("put", [Put(key("a"), {"text": noise(900_000)})])
    rows = [Put(key(f"m{n}"), {"text": noise(500_000, n)}) for n in range(20)]
    with pytest.raises(InvalidInputError, match="no bucket"):
        await bare.transact("copy", rows)
    await bare.transact("put", [Put(key("small"), {})])
    with pytest.raises(InvalidInputError, match="transaction 'grow'"):
        await bare.transact("grow", [Update(key("small"), set={"text": noise(900_000)})])
    assert [row.key.sort for row in await bare.query("sessions", S)] == ["small"]


# --- objects and their rows ---------------------------------------------------------------------------------------------


async def test_objects_go_with_their_partition(store: DynamoDBStateStore, aws: dict[str, Any]) -> None:
    """A partition's end deletes its objects: those of rows, of replaced rows and of refused transactions. Other partitions
    keep theirs."""
    large = [{"text": noise(800_000, n)} for n in range(4)]
    await store.transact("put", [Put(key("session"), {}), Put(key("state"), large[0])])
    await store.transact("put", [Put(key("state"), large[1])])
    with pytest.raises(ConditionFailedError):
        await store.transact("put", [Put(key("state"), large[2], ABSENT)])
    await store.transact("put", [Put(Key("streams", S, "s#1"), large[2])])
    for other in ("session/10", "session"):
        await store.transact("put", [Put(key("state", other), large[3])])
    assert len(objects(aws)) == 6
    await store.transact("delete", [Delete(key("state")), Delete(Key("streams", S, "s#1"))])
    assert len(objects(aws)) == 6
    await store.transact("finish", [Delete(key("session"))])
    assert len(objects(aws)) == 2
    assert await store.get([key("state", "session/10"), key("state", "session")]) == [large[3], large[3]]


DAY_S = 86_400


@pytest.mark.parametrize(
    ("days", "place"),
    [
        (0.1, "!2d/"),
        (1, "!2d/"),
        (1.1, "!31d/"),
        (30, "!31d/"),
        (30.1, "!366d/"),
        (365, "!366d/"),
        (366, ""),
        (None, ""),
    ],
)
async def test_an_object_lasts_as_long_as_its_row(
    store: DynamoDBStateStore, aws: dict[str, Any], days: float | None, place: str
) -> None:
    """Each prefix has a lifecycle rule of the bucket. The end of the partition deletes the object earlier, under any
    prefix."""
    ttl = {} if days is None else {"ttl": int(CLOCK.now() + days * DAY_S)}
    row = {"text": noise(800_000), **ttl}
    await store.transact("put", [Put(key("session"), {}), Put(key("a"), row)])
    (name,) = objects(aws)
    assert name.startswith(f"overflow/{place}{quote(S, safe='')}/sessions/")
    assert await store.get([key("a")]) == [row]
    await store.transact("finish", [Delete(key("session"))])
    assert objects(aws) == []


async def test_a_crash_while_objects_are_removed_leaves_the_last_row(aws: dict[str, Any], prefix: str) -> None:
    """The last row lets a retry find the session and delete the rest."""
    s3 = Faulty(aws["s3"], "delete_objects", refusal("InternalError"))
    store = DynamoDBStateStore(aws["dynamodb"], tables(prefix), clock=CLOCK, overflow=Overflow(s3, BUCKET))
    await store.transact("put", [Put(key("session"), {}), Put(key("state"), {"text": noise(800_000)})])
    await store.transact("delete", [Delete(key("state"))])
    with pytest.raises(StoreError):
        await store.transact("finish", [Delete(key("session"))])
    assert await store.get([key("session")]) == [{}]
    await store.transact("finish", [Delete(key("session"))])
    assert objects(aws) == [] and await store.query("sessions", S) == []


@pytest.mark.parametrize("gone", [True, False])
async def test_a_reader_whose_object_went_away_reads_again(aws: dict[str, Any], prefix: str, gone: bool) -> None:
    """Between the two reads, the row was deleted or replaced."""
    writer = make_store(aws["dynamodb"], aws["s3"], prefix)
    await writer.transact("put", [Put(key("a"), {"text": noise(800_000)}), Put(key("b"), {"n": 1})])
    (old,) = objects(aws)

    def meanwhile() -> None:
        table = tables(prefix)["sessions"]
        place = {"pk": {"S": S}, "sk": {"S": "a"}}
        if gone:
            aws["dynamodb"].delete_item(TableName=table, Key=place)
        else:
            aws["dynamodb"].put_item(TableName=table, Item=place | {"n": {"N": "2"}})
        aws["s3"].delete_object(Bucket=BUCKET, Key=old)

    s3 = Faulty(aws["s3"], "get_object", meanwhile)
    reader = DynamoDBStateStore(aws["dynamodb"], tables(prefix), clock=CLOCK, overflow=Overflow(s3, BUCKET))
    found = {row.key.sort: row.value for row in await reader.query("sessions", S)}
    assert found == ({"b": {"n": 1}} if gone else {"a": {"n": 2}, "b": {"n": 1}})


async def test_an_object_that_is_lost_is_said(store: DynamoDBStateStore, aws: dict[str, Any]) -> None:
    await store.transact("put", [Put(key("a"), {"text": noise(800_000)})])
    aws["s3"].delete_object(Bucket=BUCKET, Key=objects(aws)[0])
    with pytest.raises(StoreError, match="is not in"):
        await store.get([key("a")])


# --- what a refusal means -----------------------------------------------------------------------------------------------


def with_faults(aws: dict[str, Any], prefix: str, verb: str, *acts: Callable[[], Any]) -> DynamoDBStateStore:
    return make_store(Faulty(aws["dynamodb"], verb, *acts), aws["s3"], prefix)


TWO: list[Operation] = [Put(key("a"), {"n": 1}, ABSENT), Put(key("b"), {"n": 1})]
CANCELED = "TransactionCanceledException"


@pytest.mark.parametrize(
    "fault",
    [
        refusal(CANCELED, "None", "TransactionConflict"),
        refusal(CANCELED, "ThrottlingError", "ProvisionedThroughputExceeded"),
        refusal("TransactionInProgressException"),
        refusal("ThrottlingException"),
    ],
)
async def test_contention_is_repeated(aws: dict[str, Any], prefix: str, fault: Callable[[], Any]) -> None:
    """DynamoDB did not evaluate the conditions, so the same transaction is repeated until it does."""
    store = with_faults(aws, prefix, "transact_write_items", fault, fault, fault)
    await store.transact("two", TWO)
    assert await store.get([key("a"), key("b")]) == [{"n": 1}, {"n": 1}]


async def test_contention_without_end_has_an_error_of_its_own(aws: dict[str, Any], prefix: str) -> None:
    """Nothing was written, unless an earlier failed try may have been written."""
    conflicts = [refusal(CANCELED, "TransactionConflict", "None")] * 99
    with pytest.raises(ContentionError, match="two"):
        await with_faults(aws, prefix, "transact_write_items", *conflicts).transact("two", TWO)
    failed = refusal("InternalServerError")
    with pytest.raises(StoreError, match="two") as caught:
        await with_faults(aws, prefix, "transact_write_items", failed, *conflicts).transact("two", TWO)
    assert not isinstance(caught.value, ContentionError)


async def test_a_condition_is_answered_by_its_place_whatever_the_others_met(aws: dict[str, Any], prefix: str) -> None:
    refused = refusal(CANCELED, "TransactionConflict", "ConditionalCheckFailed")
    with pytest.raises(ConditionFailedError) as caught:
        await with_faults(aws, prefix, "transact_write_items", refused).transact("two", TWO)
    assert caught.value.index == 1


@pytest.mark.parametrize("reason", ["ValidationError", "ItemCollectionSizeLimitExceeded"])
async def test_what_would_be_refused_again_is_not_repeated(aws: dict[str, Any], prefix: str, reason: str) -> None:
    kind = InvalidInputError if reason == "ValidationError" else StoreError
    with pytest.raises(kind):
        await with_faults(aws, prefix, "transact_write_items", refusal(CANCELED, reason, "None")).transact("two", TWO)


@pytest.mark.parametrize(
    "faults",
    [
        [refusal("ConditionalCheckFailedException", retried=1)],
        [refusal("InternalServerError"), refusal("ConditionalCheckFailedException")],
    ],
)
async def test_a_write_that_may_have_met_itself_is_unknown(
    aws: dict[str, Any], prefix: str, faults: list[Callable[[], Any]]
) -> None:
    """The first try may have been written although its response was lost. Then the condition fails because of the writer's
    own row."""
    with pytest.raises(StoreError):
        await with_faults(aws, prefix, "put_item", *faults).transact("one", TWO[:1])


async def test_expiry_is_the_attribute_that_the_tables_read(aws: dict[str, Any], prefix: str, store: Any) -> None:
    """DynamoDB expires an item by a number of seconds in its top-level attribute `ttl`, which `infra/storage.py` names."""
    key = Key("control", S, "row")
    await store.transact("put", [Put(key, {"ttl": 1_900_000_000})])
    await store.transact("renew", [Update(key, set={"ttl": 1_900_000_001})])
    item = aws["dynamodb"].get_item(TableName=tables(prefix)["control"], Key={"pk": {"S": S}, "sk": {"S": "row"}})[
        "Item"
    ]
    assert item["ttl"] == {"N": "1900000001"}


async def test_a_field_that_cannot_be_read(store: DynamoDBStateStore, aws: dict[str, Any], prefix: str) -> None:
    key = Key("sessions", "p", "row")
    await store.transact("put", [Put(key, {"n": [1]})])
    place = {"pk": {"S": "p"}, "sk": {"S": "row"}}
    aws["dynamodb"].put_item(
        TableName=tables(prefix)["sessions"], Item=place | {"n": {"B": b"j{"}, "m": {"B": b"z\x00"}}
    )
    (value,) = await store.get([key])
    (row,) = await store.query("sessions", "p")
    for damaged in (value, row.value):
        assert damaged is not None
        with pytest.raises(DamagedRowError, match="'row' of 'p'"):
            damaged["n"]
    await store.transact("delete", [Delete(key)])
    assert await store.get([key]) == [None]


async def test_floats_beyond_a_numbers_range(store: DynamoDBStateStore) -> None:
    key, value = (
        Key("sessions", "p", "row"),
        {"a": 1e300, "b": -5e-324, "c": 9e125, "d": 0.0, "e": -1e-130, "f": 10**38},
    )
    await store.transact("put", [Put(key, value)])
    assert await store.get([key]) == [value]
