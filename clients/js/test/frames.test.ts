import assert from "node:assert/strict";
import { test } from "node:test";
import { HelixError } from "../src/errors.ts";
import { framesOf, Joiner, MAX_REQUEST_BYTES } from "../src/frames.ts";

const bytes = (text: string) => new TextEncoder().encode(text).length;

test("a request that fits a frame goes as it is", () => {
  assert.deepEqual(framesOf("{}", "r1"), ["{}"]);
});

for (const [name, letter] of Object.entries({ latin: "x", accented: "é", quotes: '"', emoji: "😀", chinese: "漢" })) {
  test(`a long request of ${name} letters goes in parts that the gateway takes, and is whole again in any order`, () => {
    const text = "a" + letter.repeat(Math.floor((MAX_REQUEST_BYTES - 1) / bytes(letter)));
    const frames = framesOf(text, "r1");
    assert.ok(frames.length > 1 && frames.length <= 16);
    const joiner = new Joiner();
    const whole = [...frames, ...frames.slice(1)].reverse().map((frame) => {
      assert.ok(bytes(frame) <= 32 * 1024 - 14);
      return joiner.add(JSON.parse(frame));
    });
    assert.deepEqual(whole.filter((found) => found !== undefined), [text]);
  });
}

test("a request over the service's limit is refused before it is sent", () => {
  assert.throws(
    () => framesOf("x".repeat(MAX_REQUEST_BYTES + 1), "r1"),
    (error) => error instanceof HelixError && error.code === "invalid_message" && error.details["field"] === "body",
  );
});

test("what is no part is refused, and texts that never come whole are forgotten", () => {
  const joiner = new Joiner();
  for (const part of [{}, { part: "a", index: 2, total: 2, data: "" }, { part: "a", index: -1, total: 2, data: "" }]) {
    assert.throws(() => joiner.add(part), HelixError);
  }
  for (let i = 0; i < 100; i += 1) joiner.add({ part: `p${i}`, index: 0, total: 2, data: "x" });
  assert.equal(joiner.add({ part: "p0", index: 1, total: 2, data: "y" }), undefined);
  assert.equal(joiner.add({ part: "p99", index: 1, total: 2, data: "y" }), "xy");
});
