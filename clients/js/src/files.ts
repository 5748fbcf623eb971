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
  files: { input: LocalFile | FilePart; after_text: number }[];
}

/** The service's limit for one file, in bytes. Hashing needs a file in memory, so a larger one is refused before. */
export const MAX_FILE_BYTES = 50 * 1024 * 1024;

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
export function label(input: LocalFile, number?: number): string {
  const name = nameOf(input);
  if (name !== undefined) return `file '${name}'`;
  return number === undefined ? "the file" : `file ${number} of the message`;
}

export const nameOf = (input: LocalFile): string | undefined =>
  "name" in input && typeof input.name === "string" && input.name !== "" ? input.name : undefined;

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

function urlPart({ url, name, type }: Partial<UrlFile> & { url: string }): FilePart {
  const extension = EXTENSION.exec(url)?.[1]?.toLowerCase() ?? "";
  const media_type = type ?? TYPES[extension] ?? "application/octet-stream";
  const kind = DOCUMENT.test(media_type) ? "document" : (/^(image|audio)\//.exec(media_type)?.[1] ?? "file");
  return { kind: kind as FilePart["kind"], media_type, url, ...(name !== undefined && { name }) };
}
