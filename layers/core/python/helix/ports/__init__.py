"""The verbs the engine needs from the world, one `Protocol` per file. The docstring of each verb is its contract."""
