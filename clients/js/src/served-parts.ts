// The parts of the AI SDK for the calls that the provider executed, and for the sources of an answer. `helix.stream.ui_calls` and
// `helix.http.messages` make the same parts in Python.
import type { DynamicToolUIPart, SourceDocumentUIPart, SourceUrlUIPart } from "ai";
import { type Call, loadServed, type Source, Step } from "./conversation/items.ts";
import { Conversation } from "./conversation/conversation.ts";
import type { AssistantMessage } from "./generated.ts";

/** The field of the parts of a call that the provider executed, for which a page does not wait. */
export const executedBy = (call: Call): { providerExecuted?: true } => (call.served ? { providerExecuted: true } : {});

/** The part of a source. `number` counts the sources of the step's text from 1. */
export function sourcePart(step: number, number: number, { url, title }: Source): SourceUrlUIPart | SourceDocumentUIPart {
  const sourceId = `${step}/source/${number}`;
  if (url) return { type: "source-url", sourceId, url, ...(title && { title }) };
  return { type: "source-document", sourceId, mediaType: "text/plain", title: title || "a document" };
}

/** The parts of a stored answer: its calls, and its sources. */
export function servedParts(answer: AssistantMessage): { calls: DynamicToolUIPart[]; sources: ReturnType<typeof sourcePart>[] } {
  const step = new Step(new Conversation(""), null, answer.step ?? 0, 0);
  loadServed(step, answer);
  const calls = [...step.served.values()].map(({ id, name, arguments: input, result, error }): DynamicToolUIPart => {
    const about = { type: "dynamic-tool", toolName: name, toolCallId: id, input, providerExecuted: true } as const;
    return error === null
      ? { ...about, state: "output-available", output: result }
      : { ...about, state: "output-error", errorText: error };
  });
  return { calls, sources: step.sources.map((source, at) => sourcePart(step.step, at + 1, source)) };
}
