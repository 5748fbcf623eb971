"""Adapters that break one law of their contract each. `tests/contracts/` shows that the contract finds each of them."""
