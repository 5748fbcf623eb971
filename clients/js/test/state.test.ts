import assert from "node:assert/strict";
import { test } from "node:test";
import { HelixError } from "../src/errors.ts";
import type { StreamChunk } from "../src/generated.ts";
import { applyPatches, type JsonObject } from "../src/patches.ts";
import { StateProjector } from "../src/state.ts";
import { chunkOf, messageOf } from "../src/wire.ts";

const chunk = (sequence: number, sent: object): StreamChunk =>
  chunkOf(messageOf("s", { session_id: "s", run_id: "r", sequence, kind: "chunk", chunk: { session_id: "s", ...sent } }));

test("all operations of RFC 6902", () => {
  const before: JsonObject = { a: [1, 2], b: { "x/y": 1, "~": 2 } };
  const after = applyPatches(before, [
    { op: "test", path: "/a/0", value: 1 },
    { op: "add", path: "/a/-", value: 3 },
    { op: "add", path: "/a/0", value: 0 },
    { op: "remove", path: "/a/1" },
    { op: "replace", path: "/b/x~1y", value: { deep: [] } },
    { op: "copy", from: "/b/x~1y", path: "/c" },
    { op: "add", path: "/c/deep/-", value: 1 },
    { op: "move", from: "/b/~0", path: "/d" },
    { op: "add", path: "/__proto__", value: { bad: true } },
  ]);
  assert.deepEqual(JSON.parse(JSON.stringify(after)), JSON.parse(
    '{"a": [0, 2, 3], "b": {"x/y": {"deep": []}}, "c": {"deep": [1]}, "d": 2, "__proto__": {"bad": true}}',
  ));
  assert.equal((after as { bad?: unknown }).bad, undefined);
  assert.deepEqual(before, { a: [1, 2], b: { "x/y": 1, "~": 2 } });
});

for (const patch of [
  { op: "remove", path: "/nothing" },
  { op: "replace", path: "/a/2", value: 1 },
  { op: "add", path: "/a/4", value: 1 },
  { op: "add", path: "/a/01", value: 1 },
  { op: "add", path: "/x/y", value: 1 },
  { op: "add", path: "/toString/y", value: 1 },
  { op: "add", path: "/a" },
  { op: "test", path: "/a", value: [1] },
  { op: "replace", path: "", value: 1 },
  { op: "move", from: "/a", path: "/a/0" },
  { op: "weird", path: "/a" },
]) {
  test(`what does not fit is refused: ${JSON.stringify(patch)}`, () => {
    assert.throws(
      () => applyPatches({ a: [1, 2], s: "text" }, [patch]),
      (error) => error instanceof HelixError && error.code === "invalid_input",
    );
  });
}

test("a projector follows its own session, from its snapshot on, and says what changed", async () => {
  const view = new StateProjector("s", { custom_state: { n: 1 }, sequence: 2 }, { project: (state) => state["n"] });
  const patch = (n: number) => ({ type: "state_patch", patches: [{ op: "replace", path: "/n", value: n }] });
  assert.equal(await view.feed(chunk(2, patch(9))), false);
  assert.equal(await view.feed(chunk(3, { ...patch(8), session_id: "child" })), false);
  assert.equal(await view.feed(chunk(4, patch(1))), false);
  assert.equal(await view.feed(chunk(5, patch(5))), true);
  assert.equal(view.value, 5);
});

test("where the stream cannot say how to go on, the state is loaded anew, or the error is typed", async () => {
  const resync = chunk(3, { type: "stream_resync", reason: "rewound" });
  const bare = new StateProjector("s", { custom_state: {}, sequence: 0 });
  await assert.rejects(bare.feed(resync), (error) => error instanceof HelixError && error.code === "stale_state");
  const loading = new StateProjector("s", { custom_state: {}, sequence: 0 }, {
    load: async () => ({ custom_state: { fresh: true }, sequence: 7 }),
  });
  assert.equal(await loading.feed(resync), true);
  assert.deepEqual(loading.value, { fresh: true });
});

test("fields that a chunk leaves out on the wire are filled in, each time anew", () => {
  const started = chunk(1, { type: "tool_start", tool_call_id: "c", tool_name: "t" });
  assert.deepEqual(started.type === "tool_start" && started.arguments, {});
  const ended = chunk(2, { type: "tool_end", tool_call_id: "c", tool_name: "t" });
  assert.deepEqual(ended.type === "tool_end" && [ended.success, ended.result, ended.error], [true, null, null]);
  const committed = chunk(3, { type: "step_committed", usage: { calls: 1 } });
  assert.deepEqual(committed.type === "step_committed" && [committed.usage?.calls, committed.usage?.priced], [1, true]);
});
