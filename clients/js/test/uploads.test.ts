import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { after, before, beforeEach, test } from "node:test";
import type { HelixClient } from "../src/client.ts";
import { HelixError } from "../src/errors.ts";
import { readContent } from "../src/files.ts";
import { FakeService } from "./support/service.ts";

let service: FakeService;
let client: HelixClient;
before(async () => {
  service = new FakeService();
  await service.start();
  client = await service.connect();
});
beforeEach(async () => {
  client.close();
  await service.stop();
  service = new FakeService();
  await service.start();
  client = await service.connect();
});
after(async () => {
  client.close();
  await service.stop();
});

const file = (text: string, name: string, type = "text/plain") => new File([text], name, { type });
const sha256 = (text: string) => createHash("sha256").update(text).digest("hex");
const code = (wanted: string, pattern: RegExp) => (error: unknown) => {
  assert.ok(error instanceof HelixError, String(error));
  assert.equal(error.code, wanted);
  assert.match(error.message, pattern);
  return true;
};

test("texts become paragraphs, and the position of a file counts code points", () => {
  const { text, files } = readContent(["😀 one", new Blob(["a"]), "two", "", new Uint8Array([1]), new Uint8Array([2])]);
  assert.equal(text, "😀 one\ntwo");
  assert.deepEqual(files.map(({ after_text }) => after_text), [5, 9, 9]);
  assert.throws(() => readContent(["one", 7 as unknown as string]), code("invalid_input", /part 2 of the message/));
});

test("a URL is described by its type, or by its extension", () => {
  const kinds = [
    { url: "https://a.test/photo.JPG?size=1.csv" },
    { url: "https://a.test/report", type: "application/pdf", name: "report" },
    { url: "https://a.png" },
  ];
  const { files } = readContent(kinds);
  assert.deepEqual(files.map(({ input }) => input), [
    { kind: "image", media_type: "image/jpeg", url: "https://a.test/photo.JPG?size=1.csv" },
    { kind: "document", media_type: "application/pdf", url: "https://a.test/report", name: "report" },
    { kind: "file", media_type: "application/octet-stream", url: "https://a.png" },
  ]);
});

test("a message with files is sent after its bytes, in the order of its content", async () => {
  const content = ["Compare", file("first", "a.txt"), new Uint8Array([1, 2]), "with 😀", { url: "https://a.test/b.png" }, "this"];
  const handle = await client.run("desk", content, { session_id: "ses_1", tags: ["t"] });
  assert.equal(handle.session_id, "ses_1");
  const { key, ...run } = service.of("run")[0] ?? {};
  assert.deepEqual({ ...run, files: run["files"].map((part: any) => [part.name, part.sha256 ?? part.url, part.after_text]) }, {
    ...{ action: "run", agent: "desk", message: "Compare\nwith 😀\nthis", session_id: "ses_1", tags: ["t"] },
    files: [
      ["a.txt", sha256("first"), 7],
      [null, sha256("\u0001\u0002"), 7],
      [undefined, "https://a.test/b.png", 14],
    ],
  });
  assert.equal(service.puts, 2, "the store has checked method, headers, length and hash");
  assert.equal(service.asked.at(-1)?.["action"], "run");
  assert.ok(service.of("upload").every((request) => request["session_id"] === "ses_1"));
});

test("bytes that the service has are not sent again, and a stored file is not uploaded", async () => {
  const stored = await client.upload(file("same", "one.txt"));
  const other = await client.upload(file("same", "two.txt"));
  assert.deepEqual([stored.name, other.name, stored.sha256, service.puts], ["one.txt", "two.txt", other.sha256, 1]);
  await client.resume("ses_1", { message: [stored] });
  await client.retry("ses_1", { message: ["Again:", stored] });
  assert.equal(service.of("upload").length, 2);
  assert.deepEqual([service.of("resume")[0]?.["message"], service.of("resume")[0]?.["files"].length], [undefined, 1]);
  assert.equal(service.of("retry")[0]?.["files"][0].after_text, 6);
  assert.equal("signal" in (service.of("retry")[0] ?? {}), false);
});

test("a message without files is sent as before", async () => {
  await client.run("desk", "Hello");
  await client.run("sum", { numbers: [1, 2] });
  await client.resume("ses_1");
  const [one, two] = service.of("run");
  assert.deepEqual([one?.["message"], two?.["input"], "files" in (one ?? {})], ["Hello", { numbers: [1, 2] }, false]);
  assert.equal("message" in (service.of("resume")[0] ?? {}), false);
});

test("a caller without a user gets a session for both the files and the run", async () => {
  service.principal = null;
  const handle = await client.run("desk", ["Look", file("a", "a.txt")]);
  assert.match(handle.session_id, /^ses_[0-9a-f]{32}$/);
  const named = ["upload", "finish_upload", "run"].map((action) => service.of(action)[0]?.["session_id"]);
  assert.deepEqual(named, [handle.session_id, handle.session_id, handle.session_id]);
  await assert.rejects(client.upload(file("a", "a.txt")), code("invalid_input", /session_id/));
});

test("without a user, a repeat with the key names the session that the Python client names", async () => {
  service.principal = null;
  const again = await service.connect();
  for (const one of [client, again]) await one.run("desk", ["Look", file("a", "a.txt")], { key: "order-17" });
  again.close();
  const wanted = `ses_${sha256("order-17").slice(0, 32)}`;
  assert.deepEqual(service.of("run").map(({ session_id, key }) => [session_id, key]), [[wanted, "order-17"], [wanted, "order-17"]]);
  assert.ok(service.of("upload").every(({ session_id }) => session_id === wanted));
  await client.run("desk", [file("a", "a.txt")], { key: "order-17", session_id: "ses_mine" });
  assert.equal(service.of("run").at(-1)?.["session_id"], "ses_mine");
});

test("a message as a mapping has files and state, and no unknown keys", async () => {
  const stored = { ...(await client.upload(file("a", "a.txt"))), after_text: 3 };
  await client.run("desk", { message: "See this", files: [stored], state: { n: 1 } }, { tags: ["t"] });
  await client.run("desk", { message: ["Look", file("b", "b.txt")] });
  const [one, two] = service.of("run");
  assert.deepEqual([one?.["message"], one?.["files"], one?.["state"], one?.["tags"]], ["See this", [stored], { n: 1 }, ["t"]]);
  assert.deepEqual([two?.["message"], two?.["files"].length, "input" in (two ?? {})], ["Look", 1, false]);
  const refused = (given: Record<string, unknown>, pattern: RegExp) =>
    assert.rejects(client.run("desk", given), code("invalid_input", pattern));
  await refused({ message: "x", metadata: {}, tone: 1 }, /only the keys 'message', 'state' and 'files', not 'metadata', 'tone'/);
  await refused({ message: "x", files: ["a.png"] }, /^files: /);
  await refused({ message: ["x"], files: [stored] }, /^message: /);
  await refused({ message: 7 }, /^message: /);
  assert.equal(service.of("run").length, 2);
});

test("a message with too many or too large files is refused before the first upload", async () => {
  const many = Array.from({ length: 51 }, (_, n) => file(`${n}`, `${n}.txt`));
  await assert.rejects(client.run("desk", many), code("invalid_file", /^the message has 51 files; it takes at most 50: send the others/));
  const sized = (name: string, size: number) => Object.defineProperty(file(name, name), "size", { value: size });
  const [a, b] = [sized("a", 30 * 2 ** 20), sized("b", 30 * 2 ** 20)];
  const sentence = /^the files of the message have 62914560 bytes together; the limit is 52428800: send some of them in another message$/;
  await assert.rejects(client.run("desk", [a, b]), code("invalid_file", sentence));
  await assert.rejects(client.resume("ses_1", { message: [a, b] }), code("invalid_file", sentence));
  assert.equal(service.asked.length, 0);
  await client.run("desk", ["Twice:", a, a]);
  assert.equal(service.of("run").length, 1, "the same bytes count once");
});

test("a caller with a user lets the service make the session", async () => {
  await client.run("desk", [file("a", "a.txt")]);
  assert.equal("session_id" in (service.of("run")[0] ?? {}), false);
});

test("at most four files are uploaded at once", async () => {
  let [waiting, go] = [[] as (() => void)[], false];
  service.beforePut = async () => {
    if (!go) await new Promise<void>((resolve) => waiting.push(resolve));
    return undefined;
  };
  const files = Array.from({ length: 9 }, (_, n) => file(`text ${n}`, `${n}.txt`));
  const running = client.run("desk", files);
  while (waiting.length < 4) await new Promise((resolve) => setImmediate(resolve));
  assert.equal(service.of("upload").length, 4);
  go = true;
  for (const resolve of waiting) resolve();
  await running;
  assert.deepEqual([service.atOnce, service.puts], [4, 9]);
  assert.deepEqual(service.of("run")[0]?.["files"].map((part: any) => part.name), files.map(({ name }) => name));
});

test("an expired request is replaced by a new one", async () => {
  service.beforePut = (attempt) => (attempt === 1 ? 403 : attempt === 2 ? 500 : undefined);
  const part = await client.upload(file("late", "late.txt"));
  assert.equal(part.sha256, sha256("late"));
  assert.deepEqual([service.of("upload").length, service.announced.size], [3, 3]);
});

test("an upload whose response was lost is not sent again", async () => {
  service.beforePut = (attempt) => {
    if (attempt === 1) [...service.announced.values()][0]!.stored = true;
    return attempt === 1 ? 503 : undefined;
  };
  await client.upload(file("a", "a.txt"));
  assert.equal(service.puts, 1);
});

test("a store that refuses for good ends in an error that names the file, and no run starts", async () => {
  service.beforePut = () => 403;
  const refused = client.run("desk", ["Look", file("a", "a.txt")]);
  await assert.rejects(refused, code("transfer_failed", /^file 'a\.txt' was not uploaded: .* 403 \(Told403\)/));
  assert.deepEqual([service.puts, service.of("run").length], [4, 0]);
  service.beforePut = () => 405;
  await assert.rejects(client.upload(new Uint8Array([7])), (error: HelixError) => !error.recoverable && /^the file/.test(error.message));
  assert.equal(service.puts, 5, "a new request would be refused too");
});

test("a store that cannot be reached is a recoverable error", async () => {
  await service.stop();
  const error = await client.upload(file("a", "a.txt")).catch((found) => found);
  assert.deepEqual([error.code, error.recoverable, error.details.name], ["transfer_failed", true, "a.txt"]);
  await service.start();
});

test("a file that the service refuses keeps the service's sentence and stops the others", async () => {
  service.beforePut = (_, name) => (name === "a.bad" ? undefined : new Promise(() => undefined));
  const running = client.run("desk", [...["b", "c", "d"].map((name) => file(name, name)), file("x", "a.bad")]);
  await assert.rejects(running, code("invalid_file", /^file 'a\.bad' is damaged$/));
  assert.equal(service.of("run").length, 0);
  service.beforePut = () => undefined;
  await Promise.all(["e", "f", "g", "h"].map((name) => client.upload(file(name, name))));
});

test("an empty file and a huge one are refused before they are read", async () => {
  await assert.rejects(client.run("desk", [file("", "a.txt")]), code("invalid_file", /^file 'a\.txt' is empty/));
  await assert.rejects(client.run("desk", ["a", new Uint8Array()]), code("invalid_file", /^file 1 of the message is empty/));
  const huge = Object.defineProperty(file("x", "huge.bin"), "size", { value: 2 ** 40 });
  await assert.rejects(client.upload(huge), code("invalid_file", /has 1099511627776 bytes/));
  assert.equal(service.of("upload").length, 0);
});

test("a signal stops an upload, one that waits, and the run", async () => {
  service.beforePut = () => new Promise(() => undefined);
  const stop = new AbortController();
  const files = Array.from({ length: 6 }, (_, n) => file(`${n}`, `${n}.txt`));
  const running = client.run("desk", files, { signal: stop.signal });
  while (service.puts < 4) await new Promise((resolve) => setImmediate(resolve));
  stop.abort(new Error("changed my mind"));
  await assert.rejects(running, /changed my mind/);
  assert.deepEqual([service.of("upload").length, service.of("run").length], [4, 0]);
  service.beforePut = () => undefined;
  const again = await Promise.all(files.map((one) => client.upload(one)));
  assert.equal(again.length, 6, "all slots are free again");
  await assert.rejects(client.run("desk", files, { signal: AbortSignal.abort(new Error("before")) }), /before/);
});

test("closing the client stops its uploads", async () => {
  service.beforePut = () => new Promise(() => undefined);
  const running = client.upload(file("a", "a.txt"));
  while (service.puts < 1) await new Promise((resolve) => setImmediate(resolve));
  client.close();
  await assert.rejects(running, code("closed", /closed/));
});

test("progress is reported to the end", async () => {
  const seen: [number, number][] = [];
  await client.upload(file("abc", "a.txt"), { onProgress: (sent, total) => seen.push([sent, total]) });
  assert.deepEqual(seen.at(-1), [3, 3]);
});

test("the address of a file is asked for by its session", async () => {
  const part = await client.upload(file("a", "a.txt"));
  const found = await client.fileUrl("ses_1", part);
  assert.deepEqual(found, { url: `https://bucket/${sha256("a")}?name=a.txt`, expires_at: 7 });
  await assert.rejects(client.fileUrl("ses_1", { sha256: "0".repeat(64) }), code("file_missing", /does not hold/));
  await assert.rejects(client.fileUrl("ses_1", { url: "https://a.test/b.png" }), code("invalid_input", /download it from its url/));
});
