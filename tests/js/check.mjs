// Reads one JSON object per line: what a front end was sent. Answers each with what the AI SDK and AG-UI make of it.
// A problem is anything that those libraries refuse, warn about, or report as an error that the run did not end with.
import { createInterface } from "node:readline";
import { isDeepStrictEqual } from "node:util";
import { from } from "rxjs";
import { AbstractAgent, verifyEvents } from "@ag-ui/client";
import { EventSchemas } from "@ag-ui/core/schemas";
import { UIMessageEncoder } from "../../clients/js/src/ui-messages.ts";
import * as v7 from "ai";
import * as v6 from "ai-v6";

const warnings = [];
for (const name of ["warn", "error"]) console[name] = (...words) => warnings.push(words.map(String).join(" "));

async function uiResponse(ai, message, chunks, problems) {
  const { validate } = ai.uiMessageChunkSchema();
  for (const chunk of chunks) {
    const result = await validate(chunk);
    if (!result.success) problems.push(`${JSON.stringify(chunk)}: ${result.error}`);
  }
  const stream = new ReadableStream({
    start(controller) {
      for (const chunk of chunks) controller.enqueue(chunk);
      controller.close();
    },
  });
  const wanted = chunks.filter((chunk) => chunk.type === "error").map((chunk) => chunk.errorText);
  let last = message;
  const onError = (error) => {
    if (wanted[0] === error.message) wanted.shift();
    else problems.push(`onError: ${error}`);
  };
  for await (const next of ai.readUIMessageStream({ message, stream, onError })) last = next;
  if (wanted.length) problems.push(`errors not seen: ${wanted}`);
  if (last) await ai.validateUIMessages({ messages: [structuredClone(last)] }).catch((error) => problems.push(`${error}`));
  return last;
}

// What a page does between two responses: its user answers the approvals, and its tools give results.
function answered(message, answers) {
  const parts = message.parts.map((part) => {
    const answer = answers[part.toolCallId];
    if (answer === undefined) return part;
    if (part.state === "approval-requested")
      return { ...part, state: "approval-responded", approval: { ...part.approval, approved: answer } };
    return part;
  });
  return { ...message, parts };
}

async function ui(ai, { responses, replay }) {
  const problems = [];
  let message;
  for (const { chunks, answers } of responses) {
    if (message && answers) message = answered(message, answers);
    message = await uiResponse(ai, message, chunks, problems);
  }
  const replayed = await uiResponse(ai, undefined, replay, problems);
  return { message, replayed, problems };
}

class Replayed extends AbstractAgent {
  events = [];
  run() {
    return from(this.events);
  }
  connect() {
    return from(this.events);
  }
}

async function agui({ runs }) {
  const problems = [];
  const agent = new Replayed({ threadId: "t" });
  for (const { user, events } of runs) {
    for (const event of events) {
      const result = EventSchemas.safeParse(event);
      if (!result.success) problems.push(`${JSON.stringify(event)}: ${result.error}`);
    }
    await new Promise((resolve) =>
      verifyEvents()(from(events)).subscribe({ complete: resolve, error: (e) => (problems.push(`verify: ${e}`), resolve()) }),
    );
    if (user) agent.messages.push(user);
    agent.events = structuredClone(events);
    const resume = agent.pendingInterrupts.map(({ id }) => ({ interruptId: id, status: "cancelled" }));
    await agent.runAgent(resume.length ? { resume } : {}).catch((error) => problems.push(`${error}`));
  }
  return { messages: agent.messages, state: agent.state, problems };
}

// A reader whose connection is cut after each of the events, and who connects anew, has what one has that was never cut.
async function cutAnywhere({ cuts: runs }) {
  const problems = [];
  const play = async (agent, method, events, options = {}) => {
    agent.events = structuredClone(events);
    await agent[method](options).catch((error) => problems.push(`${method}: ${error}`));
  };
  const held = ({ messages, state, pendingInterrupts }) => ({ messages, state, pendingInterrupts });
  const agent = new Replayed({ threadId: "t" });
  let count = 0;
  for (const { user, events, cuts } of runs) {
    if (user) agent.messages.push(user);
    const resume = agent.pendingInterrupts.map(({ id }) => ({ interruptId: id, status: "cancelled" }));
    const options = resume.length ? { resume } : {};
    const before = agent.clone();
    await play(agent, "runAgent", events, options);
    for (const [n, rest] of cuts.entries()) {
      const cut = before.clone();
      if (n > 0) await play(cut, "runAgent", events.slice(0, n), options);
      if (n < events.length) cut.pendingInterrupts = []; // the cut run has answered them
      const waiting = cut.pendingInterrupts.map(({ id }) => ({ interruptId: id, status: "cancelled" }));
      await play(cut, "connectAgent", rest, { resume: waiting }); // the library wants each named that waits
      const [found, wanted] = n === 0 ? [cut.state, agent.state] : [held(cut), held(agent)];
      if (!isDeepStrictEqual(found, wanted)) problems.push(`cut ${n}: ${JSON.stringify(found)} is not ${JSON.stringify(wanted)}`);
      count += 1;
    }
  }
  return { problems, count };
}

for await (const line of createInterface({ input: process.stdin })) {
  const given = JSON.parse(line);
  warnings.length = 0;
  if (given.cuts) {
    const found = await cutAnywhere(given);
    process.stdout.write(`${JSON.stringify({ ...found, warnings })}\n`);
    continue;
  }
  const found = { ui: [], ui6: [] };
  for (const message of given.ui) found.ui.push(await ui(v7, message));
  for (const message of given.ui6) found.ui6.push(await ui(v6, message));
  found.agui = await agui(given.agui);
  // What the TypeScript client makes of the same log.
  const encoder = new UIMessageEncoder(given.session);
  found.log = [...given.log.flatMap((message) => encoder.feed(message)), ...encoder.close()];
  process.stdout.write(`${JSON.stringify({ ...found, warnings })}\n`);
}
