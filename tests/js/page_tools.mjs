// Front ends with tools of their own, as their packages send them: `node page_tools.mjs URL`. Prints what each has in the end.
import { HttpAgent } from "@ag-ui/client";
import { AbstractChat, DefaultChatTransport, lastAssistantMessageIsCompleteWithToolCalls } from "ai";
import * as v6 from "ai-v6";
import { plainChat } from "./chat.mjs";

const [url] = process.argv.slice(2);
const parameters = { type: "object", properties: { place: { type: "string" } }, required: ["place"] };
const show_map = { description: "Shows a place on the map.", parameters };

/** `useChat`, whose transport sends the page's tools as the `AssistantChatTransport` of assistant-ui does. */
async function chat(sdk, encoding) {
  const Chat = plainChat(sdk.AbstractChat);
  const [errors, called] = [[], []];
  let tools = { show_map };
  const transport = new sdk.DefaultChatTransport({
    api: `${url}/desk/${encoding}`,
    prepareSendMessagesRequest: ({ id, messages, trigger, messageId, body }) => ({
      body: { callSettings: undefined, system: undefined, tools, ...body, id, messages, trigger, messageId },
    }),
  });
  const one = new Chat({
    id: encoding,
    transport,
    sendAutomaticallyWhen: sdk.lastAssistantMessageIsCompleteWithToolCalls,
    onError: (error) => errors.push(error.message),
    onToolCall: ({ toolCall: { toolName: tool, toolCallId, input } }) => {
      called.push([tool, input]);
      if (tool === "show_map") void one.addToolOutput({ tool, toolCallId, output: { shown: input.place } });
    },
  });
  const ready = () => one.status === "ready" && one.messages.at(-1).parts.at(-1)?.type === "text";
  await one.sendMessage({ text: "Where is Oslo?" });
  for (let tries = 0; !ready() && errors.length === 0 && tries < 1000; tries += 1) await new Promise((next) => setTimeout(next, 10));
  const { messages } = one;
  tools = { refund: show_map };
  await one.sendMessage({ text: "And Bergen?" });
  return { messages, called, errors };
}

/** `HttpAgent`: a run that ends with calls of the page's tools, whose results are the messages of the next run. */
async function agent() {
  const one = new HttpAgent({ url: `${url}/desk/ag-ui`, threadId: "thread" });
  const tools = [{ name: "show_map", ...show_map }];
  const outcomes = [];
  one.subscribe({ onRunFinishedEvent: ({ outcome, pendingToolCallIds }) => void outcomes.push([outcome, pendingToolCallIds]) });
  one.addMessage({ id: "u1", role: "user", content: "Where is Oslo?" });
  await one.runAgent({ tools });
  const calls = one.messages.at(-1).toolCalls;
  const waiting = one.pendingInterrupts;
  one.addMessage({ id: "t1", role: "tool", toolCallId: calls[0].id, content: "shown" });
  await one.runAgent({ tools });
  one.addMessage({ id: "u2", role: "user", content: "And Bergen?" });
  await one.runAgent({ tools });
  one.addMessage({ id: "t2", role: "tool", toolCallId: one.messages.at(-1).toolCalls[0].id, content: "", error: "no map" });
  await one.runAgent({ tools });
  return { waiting, outcomes, messages: one.messages };
}

const ui = await chat({ AbstractChat, DefaultChatTransport, lastAssistantMessageIsCompleteWithToolCalls }, "ai-sdk");
process.stdout.write(JSON.stringify({ ui, ui6: await chat(v6, "ai-sdk-v6"), agent: await agent() }));
