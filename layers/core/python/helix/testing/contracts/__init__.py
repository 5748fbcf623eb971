"""Contracts: what every adapter of a port must pass, one law per test. For people who write adapters.

    class TestMyStore(StateStoreContract):
        @pytest.fixture
        async def store(self):
            store = MyStateStore(...)
            yield store
            await store.close()

        @pytest.fixture
        async def other(self, store):        # what another process would use on the same data; default: `store`
            ...

The same for `StreamManagerContract` (fixtures `streams`, `other`), `SegmentLogContract` (`log`, `other`),
`SocketsContract` (`sockets`, `peers`), `BudgetsContract` (`budgets`, `other`), `SlotsContract` (`slots`, `other`) and
`ResponseCacheContract` (`make_cache`: one more cache on the same data, each time it is called). They need pytest and
pytest-asyncio.
"""

import pytest

# Before they are imported: a failing law then shows the values it compared.
pytest.register_assert_rewrite(
    *(
        f"{__name__}.{module}"
        for module in (
            "budgets",
            "cache",
            "segments",
            "slots",
            "slots_races",
            "sockets",
            "state_store_races",
            "streams",
        )
    )
)
pytest.register_assert_rewrite(f"{__name__}.state_store")

from helix.testing.contracts.budgets import BudgetsContract  # noqa: E402
from helix.testing.contracts.cache import ResponseCacheContract  # noqa: E402
from helix.testing.contracts.segments import SegmentLogContract  # noqa: E402
from helix.testing.contracts.slots import SlotsContract  # noqa: E402
from helix.testing.contracts.sockets import SocketsContract  # noqa: E402
from helix.testing.contracts.state_store import StateStoreContract  # noqa: E402
from helix.testing.contracts.streams import StreamManagerContract  # noqa: E402

__all__ = [
    "BudgetsContract",
    "ResponseCacheContract",
    "SegmentLogContract",
    "SlotsContract",
    "SocketsContract",
    "StateStoreContract",
    "StreamManagerContract",
]
