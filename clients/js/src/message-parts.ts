// The parts of a message that a front end sends, in the form of its protocol: texts and files. `helix.http.message_parts` reads
// them the same way in Python. A part of another type, and a file that cannot be read, is refused by name and never dropped.
import { HelixError } from "./errors.ts";
import { BINARY, isLocal, kindOf, labelOf, type ReadContent, typeOfUrl } from "./files.ts";
import type { FilePart, UserMessage } from "./generated.ts";
import { sha256Of } from "./uploads.ts";

type Given = Readonly<Record<string, unknown>>;
type Kind = FilePart["kind"];
type Read = Omit<ReadContent["files"][number], "after_text">;

/** The provider of AG-UI sources, and the key of AI SDK metadata, that name a file by its hash. */
export const HELIX = "helix";
const SHA256 = /^[0-9a-f]{64}$/;
const DATA_URL = /^data:([^,]*?)(;base64)?,/i;
/** The kind of file that each media part of AG-UI must have. */
const MEDIA: Readonly<Record<string, Kind | undefined>> = { image: "image", audio: "audio", document: undefined, video: undefined };
const MAX_TYPE = 128;

/** Read the parts of an AI SDK message. A `file` has a `data:` or `https` URL, or the hash of a stored file in its metadata.
 *  Throws `invalid_file` and `invalid_input`. */
export const uiContent = (parts: readonly Given[]): ReadContent => contentOf(parts, uiFile);

/** Read the content of an AG-UI message: media parts of version 1.0, or `binary` of earlier versions. Throws the same. */
export function agUiContent(content: unknown): ReadContent {
  const parts = Array.isArray(content) ? (content as unknown[]) : [{ type: "text", text: content }];
  return contentOf(parts.map(objectOf), agUiFile);
}

/** A line break separates each text from the one before it, and a file keeps its place between them. */
function contentOf(parts: readonly Given[], read: (part: Given, number: number) => Read | undefined): ReadContent {
  const [texts, files] = [[] as string[], [] as ReadContent["files"]];
  for (const part of parts) {
    if (part["type"] === "text") {
      if (part["text"] != null) texts.push(String(part["text"]));
      continue;
    }
    const file = read(part, files.length + 1);
    if (file === undefined) {
      const type = String(part["type"]).slice(0, 40);
      const problem = `the newest message has a part of the type '${type}', which is not supported: send text and files`;
      throw new HelixError("invalid_input", problem);
    }
    files.push({ ...file, after_text: [...texts.join("\n")].length });
  }
  const text = texts.join("\n");
  if (text === "" && files.length === 0) throw new HelixError("invalid_input", "the newest message has no text and no files");
  return { text, files };
}

function uiFile(part: Given, number: number): Read | undefined {
  if (part["type"] !== "file") return undefined;
  const [name, type] = [textOf(part, "filename"), textOf(part, "mediaType")];
  const about = objectOf(objectOf(part["providerMetadata"])[HELIX]);
  const sha256 = about["sha256"];
  if (typeof sha256 === "string") return stored(sha256, type, name ?? textOf(about, "filename"), number);
  return atUrl(textOf(part, "url"), type, name, number, expected(type));
}

function agUiFile(part: Given, number: number): Read | undefined {
  const kind = String(part["type"]);
  if (kind === "binary") {
    const [name, type] = [textOf(part, "filename"), textOf(part, "mimeType")];
    const [data, url] = [textOf(part, "data"), textOf(part, "url")];
    if (data !== undefined) return decoded(data, type, name, number, expected(type));
    if (url !== undefined) return atUrl(url, type, name, number, expected(type));
    return stored(textOf(part, "id"), type, name, number);
  }
  if (!Object.hasOwn(MEDIA, kind)) return undefined;
  const source = objectOf(part["source"]);
  const [name, value, type] = [textOf(objectOf(part["metadata"]), "filename"), textOf(source, "value"), textOf(source, "mimeType")];
  if (source["type"] === "data") return decoded(value ?? "", type, name, number, MEDIA[kind]);
  if (source["type"] === "url") return atUrl(value, type, name, number, MEDIA[kind]);
  if (source["type"] === "file" && [undefined, null, HELIX].includes(source["provider"] as string)) {
    return stored(value, type, name, number);
  }
  const problem = `has a source of the type '${String(source["type"]).slice(0, 40)}', which is not supported`;
  throw refused(name, number, `${problem}: send data, an https URL, or the provider '${HELIX}' with the hash of a stored file`);
}

/** The file at a URL: the bytes of a `data:` URL, or a file that the model's provider reads. */
function atUrl(url = "", type: string | undefined, name: string | undefined, number: number, kind: Kind | undefined): Read {
  const data = DATA_URL.exec(url);
  if (data !== null) {
    if (data[2] === undefined) throw refused(name, number, "has a data URL without base64: send its bytes as `data:TYPE;base64,...`");
    return decoded(url.slice(data[0].length), type ?? data[1], name, number, kind);
  }
  if (!/^https:\/\/[^/]/i.test(url)) {
    throw refused(name, number, `has the URL '${url.slice(0, 80)}', which is not an https URL: give an https URL, or the bytes`);
  }
  const suggested = type?.includes("/") ? type : typeOfUrl(url);
  if (suggested !== undefined && kind !== undefined && kindOf(suggested) !== kind) {
    throw refused(name, number, `is ${suggested}, not ${kind}: send it with its own type, or convert it`);
  }
  const media_type = suggested ?? (kind === undefined ? BINARY : `${kind}/*`);
  return { input: { kind: kind ?? kindOf(media_type), media_type, url, ...(name !== undefined && { name }) } };
}

/** The bytes in strict base64. */
function decoded(text: string, type = "", name: string | undefined, number: number, kind: Kind | undefined): Read {
  const digits = text.replace(/={1,2}$/, "");
  if (text.length % 4 !== 0 || /[^A-Za-z0-9+/]/.test(digits)) {
    throw refused(name, number, "is not valid base64: encode its bytes without line breaks");
  }
  const plain = atob(text);
  const bytes = new Uint8Array(plain.length);
  for (let place = 0; place < plain.length; place += 1) bytes[place] = plain.charCodeAt(place);
  const about = { type: type.length > MAX_TYPE ? "" : type };
  return { input: name === undefined ? new Blob([bytes], about) : new File([bytes], name, about), kind };
}

/** A file that is stored already. The service checks whether the session may name it. */
function stored(sha256: string | undefined, type = BINARY, name: string | undefined, number: number): Read {
  if (sha256 === undefined || !SHA256.test(sha256)) {
    const problem = "has neither bytes, nor an https URL, nor the hash of a stored file: send one of these";
    throw refused(name, number, problem);
  }
  const media_type = type.includes("/") ? type : BINARY;
  return { input: { kind: kindOf(media_type), media_type, sha256, ...(name !== undefined && { name }) } };
}

/** The kind that the declared type requires. Browsers declare other types by the file's extension alone. */
function expected(type = ""): Kind | undefined {
  const kind = type.includes("/") ? kindOf(type.toLowerCase()) : type.trim().toLowerCase();
  return kind === "image" || kind === "audio" ? kind : undefined;
}

const refused = (name: string | undefined, number: number, problem: string): HelixError =>
  new HelixError("invalid_file", `${labelOf(name, number)} ${problem}`);

const objectOf = (value: unknown): Given => (typeof value === "object" && value !== null ? (value as Given) : {});

/** A field that must be a string. Undefined if it is missing or null. */
function textOf(given: Given, name: string): string | undefined {
  const value = given[name] ?? undefined;
  if (value === undefined || typeof value === "string") return value;
  throw new HelixError("invalid_file", `${name} of a file must be a string, not ${typeof value}`);
}

// --- stored messages --------------------------------------------------------------------------------------------------------

/** The texts and files of a stored message in order, as a page shows them. If the page sends them back, they make the same message,
 *  unless a file stands within a line. */
export function partsOf(content: string, files: readonly FilePart[]): (string | FilePart)[] {
  if (files.length === 0) return [content];
  const [text, found] = [[...content], [] as (string | FilePart)[]];
  let [begin, end] = [0, 0];
  for (const file of files) {
    const place = Math.min(file.after_text ?? 0, text.length);
    if (place > end) {
      found.push(text.slice(begin, place).join(""));
      end = place;
      begin = end + Number(text[end] === "\n"); // the line break comes back when the page sends the parts
    }
    found.push(file);
  }
  if (end < text.length) found.push(text.slice(begin).join(""));
  return found;
}

/** The content of a stored message as AG-UI has it. Stored files are named by their hash. */
export function agUiParts(content: string, files: readonly FilePart[] = []): unknown {
  if (files.length === 0) return content;
  return partsOf(content, files).map((part) => (typeof part === "string" ? { type: "text", text: part } : agUiMedia(part)));
}

function agUiMedia({ media_type, name, sha256, url }: FilePart): object {
  const top = media_type.split("/")[0] ?? "";
  const type = ["image", "audio", "video"].includes(top) ? top : "document";
  const source = url == null ? { type: "file", value: sha256, provider: HELIX } : { type: "url", value: url };
  return { type, source: { ...source, mimeType: media_type }, ...(name != null && { metadata: { filename: name } }) };
}

/** Whether a stored message has that text, and those files at the same places. */
export async function isSame(message: UserMessage, { text, files }: ReadContent): Promise<boolean> {
  const before = message.files ?? [];
  if (message.content !== text || before.length !== files.length) return false;
  if (files.some(({ after_text }, n) => after_text !== (before[n]?.after_text ?? 0))) return false;
  for (const [n, { input }] of files.entries()) {
    const key = isLocal(input) ? await sha256Of(input) : (input.sha256 ?? input.url);
    if (key !== (before[n]?.sha256 ?? before[n]?.url)) return false;
  }
  return true;
}
