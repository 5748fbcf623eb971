// A page with an unmodified `useChat`, for the tests of the browser. `?url=`, `token=`, `agent=` and `chat=` say which chat.
// With `tools=`, the page has a tool of its own.
import { useChat } from "@ai-sdk/react";
import { HelixClient } from "@helix-agents/client";
import { HelixChatTransport } from "@helix-agents/client/ai-sdk";
import {
  lastAssistantMessageIsCompleteWithApprovalResponses,
  lastAssistantMessageIsCompleteWithToolCalls,
  validateUIMessages,
} from "ai";
import { createElement, useEffect } from "react";
import { createRoot } from "react-dom/client";

const asked = Object.fromEntries(new URLSearchParams(location.search));
const settings = { requestMs: 10_000, backoffMs: 10, backoffMaxMs: 50, reorderMs: 10, quietMs: 500 };
const client = HelixClient.connect(asked.url, { token: asked.token, settings });
const parameters = { type: "object", properties: { title: { type: "string" } }, required: ["title"] };
const tools = { set_title: { description: "Sets the title of the page.", parameters } };
const transport = new HelixChatTransport({ client, agent: asked.agent, ...(asked.tools && { tools }) });
// A page that loads is `ready` before it reads its run again: until that is over, a test must not take it for one at rest.
const atRest = () => {
  window.reconnected = true;
};
const reconnect = transport.reconnectToStream.bind(transport);
transport.reconnectToStream = async (options) => {
  let stream = null;
  try {
    return (stream = await reconnect(options));
  } finally {
    if (stream === null) atRest(); // otherwise the chat finishes its messages first
  }
};

function Page({ messages }) {
  const chat = useChat({
    id: asked.chat,
    transport,
    messages,
    resume: true,
    onFinish: atRest,
    sendAutomaticallyWhen: asked.tools
      ? lastAssistantMessageIsCompleteWithToolCalls
      : lastAssistantMessageIsCompleteWithApprovalResponses,
    onToolCall: ({ toolCall: { toolName: tool, toolCallId, input } }) => {
      if (asked.tools && tool === "set_title") void chat.addToolOutput({ tool, toolCallId, output: (document.title = input.title) });
    },
  });
  useEffect(() => {
    window.chat = chat;
    window.load = async () => chat.setMessages(await transport.messages(asked.chat));
  });
  return createElement("pre", null, JSON.stringify([chat.status, chat.error?.message, chat.messages]));
}

async function open() {
  const messages = await transport.messages(asked.chat);
  if (messages.length > 0) await validateUIMessages({ messages });
  createRoot(document.body.appendChild(document.createElement("main"))).render(createElement(Page, { messages }));
}

open().catch((error) => {
  throw error;
});
