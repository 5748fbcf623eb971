// The conversation that AG-UI events make, as a front end has it: what a MESSAGES_SNAPSHOT restates.

export interface AgUiCall {
  id: string;
  type: "function";
  function: { name: string; arguments: string };
}

export interface AgUiMessage {
  id: string;
  role: string;
  content?: unknown;
  toolCalls?: AgUiCall[];
  toolCallId?: string;
  [tag: string]: unknown;
}

/** It changes as the reducer of `@ag-ui/client` changes its own, so that a snapshot takes away only what was discarded. */
export class AgUiMessages {
  #messages: AgUiMessage[];
  readonly #whole: ReadonlySet<string>;

  /** `messages`: before the events. They are whole: what is added to them is in them. */
  constructor(messages: readonly AgUiMessage[]) {
    this.#messages = structuredClone([...messages]);
    this.#whole = new Set(messages.map((message) => message.id));
  }

  snapshot(): AgUiMessage[] {
    return structuredClone(this.#messages);
  }

  /** A message that is not there yet. */
  add(message: AgUiMessage): void {
    if (this.#find(message.id) === undefined) this.#messages.push({ ...message });
  }

  append(id: string, delta: string): void {
    const message = this.#find(id);
    if (message !== undefined && !this.#whole.has(id)) message.content = `${message.content ?? ""}${delta}`;
  }

  /** Take messages away. A snapshot without any reasoning leaves that of the reader alone, so reasoning is emptied. */
  discard(ids: readonly string[]): void {
    const calls = new Set<string>(); // those that the provider executed for the answer
    for (const message of this.#messages.filter(({ id }) => ids.includes(id))) {
      if (message.role === "reasoning") message.content = "";
      for (const { id } of message.toolCalls ?? []) calls.add(id);
    }
    this.#messages = this.#messages.filter(({ id, role, toolCallId }) => {
      return (!ids.includes(id) || role === "reasoning") && !(toolCallId !== undefined && calls.has(toolCallId));
    });
  }

  /** The new ids of these messages. */
  rename(ids: readonly string[], suffix: string): string[] {
    for (const message of this.#messages) if (ids.includes(message.id)) message.id = `${message.id}/${suffix}`;
    return ids.map((id) => `${id}/${suffix}`);
  }

  hasCall(callId: string): boolean {
    return this.#call(callId) !== undefined;
  }

  /** Whether these are others than before. */
  changeArguments(callId: string, text: string): boolean {
    const call = this.#call(callId);
    if (call === undefined || call.function.arguments === text) return false;
    call.function.arguments = text;
    return true;
  }

  /** A call of the message `parent`, which is made if it has no text. */
  addCall(parent: string, id: string, name: string, text: string, tag: object): void {
    let message = this.#find(parent);
    if (message === undefined) this.#messages.push((message = { id: parent, role: "assistant", ...tag }));
    (message.toolCalls ??= []).push({ id, type: "function", function: { name, arguments: text } });
  }

  /** A call's result, behind the message that made the call and the results that this one has. */
  addResult(id: string, toolCallId: string, content: unknown, tag: object): void {
    if (this.#find(id) !== undefined) return; // the conversation before the run had what its claim closed
    const result = { id, role: "tool", toolCallId, content, ...tag };
    const owner = this.#messages.findIndex((message) => message.toolCalls?.some((call) => call.id === toolCallId));
    let place = owner + 1;
    while (this.#messages[place]?.role === "tool") place += 1;
    this.#messages.splice(owner < 0 ? this.#messages.length : place, 0, result);
  }

  #find(id: string): AgUiMessage | undefined {
    return this.#messages.findLast((message) => message.id === id);
  }

  #call(callId: string): AgUiCall | undefined {
    const calls = this.#messages.toReversed().flatMap((message) => message.toolCalls ?? []);
    return calls.find((call) => call.id === callId);
  }
}
