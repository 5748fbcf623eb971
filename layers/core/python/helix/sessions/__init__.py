"""Operations on stored sessions other than running them: read, snapshot, branch, clone, delete, expire and sweep."""
