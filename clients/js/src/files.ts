// The content of a message: its text, and its files with their positions. The same content always becomes the same message.
import { HelixError } from "./errors.ts";
import type { FilePart } from "./generated.ts";

/** A file at an `https` URL, which the model's provider reads. `type`: its media type; default: the one that the URL's
 *  extension suggests. */
export interface UrlFile {
  url: string;
  name?: string;
  type?: string;
}

/** Bytes to upload. A `File` has a name; a `Blob` and an array have none. */
export type LocalFile = Blob | Uint8Array;
/** A file of a message: bytes, a URL, or a file that is stored already, such as one that `upload` returned. */
export type FileInput = LocalFile | UrlFile | FilePart;
/** The content of a message: a text, bytes, or a list of texts and files. Texts become paragraphs. */
export type Content = string | LocalFile | readonly (string | FileInput)[];

/** The content of a message. `after_text` is a number of code points. */
export interface ReadContent {
  text: string;
  /** `kind`: the kind that the bytes must have; undefined for any. */
  files: { input: LocalFile | FilePart; after_text: number; kind?: FilePart["kind"] | undefined }[];
}

/** The service's limit for one file, in bytes. Hashing needs a file in memory, so a larger one is refused before. */
export const MAX_FILE_BYTES = 50 * 1024 * 1024;

/** The type of bytes that are of no known type. */
export const BINARY = "application/octet-stream";
const TYPES: Record<string, string> = {
  png: "image/png",
  jpg: "image/jpeg",
  jpeg: "image/jpeg",
  gif: "image/gif",
  webp: "image/webp",
  wav: "audio/wav",
  mp3: "audio/mpeg",
  pdf: "application/pdf",
  txt: "text/plain",
  md: "text/markdown",
  csv: "text/csv",
  html: "text/html",
  json: "application/json",
};
const DOCUMENT = /^(text\/|application\/(pdf|json|x-ndjson|yaml|xml|rtf|msword|epub\+zip|vnd\.(ms-|openxml|oasis))|image\/svg)/;
const EXTENSION = /^https:\/\/[^/]+\/[^?#]*\.(\w+)(?:[?#]|$)/;

export const isContent = (value: unknown): value is Content =>
  typeof value === "string" || Array.isArray(value) || isLocal(value);

export const isLocal = (value: unknown): value is LocalFile => value instanceof Blob || value instanceof Uint8Array;

/** The designation of a file in errors: its name, else its number in the message. */
export const label = (input: LocalFile, number?: number): string => labelOf(nameOf(input), number);

export function labelOf(name: string | undefined, number?: number): string {
  if (name !== undefined) return `file '${name}'`;
  return number === undefined ? "the file" : `file ${number} of the message`;
}

export const nameOf = (input: LocalFile): string | undefined =>
  "name" in input && typeof input.name === "string" && input.name !== "" ? input.name : undefined;

/** The most files of one message. */
const MAX_FILES = 50;
/** The most bytes of all files of one message. */
const MAX_MESSAGE_BYTES = 50 * 1024 * 1024;

/** A message as a mapping. */
export interface GivenMessage {
  content: ReadContent;
  state: Record<string, unknown> | undefined;
}

/** Read a message that is a mapping with the key `message`. Rejects other keys, and files that are not stored and at no URL,
 *  with `invalid_input`. */
export function readMapping(given: Record<string, unknown>): GivenMessage {
  const unknown = Object.keys(given).filter((name) => !["message", "state", "files"].includes(name));
  if (unknown.length > 0) {
    const names = unknown.map((name) => `'${name}'`).join(", ");
    const advice = "use the options of `run` for others";
    throw new HelixError("invalid_input", `a message as a mapping has only the keys 'message', 'state' and 'files', not ${names}: ${advice}`);
  }
  const { message, state, files } = given as { message: unknown; state?: Record<string, unknown> | null; files?: unknown };
  if (files == null || (Array.isArray(files) && files.length === 0)) {
    if (isContent(message)) return { content: readContent(message), state: state ?? undefined };
    throw new HelixError("invalid_input", "message: give a string, or a list of texts and files");
  }
  if (typeof message !== "string") throw new HelixError("invalid_input", "message: give a string beside 'files'");
  if (!Array.isArray(files) || !files.every((file) => typeof file?.kind === "string")) {
    throw new HelixError("invalid_input", "files: give a list of stored files, such as those that `upload` returned");
  }
  const parts = (files as FilePart[]).map((input) => ({ input, after_text: input.after_text ?? 0 }));
  return { content: { text: message, files: parts }, state: state ?? undefined };
}

/** Reject with `invalid_file` a local file that breaks a limit, and files that are too many or too large together. Bytes that
 *  are given twice count once. */
export function checkMessage(files: ReadContent["files"]): void {
  const sizes = new Map<unknown, number>();
  files.forEach(({ input }, index) => {
    if (!isLocal(input)) return void sizes.set(input.sha256, input.size ?? 0);
    checkSize(input, label(input, index + 1));
    sizes.set(input, sizeOf(input));
  });
  if (files.length > MAX_FILES) {
    const limit = `it takes at most ${MAX_FILES}: send the others in another message`;
    throw new HelixError("invalid_file", `the message has ${files.length} files; ${limit}`);
  }
  const total = [...sizes.values()].reduce((sum, size) => sum + size, 0);
  if (total <= MAX_MESSAGE_BYTES) return;
  const limit = `the limit is ${MAX_MESSAGE_BYTES}: send some of them in another message`;
  throw new HelixError("invalid_file", `the files of the message have ${total} bytes together; ${limit}`);
}

const sizeOf = (file: LocalFile): number => (file instanceof Blob ? file.size : file.length);

/** Reject an empty file and one that is too large. `what` designates the file. */
export function checkSize(file: LocalFile, what: string): void {
  const size = sizeOf(file);
  if (size === 0) throw new HelixError("invalid_file", `${what} is empty: attach a file with content`);
  if (size <= MAX_FILE_BYTES) return;
  const limit = `a file has at most ${MAX_FILE_BYTES}: make it smaller, or divide it`;
  throw new HelixError("invalid_file", `${what} has ${size} bytes; ${limit}`);
}

/** Divide content into its text and its files. Rejects an item of another type with `invalid_input`. */
export function readContent(content: Content): ReadContent {
  const items: readonly unknown[] = typeof content === "string" || isLocal(content) ? [content] : content;
  const found: ReadContent = { text: "", files: [] };
  let length = 0;
  items.forEach((item, index) => {
    if (typeof item === "string") {
      const joint = found.text !== "" && item !== "" ? "\n" : "";
      found.text += joint + item;
      length += joint.length + [...item].length;
    } else found.files.push({ input: inputOf(item, index + 1), after_text: length });
  });
  return found;
}

function inputOf(item: unknown, number: number): LocalFile | FilePart {
  if (isLocal(item)) return item;
  const given = (typeof item === "object" && item !== null ? item : {}) as Partial<UrlFile & FilePart>;
  if (typeof given.kind === "string") return item as FilePart;
  if (typeof given.url === "string") return urlPart({ ...given, url: given.url });
  const wanted = "a string, a Blob, a File, a Uint8Array, {url} or a stored file";
  throw new HelixError("invalid_input", `part ${number} of the message is not content: give ${wanted}`);
}

/** The type that the extension of a URL suggests. */
export const typeOfUrl = (url: string): string | undefined => TYPES[EXTENSION.exec(url)?.[1]?.toLowerCase() ?? ""];

/** The way in which a model takes files of this type. */
export const kindOf = (type: string): FilePart["kind"] =>
  DOCUMENT.test(type) ? "document" : ((/^(image|audio)\//.exec(type)?.[1] ?? "file") as FilePart["kind"]);

export function urlPart({ url, name, type }: Partial<UrlFile> & { url: string }): FilePart {
  const media_type = type ?? typeOfUrl(url) ?? BINARY;
  return { kind: kindOf(media_type), media_type, url, ...(name !== undefined && { name }) };
}
