// A call as a task of the protocol 2025-11-25, by the official client: prints what its stream brings, as JSON.
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { ElicitRequestSchema, TaskStatusNotificationSchema } from "@modelcontextprotocol/sdk/types.js";

const [url, name, text] = process.argv.slice(2);
const client = new Client({ name: "helix-tests", version: "1" }, { capabilities: { elicitation: {}, tasks: {} } });
const changes = [];
const asked = [];
client.setNotificationHandler(TaskStatusNotificationSchema, ({ params }) => void changes.push(params.status));
client.setRequestHandler(ElicitRequestSchema, ({ params }) => {
  asked.push(params.message);
  return { action: "accept", content: { approve: true } };
});
await client.connect(new StreamableHTTPClientTransport(new URL(url)));
await client.listTools();
const tasks = client.experimental.tasks;
const brought = [];
const call = { name, arguments: JSON.parse(text) };
for await (const message of tasks.callToolStream(call, undefined, { task: { ttl: 60_000 } })) {
  brought.push(message);
}
const { taskId } = brought[0].task;
const found = await tasks.getTask(taskId);
const refused = await tasks.cancelTask(taskId).then(() => null, (error) => error.code);
console.log(JSON.stringify({ brought, changes, asked, found, refused, capability: client.getServerCapabilities().tasks }));
await client.close();
