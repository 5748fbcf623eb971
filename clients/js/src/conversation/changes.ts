// The changes that a message of the stream makes to a conversation, as one closed union: those of
// `helix.core.conversation.changes` in Python. A reader handles every `type`, and the compiler checks it. A change refers to
// items, which already have their new values when the reader receives it.
import type { Chunks, NoticeChunk } from "../generated.ts";
import type { StreamMessage } from "../wire.ts";
import type { Conversation } from "./conversation.ts";
import type { Call, Notice, Part, Source, Step } from "./items.ts";

/** The modes of runs that continue the answer of the previous run to the same message of the user. */
export const CONTINUES: ReadonlySet<string> = new Set(["continue", "with_confirmation", "takeover", "retry", "abort"]);

/** The first message of a run. `retained`: the attempt of an interrupted run whose text the new run will replace. */
export interface RunBegan {
  type: "RunBegan";
  conversation: Conversation;
  runId: string;
  /** The mode of a run that continues or repeats an earlier one, `execute` for others. */
  mode: string;
  /** Whether the run continues the answer to the same message of the user. */
  continues: boolean;
  retained: Step | undefined;
}

/** The end of a run's part of the stream. */
export interface RunEnded {
  type: "RunEnded";
  conversation: Conversation;
  kind: Exclude<StreamMessage["kind"], "chunk">;
  status: string | null;
  error: string | null;
}

/** A chunk that concerns the session that wrote it rather than an item. */
export interface Of<Type extends string, Kind extends keyof Chunks> {
  type: Type;
  conversation: Conversation;
  chunk: Chunks[Kind];
}

/** A change of the part of history that the model is shown. A chunk that repeats the last one changes nothing. */
export interface ContextChanged extends Of<"ContextChanged", "context_changed"> {
  /** The item of the conversation that tells of the change. */
  notice: Notice;
}

/** A chunk that readers show by its declaration alone, see `NOTICES`. `line`: the line for people, or "". */
export interface Noticed {
  type: "Noticed";
  conversation: Conversation;
  chunk: NoticeChunk;
  line: string;
}

/** A chunk of a type that this version does not know. The message has it. */
export interface Unknown {
  type: "Unknown";
  conversation: Conversation;
}

export type RunChange =
  | RunBegan
  | RunEnded
  | Of<"RunResumed", "run_resumed">
  | Of<"RunInterrupted", "run_interrupted">
  | Of<"RunPaused", "run_paused">
  | Of<"RunQueued", "run_queued">
  | Of<"OutputGiven", "output">;

export type StepChange =
  /** The first chunk of an attempt. `replaces`: the attempt of an interrupted run whose text disappears now. */
  | { type: "StepBegan"; step: Step; replaces: Step | undefined }
  /** The beginning of a part. Its text follows in `PartGrew`. */
  | { type: "PartBegan"; part: Part }
  /** The end of a part. Other parts of the attempt may follow. */
  | { type: "PartEnded"; part: Part }
  /** The commit of an answer: its text is final. */
  | { type: "StepCommitted"; step: Step }
  /** The end of a discarded attempt. Its text disappears, unless `step.retained`. */
  | { type: "StepDiscarded"; step: Step };

export type CallChange =
  /** A question to a person or to the client about a call. */
  | { type: "CallAsked"; call: Call }
  /** The start of a claimed call, or of another attempt at it. */
  | { type: "CallStarted"; call: Call }
  /** The result of a call. */
  | { type: "CallEnded"; call: Call }
  /** The start or resumption of a sub-agent. */
  | { type: "ChildBegan"; call: Call; child: Conversation }
  /** The end of a sub-agent's work for a call. The end of the call follows. */
  | { type: "ChildEnded"; call: Call; child: Conversation; chunk: Chunks["subagent_end"] };

export type EventChange =
  /** A source of the answer's text. */
  | { type: "TextCited"; step: Step; source: Source }
  | Of<"CustomEmitted", "custom">
  | Of<"StatePatched", "state_patch">
  | Of<"ErrorRaised", "error">
  | Of<"CheckpointCreated", "checkpoint_created">
  | ContextChanged
  | Noticed
  /** A message that waits for a run, or is delivered or withdrawn. A repeated chunk changes nothing. */
  | Of<"MessageQueued", "message_queued">
  | Of<"Resynced", "stream_resync">
  | Unknown;

/** A piece of text or reasoning, which is appended to a part. */
export interface PartGrew {
  type: "PartGrew";
  part: Part;
  delta: string;
}

export type Change = PartGrew | StepChange | CallChange | RunChange | EventChange;
