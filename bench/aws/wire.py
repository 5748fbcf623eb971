"""Count calls where they leave botocore, and the units that DynamoDB would charge for each.

Law: an attempt counts as a call, and so does a retry. Sizes and units follow DynamoDB's rules for items, not the
emulator's:

    item        names of attributes (UTF-8) and their values; a number takes (digits + 1) / 2 + 1 bytes, null and bool 1
    write       1 unit per started KB of the larger of the item before and after; twice that in a transaction, where a
                condition check costs like a write of the item it checks
    read        strongly consistent: 1 unit per started 4 KB, of each item (GetItem, BatchGetItem) or of the page (Query)
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

READS = frozenset({"GetItem", "BatchGetItem", "Query"})
WRITES = frozenset({"PutItem", "UpdateItem", "DeleteItem", "TransactWriteItems", "BatchWriteItem"})
PARAMS = "helix_params"


@dataclass
class Call:
    """`rows` has table, sort key and bytes written of each item of a write; the bytes are 0 if the item was only
    checked. `paid` has the units of each. `data` is the bytes put on Kinesis."""

    where: tuple[Any, ...]
    service: str
    verb: str
    rows: list[tuple[str, str, int]] = field(default_factory=list)
    paid: list[int] = field(default_factory=list)
    read_units: int = 0
    write_units: int = 0
    read_bytes: int = 0
    data: int = 0
    about: str = ""

    @property
    def reads(self) -> bool:
        return self.service == "dynamodb" and self.verb in READS and not self.looks_for_a_stop

    @property
    def looks_for_a_stop(self) -> bool:
        """This read happens twice a second during a delivery, so its count depends on the speed of this machine."""
        return self.verb == "GetItem" and self.about.startswith("x#")

    @property
    def writes(self) -> bool:
        return self.service == "dynamodb" and self.verb in WRITES

    def written(self, table: str) -> int:
        return sum(size for name, _, size in self.rows if name.endswith(table))


class Wire:
    """`peek(table, key)` reads an item without being counted. Calls belong to the innermost `at`. `refused`: the
    transactions whose conditions failed. `keys`: the names of a table's partition and sort key."""

    def __init__(self, peek: Any, keys: tuple[str, str] = ("pk", "sk")) -> None:
        self.calls: list[Call] = []
        self.refused: list[Call] = []
        self._peek, self._keys = peek, keys
        self._where: tuple[Any, ...] = ()
        self._sizes: dict[tuple[str, str, str], int] = {}

    def listen(self, session: Any) -> None:
        """Attach the counter to every client that this botocore session creates from now on."""
        session.register("before-parameter-build", self._asked)
        session.register("response-received", self._answered)

    @contextmanager
    def at(self, *where: Any) -> Iterator[None]:
        before, self._where = self._where, where
        try:
            yield
        finally:
            self._where = before

    def _asked(self, params: Mapping[str, Any], context: dict[str, Any], **_: Any) -> None:
        context[PARAMS] = params

    def _answered(self, event_name: str, context: Mapping[str, Any], parsed_response: Any = None, **_: Any) -> None:
        _, service, verb = event_name.split(".")
        self.count(service, verb, context[PARAMS], parsed_response)

    def count(self, service: str, verb: str, params: Any, parsed_response: Any) -> None:
        call = Call(self._where, service, verb)
        self.calls.append(call)
        if service == "kinesis" and verb == "PutRecord":
            call.data = len(params["Data"]) + len(params["PartitionKey"])
        elif service == "dynamodb" and parsed_response is not None and "Error" not in parsed_response:
            getattr(self, f"_{verb}", self._other)(call, params, parsed_response)
        elif verb == "TransactWriteItems":
            self.refused.append(call)

    # --- DynamoDB -------------------------------------------------------------------------------------------------

    def _other(self, call: Call, params: Any, answer: Any) -> None:
        return None

    def _PutItem(self, call: Call, params: Any, answer: Any) -> None:
        self._write(call, "Put", params, 1)

    def _UpdateItem(self, call: Call, params: Any, answer: Any) -> None:
        self._write(call, "Update", params, 1)

    def _DeleteItem(self, call: Call, params: Any, answer: Any) -> None:
        self._write(call, "Delete", params, 1)

    def _TransactWriteItems(self, call: Call, params: Any, answer: Any) -> None:
        for item in params["TransactItems"]:
            ((kind, request),) = item.items()
            self._write(call, kind, request, 2)

    def _BatchWriteItem(self, call: Call, params: Any, answer: Any) -> None:
        for table, requests in params["RequestItems"].items():
            for item in requests:
                ((kind, request),) = item.items()
                self._write(call, kind.removesuffix("Request"), {"TableName": table, **request}, 1)

    def _write(self, call: Call, kind: str, request: Any, factor: int) -> None:
        table = request["TableName"]
        partition, sort = self._keys
        key = {name: (request.get("Item") or request["Key"])[name] for name in self._keys}
        place = (table, key[partition]["S"], key[sort]["S"])
        before = self._sizes.get(place, 0)
        if kind == "Delete":
            after = self._sizes.pop(place, 0) * 0
        elif kind == "ConditionCheck":
            after = 0
        else:
            item = request["Item"] if kind == "Put" else self._peek(table, key)
            after = self._sizes[place] = item_bytes(item)
        call.rows.append((table, place[2], after))
        call.paid.append(factor * max(1, math.ceil(max(before, after) / 1024)))
        call.write_units += call.paid[-1]

    def _GetItem(self, call: Call, params: Any, answer: Any) -> None:
        self._read(call, item_bytes(answer.get("Item", {})))
        call.about = params["Key"][self._keys[1]]["S"]

    def _BatchGetItem(self, call: Call, params: Any, answer: Any) -> None:
        partition, sort = self._keys
        asked = [key[sort]["S"] for wanted in params["RequestItems"].values() for key in wanted["Keys"]]
        call.about = " + ".join(asked)
        for table, wanted in params["RequestItems"].items():
            found = {(i[partition]["S"], i[sort]["S"]): i for i in answer["Responses"].get(table, [])}
            for key in wanted["Keys"]:
                self._read(call, item_bytes(found.get((key[partition]["S"], key[sort]["S"]), {})))

    def _Query(self, call: Call, params: Any, answer: Any) -> None:
        self._read(call, sum(item_bytes(item) for item in answer["Items"]))
        values = params["ExpressionAttributeValues"]
        limits = [values[name]["S"].rstrip("\x00") for name in (":a", ":b") if name in values]
        call.about = f"{' to '.join(limits) or 'the newest'}: {len(answer['Items'])} rows"

    def _read(self, call: Call, size: int) -> None:
        call.read_bytes += size
        call.read_units += max(1, math.ceil(size / 4096))


def item_bytes(item: Mapping[str, Any]) -> int:
    return sum(len(name.encode()) + _value_bytes(value) for name, value in item.items())


def _value_bytes(attribute: Mapping[str, Any]) -> int:
    ((kind, raw),) = attribute.items()
    match kind:
        case "S":
            return len(raw.encode())
        case "N":
            return (len(raw.lstrip("-").replace(".", "").strip("0")) + 1) // 2 + 1
        case "B":
            return len(raw)
        case "L":
            return 3 + sum(1 + _value_bytes(value) for value in raw)
        case "M":
            return 3 + sum(1 + len(name.encode()) + _value_bytes(value) for name, value in raw.items())
    return 1
