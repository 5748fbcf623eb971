// The names that the client gives to what is on the wire.
import { chunkOf, type HelixClient, type StreamChunk, type Usage } from "../../js/src/index.ts";

export { chunkOf };
export type { StreamChunk, Usage };
export type { Replies as Results } from "../../js/src/index.ts";
export type StreamMessage = Parameters<typeof chunkOf>[0];
export type Message = Awaited<ReturnType<HelixClient["getSnapshot"]>>["messages"][number];
export type ListedSession = Awaited<ReturnType<HelixClient["listSessions"]>>["sessions"][number];
