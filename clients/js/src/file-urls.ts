// Files on a page of the AI SDK. A stored file has no address of its own: the service makes one, which works for a while.
import type { FileUIPart } from "ai";
import type { HelixClient } from "./client.ts";
import { HelixError } from "./errors.ts";
import type { FilePart } from "./generated.ts";
import { HELIX } from "./message-parts.ts";

/** Requests for addresses at the same time. */
const AT_ONCE = 8;
/** The page loads without the address of a file whose bytes are gone, or that the service cannot send. */
const WITHOUT: ReadonlySet<string> = new Set(["file_missing", "invalid_file"]);

/** The part of a file of a user's message. That of a stored file has its hash in the metadata, and no URL yet. */
export const uiFile = ({ media_type, name, sha256, url }: FilePart): FileUIPart => ({
  ...{ type: "file", mediaType: media_type, ...(name != null && { filename: name }), url: url ?? "" },
  ...(sha256 != null && { providerMetadata: { [HELIX]: { sha256 } } }),
});

/** The parts of the files of a call's result, without URLs. `shownId`: the id of the call on the page. */
export const resultFiles = (files: readonly FilePart[], sessionId: string, shownId: string): FileUIPart[] =>
  files.map(({ media_type, name, sha256, url }) => {
    const about = { toolCallId: shownId, sessionId, ...(sha256 != null && { sha256 }), ...(name != null && { filename: name }) };
    return { type: "file", url: url ?? "", mediaType: media_type, providerMetadata: { [HELIX]: about } };
  });

/** Give the parts of stored files their addresses. `session_id`: the session that holds the files of the user's messages. */
export async function addUrls(client: HelixClient, session_id: string, parts: readonly { type: string }[]): Promise<void> {
  const waiting = new Map<string, FileUIPart[]>();
  for (const part of parts.filter((one): one is FileUIPart => one.type === "file")) {
    const { sha256, sessionId = session_id, filename = part.filename } = part.providerMetadata?.[HELIX] ?? {};
    if (typeof sha256 !== "string" || part.url !== "") continue;
    const key = JSON.stringify([sessionId, sha256, filename ?? null]);
    waiting.set(key, [...(waiting.get(key) ?? []), part]);
  }
  const entries = waiting.entries();
  const work = async (): Promise<void> => {
    for (const [key, found] of entries) {
      const url = await urlOf(client, ...(JSON.parse(key) as [string, string, string | null]));
      for (const part of found) part.url = url;
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, work));
}

async function urlOf(client: HelixClient, session_id: string, sha256: string, name: string | null): Promise<string> {
  try {
    return (await client.fileUrl(session_id, { sha256, name, url: null })).url;
  } catch (error) {
    if (error instanceof HelixError && WITHOUT.has(error.code)) return "";
    throw error;
  }
}
