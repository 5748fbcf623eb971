"""Telling people by an SNS topic."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from helix.core.errors import StoreError

LONGEST_SUBJECT = 99


class SnsNotifier:
    """`client`: botocore's of `sns`. `topic`: its ARN; empty: nobody is told."""

    def __init__(self, client: Any, topic: str) -> None:
        self._client, self._topic = client, topic

    async def publish(self, subject: str, message: Mapping[str, Any]) -> bool:
        if not self._topic:
            return False
        line = " ".join(subject.encode("ascii", "replace").decode().split())[:LONGEST_SUBJECT]
        text = json.dumps(message, ensure_ascii=False)
        try:
            await asyncio.to_thread(self._client.publish, TopicArn=self._topic, Subject=line, Message=text)
        except (BotoCoreError, ClientError) as error:
            raise StoreError(f"publishing {line!r}: {error}") from error
        return True
