"""Contract tests for authors of adapters. Every adapter of a port must pass its contract. Each test checks one law.

    class TestMyStore(StateStoreContract):
        @pytest.fixture
        async def store(self):
            store = MyStateStore(...)
            yield store
            await store.close()

        @pytest.fixture
        async def other(self, store):        # the store of another process on the same data; default: `store`
            ...

The same for `StreamManagerContract` (fixtures `streams`, `other`), `SocketsContract` (`sockets`, `peers`) and
`BlobsContract` (`blobs`, `other`). They need pytest and pytest-asyncio.
"""

import pytest

# Must come before the imports, so that a failing test shows the values that it compared.
pytest.register_assert_rewrite(
    *(
        f"{__name__}.{module}"
        for module in (
            "blobs",
            "sockets",
            "state_store",
            "state_store_expiry",
            "state_store_keys",
            "state_store_races",
            "state_store_rows",
            "streams",
        )
    )
)

from helix.testing.contracts.blobs import BlobsContract  # noqa: E402
from helix.testing.contracts.sockets import SocketsContract  # noqa: E402
from helix.testing.contracts.state_store import StateStoreContract  # noqa: E402
from helix.testing.contracts.streams import StreamManagerContract  # noqa: E402

__all__ = [
    "BlobsContract",
    "SocketsContract",
    "StateStoreContract",
    "StreamManagerContract",
]
