"""Everything but running a stored session: read, snapshot, branch, clone, delete, expire, sweep."""
