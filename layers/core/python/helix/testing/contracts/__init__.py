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

The same for `StreamManagerContract` (fixtures `streams`, `other`) and `SocketsContract` (`sockets`, `peers`). They need
pytest and pytest-asyncio.
"""

import pytest

# Before they are imported: a failing law then shows the values it compared.
pytest.register_assert_rewrite(
    *(
        f"{__name__}.{module}"
        for module in ("sockets", "state_store", "state_store_keys", "state_store_races", "streams")
    )
)

from helix.testing.contracts.sockets import SocketsContract  # noqa: E402
from helix.testing.contracts.state_store import StateStoreContract  # noqa: E402
from helix.testing.contracts.streams import StreamManagerContract  # noqa: E402

__all__ = [
    "SocketsContract",
    "StateStoreContract",
    "StreamManagerContract",
]
