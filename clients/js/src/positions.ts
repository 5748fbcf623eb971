// Where a reader of AG-UI events is: the ids that `helix.http` gives its server-sent events too.
import type { AgUiEvent } from "./ag-ui-events.ts";

/** After event `place` of the message `sequence`, and after the `beside` events behind it that have no place. */
export type Position = readonly [sequence: number, place: number, beside: number];

const BEGINS = new Set(["RUN_STARTED", "STATE_SNAPSHOT", "MESSAGES_SNAPSHOT"]);
const OPENERS = new Map([
  ["SUBAGENT_STARTED", "subagentRunId"],
  ["TEXT_MESSAGE_START", "messageId"],
  ["REASONING_START", "messageId"],
  ["REASONING_MESSAGE_START", "messageId"],
  ["TOOL_CALL_START", "toolCallId"],
]);
const CLOSERS = new Map([
  ["SUBAGENT_FINISHED", "SUBAGENT_STARTED"],
  ["SUBAGENT_ERROR", "SUBAGENT_STARTED"],
  ["TEXT_MESSAGE_END", "TEXT_MESSAGE_START"],
  ["REASONING_END", "REASONING_START"],
  ["REASONING_MESSAGE_END", "REASONING_MESSAGE_START"],
  ["TOOL_CALL_END", "TOOL_CALL_START"],
]);

export const isBehind = (one: Position, other: Position): boolean =>
  (one[0] - other[0] || one[1] - other[1] || one[2] - other[2]) > 0;

/** `12.1`: an event. `12`: all events of that message. */
export function parsePosition(text: string): Position | undefined {
  const found = /^(\d{1,15})(?:\.(\d{1,6})(?:\.(\d{1,6}))?)?$/.exec(text);
  if (found === null) return undefined;
  const [, sequence, place, beside] = found;
  return [Number(sequence), Number(place ?? Infinity), Number(place === undefined ? Infinity : (beside ?? 0))];
}

export const formatPosition = ([sequence, place, beside]: Position): string =>
  `${sequence}.${place}${beside > 0 ? `.${beside}` : ""}`;

/** Gives each event its position. What depends on where a reader began has no place of its own. */
export class Places {
  #at: Position = [0, 0, 0];
  #before = "";

  of(sequence: number, events: readonly AgUiEvent[]): [Position, AgUiEvent][] {
    return events.map((event) => {
      const [, place, beside] = this.#at[0] === sequence ? this.#at : [sequence, 0, 0];
      const isBeside = event.type === "STATE_SNAPSHOT" || (event.type === "MESSAGES_SNAPSHOT" && BEGINS.has(this.#before));
      this.#at = isBeside ? [sequence, place, beside + 1] : [sequence, place + 1, 0];
      this.#before = event.type;
      return [this.#at, event];
    });
  }
}

/** What a run has open: what a reader that connects in mid-run is given before the events that it does not have. */
export class Opened {
  #run: AgUiEvent | undefined;
  #open = new Map<string, AgUiEvent>();

  feed(event: AgUiEvent): void {
    const { type } = event;
    const opener = OPENERS.has(type) ? type : CLOSERS.get(type);
    if (type === "RUN_STARTED" || type === "RUN_FINISHED" || type === "RUN_ERROR") {
      this.#run = type === "RUN_STARTED" ? event : undefined;
      this.#open.clear();
    } else if (opener !== undefined) {
      const key = `${opener} ${String(event[OPENERS.get(opener) as string])}`;
      if (opener === type) this.#open.set(key, event);
      else this.#open.delete(key);
    }
  }

  events(): AgUiEvent[] {
    if (this.#run === undefined) return [];
    const found = [...this.#open.values()].map((event) => {
      const { parentSubagentRunId: parent, ...rest } = event;
      const known = parent === undefined || this.#open.has(`SUBAGENT_STARTED ${String(parent)}`);
      return known ? event : (rest as AgUiEvent);
    });
    return [this.#run, ...found];
  }
}
