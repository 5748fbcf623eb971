// A page with an unmodified `useChat` and the transport of the AI SDK, on the HTTP app of `helix.http`.
import { useChat } from "@ai-sdk/react";
import {
  DefaultChatTransport,
  lastAssistantMessageIsCompleteWithApprovalResponses as approvalsGiven,
  lastAssistantMessageIsCompleteWithToolCalls as callsEnded,
} from "ai";
import { useEffect, useState } from "react";
import { draw, Panel } from "./panels.jsx";
import { show_map, showMap } from "./scenes.js";

const api = "/agents/desk/ai-sdk";
const transport = new DefaultChatTransport({ api, body: { tools: { show_map } } });

function Scene({ scene }) {
  const [inbox, setInbox] = useState({}); // the messages that wait: their ids in the inbox, by their ids on the page
  const chat = useChat({
    id: scene.session,
    transport,
    sendAutomaticallyWhen: (about) => approvalsGiven(about) || callsEnded(about),
    onToolCall: ({ toolCall: { toolName: tool, toolCallId, input } }) => {
      if (tool === "show_map") void chat.addToolOutput({ tool, toolCallId, output: showMap(input) });
    },
    onData: ({ type, data }) => {
      if (type !== "data-message-queued") return;
      setInbox(({ [data.message_id]: _, ...others }) => (data.state === "waiting" ? { ...others, [data.message_id]: data.queued_id } : others));
    },
  });
  const withdraw = async (message) => {
    const taken = await fetch(`${api}/${scene.session}/inbox/${inbox[message]}`, { method: "DELETE" });
    if ((await taken.json()).withdrawn === "withdrawn") chat.setMessages((all) => all.filter(({ id }) => id !== message));
  };
  const busy = chat.status === "submitted" || chat.status === "streaming";
  const items = itemsOf(chat, inbox, withdraw, busy);
  const elsewhere = items.some(({ state }) => state === "elsewhere");
  useEffect(() => {
    // Another system ends the call, which starts another run: look for it.
    const looking = elsewhere && setInterval(() => void chat.resumeStream(), 1000);
    return () => clearInterval(looking);
  }, [elsewhere]);
  return (
    <Panel
      scene={scene}
      items={items}
      busy={busy}
      send={(text, how) => void chat.sendMessage({ text }, { body: how && { when_running: how } })}
      stop={() => void fetch(`${api}/${scene.session}/stream`, { method: "DELETE" })}
    />
  );
}

function itemsOf(chat, inbox, withdraw, busy) {
  const items = [];
  let agent = "desk";
  const steered = new Set();
  for (const { parts } of chat.messages) for (const part of parts) if (part.type === "data-message-queued") steered.add(part.data.message_id);
  for (const { id, role, parts } of chat.messages) {
    const last = chat.messages.at(-1)?.id === id;
    if (role === "user") {
      const user = parts.map(({ text = "" }) => text).join("");
      if (!steered.has(id)) items.push({ user, ...(id in inbox && { waits: true, withdraw: () => void withdraw(id) }) });
      continue;
    }
    for (const part of parts) {
      if (part.type === "text") items.push({ agent, text: part.text });
      else if (part.type === "data-answer-cut") items.at(-1).cut = true;
      else if (part.type === "data-message-queued") items.push({ user: part.data.content });
      else if (part.type === "data-output") items.push({ agent, output: part.data });
      else if (part.type === "dynamic-tool") {
        items.push(callOf(chat, part, busy));
        agent = part.output?.transferred_to ?? agent;
      }
    }
    if (last && chat.error) items.push({ note: chat.error.message });
  }
  return items;
}

function callOf(chat, { toolName: call, toolCallId, state, input, output, errorText, approval }, busy) {
  if (state === "approval-requested") {
    return { call, input, approve: (approved) => void chat.addToolApprovalResponse({ id: approval.id, approved }) };
  }
  if (call === "question" && state === "input-available") {
    return { questions: input.questions, answer: (given) => void chat.addToolOutput({ tool: call, toolCallId, output: given }) };
  }
  if (call === "question") return { call, input: {}, state: state === "output-available" ? "done" : "failed", result: answersOf(output) };
  if (state === "output-available" && output?.status === "paused") return { call, input, state: "asks" };
  if (state === "output-available") return { call, input, state: "done", result: output };
  if (errorText !== undefined || state === "output-denied") return { call, input, state: "failed", result: errorText ?? "denied" };
  return { call, input, state: busy ? "running" : "elsewhere" };
}

const answersOf = (output) => [output].flat().map((one) => one?.answer ?? one);

draw("useChat of the AI SDK", Scene);
