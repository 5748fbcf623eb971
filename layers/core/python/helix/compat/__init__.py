"""The names of the systems that Helix joins, thin over what really runs: `helix.compat.core` and `helix.compat.teleon`."""
