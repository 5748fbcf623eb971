// A structured output while it arrives, as `tests/integration/test_partial_outputs.py` reads it in Python.
import assert from "node:assert/strict";
import { test } from "node:test";
import type { StreamChunk } from "../src/generated.ts";
import { GrowingText, outputItems, partialOutputs, readPartial } from "../src/partial-output.ts";
import { chunkOf, messageOf } from "../src/wire.ts";

const [TEA, SOUP] = [{ name: "tea", minutes: 4 }, { name: "soup", minutes: 25 }];
const MENU = { title: "For today", dishes: [TEA, SOUP] };

type Given = { type: string; [field: string]: unknown };

async function* stream(...given: Given[]): AsyncGenerator<StreamChunk> {
  for (const [n, one] of given.entries()) {
    const chunk = { agent_id: "ses", run_id: "r1", step: 1, attempt: 1, ...one };
    yield chunkOf(messageOf("ses", { session_id: "ses", run_id: "r1", sequence: n + 1, kind: "chunk", chunk }));
  }
}

/** The pieces of a value's JSON text, of five characters each. */
function pieces(value: unknown, envelope: object = {}): Given[] {
  const text = JSON.stringify(value);
  const starts = [...Array(Math.ceil(text.length / 5)).keys()];
  return starts.map((n) => ({ type: "output_delta", delta: text.slice(5 * n, 5 * n + 5), ...envelope }));
}

const all = <T>(source: AsyncIterable<T>): Promise<T[]> => Array.fromAsync(source);
const item = (index: number, value: unknown) => ({ type: "item", index, value });

test("partial objects grow, and the whole output is the last", async () => {
  const given = [...pieces(MENU), { type: "step_committed" }, { type: "output", output: { ...MENU, note: null } }];
  const found = await all(partialOutputs(stream(...given), "ses"));
  assert.deepEqual(found.at(0), {});
  assert.ok(found.some((one) => JSON.stringify(one) === '{"title":"For t"}'));
  assert.deepEqual(found.at(-1), { ...MENU, note: null });
});

test("each element comes once, and before the end", async () => {
  const half = pieces(MENU).slice(0, 12); // the second dish has begun
  assert.deepEqual((await all(outputItems(stream(...half), "ses", "dishes"))).at(0), item(0, TEA));
  const given = [...pieces(MENU), { type: "step_committed" }, { type: "output", output: MENU }];
  assert.deepEqual(await all(outputItems(stream(...given), "ses", "dishes")), [item(0, TEA), item(1, SOUP)]);
});

test("a failed call, a refused answer and a failed run take back what they showed", async () => {
  const committed = { type: "step_committed", step: 1, attempt: 1 };
  const failed = [...pieces(MENU), { type: "step_discarded", reason: "overloaded" }];
  const refused = [...pieces(MENU), committed];
  const last = [...pieces(MENU, { step: 2 }), { type: "step_committed", step: 2 }];
  const found = await all(outputItems(stream(...failed, ...refused, ...last), "ses", "dishes"));
  const discarded = found.flatMap((one) => (one.type === "discarded" ? [one.reason] : []));
  assert.deepEqual(discarded, ["overloaded", "the answer was refused", "the run ended without an output"]);
  assert.deepEqual(found.slice(-3, -1), [item(0, TEA), item(1, SOUP)]);
  const parts = await all(partialOutputs(stream(...failed), "ses"));
  assert.deepEqual(parts.at(-1), {});
});

test("an output of a sub-agent is not the run's, and another output in the end replaces the elements", async () => {
  const below = pieces(MENU, { agent_id: "sub" });
  assert.deepEqual(await all(outputItems(stream(...below), "ses", "dishes")), []);
  const given = [...pieces(MENU), { type: "step_committed" }, { type: "output", output: { dishes: [SOUP] } }];
  const reason = "the output differs from its text";
  assert.deepEqual((await all(outputItems(stream(...given), "ses", "dishes"))).slice(-2), [{ type: "discarded", reason }, item(0, SOUP)]);
});

test("a long text is read a bounded number of times", () => {
  const growing = new GrowingText();
  let read = 0;
  for (const piece of "x".repeat(100_000)) if (growing.add(piece)) read += growing.text.length;
  assert.ok(read < 64 * 100_000);
  assert.deepEqual([readPartial("nonsense"), readPartial("[1"), readPartial('{"a": "b')], [undefined, undefined, { a: "b" }]);
});
