// The encoders send a change of the model's view once, as those in Python do (`tests/unit/test_context_notices.py`).
import assert from "node:assert/strict";
import { test } from "node:test";
import { AgUiEncoder } from "../src/ag-ui-events.ts";
import { UIMessageEncoder } from "../src/ui-messages.ts";
import { messageOf } from "../src/wire.ts";

const view = { hidden: 6, cleared: 6, summary: "Tea is wanted.", cause: "overflow", tokens: 950 };
const resumed = { type: "run_resumed", previous_run_id: "r1", mode: "takeover" };
const messages = [
  { run_id: "r1", chunk: { type: "context_changed", step: 5, ...view } },
  { run_id: "r2", chunk: resumed },
  { run_id: "r2", chunk: { type: "context_changed", step: 5, ...view } },
].map((one, n) => messageOf("ses", { session_id: "ses", sequence: n + 1, kind: "chunk", ...one }));

test("the AI SDK gets transient data", () => {
  const encoder = new UIMessageEncoder("ses");
  const parts = messages.flatMap((message) => encoder.feed(message));
  const expected = { type: "data-context-changed", data: view, transient: true };
  assert.deepEqual(parts.filter((part) => part.type === expected.type), [expected]);
});

test("AG-UI gets a custom event", () => {
  const encoder = new AgUiEncoder("ses");
  const events = messages.flatMap((message) => encoder.feed(message)).filter((event) => event.type === "CUSTOM");
  assert.deepEqual(events.map(({ name, value }) => [name, value]), [["helix.context_changed", view]]);
});
