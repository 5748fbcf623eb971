// Pages of `useChat` whose connections are cut and that resume, at random moments before and after the run has ended:
// node resume.mjs URL VERSION COUNT SEED. Prints what differed from the plan of each run, as JSON.
import { plainChat } from "./chat.mjs";

const [url, version, count, seed] = process.argv.slice(2);
const ai = await import(version === "6" ? "ai-v6" : "ai");
const encoding = version === "6" ? "ai-sdk-v6" : "ai-sdk";
const api = `${url}/boss/${encoding}`;
const LONGEST_MS = 400;

/** mulberry32: the same numbers for a seed everywhere. */
function random(state) {
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let t = Math.imul(state ^ (state >>> 15), 1 | state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
}

const Chat = plainChat(ai.AbstractChat);

/** A body that ends after so many bytes: as a server that went away (`close`), or as a network that did. */
function cutBody(body, bytes, close) {
  const reader = body.getReader();
  return new ReadableStream({
    async pull(controller) {
      const { done, value } = await reader.read();
      if (done) return controller.close();
      controller.enqueue(value.subarray(0, Math.max(0, bytes)));
      bytes -= value.length;
      if (bytes > 0) return;
      reader.cancel().catch(() => undefined);
      if (close) controller.close();
      else controller.error(new TypeError("network error"));
    },
    cancel: (reason) => reader.cancel(reason),
  });
}

const sentence = (words, next) => Array.from({ length: words }, () => "word".slice(0, 1 + Math.floor(next() * 4))).join(" ");
const helper = (text) => ["subagent__helper", { message: JSON.stringify([{ say: text, calls: [["__finish__", { summary: "done" }]] }]) }];
const look = { tool: "look", output: "x: found" };

/** A plan of the model, and the parts that it makes: by step, its text and its calls. */
const PLANS = {
  text: (one) => [[{ say: one }], [{ text: one }]],
  thought: (one) => [[{ say: one, think: "Let me think it over." }], [{ thought: "Let me think it over.", text: one }]],
  tools: (one, two) => [
    [{ say: one, calls: [["look", { topic: "x" }]] }, { say: two }],
    [{ text: one, calls: [look] }, { text: two }],
  ],
  stumble: (one, two) => [
    [{ say: one, stumble: true }],
    [{ text: one }],
  ],
  refused: (one, two) => [
    [{ say: one, calls: [["nobody", { a: 1 }]] }, { say: two }],
    [{ text: one, calls: [{ tool: "nobody", error: true }] }, { text: two }],
  ],
  child: (one, two) => [
    [{ say: "", calls: [helper(one)] }, { say: two }],
    [{ calls: [{ tool: "subagent__helper", output: { summary: "done", sources: [] } }] }, { text: two }],
  ],
  approval: (one, two) => [
    [{ say: one, calls: [["gated", { topic: "x" }]] }, { say: two }],
    [{ text: one, calls: [{ tool: "gated", output: { topic: "x", confirmed: null } }] }, { text: two }],
  ],
};

/** The parts of an answer as a plan has them. */
function stepsOf(message) {
  const steps = [];
  for (const part of message.parts) {
    if (part.type === "step-start") steps.push({});
    const step = steps.at(-1);
    if (part.type === "text") step.text = (step.text ?? "") + part.text;
    if (part.type === "reasoning") step.thought = (step.thought ?? "") + part.text;
    if ("toolCallId" in part && !part.toolMetadata) {
      const { toolName: tool, state, output } = part;
      (step.calls ??= []).push(state === "output-error" ? { tool, error: true } : { tool, output });
    }
    if ((part.type === "text" || part.type === "reasoning") && part.state !== "done") step.open = true;
  }
  return steps;
}

const sorted = (value) =>
  JSON.stringify(value, (_, inner) =>
    inner && typeof inner === "object" && !Array.isArray(inner)
      ? Object.fromEntries(Object.entries(inner).sort(([a], [b]) => (a < b ? -1 : 1)))
      : inner,
  );
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const get = async (path) => (await fetch(`${url}${path}`)).json();

async function walk(n) {
  const next = random(Number(seed) * 100_003 + n);
  const names = Object.keys(PLANS);
  const kind = names[n % names.length];
  const id = `walk-${version}-${seed}-${n}`;
  const [plan, expected] = PLANS[kind](sentence(6 + Math.floor(next() * 20), next), sentence(4 + Math.floor(next() * 12), next));
  const seen = { before: 0, after: 0, loaded: 0 };
  let cutNext = false;
  const cuttingFetch = async (...given) => {
    const response = await fetch(...given);
    if (!cutNext || response.body === null) return response;
    const body = cutBody(response.body, Math.floor(next() ** 2 * 4000), next() < 0.5);
    return new Response(body, { status: response.status, headers: response.headers });
  };
  const automatic = ai.lastAssistantMessageIsCompleteWithApprovalResponses;
  const problems = [];
  const page = (messages) =>
    new Chat({
      id,
      messages,
      transport: new ai.DefaultChatTransport({ api, fetch: cuttingFetch }),
      sendAutomaticallyWhen: automatic,
      onError: (error) => error.message === "network error" || problems.push(`${error}`),
    });
  let chat = page();

  const resumes = async () => {
    for (let times = Math.floor(next() * 3); times >= 0; times -= 1) {
      await pause(next() ** 2 * LONGEST_MS); // the moment is what the walk is about
      cutNext = times > 0;
      const { status } = await get(`/status/${id}`);
      seen[status === "running" ? "before" : "after"] += 1;
      if (next() < 0.4) {
        chat = page((await get(`/boss/${encoding}/${id}/messages`)).messages);
        seen.loaded += 1;
      }
      await chat.resumeStream();
      cutNext = false;
    }
  };

  cutNext = true;
  await chat.sendMessage({ text: JSON.stringify(plan) });
  await resumes();
  if (kind === "approval") {
    const asked = chat.lastMessage.parts.find((part) => part.state === "approval-requested");
    if (asked === undefined) return { ...seen, problems: [`${id}: nothing asks`, JSON.stringify(chat.messages)] };
    cutNext = true;
    await chat.addToolApprovalResponse({ id: asked.approval.id, approved: true });
    while (chat.status === "submitted" || chat.status === "streaming") await pause(5);
    await resumes();
  }
  const texts = chat.lastMessage.parts.filter((part) => part.type === "text");
  if (version === "6" && kind === "stumble" && texts.length > 1) {
    // It has seen an attempt fail, and version 6 takes nothing back: what is committed stands last, and alone after a reload.
    if (texts.at(-1).text !== expected[0].text) problems.push(`${id}: the last text is ${texts.at(-1).text}`);
    seen.discarded = 1;
    await chat.resumeStream();
  }
  if (chat.status !== "ready") problems.push(`${id}: the page is ${chat.status}`);
  const found = chat.messages.map(({ role }) => role).join();
  if (found !== "user,assistant") problems.push(`${id}: its messages are ${found}`);
  const steps = stepsOf(chat.lastMessage);
  if (sorted(steps) !== sorted(expected)) problems.push(`${id} (${kind}): ${sorted(steps)} is not ${sorted(expected)}`);
  const { messages } = await get(`/boss/${encoding}/${id}/messages`);
  const plain = (all) => sorted(JSON.parse(JSON.stringify(all)));
  if (plain(messages.at(-1)) !== plain(chat.lastMessage)) {
    problems.push(`${id} (${kind}): a page that loads has ${plain(messages.at(-1))}, the page has ${plain(chat.lastMessage)}`);
  }
  await ai.validateUIMessages({ messages: JSON.parse(JSON.stringify(chat.messages)) }).catch((error) => problems.push(`${id}: ${error}`));
  return { ...seen, problems };
}

const totals = { walks: 0, before: 0, after: 0, loaded: 0, discarded: 0, problems: [] };
const left = Array.from({ length: Number(count) }, (_, n) => n);
const work = async () => {
  for (let n = left.shift(); n !== undefined; n = left.shift()) {
    const { problems, ...seen } = await walk(n).catch((error) => ({ problems: [`${n}: ${error.stack}`] }));
    totals.walks += 1;
    for (const [name, times] of Object.entries(seen)) totals[name] += times;
    totals.problems.push(...problems);
  }
};
await Promise.all(Array.from({ length: 6 }, work));
process.stdout.write(JSON.stringify(totals));
