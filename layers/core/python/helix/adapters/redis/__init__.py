"""Implementations of the ports on Redis: a state store, and streams on it. Requires the `redis` extra.

executor = LocalExecutor(open_redis("redis://127.0.0.1:6379/0"), model=...)
"""

from helix.core.errors import DefinitionError

try:
    from helix.adapters.redis.store import RedisStateStore, open_redis, redis_streams
except ModuleNotFoundError as error:
    if error.name != "redis":
        raise
    problem = "redis is not installed: pip install 'helix-agents[redis]'"
    raise DefinitionError("RedisStateStore", "redis", problem) from error

__all__ = ["RedisStateStore", "open_redis", "redis_streams"]
