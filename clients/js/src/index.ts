export { HelixClient, type Action, type ConnectOptions, type Fields } from "./client.ts";
export { HelixError, type ErrorCode } from "./errors.ts";
export type * from "./generated.ts";
export { RunHandle } from "./handle.ts";
export type { Token } from "./link.ts";
export { applyPatches, type Json, type JsonObject } from "./patches.ts";
export { type ClientSettings, SETTINGS } from "./settings.ts";
export { type ProjectorOptions, StateProjector, type StateSnapshot } from "./state.ts";
export { chunkOf } from "./wire.ts";
