// The fold makes of each stream in the fixture what the fold in Python makes of it: `tests/unit/test_conversation_cases.py`
// writes the fixture.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import type { Change } from "../src/conversation/changes.ts";
import { type Children, Conversation, type StoredMessage } from "../src/conversation/conversation.ts";
import type { Call, Item, Part, Source, Step } from "../src/conversation/items.ts";
import type { FilePart, Pending } from "../src/generated.ts";
import { messageOf } from "../src/wire.ts";

interface Case {
  name: string;
  session_id: string;
  stored?: { messages: StoredMessage[]; children: Record<string, { id: string; agent: string }>; sequence: number };
  pending?: Pending[];
  takes: { message: object; changes: unknown[][] }[];
  conversations: { about: unknown[]; items: unknown[][] }[];
  waiting: string[];
}

const cases: Case[] = JSON.parse(
  readFileSync(new URL("../../../tests/fixtures/conversation_cases.json", import.meta.url), "utf8"),
);

const ofStep = (step: Step | undefined): string | null =>
  step === undefined ? null : `${step.conversation.id} ${step.runId ?? "None"} ${step.step}/${step.attempt}`;
const ofPart = (part: Part): string => `${ofStep(part.step)}/${part.index} ${part.kind}`;
const ofCall = (call: Call): string => `${ofStep(call.step)} ${call.id} ${call.state}`;

function ofChange(change: Change): unknown[] {
  const { type } = change;
  switch (type) {
    case "PartGrew":
      return [type, ofPart(change.part), change.delta];
    case "PartBegan":
    case "PartEnded":
      return [type, ofPart(change.part)];
    case "StepBegan":
      return [type, ofStep(change.step), ofStep(change.replaces)];
    case "StepCommitted":
    case "StepDiscarded":
      return [type, ofStep(change.step), change.step.state, change.step.retained];
    case "TextCited":
      return [type, ofStep(change.step), ofSource(change.source)];
    case "CallAsked":
    case "CallStarted":
    case "CallEnded":
      return [type, ofCall(change.call)];
    case "ChildBegan":
    case "ChildEnded":
      return [type, ofCall(change.call), change.child.id, change.child.status];
    case "RunBegan": {
      const { conversation, runId, mode, continues, retained } = change;
      return [type, conversation.id, runId, mode, continues, ofStep(retained)];
    }
    case "RunEnded":
      return [type, change.conversation.id, change.kind, change.status, change.error];
    default:
      return [type, change.conversation.id];
  }
}

const ofFiles = (files: readonly FilePart[]): unknown[] => (files.length > 0 ? [files] : []);

function ofItem(item: Item): unknown[] {
  if (item.type === "user") return ["user", item.text, item.runId, ...ofFiles(item.files)];
  if (item.type === "notice") return ["notice", item.kind, item.text, item.tone, item.code, item.queued, item.hidden];
  const parts = item.parts.map(({ kind, text }) => [kind, text]);
  const about = [item.state, item.retained, item.why, item.model, item.usage, ...(item.cut ? ["cut"] : [])];
  const served = item.served.size > 0 && { served: [...item.served.values()].map(shown) };
  const cited = item.citations.length > 0 && { sources: item.sources.map(ofSource) };
  return ["step", ofStep(item), parts, about, item.calls.map(shown), ...(served || cited ? [{ ...served, ...cited }] : [])];
}

const ofSource = ({ start, end, url, title, quote }: Source): unknown[] => [start, end, url, title, quote];

function shown(call: Call): unknown[] {
  const asked: unknown[] = [call.kind, call.parameters, call.reason, call.edited?.by ?? null];
  if (call.round > 0) asked.push(call.round, call.questions.map(({ text, data }) => [text, data]));
  if (call.asked !== null) asked.push({ asked: call.asked });
  const ended = [call.result, call.error, call.child?.id ?? null, ...ofFiles(call.files)];
  return [ofCall(call), call.name, call.arguments, call.attempt, asked, ended];
}

for (const { name, session_id, stored, pending, takes, conversations, waiting } of cases) {
  test(`the changes and the items of Python: ${name}`, () => {
    const conversation = new Conversation(session_id);
    if (stored) conversation.load(stored.messages, new Map(Object.entries(stored.children)), stored.sequence);
    for (const { message, changes } of takes) {
      const found = conversation.take(messageOf(session_id, message));
      assert.deepEqual(found.map(ofChange), changes, JSON.stringify(message));
    }
    conversation.expect(pending ?? []);
    const found = [...conversation.below.values()].map((one) => ({
      about: [one.id, one.agent, one.call?.id ?? null, one.status, one.runId],
      items: one.items.map(ofItem),
    }));
    assert.deepEqual(found, conversations);
    assert.deepEqual(conversation.waiting().map((call) => call.id), waiting);
  });
}

const about = { id: "", created_at: null, metadata: {}, step: 1, run_id: "r1" };
const answer = (text: string, step: number, calls: string[] = []): StoredMessage => ({
  ...{ ...about, role: "assistant", content: text, step, thinking: [] },
  tool_calls: calls.map((id) => ({ id, name: "look", arguments: {}, malformed: null })),
});
const none: Children = new Map();

test("earlier messages come before those that are here, and get the results that came with those", () => {
  const conversation = new Conversation("ses");
  const result = { ...about, role: "tool", tool_call_id: "c1", tool_name: "look", content: "seen", success: true } as const;
  conversation.load([result, answer("Then.", 2)], none);
  conversation.prepend([{ ...about, role: "user", content: "Hi" }, answer("First.", 1, ["c1"])], none);
  assert.deepEqual(conversation.items.map((item) => item.text), ["Hi", "First.", "Then."]);
  assert.deepEqual([conversation.calls.get("c1")?.state, conversation.calls.get("c1")?.result], ["done", "seen"]);
});

test("the message of a run stands before what the run has said, and once", () => {
  const conversation = new Conversation("ses");
  const chunk = { type: "text_delta", step: 1, attempt: 1, delta: "Tea" };
  conversation.take(messageOf("ses", { session_id: "ses", run_id: "r1", sequence: 1, kind: "chunk", chunk }));
  conversation.insert("Hi", "r1");
  conversation.insert("Hi", "r1");
  conversation.insert("Next", "r2");
  assert.deepEqual(conversation.items.map((item) => item.text), ["Hi", "Tea", "Next"]);
});

test("files come with messages, and with the results of calls on the stream and in storage", () => {
  const conversation = new Conversation("ses");
  const file = { kind: "image", media_type: "image/png", sha256: "a".repeat(64), size: 3, name: "a.png", after_text: 2 } as const;
  conversation.insert("Hi", "r1", [file]);
  conversation.load([{ ...about, role: "user", content: "Look", files: [file] }, answer("First.", 1, ["c1"])], none);
  const users = conversation.items.filter((item) => item.type === "user");
  assert.deepEqual(users.map((user) => user.files), [[file], [file]]);
  const chunk = { type: "tool_end", step: 1, tool_call_id: "c1", tool_name: "look", result: "seen", files: [file] };
  conversation.take(messageOf("ses", { session_id: "ses", run_id: "r1", sequence: 1, kind: "chunk", chunk }));
  assert.deepEqual(conversation.calls.get("c1")?.files.map(({ sha256, after_text }) => [sha256, after_text]), [[file.sha256, 2]]);
  const result = { ...about, role: "tool", tool_call_id: "c2", tool_name: "look", content: "seen", success: true, files: [file] } as const;
  conversation.load([answer("Then.", 2, ["c2"]), result], none);
  assert.deepEqual(conversation.calls.get("c2")?.files, [file]);
});

test("a message that was delivered before the page loaded does not wait again", () => {
  const conversation = new Conversation("ses");
  const about = { id: "m", run_id: "r1", created_at: 0, metadata: {}, files: [] };
  conversation.load([{ ...about, role: "user", content: "Hi", queued_id: "a" }], new Map());
  const take = (sequence: number, chunk: object) =>
    conversation.take({ stream_id: "ses", session_id: "ses", run_id: "r1", turn: 1, sequence, kind: "chunk", chunk, status: null, error: null } as never);
  for (const [n, id] of ["a", "b"].entries()) take(n + 1, { type: "message_queued", queued_id: id, content: id, state: "waiting", mode: "steer" });
  assert.deepEqual([...conversation.inbox.keys()], ["b"]);
  take(3, { type: "message_queued", queued_id: "b", content: "b", state: "delivered", mode: "steer" });
  assert.deepEqual([...conversation.inbox.keys()], []);
  const users = conversation.items.filter((item) => item.type === "user");
  assert.deepEqual(users.map(({ text, queuedId }) => [text, queuedId]), [["Hi", "a"], ["b", "b"]]);
});
