"""Notifications to people through an SNS topic."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from helix.adapters.aws.calls import call

LONGEST_SUBJECT = 99


class SnsNotifier:
    """A notifier on one topic. `client`: a botocore `sns` client. `topic`: its ARN. If it is empty, no message is
    published."""

    def __init__(self, client: Any, topic: str) -> None:
        self._client, self._topic = client, topic

    async def publish(self, subject: str, message: Mapping[str, Any]) -> bool:
        """Publish the message as JSON. True: SNS delivers it at least once. False: there is no topic. Raises
        `StoreError` if SNS may not have received it. The caller should then publish it again."""
        if not self._topic:
            return False
        line = " ".join(subject.encode("ascii", "replace").decode().split())[:LONGEST_SUBJECT]
        text = json.dumps(message, ensure_ascii=False)
        await call(self._client, "publish", f"publishing {line!r}", TopicArn=self._topic, Subject=line, Message=text)
        return True
