// The conversation as the page draws it: `clients/js/src/conversation` folds it, and here is which of its items have changed
// since they were drawn.
import type { Change } from "../../js/src/conversation/changes.ts";
import type { Conversation } from "../../js/src/conversation/conversation.ts";
import { BUDGET, type Item } from "../../js/src/conversation/items.ts";
import type { StreamMessage } from "./wire.ts";

export { type Children, Conversation } from "../../js/src/conversation/conversation.ts";
export type { CallResponse } from "../../js/src/generated.ts";
export { type Call, FINISH, type Item, type Notice, type Source, type Step, SUBAGENT, type Tone, type User } from "../../js/src/conversation/items.ts";

const keys = new WeakMap<Item, string>();
const counts = new WeakMap<Conversation, number>();
const revisions = new WeakMap<Item, number>();

/** The item's name in its list. A conversation that is read again gives the same names in the same order. */
export function keyOf(item: Item, conversation: Conversation): string {
  const known = keys.get(item);
  if (known !== undefined) return known;
  const count = counts.get(conversation) ?? 0;
  const key = `${conversation.id}.${count}`;
  counts.set(conversation, count + 1);
  keys.set(item, key);
  return key;
}

/** It changes with the item and with all that is below its calls: what was drawn of an earlier one is drawn again. */
export function revisionOf(item: Item): number {
  let sum = revisions.get(item) ?? 0;
  if (item.type !== "step") return sum;
  for (const call of item.calls) for (const inner of call.child?.items ?? []) sum += 1 + revisionOf(inner);
  return sum;
}

export const touch = (item: Item): void => void revisions.set(item, (revisions.get(item) ?? 0) + 1);

/** Apply a message of the stream. */
export function take(conversation: Conversation, message: StreamMessage): void {
  for (const change of conversation.take(message)) note(change);
}

function note(change: Change): void {
  switch (change.type) {
    case "PartBegan":
    case "PartGrew":
    case "PartEnded":
      return touch(change.part.step);
    case "StepBegan":
    case "StepCommitted":
    case "StepDiscarded":
    case "TextCited":
      return touch(change.step);
    case "CallAsked":
    case "CallStarted":
    case "CallEnded":
    case "ChildBegan":
    case "ChildEnded":
      return touch(change.call.step);
    case "RunEnded": // it may have left calls that ran
      for (const call of change.conversation.calls.values()) if (call.state === "open") touch(call.step);
      return;
    case "RunPaused": {
      const { reason } = change.chunk;
      if (reason !== BUDGET && reason !== "pending") change.conversation.note(`Paused: ${reason}`);
      return;
    }
    case "RunBegan":
    case "RunResumed": // a notice says so, where it matters
    case "RunInterrupted": // the end of the run says so
    case "RunQueued": // a notice says so
    case "Noticed": // a line says so, if it has one
    case "OutputGiven": // the messages have it
    case "ErrorRaised": // a notice says so
    case "ContextChanged": // a notice says so
    case "MessageQueued": // the conversation shows it
    case "Resynced": // the session is loaded again
    case "CheckpointCreated":
    case "StatePatched":
    case "CustomEmitted":
    case "Unknown":
      return;
    default:
      change satisfies never;
  }
}
