import assert from "node:assert/strict";
import { test } from "node:test";
import { Feed } from "../src/feed.ts";
import { behind, messageOf, oneRun, type StreamMessage, wholeStream } from "../src/wire.ts";

const at = (sequence: number, more: object = {}): StreamMessage =>
  messageOf("s", { session_id: "s", run_id: "run", turn: 1, sequence, kind: "chunk", chunk: { type: "x" }, ...more });

async function read(feed: Feed): Promise<number[]> {
  const found: number[] = [];
  while (feed.waiting) found.push((await feed.next(0))?.sequence ?? -1);
  return found;
}

test("messages leave in order, each once, and a gap is waited for", async () => {
  const feed = new Feed("s", 0, wholeStream, 100);
  feed.offer([at(3), at(1), at(1)]);
  assert.deepEqual([await read(feed), feed.hasGap], [[1], true]);
  feed.offer([at(2), at(3)]);
  assert.deepEqual([await read(feed), feed.hasGap], [[2, 3], false]);
  feed.offer([at(2), at(3)]);
  assert.deepEqual([await read(feed), feed.hasGap], [[], false], "what was read opens no gap when it comes again");
});

test("where the log has lost its beginning, its word stands for it", async () => {
  const feed = new Feed("s", 0, wholeStream, 100);
  feed.offer([at(9), at(7, { run_id: "", chunk: { type: "stream_resync" } })]);
  assert.deepEqual([await read(feed), feed.position], [[7], 7]);
  feed.offer([at(8)]);
  assert.deepEqual(await read(feed), [8, 9]);
});

test("a reader of one run sees it to its end, sub-agents between included, and ends where it was taken over", async () => {
  const feed = new Feed("s", 0, oneRun("s", 2), 100);
  const messages = [at(1), at(2, { turn: 2 }), at(3, { session_id: "child" }), at(4, { turn: 2, kind: "end" }), at(5)];
  feed.offer(messages);
  assert.deepEqual([await read(feed), feed.done], [[2, 3, 4], true]);
  const taken = new Feed("s", 0, behind(1, oneRun("s", 1)), 100);
  taken.offer([at(1), at(2), at(3, { turn: 2 })]);
  assert.deepEqual([await read(taken), taken.done], [[2], true]);
});

test("a reader that does not read has a limit, and knows what was dropped", async () => {
  const feed = new Feed("s", 0, wholeStream, 3);
  feed.offer([at(1), at(2), at(3), at(4), at(5)]);
  assert.deepEqual([await read(feed), feed.dropped, feed.position], [[1, 2, 3], true, 3]);
  feed.offer([at(4), at(5)]);
  assert.deepEqual(await read(feed), [4, 5]);
});

test("whoever waits is woken by a message, by the end and by a failure", async () => {
  const feed = new Feed("s", 0, oneRun("s", 1), 10);
  const [next, ended] = [feed.next(60_000), feed.ended(60_000)];
  feed.offer([at(1, { kind: "end" })]);
  assert.deepEqual([(await next)?.sequence, await ended, await feed.next(60_000)], [1, true, undefined]);
  const failing = new Feed("s", 0, wholeStream, 10);
  const waiting = failing.next(60_000);
  failing.fail(new Error("gone"));
  await assert.rejects(waiting, /gone/);
});

test("what is no message is refused", () => {
  for (const body of [null, {}, { session_id: "s", run_id: "r", kind: "chunk", sequence: 0 }]) {
    assert.throws(() => messageOf("s", body), /sequence/);
  }
});

test("what closes a gap is taken however much lies behind it", async () => {
  const feed = new Feed("s", 0, wholeStream, 3);
  feed.offer([5, 6, 7, 8, 9].map((sequence) => at(sequence)));
  assert.deepEqual([feed.hasGap, feed.dropped], [true, true]);
  feed.offer([1, 2, 3, 4].map((sequence) => at(sequence)));
  const found = await read(feed);
  feed.offer([at(4), at(5)]);
  assert.deepEqual([...found, ...(await read(feed))], [1, 2, 3, 4, 5]);
});
