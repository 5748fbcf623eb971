// The parts of the AI SDK for the calls that the provider executed, and for the sources of an answer. `helix.stream.ui_calls` and
// `helix.http.messages` make the same parts in Python.
import type { DynamicToolUIPart, SourceDocumentUIPart, SourceUrlUIPart } from "ai";
import type { AgUiCall, AgUiMessage } from "./ag-ui-messages.ts";
import { type Call, loadServed, type Source, Step } from "./conversation/items.ts";
import { Conversation } from "./conversation/conversation.ts";
import type { AssistantMessage } from "./generated.ts";

/** The field of the parts of a call that the provider executed, for which a page does not wait. */
export const executedBy = (call: Call): { providerExecuted?: true } => (call.served ? { providerExecuted: true } : {});

/** The part of a source. `number` counts the sources of the step's text from 1. */
export function sourcePart(step: number, number: number, { url, title }: Source): SourceUrlUIPart | SourceDocumentUIPart {
  const sourceId = `${step}/source/${number}`;
  if (url && /^https?:\/\//.test(url)) return { type: "source-url", sourceId, url, ...(title && { title }) };
  return { type: "source-document", sourceId, mediaType: "text/plain", title: title || url || "a document" };
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

export const agUiCall = (id: string, name: string, given: string): AgUiCall => ({ id, type: "function", function: { name, arguments: given } });

/** The calls of a stored answer for AG-UI, and the messages with their results. */
export function servedMessages(answer: AssistantMessage): { calls: AgUiCall[]; results: AgUiMessage[] } {
  const { calls } = servedParts(answer);
  return {
    calls: calls.map(({ toolCallId, toolName, input }) => agUiCall(toolCallId, toolName, JSON.stringify(input))),
    results: calls.map((call) => {
      const given: unknown = call.state === "output-error" ? call.errorText : call.output;
      const content = typeof given === "string" ? given : JSON.stringify(given);
      return { id: `${call.toolCallId}/result`, role: "tool", toolCallId: call.toolCallId, content };
    }),
  };
}
