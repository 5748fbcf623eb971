// What the tests ask of the TypeScript client, line by line: a JSON request on stdin, its JSON answer on stdout.
// node driver.mjs FOLDER OF THE BUILT CLIENT
import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";

const dist = pathToFileURL(`${process.argv[2]}/`);
const load = (name) => import(new URL(name, dist));
const { HelixClient, HelixError, StateProjector, chunkOf } = await load("index.js");
const { Joiner } = await load("frames.js");
const { Feed } = await load("feed.js");
const { messageOf, wholeStream } = await load("wire.js");

const said = (error) => {
  if (!(error instanceof HelixError)) throw error;
  return { code: error.code, message: error.message, recoverable: error.recoverable, details: error.details };
};

async function list(items) {
  const found = [];
  for await (const item of items) found.push(item);
  return found;
}

const requests = {
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
