"""The contract of `StateStore`: atomicity, conditions, order, freshness, and races."""

from __future__ import annotations

import math
from typing import Any

import pytest

from helix.core.errors import InvalidInputError
from helix.ports.state_store import (
    ABSENT,
    MAX_OPERATIONS,
    Check,
    Delete,
    Key,
    Operation,
    Put,
    StateStore,
    Update,
    Value,
    When,
)
from helix.testing.contracts.state_store_expiry import StateStoreExpiry
from helix.testing.contracts.state_store_keys import StateStoreKeys
from helix.testing.contracts.state_store_races import StateStoreRaces
from helix.testing.contracts.state_store_rows import P, get, key, put, refused, sorts


class StateStoreContract(StateStoreRaces, StateStoreKeys, StateStoreExpiry):
    """The contract tests. They need a fixture `store`. If possible, the fixture `other` is the store of a second process on
    the same data.

    purges: False for a store whose backend deletes expired rows on its own.
    """

    # --- reading --------------------------------------------------------------------------------------------------

    async def test_get_answers_in_the_order_of_the_keys(self, store: StateStore) -> None:
        """`get` returns one result per key: None for a missing row, and the same row each time its key is repeated."""
        await put(store, "a", {"n": 1})
        await put(store, "b", {"n": 2})
        wanted = [{"n": 2}, None, {"n": 1}, {"n": 2}]
        assert await store.get([key("b"), key("none"), key("a"), key("b")]) == wanted
        assert await store.get([]) == []

    async def test_query_orders_byte_wise(self, store: StateStore) -> None:
        """Rows are ordered by the UTF-8 bytes of `sort`, whatever the order of the writes."""
        names = ["b", "a", "B", "aa", "a#1", "a#10", "a#2", "é", "~", "\uffff", "\U0001f600", "Z", "0", " "]
        for name in names:
            await put(store, name, {"name": name})
        rows = await store.query("sessions", P)
        assert [row.key.sort for row in rows] == sorted(names, key=str.encode)
        assert all(row.key == key(row.key.sort) and row.value == {"name": row.key.sort} for row in rows)

    async def test_query_takes_a_range(self, store: StateStore) -> None:
        """The range includes `start` and excludes `end`. Neither needs to be the sort key of a row."""
        for name in "acegi":
            await put(store, name, {})
        assert await sorts(store, start="c") == ["c", "e", "g", "i"]
        assert await sorts(store, end="g") == ["a", "c", "e"]
        assert await sorts(store, start="b", end="h") == ["c", "e", "g"]
        assert await sorts(store, start="e", end="e") == [] == await sorts(store, start="g", end="b")

    async def test_query_limits_and_reverses(self, store: StateStore) -> None:
        """`limit` applies after ordering. `reverse` starts at the end of the same range."""
        for name in "abcde":
            await put(store, name, {})
        assert await sorts(store, limit=2) == ["a", "b"]
        assert await sorts(store, reverse=True) == list("edcba")
        assert await sorts(store, reverse=True, limit=2) == ["e", "d"]
        assert await sorts(store, start="b", end="e", reverse=True, limit=2) == ["d", "c"]

    async def test_partitions_and_tables_are_apart(self, store: StateStore) -> None:
        """A query sees one partition of one table, even if names are prefixes of each other or look like patterns."""
        for partition in ("p", "p#1", "p%", "P", "pp"):
            await put(store, "s", {"in": partition}, partition)
        await store.transact("put", [Put(Key("control", "p", "s"), {"in": "control"})])
        for partition in ("p", "p#1", "p%", "P", "pp"):
            assert [row.value for row in await store.query("sessions", partition)] == [{"in": partition}]
        assert [row.value for row in await store.query("control", "p")] == [{"in": "control"}]
        assert await store.query("streams", "p") == []

    async def test_query_reads_all_pages(self, store: StateStore) -> None:
        """A partition of more than a megabyte is returned completely and in order."""
        text = "x" * 8_000
        for start in range(0, 150, 50):
            numbers = range(start, start + 50)
            await store.transact("fill", [Put(key(f"{n:04d}"), {"n": n, "text": text}) for n in numbers])
        rows = await store.query("sessions", P)
        assert [row.value["n"] for row in rows] == list(range(150))
        assert len(await sorts(store, limit=140, reverse=True)) == 140

    # --- atomicity ------------------------------------------------------------------------------------------------

    async def test_a_refused_transaction_writes_nothing(self, store: StateStore) -> None:
        """A transaction is all or nothing, wherever the refused operation is."""
        await put(store, "old", {"n": 1})
        await put(store, "gone", {"n": 1})
        writes: list[Operation] = [
            Put(key("new"), {"n": 1}),
            Update(key("old"), set={"n": 2}),
            Delete(key("gone")),
        ]
        for place in range(len(writes) + 1):
            operations = [*writes[:place], Check(key("none"), When(equal={"n": 1})), *writes[place:]]
            assert await refused(store, *operations) == place
            assert await store.get([key("new"), key("old"), key("gone")]) == [None, {"n": 1}, {"n": 1}]

    async def test_a_transaction_writes_everything(self, store: StateStore) -> None:
        """One transaction may contain all kinds of operations on rows of several tables and partitions."""
        await put(store, "old", {"n": 1, "kept": True})
        await put(store, "gone", {})
        far = Key("streams", "another", "row")
        await store.transact(
            "all",
            [
                Put(key("new"), {"n": 1}, ABSENT),
                Update(key("old"), set={"n": 2}, when=When(equal={"n": 1})),
                Delete(key("gone")),
                Check(key("never"), ABSENT),
                Put(far, {"n": 3}),
            ],
        )
        found = await store.get([key("new"), key("old"), key("gone"), key("never"), far])
        assert found == [{"n": 1}, {"n": 2, "kept": True}, None, None, {"n": 3}]

    async def test_the_first_refused_operation_is_named(self, store: StateStore) -> None:
        """`ConditionFailedError.index` is the index of the first refused operation."""
        await put(store, "a", {})
        good, bad = Check(key("a"), When()), Put(key("a"), {}, ABSENT)
        assert await refused(store, bad) == 0
        assert await refused(store, good, Check(key("b"), When()), Put(key("c"), {})) == 1
        assert await refused(store, Put(key("c"), {}), good, Update(key("b")), Check(key("d"), When())) == 2

    async def test_limits_of_a_transaction(self, store: StateStore) -> None:
        """A transaction has 1 to 100 operations, each on a different row. Any other is refused as a whole."""
        many: list[Operation] = [Put(key(f"{n:03d}"), {"n": n}) for n in range(MAX_OPERATIONS)]
        for wrong in ([], [*many, Put(key("one more"), {})], [many[0], Delete(key("000"))]):
            with pytest.raises(InvalidInputError):
                await store.transact("wrong", wrong)
            assert await sorts(store) == []
        await store.transact("right", many)
        assert len(await sorts(store)) == MAX_OPERATIONS

    async def test_values_that_are_not_json_are_refused(self, store: StateStore) -> None:
        """NaN and non-JSON types raise `InvalidInputError`, and the transaction writes nothing."""
        for wrong in (math.nan, math.inf, {1, 2}, object()):
            with pytest.raises(InvalidInputError):
                await store.transact("wrong", [Put(key("good"), {}), Put(key("bad"), {"value": wrong})])
            assert await sorts(store) == []

    # --- conditions -----------------------------------------------------------------------------------------------

    async def test_absent(self, store: StateStore) -> None:
        """`absent` holds if the row does not exist, for every kind of operation."""
        await put(store, "a", {})
        assert await refused(store, Put(key("a"), {"n": 2}, ABSENT)) == 0
        assert await refused(store, Check(key("a"), ABSENT)) == 0
        assert await refused(store, Delete(key("a"), ABSENT)) == 0
        await store.transact("absent", [Put(key("b"), {"n": 1}, ABSENT), Check(key("c"), ABSENT)])
        assert await get(store, "a") == {} and await get(store, "b") == {"n": 1}

    @pytest.mark.parametrize("value", ["text", "", 7, 0, -3, 1.5, True, False, "é\U0001f600"])
    async def test_equal_compares_scalars(self, store: StateStore, value: Any) -> None:
        """`equal` holds for the stored scalar and no other."""
        await put(store, "a", {"field": value})
        await store.transact("same", [Check(key("a"), When(equal={"field": value}))])
        for other in ("other", 8, None):
            assert await refused(store, Check(key("a"), When(equal={"field": other}))) == 0

    async def test_equal_to_none(self, store: StateStore) -> None:
        """None matches null and a missing field, but neither a missing row nor any other value."""
        await put(store, "a", {"null": None, "zero": 0, "empty": ""})
        await store.transact("none", [Check(key("a"), When(equal={"null": None, "missing": None}))])
        assert await refused(store, Check(key("a"), When(equal={"zero": None}))) == 0
        assert await refused(store, Check(key("a"), When(equal={"empty": None}))) == 0
        assert await refused(store, Check(key("b"), When(equal={"missing": None}))) == 0

    async def test_equal_to_a_value_fails_on_a_missing_field(self, store: StateStore) -> None:
        """A missing field equals only None."""
        await put(store, "a", {"there": 1})
        for value in (0, "", False, "text"):
            assert await refused(store, Check(key("a"), When(equal={"missing": value}))) == 0

    async def test_bounds(self, store: StateStore) -> None:
        """`at_least` includes its bound, `below` excludes it. Integers and fractions can be compared with each other."""
        await put(store, "a", {"n": 10, "f": 2.5})
        for good in (
            When(at_least={"n": 10}),
            When(below={"n": 11}),
            When(at_least={"f": 2}, below={"f": 2.51, "n": 10.5}),
        ):
            await store.transact("good", [Check(key("a"), good)])
        for bad in (When(at_least={"n": 11}), When(below={"n": 10}), When(at_least={"f": 2.6}), When(below={"f": 2})):
            assert await refused(store, Check(key("a"), bad)) == 0

    async def test_bounds_fail_where_nothing_is(self, store: StateStore) -> None:
        """Both bounds fail for a missing field, null and a missing row."""
        await put(store, "a", {"null": None})
        for name in ("null", "missing"):
            assert await refused(store, Check(key("a"), When(at_least={name: 0}))) == 0
            assert await refused(store, Check(key("a"), When(below={name: 1_000}))) == 0
        assert await refused(store, Check(key("b"), When(at_least={"n": 0}))) == 0
        assert await refused(store, Check(key("b"), When(below={"n": 1}))) == 0

    async def test_all_parts_of_a_condition_must_hold(self, store: StateStore) -> None:
        """A condition fails if any of its parts fails."""
        await put(store, "a", {"s": "x", "n": 5})
        await store.transact(
            "good", [Check(key("a"), When(equal={"s": "x", "n": 5}, at_least={"n": 5}, below={"n": 6}))]
        )
        assert await refused(store, Check(key("a"), When(equal={"s": "y"}, at_least={"n": 5}, below={"n": 6}))) == 0
        assert await refused(store, Check(key("a"), When(equal={"s": "x"}, at_least={"n": 6}, below={"n": 9}))) == 0
        assert await refused(store, Check(key("a"), When(equal={"s": "x"}, at_least={"n": 5}, below={"n": 5}))) == 0
        assert await refused(store, Check(key("a"), When(equal={"s": "x", "n": 6}))) == 0

    async def test_an_empty_condition_wants_the_row(self, store: StateStore) -> None:
        """`When()` holds where the row exists."""
        await put(store, "a", {})
        await store.transact("there", [Check(key("a"), When())])
        assert await refused(store, Put(key("b"), {}, When())) == 0

    # --- operations -----------------------------------------------------------------------------------------------

    async def test_put_replaces_the_whole_row(self, store: StateStore) -> None:
        """A put deletes the fields that the new value does not have."""
        await put(store, "a", {"one": 1, "two": 2})
        await put(store, "a", {"two": 3})
        assert await get(store, "a") == {"two": 3}

    async def test_update_sets_and_adds(self, store: StateStore) -> None:
        """`set` replaces whole fields, `add` adds integers (a missing field counts as 0), and other fields are kept."""
        await put(store, "a", {"kept": [1], "map": {"x": 1}, "n": 5})
        await store.transact("u", [Update(key("a"), set={"map": {"y": 2}, "new": None}, add={"n": -7, "fresh": 3})])
        assert await get(store, "a") == {"kept": [1], "map": {"y": 2}, "new": None, "n": -2, "fresh": 3}
        await store.transact("u", [Update(key("a"), add={"n": 2**40})])
        assert await get(store, "a") == {"kept": [1], "map": {"y": 2}, "new": None, "n": 2**40 - 2, "fresh": 3}

    async def test_update_of_a_missing_row_is_refused(self, store: StateStore) -> None:
        """An update never creates a row, with or without a condition."""
        assert await refused(store, Put(key("b"), {}), Update(key("a"), set={"n": 1})) == 1
        assert await refused(store, Update(key("a"), add={"n": 1}, when=When(equal={"n": None}))) == 0
        assert await sorts(store) == []

    async def test_a_refused_update_changes_nothing(self, store: StateStore) -> None:
        """The condition is evaluated on the row before the update."""
        await put(store, "a", {"n": 1})
        assert await refused(store, Update(key("a"), add={"n": 1}, when=When(at_least={"n": 2}))) == 0
        assert await get(store, "a") == {"n": 1}

    async def test_delete(self, store: StateStore) -> None:
        """Deleting a missing row is not an error, unless a condition requires the row."""
        await put(store, "a", {"n": 1})
        await store.transact("none", [Delete(key("none"))])
        assert await refused(store, Delete(key("a"), When(equal={"n": 2}))) == 0
        assert await refused(store, Delete(key("none"), When())) == 0
        await store.transact("delete", [Delete(key("a"), When(equal={"n": 1}))])
        assert await get(store, "a") is None and await sorts(store) == []

    async def test_deletes_that_may_precede(self, store: StateStore) -> None:
        """These deletes are complete when the transaction is, and a refusal reports the index of the caller's operation."""
        for sort in ("a", "b", "c"):
            await put(store, sort, {})
        early = [Delete(key(sort), may_precede=True) for sort in ("a", "b", "nothing")]
        assert await refused(store, *early, Put(key("c"), {}, ABSENT)) == 3
        await store.transact("t", [*early, Put(key("d"), {}, ABSENT)])
        assert await sorts(store) == ["c", "d"]

    async def test_check_writes_nothing(self, store: StateStore) -> None:
        """A check neither creates nor changes a row."""
        await put(store, "a", {"n": 1})
        await store.transact("check", [Check(key("a"), When()), Check(key("b"), ABSENT)])
        assert await sorts(store) == ["a"] and await get(store, "a") == {"n": 1}

    # --- values ---------------------------------------------------------------------------------------------------

    async def test_values_are_the_callers_own(self, store: StateStore) -> None:
        """Mutating a value after writing or reading it does not change the stored row."""
        value: Value = {"list": [1], "map": {"x": 1}}
        await put(store, "a", value)
        value["list"].append(2)
        for _ in range(2):
            found = await get(store, "a")
            assert found == {"list": [1], "map": {"x": 1}}
            found["map"]["x"] = 9
        (row,) = await store.query("sessions", P)
        row.value["list"].clear()
        assert await get(store, "a") == {"list": [1], "map": {"x": 1}}

    async def test_values_come_back_as_they_were(self, store: StateStore) -> None:
        """All JSON types and alphabets are preserved."""
        value: Value = {
            "text": 'é \U0001f600 "quoted" \\ \n\t\u0001 \u2028',
            "ключ": "имя",
            "whole": 2**53,
            "negative": -1,
            "fraction": 0.1,
            "flags": [True, False, None],
            "nested": {"a": [{"b": []}, {}], "": "empty name"},
            "blank": "",
        }
        await store.transact("put", [Put(Key("sessions", "パーティション", "сорт/é"), value)])
        (found,) = await store.get([Key("sessions", "パーティション", "сорт/é")])
        assert found == value
        assert [type(found[name]) for name in ("whole", "fraction")] == [int, float]
        assert found["flags"][0] is True

    async def test_large_values(self, store: StateStore) -> None:
        """A row may be 300 KB large."""
        text = "0123456789é" * 25_000
        await put(store, "a", {"text": text})
        await store.transact("touch", [Update(key("a"), set={"n": 1})])
        assert await get(store, "a") == {"text": text, "n": 1}

    async def test_close_is_idempotent(self, store: StateStore) -> None:
        """Closing twice is not an error."""
        await put(store, "a", {})
        await store.close()
        await store.close()
