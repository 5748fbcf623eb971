// A page with an unmodified `HttpAgent` of AG-UI, on the HTTP app of `helix.http`.
import { HttpAgent, randomUUID } from "@ag-ui/client";
import { parse } from "partial-json";
import { useEffect, useReducer, useState } from "react";
import { draw, Panel } from "./panels.jsx";
import { show_map, showMap } from "./scenes.js";

const url = "/agents/desk/ag-ui";
const tools = [{ name: "show_map", ...show_map }];
const messageOf = (content) => ({ id: randomUUID(), role: "user", content });

/** The thread of a scene. `changed` is called when there is something else to show. */
class Thread {
  busy = 0;
  waiting = new Map(); // the messages that wait, by their ids
  answers = new Map(); // by interrupt: the agent takes them together
  cut = new Set();
  output;
  problem;
  #written = ["", ""]; // the step that writes the output, and its text so far

  constructor(threadId, changed) {
    this.changed = changed;
    this.agent = new HttpAgent({ url, threadId });
    this.agent.subscribe({
      onEvent: changed,
      onMessagesChanged: changed,
      onCustomEvent: ({ event: { name, value } }) => this.#take(name, value),
      onRunFinishedEvent: ({ result }) => void (this.output = result ?? this.output),
      onRunErrorEvent: ({ event }) => void (this.problem = event.message),
    });
  }

  #take(name, value) {
    if (name === "helix.answer_cut") this.cut.add(value.messageId);
    if (name !== "helix.output_delta") return;
    const step = `${value.step}/${value.attempt}`; // the pieces of another attempt replace those before
    this.#written = [step, this.#written[0] === step ? this.#written[1] + value.delta : value.delta];
    this.output = parse(this.#written[1]);
  }

  async run(options = {}) {
    this.busy += 1;
    await this.agent.runAgent({ tools, ...options });
    this.busy -= 1;
    this.changed();
    const called = unanswered(this.agent.messages).filter((call) => call.function.name === "show_map");
    if (called.length === 0) return;
    for (const { id, function: given } of called) {
      this.agent.addMessage({ id: randomUUID(), role: "tool", toolCallId: id, content: showMap(JSON.parse(given.arguments)) });
    }
    await this.run();
  }

  async send(text, how) {
    const message = messageOf(text);
    if (this.busy > 0) return await this.sendBeside(message, how);
    this.agent.addMessage(message);
    await this.run();
  }

  /** Send a message during a run. Its response shows its own turn only, so another agent of the thread reads it. */
  async sendBeside(message, when_running) {
    const beside = this.agent.clone();
    this.waiting.set(message.id, message.content);
    beside.addMessage(message);
    this.changed();
    let own = false;
    beside.subscribe({
      onMessagesSnapshotEvent: ({ event }) => {
        own = true; // its own turn begins; AG-UI would leave the message before what was said meanwhile
        return { messages: event.messages, stopPropagation: true };
      },
    });
    await beside.runAgent({ tools, forwardedProps: { when_running } });
    this.waiting.delete(message.id);
    if (own) this.agent.setMessages(beside.messages);
    this.changed();
  }

  async withdraw(id) {
    const { inbox } = await (await fetch(`${url}/${this.agent.threadId}/inbox`)).json();
    const queued = inbox.find(({ content }) => content === this.waiting.get(id));
    if (queued) await fetch(`${url}/${this.agent.threadId}/inbox/${queued.id}`, { method: "DELETE" });
  }

  async answer(interruptId, payload) {
    this.answers.set(interruptId, { interruptId, status: "resolved", payload });
    const given = this.agent.pendingInterrupts.map(({ id }) => this.answers.get(id));
    if (given.every((one) => one !== undefined)) await this.run({ resume: given });
  }

  /** Read the newest run again, with the runs that continue it. The `fetch` of this agent makes a GET of its POST. */
  async join() {
    const { threadId } = this.agent;
    const reader = new HttpAgent({ url: `${url}/${threadId}/stream`, threadId, fetch: (address) => fetch(address) });
    await reader.runAgent();
    this.agent.setMessages(reader.messages);
    this.agent.pendingInterrupts = reader.pendingInterrupts;
    this.changed();
  }
}

function unanswered(messages) {
  const answered = new Set(messages.filter(({ role }) => role === "tool").map(({ toolCallId }) => toolCallId));
  return messages.flatMap(({ toolCalls = [] }) => toolCalls).filter(({ id }) => !answered.has(id));
}

function Scene({ scene }) {
  const [, changed] = useReducer((count) => count + 1, 0);
  const [thread] = useState(() => new Thread(scene.session, changed));
  const busy = thread.busy > 0;
  const items = itemsOf(thread, busy);
  const elsewhere = items.some(({ state }) => state === "elsewhere");
  useEffect(() => {
    // Another system ends the call, which starts another run: look for it.
    const looking = elsewhere && setInterval(() => void thread.join(), 1000);
    return () => clearInterval(looking);
  }, [elsewhere]);
  return (
    <Panel
      scene={scene}
      items={items}
      busy={busy}
      send={(text, how) => void thread.send(text, how)}
      stop={() => void fetch(`${url}/${scene.session}/stream`, { method: "DELETE" })}
    />
  );
}

function itemsOf(thread, busy) {
  const { messages, pendingInterrupts } = thread.agent;
  const results = new Map(messages.filter(({ role }) => role === "tool").map((one) => [one.toolCallId, one.content]));
  const items = [];
  let agent = "desk";
  for (const { id, role, content, toolCalls = [] } of messages) {
    if (role === "user") items.push({ user: content });
    if (role !== "assistant") continue;
    if (content) items.push({ agent, text: content, cut: thread.cut.has(id) });
    for (const { id: callId, function: given } of toolCalls) {
      const asked = busy ? undefined : pendingInterrupts.find(({ toolCallId }) => toolCallId === callId);
      items.push(...callOf(thread, given, results.get(callId), asked, busy));
      agent = valueOf(results.get(callId))?.transferred_to ?? agent;
    }
  }
  if (thread.output) items.push({ agent, output: thread.output });
  if (thread.problem) items.push({ note: thread.problem });
  for (const [id, user] of thread.waiting) {
    if (!messages.some((one) => one.id === id)) items.push({ user, waits: true, withdraw: () => void thread.withdraw(id) });
  }
  return items;
}

function callOf(thread, { name: call, arguments: json }, result, asked, busy) {
  const input = valueOf(json);
  if (asked?.reason === "helix:approval") return [{ call, input, approve: (approved) => void thread.answer(asked.id, { approved }) }];
  if (asked?.reason === "helix:question") {
    const questions = { questions: asked.metadata.questions, answer: (given) => void thread.answer(asked.id, given) };
    return [{ call, input, state: "asks" }, questions];
  }
  if (result === undefined) return [{ call, input, state: busy ? "running" : "elsewhere" }];
  const value = valueOf(result);
  if (call === "question") return [{ call, input: {}, state: "done", result: value.map(({ answer }) => answer) }];
  return [{ call, input, state: value?.error ? "failed" : "done", result: value?.error ?? value }];
}

/** The value of the text, if it is JSON. */
function valueOf(text) {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

draw("HttpAgent of AG-UI", Scene);
