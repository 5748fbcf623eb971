// What the tests ask of the TypeScript client, line by line: a JSON request on stdin, its JSON answer on stdout.
// node driver.mjs FOLDER OF THE BUILT CLIENT, FOLDER WITH ITS node_modules
import { createRequire } from "node:module";
import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";
import { isDeepStrictEqual } from "node:util";
import { plainChat } from "./chat.mjs";

const dist = pathToFileURL(`${process.argv[2]}/`);
const load = (name) => import(new URL(name, dist));
const { HelixClient, HelixError, StateProjector, answerCalls, chunkOf, toolsOf } = await load("index.js");
const { Joiner } = await load("frames.js");
const { Feed } = await load("feed.js");
const { messageOf, wholeStream } = await load("wire.js");

const { HelixChatTransport, UIMessageEncoder } = await load("ai-sdk.js");
const { AgUiEncoder } = await load("ag-ui-events.js");
const { HelixAgent } = await load("ag-ui.js");
const parts = await load("message-parts.js");
const { isLocal } = await load("files.js");
const { sha256Of } = await load("uploads.js");
const require = createRequire(pathToFileURL(`${process.argv[3]}/package.json`));
const ai = require("ai");
const agui = { ...require("@ag-ui/client"), ...require("@ag-ui/core/schemas") };

const said = (error) => {
  if (!(error instanceof HelixError)) throw error;
  return { code: error.code, message: error.message, recoverable: error.recoverable, details: error.details };
};

async function list(items) {
  const found = [];
  for await (const item of items) found.push(item);
  return found;
}

const Chat = plainChat(ai.AbstractChat);

const pages = new Map();

/** Until the page is as it is wanted: `until` sees the page's last message. */
async function looked(chat, until) {
  for (let tries = 0; tries < 2000; tries += 1) {
    if (until(chat)) return;
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
  throw new Error(`the page does not change: ${chat.status} ${JSON.stringify(chat.messages.at(-1))}`);
}

const steps = {
  say: (chat, text) => chat.sendMessage({ text }),
  begin: (chat, text) => void chat.sendMessage({ text }),
  "say with": (chat, text, options) => chat.sendMessage({ text }, options),
  "begin with": (chat, text, options) => void chat.sendMessage({ text }, options),
  has: (chat, text) => looked(chat, () => JSON.stringify(chat.messages).includes(text)),
  shows: (chat, text) => looked(chat, () => JSON.stringify(chat.messages.at(-1) ?? "").includes(text)),
  ready: (chat) => looked(chat, () => chat.status === "ready" || chat.status === "error"),
  stop: (chat) => chat.stop(),
  resume: (chat) => chat.resumeStream(),
  "resume without waiting": (chat) => void chat.resumeStream(),
  regenerate: (chat, messageId) => chat.regenerate({ messageId }),
  edit: (chat, messageId, text) => chat.sendMessage({ text, messageId }),
  send: (chat, message) => chat.sendMessage(message),
  "change text": (chat, messageId, text) => {
    const changed = (message) => ({ ...message, parts: [{ type: "text", text }] });
    chat.messages = chat.messages.map((message) => (message.id === messageId ? changed(message) : message));
  },
  "change parts": (chat, messageId, parts) => {
    chat.messages = chat.messages.map((message) => (message.id === messageId ? { ...message, parts } : message));
  },
  "change input": (chat, toolCallId, input) => {
    const changed = (part) => (part.toolCallId === toolCallId ? { ...part, input } : part);
    chat.messages = chat.messages.map((message) => ({ ...message, parts: message.parts.map(changed) }));
  },
  answer: async (chat, approvals) => {
    for (const [id, approved, reason, body] of approvals) {
      await chat.addToolApprovalResponse({ id, approved, reason, options: body && { body } });
    }
  },
  "answer without waiting": (chat, approvals) => void steps.answer(chat, approvals),
  output: (chat, toolCallId, output) => chat.addToolOutput({ tool: "", toolCallId, output }),
};

const requests = {
  /** Steps of a page's user. `page` names the page: it stays for the next request. The messages that it shows at the end. */
  async chat({ page, url, token, agent, chatId, messages, steps: wanted, settings, tools, results = {} }) {
    let found = pages.get(page);
    if (found === undefined) {
      const client = await HelixClient.connect(url, { token, settings });
      const problems = [];
      const transport = new HelixChatTransport({ client, agent, ...(tools && { tools: () => tools }) });
      const chat = new Chat({
        onToolCall: ({ toolCall: { toolName: tool, toolCallId } }) => {
          if (tool in results) void chat.addToolOutput({ tool, toolCallId, output: results[tool] });
        },
        id: chatId,
        transport,
        messages,
        sendAutomaticallyWhen: (about) =>
          ai.lastAssistantMessageIsCompleteWithApprovalResponses(about) ||
          ai.lastAssistantMessageIsCompleteWithToolCalls(about),
        onError: (error) => problems.push(error instanceof HelixError ? said(error) : { message: error.message }),
      });
      pages.set(page, (found = { client, chat, transport, problems }));
    }
    const { client, chat, problems } = found;
    for (const [name, ...given] of wanted) {
      if (name === "load") chat.messages = await found.transport.messages(chatId);
      else await steps[name](chat, ...given);
    }
    const shown = JSON.parse(JSON.stringify(chat.messages));
    if (shown.length > 0) await ai.validateUIMessages({ messages: shown });
    return { messages: shown, status: chat.status, problems, connections: client.connections };
  },

  /** What a page shows that loads now. */
  async loaded({ page, chatId }) {
    const messages = await pages.get(page).transport.messages(chatId);
    if (messages.length > 0) await ai.validateUIMessages({ messages });
    return { messages };
  },

  async leave({ page }) {
    pages.get(page).client.close();
    pages.delete(page);
    return {};
  },

  /** Before the next test, which may use the same names. */
  async leave_all() {
    for (const { client } of pages.values()) client.close();
    pages.clear();
    return {};
  },

  /** The parts of the AI SDK that these messages of a stream become, message by message; the SDK's schema takes each. */
  async encode({ messages, session_id }) {
    const encoder = new UIMessageEncoder(session_id);
    const parts = messages.map((message) => [
      ...encoder.feed(message),
      ...(message.kind !== "chunk" && message.session_id === session_id ? encoder.close() : []),
    ]);
    const schema = ai.asSchema(ai.uiMessageChunkSchema);
    for (const part of parts.flat()) {
      const checked = await schema.validate(part);
      if (!checked.success) throw checked.error;
    }
    return { parts };
  },

  /** The frames of a socket, in the order in which they came: the chunks that a reader sees, and the state of the session. */
  async fold({ frames, session_id, stream_id }) {
    const joiner = new Joiner();
    const feed = new Feed(stream_id, 0, wholeStream, 1_000_000);
    const take = (text) => {
      const frame = JSON.parse(text);
      if (frame.type === "part") {
        const whole = joiner.add(frame);
        if (whole !== undefined) take(whole);
      } else feed.offer(frame.messages.map((body) => messageOf(stream_id, body)));
    };
    for (const frame of frames) take(frame);
    const messages = [];
    while (feed.waiting) messages.push(await feed.next(0));
    const chunks = messages.filter((message) => message.kind === "chunk").map(chunkOf);
    const view = new StateProjector(session_id, { custom_state: {}, sequence: 0 });
    let state = null;
    try {
      for (const chunk of chunks) await view.feed(chunk);
      state = view.value;
    } catch (error) {
      state = said(error).code;
    }
    return { messages, chunks, state };
  },

  /** A run to its end: its messages, its result and how often the client connected. */
  async play({ url, token, agent, message, options, settings }) {
    const client = await HelixClient.connect(url, { token, settings });
    try {
      const handle = await client.run(agent, message, options);
      const messages = await list(handle.messages());
      return { handle, messages, result: await handle.result(), connections: client.connections };
    } finally {
      client.close();
    }
  },

  /** A run whose message has files: `{ text, name, type }` becomes a `File`. Its handle, and the bytes of its files as the
   *  service returns them. */
  async files({ url, token, agent, content, options, settings }) {
    const client = await HelixClient.connect(url, { token, settings });
    try {
      const items = content.map((item) => (item.text === undefined ? item : new File([item.text], item.name, { type: item.type })));
      const handle = await client.run(agent, items, options);
      await handle.result();
      const { messages } = await client.getMessages(handle.session_id);
      const bytes = [];
      for (const file of messages[0].files.filter(({ sha256 }) => sha256)) {
        const found = await fetch((await client.fileUrl(handle.session_id, file)).url);
        bytes.push([await found.text(), found.headers.get("content-disposition")]);
      }
      return { handle, message: messages[0], bytes };
    } finally {
      client.close();
    }
  },

  /** What each list of parts of a message is read as: its text, and its files with their hashes. */
  async contents({ protocol, messages }) {
    const read = protocol === "ag-ui" ? parts.agUiContent : parts.uiContent;
    const found = [];
    for (const message of messages) {
      try {
        const { text, files } = read(message);
        const shown = files.map(async ({ input, after_text, kind }) => [
          ...(isLocal(input) ? [await sha256Of(input), null, input.name ?? null] : [input.sha256 ?? null, input.url ?? null, input.name ?? null]),
          ...[after_text, kind ?? null],
        ]);
        found.push({ text, files: await Promise.all(shown) });
      } catch (error) {
        found.push({ error: said(error) });
      }
    }
    return { contents: found };
  },

  /** The events of AG-UI that these messages of a stream become, message by message; the schemas of AG-UI take each. */
  async events({ messages, session_id, state, run_id }) {
    const encoder = new AgUiEncoder(session_id, { state });
    encoder.announce(run_id, true);
    const events = messages.map((message) => encoder.feed(message));
    for (const event of events.flat()) agui.EventSchemas.parse(event);
    return { events };
  },

  /** Steps of a front end of AG-UI: `say`, `resume`, `connect`, `abort soon`. What it holds at the end, and the events it saw. */
  async agent({ url, token, agent, threadId, steps: wanted, settings, position }) {
    const client = await HelixClient.connect(url, { token, settings });
    try {
      const front = new HelixAgent({ client, agent, threadId, position });
      const [events, problems] = [[], []];
      front.subscribe({ onEvent: ({ event }) => void events.push(event.type) });
      for (const [name, given] of wanted) {
        if (name === "say") front.addMessage({ id: crypto.randomUUID(), role: "user", content: given });
        if (name === "change") front.setMessages(front.messages.with(given[0], { ...front.messages[given[0]], content: given[1] }).slice(0, given[0] + 1));
        if (name === "edit") {
          const at = front.messages.findIndex((message) => message.content === given[0]);
          front.setMessages([...front.messages.slice(0, at), { ...front.messages[at], content: given[1] }]);
        }
        if (name === "set state") front.setState(given);
        if (name === "add") {
          front.addMessage(given);
          continue;
        }
        if (name === "abort soon") {
          front.subscribe({ onRunStartedEvent: () => front.abortRun() });
          continue;
        }
        if (name === "load") {
          front.setMessages(given);
          continue;
        }
        const extra = name === "run with" ? given : { resume: name === "resume" ? given : undefined };
        const begin = () => (name === "connect" ? front.connectAgent() : front.runAgent(extra));
        await begin().catch((error) => problems.push(said(error).code));
      }
      const { messages, state, pendingInterrupts } = front;
      return { messages, state, pendingInterrupts, events, problems };
    } finally {
      client.close();
    }
  },

  /** What a front end holds at every moment of its runs, stored; and what another one makes of it that connects from there. */
  async reconnect({ url, token, agent, threadId, says, settings }) {
    const client = await HelixClient.connect(url, { token, settings });
    const plain = ({ messages, state }) => ({ messages: messages.map(({ id, ...message }) => message), state });
    try {
      const front = new HelixAgent({ client, agent, threadId });
      const stored = new Map();
      const take = () => {
        const { messages, state, position } = front;
        if (position && !stored.has(position)) stored.set(position, structuredClone({ messages, state }));
      };
      front.subscribe({ onEvent: take, onMessagesChanged: take, onStateChanged: take, onRunFinalized: take });
      for (const content of says) {
        front.addMessage({ id: crypto.randomUUID(), role: "user", content });
        await front.runAgent();
      }
      const [problems, events] = [[], []];
      for (const [position, { messages, state }] of stored) {
        const other = new HelixAgent({ client, agent, threadId, initialMessages: messages, initialState: state, position });
        const seen = [];
        other.subscribe({ onEvent: ({ event }) => void seen.push(event.type) });
        await other.connectAgent().catch((error) => problems.push(String(error)));
        if (!isDeepStrictEqual(plain(other), plain(front))) problems.push({ position, found: plain(other), wanted: plain(front) });
        if (other.position !== front.position) problems.push(`${position}: at ${other.position} in the end, not ${front.position}`);
        events.push(seen);
      }
      return { problems, events, positions: [...stored.keys()] };
    } finally {
      client.close();
    }
  },

  /** A run whose tools this process executes: `{ name: { description, parameters, result, throws } }`. Its result, and the calls. */
  async execute({ url, token, agent, message, options, tools, settings }) {
    const client = await HelixClient.connect(url, { token, settings });
    try {
      const called = [];
      const own = Object.entries(tools).map(([name, { result, throws, ...tool }]) => {
        const execute = async (args, { call_id }) => {
          called.push([name, args, call_id]);
          if (throws !== undefined) throw new Error(throws);
          return result;
        };
        return [name, { ...tool, ...((result !== undefined || throws !== undefined) && { execute }) }];
      });
      const declared = toolsOf(Object.fromEntries(own));
      const handle = await client.run(agent, message, { ...options, tools: declared });
      return { result: await answerCalls(handle, Object.fromEntries(own)), called };
    } finally {
      client.close();
    }
  },

  /** Several at once. */
  async playAll({ plays }) {
    return Promise.all(plays.map((play) => requests.play(play).catch((error) => ({ error: said(error) }))));
  },

  /** Calls of one client, one after the other: `[method, ...arguments]`. Handles are named by the place of their call. */
  async calls({ url, token, calls, settings }) {
    let asked = 0;
    const fresh = () => token[Math.min(asked++, token.length - 1)];
    const client = await HelixClient.connect(url, { token: Array.isArray(token) ? fresh : token, settings });
    const results = [];
    try {
      for (const [name, ...given] of calls) {
        const [method, place] = name.split("@");
        const target = place === undefined ? client : results[Number(place)];
        try {
          const found = target[method](...given);
          results.push(found?.[Symbol.asyncIterator] && !found.then ? await list(found) : await found);
        } catch (error) {
          results.push({ error: said(error) });
        }
      }
      return { results: results.map((result) => result ?? null), connections: client.connections, asked };
    } finally {
      client.close();
    }
  },
};

for await (const line of createInterface({ input: process.stdin })) {
  const { name, ...given } = JSON.parse(line);
  let answer;
  try {
    answer = await requests[name](given);
  } catch (error) {
    answer = { error: said(error) };
  }
  process.stdout.write(`${JSON.stringify(answer)}\n`);
}
