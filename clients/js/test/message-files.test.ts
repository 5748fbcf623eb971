// The files of messages that front ends send: uploads that the user stops, and the messages that the parts of a page make.
import assert from "node:assert/strict";
import { after, beforeEach, test } from "node:test";
import { HelixAgent } from "../src/ag-ui.ts";
import { HelixChatTransport } from "../src/ai-sdk.ts";
import type { HelixClient } from "../src/client.ts";
import { partsOf, uiContent } from "../src/message-parts.ts";
import { FakeService } from "./support/service.ts";

let service: FakeService;
let client: HelixClient;
const end = async () => {
  client?.close();
  await service?.stop();
};
beforeEach(async () => {
  await end();
  service = new FakeService();
  await service.start();
  client = await service.connect();
});
after(end);

const data = `data:text/plain;base64,${btoa("A note.")}`;

test("a user who stops a message while its files are sent starts no run", async () => {
  const stop = new AbortController();
  service.beforePut = () => void stop.abort();
  const transport = new HelixChatTransport({ client, agent: "desk" });
  const parts = [{ type: "file" as const, mediaType: "text/plain", url: data }];
  const messages = [{ id: "u1", role: "user" as const, parts }];
  const about = { chatId: "chat", messageId: undefined, messages, abortSignal: stop.signal };
  await assert.rejects(transport.sendMessages({ trigger: "submit-message", ...about }), { name: "AbortError" });
  assert.deepEqual([service.of("upload").length, service.of("run")], [1, []]);
});

test("a front end of AG-UI that aborts its run while its files are sent starts no run", async () => {
  const agent = new HelixAgent({ client, agent: "desk", threadId: "thread" });
  service.beforePut = () => agent.abortRun();
  const source = { type: "data" as const, value: btoa("A note."), mimeType: "text/plain" };
  agent.addMessage({ id: "u1", role: "user", content: [{ type: "document", source }] });
  await agent.runAgent().catch((error: Error) => assert.equal(error.name, "AbortError"));
  assert.deepEqual([service.of("upload").length, service.of("run")], [1, []]);
});

test("what a page is shown of a stored message makes the same message", () => {
  const file = (after_text: number) => ({ kind: "file", media_type: "text/plain", sha256: "a".repeat(64), after_text }) as const;
  for (const places of [[], [0], [1], [2, 2], [0, 2, 8], [8], [99]]) {
    const text = "😀\n\nand é";
    const shown = partsOf(text, places.map(file)).map((part) =>
      typeof part === "string" ? { type: "text", text: part } : { type: "file", providerMetadata: { helix: part } },
    );
    const { text: again, files } = uiContent(shown);
    assert.deepEqual([again, files.map(({ after_text }) => after_text)], [text, places.map((place) => Math.min(place, 8))]);
  }
});
