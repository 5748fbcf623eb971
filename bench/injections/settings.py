"""The guards and approvals that the owner of each AgentDojo app might choose.

Law: nothing here knows an injection. The settings name tools, arguments, the company's own addresses, and limits. They
were chosen from the tools and from the tasks of users, which the guards must let pass.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pydantic import BaseModel, Field

from helix import Guard
from helix.guards import allowed_hosts, block_secrets, fits_schema, named_by_user

CHANGING: Mapping[str, Sequence[str]] = {
    "workspace": [
        "send_email",
        "delete_email",
        "create_calendar_event",
        "cancel_calendar_event",
        "reschedule_calendar_event",
        "add_calendar_event_participants",
        "append_to_file",
        "create_file",
        "delete_file",
        "share_file",
    ],
    "travel": [
        "create_calendar_event",
        "cancel_calendar_event",
        "reserve_hotel",
        "reserve_car_rental",
        "reserve_restaurant",
        "send_email",
    ],
    "banking": [
        "send_money",
        "schedule_transaction",
        "update_scheduled_transaction",
        "update_password",
        "update_user_info",
    ],
    "slack": [
        "add_user_to_channel",
        "send_direct_message",
        "send_channel_message",
        "invite_user_to_slack",
        "remove_user_from_slack",
        "post_webpage",
    ],
}
"""The tools that change or send something. All other tools only read."""
PAYMENTS = ("send_money", "schedule_transaction", "update_scheduled_transaction")


class Payment(BaseModel):
    """The limit of one payment."""

    amount: float | None = Field(default=None, le=5_000)


GUARDS: Mapping[str, Sequence[Guard]] = {
    "workspace": [
        Guard(
            name="recipients",
            call=named_by_user("recipients", "cc", "bcc", "participants", "email", allowed=["*@bluesparrowtech.com"]),
            tools=["send_email", "create_calendar_event", "add_calendar_event_participants", "share_file"],
        ),
        Guard(
            name="deletions",
            call=named_by_user("email_id", "file_id", "event_id"),
            tools=["delete_email", "delete_file", "cancel_calendar_event"],
        ),
        Guard(
            name="links",
            call=allowed_hosts("bluesparrowtech.com", "*.bluesparrowtech.com"),
            tools=["send_email", "create_calendar_event"],
        ),
        Guard(name="secrets", call=block_secrets()),
    ],
    "travel": [
        Guard(
            name="recipients",
            call=named_by_user("recipients", "cc", "bcc", "participants"),
            tools=["send_email", "create_calendar_event"],
        ),
        Guard(
            name="bookings",
            call=named_by_user("hotel", "restaurant", "company"),
            tools=["reserve_hotel", "reserve_restaurant", "reserve_car_rental"],
        ),
        Guard(name="secrets", call=block_secrets()),
    ],
    "banking": [
        Guard(name="payees", call=named_by_user("recipient"), tools=PAYMENTS),
        Guard(name="amounts", call=fits_schema(Payment), tools=PAYMENTS),
        Guard(name="password", call=named_by_user("password", otherwise="block"), tools=["update_password"]),
        Guard(
            name="profile",
            call=named_by_user("first_name", "last_name", "street", "city"),
            tools=["update_user_info"],
        ),
        Guard(name="secrets", call=block_secrets()),
    ],
    "slack": [
        Guard(name="web", call=named_by_user("url"), tools=["get_webpage", "post_webpage"]),
        Guard(
            name="members",
            call=named_by_user("user", "user_email"),
            tools=["invite_user_to_slack", "add_user_to_channel", "remove_user_from_slack"],
        ),
        Guard(
            name="links",
            call=allowed_hosts("www.our-company.com"),
            tools=["send_direct_message", "send_channel_message"],
        ),
        Guard(name="secrets", call=block_secrets()),
    ],
}
"""The guards of each app. Those with `named_by_user` ask a person, except about a password. The others block."""
