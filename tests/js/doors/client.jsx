// A page with the TypeScript client, which reads each session's stream over one WebSocket.
import { chunkOf, HelixClient, toolsOf } from "@helix-agents/client";
import { useReducer, useState } from "react";
import { draw, Panel } from "./panels.jsx";
import { asked, show_map, showMap } from "./scenes.js";

const tools = { show_map: { ...show_map, execute: showMap } };
const client = await HelixClient.connect(asked.socket);

/** The session of a scene. `changed` is called when there is something else to show. */
class Session {
  busy = false;
  items = [];
  #follows = false;
  #inputs = new Map(); // the arguments of each call: the chunk of its end has them only if no chunk before had

  constructor(id, changed) {
    [this.id, this.changed] = [id, changed];
  }

  async send(text, when_running) {
    if (when_running === undefined) this.items.push({ user: text });
    this.busy = true;
    this.changed();
    const options = { session_id: this.id, tools: toolsOf(tools), ...(when_running && { when_running }) };
    const run = await client.run("desk", text, options);
    void this.#grow(run);
    if (this.#follows) return;
    this.#follows = true;
    for await (const message of client.follow(this.id)) {
      if (message.kind === "chunk") this.#take(chunkOf(message));
      else this.busy = false;
      this.changed();
    }
  }

  /** Show the structured output of the run while it arrives. */
  async #grow(run) {
    for await (const output of run.partialOutputs()) {
      this.#put("output", { output, agent: this.agent });
      this.changed();
    }
  }

  async answer(call, options) {
    this.items = this.items.filter(({ key }) => key !== `ask ${call}`);
    this.busy = true;
    this.changed();
    await client.answer(this.id, call, options);
  }

  /** Show the item in the place of the one with the same key, or as the last. */
  #put(key, item) {
    const at = this.items.findIndex((one) => one.key === key);
    if (at < 0) this.items.push({ key, ...item });
    else this.items[at] = { ...this.items[at], ...item };
  }

  #drop(key) {
    this.items = this.items.filter((one) => one.key !== key);
  }

  #take(chunk) {
    const step = `${chunk.run_id}/${chunk.step}/${chunk.attempt}`;
    const input = chunk.input ?? chunk.arguments ?? this.#inputs.get(chunk.tool_call_id);
    if (chunk.tool_call_id !== undefined) this.#inputs.set(chunk.tool_call_id, input);
    const call = { call: chunk.tool_name, input };
    switch (chunk.type) {
      case "text_delta": {
        const before = this.items.find(({ key }) => key === step)?.text ?? "";
        this.#put(step, { agent: chunk.agent_type, text: before + chunk.delta });
        break;
      }
      case "step_discarded":
        this.#drop(step);
        break;
      case "step_committed":
        if (chunk.stop_reason === "interrupted") this.#put(step, { cut: true });
        break;
      case "tool_start":
        this.busy = true;
        this.#put(chunk.tool_call_id, { ...call, state: "running" });
        break;
      case "tool_end": {
        const { success, result, error } = chunk;
        this.#drop(`ask ${chunk.tool_call_id}`);
        this.#put(chunk.tool_call_id, { ...call, state: success ? "done" : "failed", result: success ? result : error });
        break;
      }
      case "tool_approval_request":
        this.#ask(chunk, call);
        break;
      case "message_queued":
        this.#drop(chunk.queued_id);
        if (chunk.state === "waiting") this.#put(chunk.queued_id, { user: chunk.content, waits: true, withdraw: () => void client.withdraw(this.id, chunk.queued_id) });
        if (chunk.state === "delivered") this.#put(chunk.queued_id, { user: chunk.content });
        break;
      case "agent_changed":
        this.agent = chunk.agent;
        break;
      case "error":
        if (!chunk.recoverable) this.items.push({ note: chunk.error });
    }
  }

  #ask(chunk, call) {
    const { tool_call_id: id, kind, questions, round } = chunk;
    if (chunk.declared && chunk.tool_name in tools) {
      this.#put(id, { ...call, state: "running" });
      void this.answer(id, { data: tools[chunk.tool_name].execute(chunk.input) });
      return;
    }
    if (kind === "approval") return this.#put(`ask ${id}`, { ...call, approve: (approved) => void this.answer(id, { approved }) });
    this.#put(id, { ...call, state: kind === "elsewhere" ? "elsewhere" : "asks" });
    if (kind !== "question") return;
    const open = questions.filter((question) => !question.answered).map(({ text, answer_schema: schema, problem }) => ({ text, schema, problem }));
    this.#put(`ask ${id}`, { questions: open, answer: (data) => void this.answer(id, { data, round }) });
  }
}

function Scene({ scene }) {
  const [, changed] = useReducer((count) => count + 1, 0);
  const [session] = useState(() => new Session(scene.session, changed));
  return (
    <Panel
      scene={scene}
      items={session.items}
      busy={session.busy}
      send={(text, how) => void session.send(text, how)}
      stop={() => void client.interrupt(session.id)}
    />
  );
}

draw("HelixClient in TypeScript", Scene);
