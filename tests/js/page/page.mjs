// A page with an unmodified `useChat`, for test_browser.py. `?url=` is the service's.
import { useChat } from "@ai-sdk/react";
import { HelixClient } from "@helix-agents/client";
import { HelixChatTransport } from "@helix-agents/client/ai-sdk";
import { createElement, useEffect } from "react";
import { createRoot } from "react-dom/client";

const settings = { requestMs: 3_000, backoffMs: 10, backoffMaxMs: 50, reorderMs: 10, quietMs: 200 };
const client = HelixClient.connect(new URLSearchParams(location.search).get("url"), { settings });
const transport = new HelixChatTransport({ client, agent: "helper" });

function Page() {
  const chat = useChat({ id: "chat", transport, resume: true });
  useEffect(() => {
    window.chat = chat;
  });
  return createElement("pre", { id: "shown" }, JSON.stringify([chat.status, chat.error?.message, chat.messages]));
}

createRoot(document.body.appendChild(document.createElement("main"))).render(createElement(Page));
