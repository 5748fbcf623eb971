"""What is done with stored sessions beside running them: read, snapshot, branch, clone, delete, expire, sweep."""
