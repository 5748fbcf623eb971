// Random walks of a page's user: `node walk.mjs WIRE SEED COUNT STEPS GATES URL [DIST]`. WIRE is `7` or `6` (the AI SDK of that version over
// HTTP, with its own transport) or `ws` (HelixChatTransport of the client built in DIST). By walk, one line of JSON: what the page
// shows in the end, what a page shows that loads then, where the wire has that, and what the user did.
import { pathToFileURL } from "node:url";
import { plainChat } from "./chat.mjs";

const [wire, seed, count, steps, gates, url, dist] = process.argv.slice(2);
const { AbstractChat, DefaultChatTransport, lastAssistantMessageIsCompleteWithApprovalResponses } = await import(
  wire === "6" ? "ai-v6" : "ai"
);
const load = (name) => import(new URL(name, pathToFileURL(`${dist}/`)));

const Chat = plainChat(AbstractChat);

/** Numbers from 0 to below `n`, the same for the same seed (mulberry32). */
function numbers(seed) {
  let state = seed >>> 0;
  return (n) => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) % n;
  };
}

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/** Waits for a state of the page, not for a time. */
async function until(what, holds) {
  for (let tries = 0; tries < 10_000; tries += 1) {
    if (await holds()) return;
    await pause(2);
  }
  throw new Error(`${what} did not come`);
}

/** A page and its user. */
class Walk {
  constructor(seed, client, HelixChatTransport) {
    this.below = numbers(seed);
    this.id = `walk-${wire}-${seed}`;
    this.client = client;
    this.texts = 0;
    this.log = [];
    this.stopped = [];
    this.api = `${url}/desk/${wire === "6" ? "ai-sdk-v6" : "ai-sdk"}`;
    const problems = (this.problems = []);
    this.transport = client
      ? new HelixChatTransport({ client, agent: "desk" })
      : new DefaultChatTransport({ api: this.api });
    this.chat = new Chat({
      id: this.id,
      transport: this.transport,
      sendAutomaticallyWhen: lastAssistantMessageIsCompleteWithApprovalResponses,
      onError: (error) => problems.push(codeOf(error)),
    });
  }

  get busy() {
    return this.chat.status === "submitted" || this.chat.status === "streaming";
  }

  text() {
    const kind = ["", "", "look ", "refund "][this.below(4)];
    return `${kind}message ${(this.texts += 1)} of ${this.id}`;
  }

  pick(role) {
    const found = this.chat.messages.filter((message) => role === undefined || message.role === role);
    return found[this.below(found.length)];
  }

  /** What a page does with a request that was refused: it shows what it showed before, and keeps the text for its user. Of an
   *  answer that came meanwhile it keeps what it has. */
  async sent(request) {
    const [before, refusals] = [this.chat.messages, this.problems.length];
    await request();
    if (this.problems.length === refusals) return;
    const now = this.chat.messages;
    const newest = (message) => now.find(({ id, role }) => role === "assistant" && id === message.id) ?? message;
    const had = new Set(before.map(({ id }) => id));
    const come = now.filter(({ id, role }) => role === "assistant" && !had.has(id));
    this.chat.messages = [...before.map(newest), ...come];
  }

  async settled() {
    await until("the end of the run", () => !this.busy);
  }

  /** The page's stop button. What the run still said, the page does not read. */
  async stop() {
    if (this.busy) this.stopped.push(this.chat.messages.at(-1).id);
    await this.chat.stop();
    if (this.client) {
      await until("the stop", async () => (await this.state())?.status !== "running");
      return;
    }
    await until("the stop", async () => {
      const response = await fetch(`${this.api}/${this.id}/stream`, { method: "DELETE" });
      return response.status === 404 || (await response.json()).interrupted === false;
    });
  }

  async state() {
    return await this.client.getSession(this.id).catch((error) => {
      if (error.code !== "session_not_found") throw error;
      return undefined;
    });
  }

  /** Some time of the run's: until it has begun, or the page shows some of it. */
  async during() {
    const moment = this.below(3);
    const shown = JSON.stringify(this.chat.messages).length + this.below(200);
    if (moment === 0) return;
    await until("text", () => !this.busy || moment === 1 || JSON.stringify(this.chat.messages).length > shown);
  }

  async act() {
    const { chat, below } = this;
    const waits = chat.messages.at(-1)?.parts.filter((part) => part.state === "approval-requested") ?? [];
    if (waits.length > 0 && below(3) > 0) return await this.answer(waits);
    const action = chat.messages.length === 0 ? "say" : ["say", "edit", "edit", "regenerate", "same text"][below(5)];
    const request = this.request(action);
    const ending = ["wait", "wait", "stop", "more"][request.text?.startsWith("look") ? below(4) : below(3)];
    if (ending === "more") await fetch(`${gates}/hold`, { method: "POST", body: request.text });
    this.log.push([...request.words, ending]);
    if (ending === "wait") {
      await this.sent(request.send);
      return await this.settled();
    }
    const first = request.send(); // nothing else runs, so this one is not refused
    let done = false;
    void first.then(() => (done = true));
    await until("the response", () => done || chat.status === "streaming" || chat.status === "error");
    if (ending === "stop") {
      await this.during();
      await this.stop();
    } else {
      // A message waits for its own turn. Over HTTP an edit is refused; over WebSocket, a page that edits while it still reads
      // would show both answers.
      const second = this.request(wire === "ws" ? "say" : ["say", "edit", "regenerate"][below(3)]);
      this.log.push([...second.words, "at once"]);
      const answered = this.sent(second.send);
      if (second.words[0] !== "say") await answered;
      await fetch(`${gates}/release`, { method: "POST", body: request.text });
      await answered;
    }
    await first;
    await this.settled();
  }

  request(action) {
    const { chat } = this;
    const user = this.pick("user");
    if (action === "edit" && user !== undefined) {
      const [messageId, text] = [user.id, this.text()];
      return { text, words: [action, messageId, text], send: () => chat.sendMessage({ messageId, text }) };
    }
    if (action === "same text" && user !== undefined) {
      const [messageId, text] = [user.id, user.parts[0].text];
      return { words: [action, messageId, text], send: () => chat.sendMessage({ messageId, text }) };
    }
    if (action === "regenerate" && chat.messages.length > 0) {
      const messageId = this.below(3) === 0 ? undefined : this.pick().id;
      return { words: [action, messageId], send: () => chat.regenerate({ messageId }) };
    }
    const text = this.text();
    return { text, words: ["say", text], send: () => chat.sendMessage({ text }) };
  }

  async answer(waits) {
    const { chat, below } = this;
    for (const { toolCallId, approval, input } of waits) {
      const approved = below(3) > 0;
      if (below(2) === 0) {
        const order = `${input.order} edited`;
        const changed = (part) => (part.toolCallId === toolCallId ? { ...part, input: { order } } : part);
        chat.messages = chat.messages.map((message) => ({ ...message, parts: message.parts.map(changed) }));
        this.log.push(["change input", toolCallId, order]);
      }
      this.log.push(["answer", toolCallId, approved]);
      await chat.addToolApprovalResponse({ id: approval.id, approved });
    }
    const answered = () => chat.messages.at(-1)?.parts.every((part) => part.state !== "approval-responded");
    await until("the answer", () => !this.busy && (answered() || this.problems.length > 0));
  }

  async play(steps) {
    for (let n = 0; n < steps; n += 1) await this.act();
    const loaded = this.client ? await this.transport.messages(this.id) : undefined;
    const { id, log, problems, stopped } = this;
    return { id, log, problems, stopped, messages: this.chat.messages, loaded };
  }
}

function codeOf(error) {
  if (error.code !== undefined) return error.code;
  try {
    return JSON.parse(error.message).error.code;
  } catch {
    return String(error);
  }
}

let client, HelixChatTransport;
if (wire === "ws") {
  const { HelixClient } = await load("index.js");
  ({ HelixChatTransport } = await load("ai-sdk.js"));
  client = await HelixClient.connect(url);
}
for (let n = 0; n < Number(count); n += 1) {
  const walk = new Walk(Number(seed) + n, client, HelixChatTransport);
  let found;
  try {
    found = await walk.play(Number(steps));
  } catch (error) {
    found = { id: walk.id, log: walk.log, problems: [...walk.problems, String(error)], messages: [] };
  }
  process.stdout.write(`${JSON.stringify(found)}\n`);
}
client?.close();
