"""The context keys that begin with `alarm_`: thresholds of alarms (`helix.core.thresholds`), and their receiver."""

from __future__ import annotations

from pydantic import Field

from helix.core.thresholds import Thresholds


class AlarmSettings(Thresholds):
    """The thresholds of the alarms, and the address that receives them."""

    alarm_email: str = Field(default="", pattern=r"^([^@\s,]+@[^@\s,]+\.[^@\s,]+)?$")
    """The address that receives alarms and notices. The recipient confirms the subscription in a mail from AWS. "": the
    stage has no alarms of its own."""
