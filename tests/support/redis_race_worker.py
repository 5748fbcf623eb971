"""The races of `race_worker` on Redis. The jobs are the same, and their `db` is a URL."""

from tests.support import race_worker

from helix.adapters.redis import open_redis

if __name__ == "__main__":
    race_worker.SQLiteStateStore = open_redis  # type: ignore[assignment, attr-defined]
    race_worker.main()
