// The names that the client gives to what is on the wire.
import { chunkOf, type HelixClient, type Pending, type StreamChunk, type ToolCallRequest, type Usage } from "../../js/src/index.ts";

export { chunkOf };
export type { Pending, StreamChunk, ToolCallRequest, Usage };
export type { Replies as Results } from "../../js/src/index.ts";
export type StreamMessage = Parameters<typeof chunkOf>[0];
export type Message = Awaited<ReturnType<HelixClient["getSnapshot"]>>["messages"][number];
export type ListedSession = Awaited<ReturnType<HelixClient["listSessions"]>>["sessions"][number];

/** Who changed the arguments of a call before it was executed; `at` in Unix seconds. */
export interface Edit {
  by: string | null;
  at: number;
}
