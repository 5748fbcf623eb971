"""The clock and the ids of this machine, for the packages above that are used without a runtime."""

from helix.adapters.system import SystemClock, SystemIds

__all__ = ["SystemClock", "SystemIds"]
