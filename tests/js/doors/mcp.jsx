// A page with the MCP client of the official SDK. Each agent is a tool, and what waits for a person is an elicitation.
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { ElicitRequestSchema } from "@modelcontextprotocol/sdk/types.js";
import { useReducer, useState } from "react";
import { draw, Panel } from "./panels.jsx";
import { asked } from "./scenes.js";

/** The conversation of a scene. `changed` is called when there is something else to show. */
class Talk {
  items = [];
  busy = false;
  #stopping = new AbortController();

  constructor(session_id, changed) {
    [this.session_id, this.changed] = [session_id, changed];
  }

  /** Connect to the server. A browser has six connections to a server at most, and a client that is open holds one. */
  async #connect() {
    const client = new Client({ name: "page", version: "1" }, { capabilities: { elicitation: { form: {} } } });
    client.setRequestHandler(ElicitRequestSchema, ({ params }) => this.#ask(params));
    await client.connect(new StreamableHTTPClientTransport(new URL(asked.mcp)));
    return client;
  }

  async send(message) {
    this.items.push({ user: message });
    this.busy = true;
    this.changed();
    const client = await this.#connect();
    const call = { name: "desk", arguments: { message, session_id: this.session_id } };
    try {
      const result = await client.callTool(call, undefined, { signal: this.#stopping.signal });
      this.#show(result.structuredContent);
      await client.close();
    } catch (error) {
      this.items.push({ note: error.message ?? String(error) }); // the client stays open: it still sends the cancellation
    }
    this.busy = false;
    this.changed();
  }

  #show({ output, error }) {
    if (output === null) this.items.push({ note: error }); // which agent answered is not in the result
    else this.items.push(typeof output === "string" ? { text: output } : { output });
  }

  /** Show the form until it is filled in, and return what was filled in. */
  #ask({ message, requestedSchema: schema }) {
    return new Promise((resolve) => {
      const form = { questions: [{ text: message, schema }], answer: (content) => (this.#close(form), resolve({ action: "accept", content })) };
      this.items.push(form);
      this.changed();
    });
  }

  #close(form) {
    this.items = this.items.filter((item) => item !== form);
    this.changed();
  }

  /** Cancelling a call interrupts its run. */
  stop() {
    this.#stopping.abort("The call was cancelled.");
    this.#stopping = new AbortController();
  }
}

function Scene({ scene }) {
  const [, changed] = useReducer((count) => count + 1, 0);
  const [talk] = useState(() => new Talk(scene.session, changed));
  return <Panel scene={scene} items={talk.items} busy={talk.busy} send={(text) => void talk.send(text)} stop={() => talk.stop()} queues={false} />;
}

const SHOWN = ["question", "approval", "elsewhere", "handoff", "output", "stop"];
draw("The client of the MCP SDK", Scene, SHOWN);
