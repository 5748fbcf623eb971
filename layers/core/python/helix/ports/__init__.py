"""The ports of the engine, with one `Protocol` per file. The docstring of each verb is its contract."""
