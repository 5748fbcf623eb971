// The front ends' own clients against a server: `node talk.mjs URL`. Prints what each has in the end, as JSON.
import { HttpAgent } from "@ag-ui/client";
import { AbstractChat, DefaultChatTransport, lastAssistantMessageIsCompleteWithApprovalResponses } from "ai";
import { plainChat } from "./chat.mjs";

const [url] = process.argv.slice(2);

const Chat = plainChat(AbstractChat);

async function chat() {
  const page = () =>
    new Chat({
      id: "chat",
      transport: new DefaultChatTransport({ api: `${url}/desk/ai-sdk` }),
      sendAutomaticallyWhen: lastAssistantMessageIsCompleteWithApprovalResponses,
      onError: (error) => errors.push(String(error)),
    });
  const errors = [];
  const one = page();
  await one.sendMessage({ text: "Refund o1" });
  const asked = one.lastMessage.parts.find((part) => part.state === "approval-requested");
  const done = new Promise((resolve) => {
    const look = () => (one.status === "ready" && one.lastMessage.parts.at(-1).type === "text" ? resolve() : setTimeout(look, 10));
    setTimeout(look, 10);
  });
  await one.addToolApprovalResponse({ id: asked.approval.id, approved: true });
  await done;
  const late = page();
  await late.resumeStream(); // the run is over: its message is shown again
  return { messages: one.messages, late: late.messages, errors };
}

async function agent() {
  const one = new HttpAgent({ url: `${url}/desk/ag-ui`, threadId: "thread" });
  one.addMessage({ id: "u1", role: "user", content: "Refund o2" });
  await one.runAgent();
  const waiting = one.pendingInterrupts;
  await one.runAgent({
    resume: waiting.map(({ id }) => ({ interruptId: id, status: "resolved", payload: { approved: true } })),
  });
  return { waiting, messages: one.messages };
}

/** A known id with another text. */
async function edited() {
  const one = new HttpAgent({ url: `${url}/desk/ag-ui`, threadId: "edited" });
  one.addMessage({ id: "u1", role: "user", content: "Refund o2" });
  await one.runAgent();
  await one.runAgent({ resume: one.pendingInterrupts.map(({ id }) => ({ interruptId: id, status: "cancelled" })) });
  one.setMessages([{ ...one.messages[0], content: "Refund o3" }]);
  await one.runAgent();
  await one.runAgent({ resume: one.pendingInterrupts.map(({ id }) => ({ interruptId: id, status: "cancelled" })) });
  return { messages: one.messages };
}

process.stdout.write(JSON.stringify({ chat: await chat(), agent: await agent(), edited: await edited() }));
