// The encoders send a change of the model's view once (`tests/unit/test_context_notices.py`), a structured output as it
// grows (`tests/unit/test_output_parts.py`), and a new notice without code for it (`tests/unit/test_shown_chunks.py`), as
// those in Python do.
import assert from "node:assert/strict";
import { test } from "node:test";
import { AgUiEncoder } from "../src/ag-ui-events.ts";
import { DEFAULTS, NOTICES, UI_FIELDS } from "../src/generated.ts";
import { Conversation } from "../src/conversation/conversation.ts";
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

test("each reader shows a new notice without code for it", (t) => {
  const tables: Record<string, unknown>[] = [NOTICES, UI_FIELDS as Record<string, unknown>, DEFAULTS.types];
  const rows = ["Source {number}: {title} {page}", ["number", "title"], { page: null }];
  tables.forEach((table, n) => (table["remark"] = rows[n]));
  t.after(() => tables.forEach((table) => delete table["remark"]));
  const chunk = { type: "remark", number: 1, title: "{tea}" };
  const message = messageOf("ses", { session_id: "ses", run_id: "r1", sequence: 1, kind: "chunk", chunk });

  const conversation = new Conversation("ses");
  assert.deepEqual(conversation.take(message).map((change) => change.type), ["RunBegan", "Noticed"]);
  assert.deepEqual(conversation.items.map((item) => item.text), ["Source 1: {tea} "]);
  const sent = { number: 1, title: "{tea}" };
  const parts = new UIMessageEncoder("ses").feed(message).filter((part) => part.type.startsWith("data-"));
  assert.deepEqual(parts, [{ type: "data-remark", data: sent, transient: true }]);
  const events = new AgUiEncoder("ses").feed(message).filter((event) => event.type === "CUSTOM");
  assert.deepEqual(events.map(({ name, value }) => [name, value]), [["helix.remark", sent]]);
});

const step = { step: 1, attempt: 1 };
const output = [
  { type: "text_delta", delta: "Here.", ...step },
  { type: "output_delta", delta: '{"title":', ...step },
  { type: "output_delta", delta: '"Te', ...step },
  { type: "output_delta", delta: 'a","n":1}', ...step },
  { type: "step_discarded", reason: "lost", ...step },
  { type: "output_delta", delta: '{"title":"Soup"}', step: 1, attempt: 2 },
  { type: "step_committed", step: 1, attempt: 2 },
  { type: "output", output: { title: "Soup" } },
].map((chunk, n) => messageOf("ses", { session_id: "ses", run_id: "r1", sequence: n + 1, kind: "chunk", chunk }));

test("a page of the AI SDK shows the output growing", () => {
  const encoder = new UIMessageEncoder("ses");
  const parts = output.flatMap((message) => encoder.feed(message));
  assert.deepEqual(
    parts.map((part) => ("data" in part ? [part.type, part.id, part.data] : part.type)),
    [
      ...["start", "start-step", "text-start", "text-delta", "text-end"],
      ...[{}, { title: "Te" }, { title: "Tea", n: 1 }].map((data) => ["data-output", "r1", data]),
      "reset-step",
      ...[{ title: "Soup" }, { title: "Soup" }].map((data) => ["data-output", "r1", data]),
    ],
  );
});

test("AG-UI gets the pieces of the output with their attempt", () => {
  const encoder = new AgUiEncoder("ses");
  const events = output.flatMap((message) => encoder.feed(message)).filter((event) => event.type === "CUSTOM");
  assert.deepEqual(events.map(({ value }) => value).slice(0, 1), [{ delta: '{"title":', ...step }]);
});

const cut = [
  { run_id: "r1", chunk: { type: "text_delta", delta: "Half", ...step } },
  { run_id: "r1", chunk: { type: "step_committed", stop_reason: "interrupted", ...step } },
  { run_id: "r2", chunk: { type: "run_resumed", previous_run_id: "r1", mode: "continue" } },
  { run_id: "r2", chunk: { type: "text_delta", delta: " more.", step: 2, attempt: 1 } },
  { run_id: "r2", chunk: { type: "step_committed", stop_reason: "end_turn", step: 2, attempt: 1 } },
].map((one, n) => messageOf("ses", { session_id: "ses", sequence: n + 1, kind: "chunk", ...one }));

test("the encoders say where an interrupt cut an answer off, as those in Python do (`tests/unit/test_cut_parts.py`)", () => {
  const encoder = new UIMessageEncoder("ses");
  const parts = cut.flatMap((message) => encoder.feed(message)).map((part) => part.type);
  assert.deepEqual(parts.slice(parts.indexOf("text-delta")), [
    ...["text-delta", "text-end", "data-answer-cut", "finish-step"],
    ...["start-step", "text-start", "text-delta", "text-end"],
  ]);
  const events = cut.flatMap((message) => new AgUiEncoder("ses").feed(message));
  const cuts = events.filter((event) => event.name === "helix.answer_cut").map(({ value }) => value);
  assert.deepEqual(cuts, [{ messageId: "ses/1/1" }]);
});
