import assert from "node:assert/strict";
import { test } from "node:test";
import { Following } from "../src/following.ts";
import { SETTINGS } from "../src/settings.ts";
import { messageOf, wholeStream } from "../src/wire.ts";

const on = (stream: string, sequence: number) =>
  messageOf(stream, { session_id: stream, run_id: "run", turn: 1, sequence, kind: "chunk", chunk: { type: "x" } });

const following = () => new Following(async () => ({}), SETTINGS);

test("what comes before the reply is there when the run is known, whatever else comes, and nothing of other streams", async () => {
  const one = following();
  await one.starting(async () => {
    one.onMessages("busy", Array.from({ length: 9_000 }, (_, n) => on("busy", n + 1)));
    one.onMessages("own", [on("own", 5)]);
    const feed = one.add("own", 4, wholeStream, true);
    assert.deepEqual([feed.waiting, feed.position, feed.hasGap], [true, 5, false]);
    const late = one.add("busy", 0, wholeStream, true);
    assert.deepEqual([late.waiting, late.hasGap], [false, true], "the oldest were dropped, which is seen");
  });
  assert.equal(one.add("own", 4, wholeStream, true).waiting, false, "nothing is stored beyond the start");
  one.onFail(new Error("the test is over"));
});

test("a run on a stream that is read already is there too", async () => {
  const one = following();
  one.add("own", 4, wholeStream, true);
  await one.starting(async () => {
    one.onMessages("own", [on("own", 5)]);
    assert.equal(one.add("own", 4, wholeStream, true).waiting, true);
  });
});

test("two callers that make room at the same time unsubscribe once from each stream", async () => {
  const asked: unknown[] = [];
  const one = new Following(async (action, fields) => {
    asked.push([action, (fields as { stream_id: string }).stream_id]);
    await new Promise((resolve) => setTimeout(resolve));
    return {};
  }, SETTINGS);
  const streams = Array.from({ length: 30 }, (_, n) => `s${n}`);
  for (const stream of streams) one.leave(one.add(stream, 0, wholeStream, true));
  await Promise.all([one.makeRoom(), one.makeRoom()]);
  assert.deepEqual(asked.toSorted(), streams.map((stream) => ["unsubscribe", stream]).toSorted());
});
