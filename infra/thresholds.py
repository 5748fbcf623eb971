"""Context keys that begin with `alarm_`: when alarms sound (`helix.core.thresholds`), and who receives them."""

from __future__ import annotations

from pydantic import Field

from helix.core.thresholds import Thresholds


class AlarmSettings(Thresholds):
    """alarm_email: the address that receives alarms and notices; they confirm the subscription in a mail from AWS."""

    alarm_email: str = Field(default="", pattern=r"^([^@\s,]+@[^@\s,]+\.[^@\s,]+)?$")
