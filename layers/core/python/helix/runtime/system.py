"""The clock and the ids of this machine, for packages above this one that work without a runtime."""

from helix.adapters.system import SystemClock, SystemIds

__all__ = ["SystemClock", "SystemIds"]
