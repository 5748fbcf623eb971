"""The crashes of `crash_worker` on Redis. The jobs are the same, and each `db` is a prefix in the database that REDIS_URL
names."""

import os
from pathlib import Path

from tests.support import crash_worker

from helix.adapters.redis import RedisStateStore

if __name__ == "__main__":
    crash_worker.opened = lambda job: RedisStateStore(os.environ["REDIS_URL"], prefix=Path(job["db"]).stem)
    crash_worker.main()
