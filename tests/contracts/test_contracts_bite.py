"""The contracts detect defects: every broken adapter fails the matching test, and the sound adapters in memory fail
none."""

import asyncio
import inspect
from typing import Any

import pytest
from tests.contracts import slots_races
from tests.contracts.budgets import BudgetsContract
from tests.contracts.segments import SegmentLogContract
from tests.contracts.slots import SlotsContract
from tests.support.broken import blob_stores, pipes, reads, services, slots, stores
from tests.support.memory_sockets import MemoryPeers, MemorySockets

from helix import MemoryStateStore
from helix.adapters.memory_blobs import MemoryBlobs
from helix.core.errors import HelixError
from helix.services.row_budgets import RowBudgets
from helix.services.row_slots import RowSlots
from helix.services.segments import SegmentStreams
from helix.testing.contracts import (
    BlobsContract,
    SocketsContract,
    StateStoreContract,
    StreamManagerContract,
    state_store_races,
    streams,
)

pytestmark = pytest.mark.slow

STORES = {
    "PurgesOnePage": "test_purge_deletes_any_number",
    "PurgesOneTable": "test_purge_deletes_what_has_expired",
    "TakesAnythingForATime": "test_purge_leaves_what_has_not_expired",
    "ForgetsRenewals": "test_a_renewed_row_does_not_expire",
    "IgnoresConditions": "test_a_refused_transaction_writes_nothing",
    "IgnoresAbsent": "test_one_winner_for_an_absent_row",
    "WritesBeforeItFails": "test_a_refused_transaction_writes_nothing",
    "ChecksThenWrites": "test_increments_by_compare_and_set_are_not_lost",
    "ForgetsChecks": "test_a_check_guards_until_the_write",
    "LosesAdditions": "test_additions_are_not_lost",
    "NoneIsNotMissing": "test_equal_to_none",
    "NoneIsAnything": "test_equal_to_none",
    "MissingIsZero": "test_bounds_fail_where_nothing_is",
    "BelowIncludesItsBound": "test_bounds",
    "OneConditionIsEnough": "test_all_parts_of_a_condition_must_hold",
    "NamesTheWrongOperation": "test_the_first_refused_operation_is_named",
    "UpdatesMakeRows": "test_update_of_a_missing_row_is_refused",
    "UpdatesReplaceRows": "test_update_sets_and_adds",
    "DeletesOnlyWhatIsThere": "test_delete",
    "TakesAnyNumber": "test_limits_of_a_transaction",
    "LooksForAnyKey": "test_other_keys_are_refused",
    "WritesBadValuesLate": "test_values_that_are_not_json_are_refused",
    "ReadsLate": "test_reads_see_what_was_answered",
    "QueriesLate": "test_reads_see_what_was_answered",
    "DoesNotOrder": "test_query_orders_byte_wise",
    "OrdersByLetters": "test_query_orders_byte_wise",
    "OrdersByUtf16": "test_query_orders_byte_wise",
    "IncludesTheEnd": "test_query_takes_a_range",
    "LimitsBeforeItReverses": "test_query_limits_and_reverses",
    "ReadsOnePage": "test_query_reads_all_pages",
    "MixesPartitions": "test_partitions_and_tables_are_apart",
    "SharesValues": "test_values_are_the_callers_own",
    "KeepsTheCallersValue": "test_values_are_the_callers_own",
    "LosesLetters": "test_values_come_back_as_they_were",
    "MakesFloats": "test_values_come_back_as_they_were",
    "RefusesLargeValues": "test_large_values",
    "ClosesOnce": "test_close_is_idempotent",
    "DoesNotWake": "test_a_watch_wakes_who_waits",
    "DeletesInSilence": "test_a_deletion_wakes_who_waits",
    "WakesOnlyWhoWaits": "test_a_watch_does_not_miss_what_came_before_the_wait",
    "NeverGivesUp": "test_a_watch_returns_when_its_time_is_over",
}
STREAMS = {
    "LeavesCoalescingOpen": "test_it_declares_whether_it_coalesces",
    "AppendsWithoutComparing": "test_many_writers_leave_no_gap",
    "ComparesTooEarly": "test_many_writers_leave_no_gap",
    "ForgetsNumbers": "test_a_resend_changes_nothing",
    "ForgetsAttempts": "test_a_newer_attempt_takes_the_older_back",
    "ForgetsTurns": "test_a_newer_turn_silences_the_older",
    "SkipsPartsOfSegments": "test_a_replay_from_anywhere_is_the_rest",
    "ReadsOnePageOfStream": "test_a_long_stream_is_read_whole",
    "ReadsThePast": "test_a_live_reader_sees_what_a_replay_shows",
    "SleepsThrough": "test_wait_wakes",
    "WaitsAfterReading": "test_wait_returns_at_once_where_there_is_more",
    "IsAlwaysActive": "test_info_reports_the_status",
    "KnowsEveryStream": "test_a_stream_is_made_by_its_first_record",
    "LetsTheEndBeRepeated": "test_an_end_is_emitted_once_and_last",
    "DeletesAllButTheLast": "test_delete",
    "RemembersDeletedStreams": "test_a_newer_turn_silences_the_older",
}
BUDGETS = {
    "DrawsWithoutCondition": "test_remaining_is_never_negative",
    "DrawsAgain": "test_a_draw_happens_once",
    "DrawsOneByOne": "test_a_draw_on_several_budgets_is_one",
    "DrawsLessThanTheEstimate": "test_a_draw_over_the_line_takes_nothing",
    "GivesBackAgain": "test_giving_back_twice_changes_nothing",
    "GivesBackEverything": "test_what_was_not_used_comes_back",
    "GivesBackTheWhole": "test_part_of_the_budgets_is_given_back",
    "ForgetsSilently": "test_a_scope_that_is_gone_leaves_nothing",
    "GivesBackBlindly": "test_what_was_used_beyond_the_draws_is_taken",
    "LimitsStartAnew": "test_a_limit_moves_what_remains",
    "OpensWhatItRead": "test_a_window_is_opened_by_what_is_defined_now",
    "DefinesWithoutCondition": "test_budgets_defined_at_once_are_all_there",
    "ForgetsAlerts": "test_an_alert_is_raised_once",
}
SLOTS = {
    "TakesWithoutCondition": "test_never_more_than_the_limit",
    "QueuesWithoutLooking": "test_coming_while_the_last_slot_is_freed",
    "ForgetsTheHeir": "test_a_release_passes_the_slot_on",
    "ServesInAnyOrder": "test_the_line_is_ordered",
    "ServesTheLowFirst": "test_the_line_is_ordered",
    "LetsThemJumpTheLine": "test_nobody_jumps_the_line",
    "FreesForAnybody": "test_a_release_by_a_stranger_changes_nothing",
    "TakesTwice": "test_asking_again_changes_nothing",
    "LeavesTicketsBehind": "test_a_waiter_may_leave_the_line",
    "GivesUpSlotsToo": "test_a_waiter_may_leave_the_line",
    "ForgetsToCountDown": "test_a_release_passes_the_slot_on",
    "IgnoresALowerLimit": "test_a_lower_limit_ends_nobody",
    "KnowsOnlyTheDefault": "test_what_was_set_stands_over_the_default",
    "ChangesWhateverWasSet": "test_a_limit_is_changed_from_what_was_seen",
    "AdmitsTheDead": "test_nothing_is_written_for_a_run_that_is_over",
    "QueuesWithoutBound": "test_a_full_queue_refuses",
    "RefusesWhoGoesOn": "test_a_full_queue_refuses",
    "ForgetsTheAccount": "test_the_account_bounds_all_agents",
    "LetsOneHoldUpAll": "test_who_cannot_go_holds_up_no_other_agent",
    "CountsWhatWasNotCounted": "test_who_worked_before_there_was_an_account_limit_is_not_counted",
    "LeavesSlotsWhereTicketsAre": "test_a_release_passes_the_slot_on",
}
LOGS = {
    "ForgetsPositions": "test_a_batch_that_comes_again_is_reported_again",
    "TellsOnlyTheNew": "test_a_batch_that_comes_again_with_more",
    "ComparesTexts": "test_positions_are_ordered_as_numbers",
    "RoundsPositions": "test_a_batch_that_comes_again_with_more",
    "TellsRepeats": "test_a_producers_repeat_says_nothing",
    "TellsItsOwnOnly": "test_two_projectors_of_one_batch",
    "ForgetsBeginnings": "test_a_beginning_without_a_chunk_is_remembered",
    "RefusesLargeSegments": "test_nothing_is_too_large",
    "FailsAnybody": "test_a_stream_can_be_failed",
    "FailsWhatItKnows": "test_an_unknown_stream_can_be_failed",
    "BeganWithTheStream": "test_info_reports_where_the_turn_began",
}
SOCKETS = {
    "PostsLater": "test_frames_arrive_in_order",
    "KnowsEverybody": "test_who_hung_up_is_gone",
    "DropsNobody": "test_a_dropped_connection_is_gone",
    "WaitsForTheSlow": "test_a_slow_one_holds_up_nobody",
    "CutsFrames": "test_what_is_too_large_is_refused",
}
BLOBS = {
    "DropsEmptyBlobs": "test_bytes_come_back_as_they_were",
    "CountsTheHead": "test_bytes_come_back_as_they_were",
    "FindsByPrefix": "test_a_missing_blob_is_none",
    "DeletesOnce": "test_put_and_delete_are_idempotent",
    "ListsAsStored": "test_list_orders_pages_and_filters",
    "ListsTheKeyBefore": "test_list_orders_pages_and_filters",
    "TakesAnyKey": "test_other_keys_are_refused",
    "TakesAnyPrefix": "test_other_prefixes_are_refused",
    "RefusesASecondPut": "test_two_puts_of_one_key",
    "WritesInParts": "test_a_reader_never_sees_a_part",
    "DeletesTheFolder": "test_neighbours_are_not_disturbed",
}


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the timeouts, because a wake-up that is missed is also missed after half a second."""
    for module in (state_store_races, streams):
        monkeypatch.setattr(module, "SOON_S", 0.5)
    monkeypatch.setattr(slots_races, "PATIENCE_S", 0.5)


async def obey(contract: Any, law: str, adapter: Any) -> None:
    """Run one test of a contract on an adapter, with all its parameters."""
    test = getattr(contract, law)
    marks = [m for m in getattr(test, "pytestmark", ()) if m.name == "parametrize"]
    cases = [case for mark in marks for case in mark.args[1]] or [()]
    names = inspect.signature(test).parameters
    given = [adapter] * len(
        [n for n in names if n in ("store", "streams", "log", "sockets", "budgets", "slots", "blobs", "other")]
    )
    given += [MemoryPeers(adapter)] * ("peers" in names)
    for case in cases:
        await test(*given, *(case if isinstance(case, tuple) else (case,)))


async def fails(contract: Any, law: str, adapter: Any) -> bool:
    """Return whether the test fails in a regular way. Another exception, such as TypeError, is a bug of the broken adapter
    itself."""
    try:
        async with asyncio.timeout(5):
            await obey(contract, law, adapter)
    except (AssertionError, HelixError, TimeoutError, pytest.fail.Exception):
        return True
    return False


@pytest.mark.parametrize(("name", "law"), STORES.items())
async def test_a_broken_store_fails_its_law(name: str, law: str) -> None:
    assert await fails(StateStoreContract(), law, (getattr(stores, name, None) or getattr(reads, name))())


@pytest.mark.parametrize(("name", "law"), STREAMS.items())
async def test_a_broken_stream_manager_fails_its_law(name: str, law: str) -> None:
    assert await fails(StreamManagerContract(), law, getattr(services, name)())


@pytest.mark.parametrize(("name", "law"), BUDGETS.items())
async def test_broken_budgets_fail_their_law(name: str, law: str) -> None:
    assert await fails(BudgetsContract(), law, getattr(services, name)())


@pytest.mark.parametrize(("name", "law"), SLOTS.items())
async def test_broken_slots_fail_their_law(name: str, law: str) -> None:
    assert await fails(SlotsContract(), law, getattr(slots, name)())


@pytest.mark.parametrize(("name", "law"), LOGS.items())
async def test_a_broken_log_fails_its_law(name: str, law: str) -> None:
    assert await fails(SegmentLogContract(), law, getattr(pipes, name)(MemoryStateStore()))


@pytest.mark.parametrize(("name", "law"), SOCKETS.items())
async def test_broken_sockets_fail_their_law(name: str, law: str) -> None:
    assert await fails(SocketsContract(), law, getattr(pipes, name)())


@pytest.mark.parametrize(("name", "law"), BLOBS.items())
async def test_broken_blobs_fail_their_law(name: str, law: str) -> None:
    assert await fails(BlobsContract(), law, getattr(blob_stores, name)())


SOUND = [
    (StateStoreContract, STORES, MemoryStateStore),
    (StreamManagerContract, STREAMS, lambda: SegmentStreams(MemoryStateStore())),
    (SegmentLogContract, LOGS, lambda: SegmentStreams(MemoryStateStore())),
    (SocketsContract, SOCKETS, MemorySockets),
    (BlobsContract, BLOBS, MemoryBlobs),
    (BudgetsContract, BUDGETS, lambda: RowBudgets(MemoryStateStore())),
    (SlotsContract, SLOTS, lambda: RowSlots(MemoryStateStore())),
]


@pytest.mark.parametrize(("contract", "laws", "make"), SOUND)
async def test_a_sound_adapter_fails_none_of_them(contract: Any, laws: dict[str, str], make: Any) -> None:
    """The sound adapters prove that the defects cause the failures, not this way of calling. Each test gets a fresh
    adapter."""
    for law in sorted(set(laws.values()) - {"test_info_reports_the_status"}):
        await obey(contract(), law, make())


def test_every_broken_adapter_is_tried() -> None:
    tried = {*STORES, *STREAMS, *LOGS, *SOCKETS, *BUDGETS, *SLOTS, *BLOBS}
    kinds = (MemoryStateStore, SegmentStreams, MemorySockets, MemoryBlobs, RowBudgets, RowSlots)
    for module in (blob_stores, stores, pipes, reads, services, slots):
        made = {n for n, c in vars(module).items() if inspect.isclass(c) and c.__module__ == module.__name__}
        assert {n for n in made if not n.startswith("_") and issubclass(getattr(module, n), kinds)} <= tried
