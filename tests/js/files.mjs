// Files in the messages of the front ends' own clients: `node files.mjs URL`. Prints what each has in the end, as JSON.
import { HttpAgent } from "@ag-ui/client";
import { AbstractChat, DefaultChatTransport } from "ai";
import { plainChat } from "./chat.mjs";

const [url] = process.argv.slice(2);
const Chat = plainChat(AbstractChat);
const data = Buffer.from("A note.").toString("base64");

async function chat() {
  const errors = [];
  const page = (messages) =>
    new Chat({
      id: "chat",
      messages,
      transport: new DefaultChatTransport({ api: `${url}/desk/ai-sdk` }),
      onError: (error) => errors.push(String(error)),
    });
  const file = { type: "file", mediaType: "text/plain", filename: "a.txt", url: `data:text/plain;base64,${data}` };
  await page().sendMessage({ text: "Read this", files: [file] });
  const { messages } = await (await fetch(`${url}/desk/ai-sdk/chat/messages`)).json();
  const late = page(messages); // a page that loads, and asks for another answer
  await late.regenerate();
  const part = messages[0].parts.find(({ type }) => type === "file");
  const saved = await fetch(new URL(part.url, url));
  return { messages: late.messages, saved: await saved.text(), errors };
}

async function agent() {
  const one = new HttpAgent({ url: `${url}/desk/ag-ui`, threadId: "thread" });
  const note = { type: "document", source: { type: "data", value: data, mimeType: "text/plain" }, metadata: { filename: "a.txt" } };
  one.addMessage({ id: "u1", role: "user", content: [{ type: "text", text: "Read this" }, note] });
  await one.runAgent();
  const { messages } = await (await fetch(`${url}/desk/ag-ui/thread/messages`)).json();
  const late = new HttpAgent({ url: `${url}/desk/ag-ui`, threadId: "thread" });
  const file = messages[0].content[1];
  late.setMessages([{ ...messages[0], content: [{ type: "text", text: "Read it again" }, file] }]);
  await late.runAgent(); // an edit: the run goes back, and begins with a snapshot of all messages
  late.addMessage({ id: "u2", role: "user", content: [file] });
  await late.runAgent();
  return { file, messages: late.messages };
}

process.stdout.write(JSON.stringify({ chat: await chat(), agent: await agent() }));
