"""The ports of the engine, one `Protocol` per file. The docstring of each verb is its contract."""
