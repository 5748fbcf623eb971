// Files that are attached to a message which is not sent yet. A file is uploaded as soon as it is attached. The stored ones
// are in the draft, so that they outlast a reload.
import { type Signal, signal } from "@preact/signals";
import type { FilePart } from "../../js/src/index.ts";
import { freshSession } from "../../js/src/settings.ts";
import { HelixError, said, service } from "./api.ts";
import { changeDraft, draftOf } from "./drafts.ts";

export interface Attachment {
  readonly id: number;
  readonly name: string;
  /** In bytes. */
  readonly size: number;
  readonly mediaType: string;
  /** The address of a preview of an image, which exists as long as the attachment. */
  readonly preview: string | undefined;
  /** The part of the bytes that was sent, 0 to 1. */
  readonly sent: number;
  /** The stored file. Undefined until it is stored. */
  readonly part: FilePart | undefined;
  /** Why it was not stored. Empty if there is no problem. */
  readonly problem: string;
  /** Whether another attempt may succeed. */
  readonly retry: boolean;
}

/** Images that every browser shows. */
const PREVIEWED = new Set(["image/png", "image/jpeg", "image/gif", "image/webp"]);
const UPLOAD_ENDS = new Set(["timeout", "connection_lost", "closed"]);

interface Held {
  file: File;
  stop: AbortController;
}

const places = new Map<string, Signal<readonly Attachment[]>>();
const held = new Map<number, Held>();
let count = 0;

/** The attachments of a draft, in the order in which they were attached. */
export function attachmentsOf(place: string): Signal<readonly Attachment[]> {
  const found = places.get(place) ?? signal<readonly Attachment[]>((draftOf(place).value.files ?? []).map(restored));
  places.set(place, found);
  return found;
}

/** Attach files and upload them. `session`: the session whose message will name them; undefined for a new chat. */
export function attach(place: string, files: Iterable<File>, session: string | undefined): void {
  for (const file of files) {
    count += 1;
    const preview = PREVIEWED.has(file.type) ? URL.createObjectURL(file) : undefined;
    const state = { sent: 0, part: undefined, problem: "", retry: false };
    const made: Attachment = { id: count, name: file.name, size: file.size, mediaType: file.type, preview, ...state };
    held.set(count, { file, stop: new AbortController() });
    attachmentsOf(place).value = [...attachmentsOf(place).value, made];
    void upload(place, made.id, session);
  }
}

/** Upload a file again that was not stored. */
export function uploadAgain(place: string, id: number, session: string | undefined): void {
  change(place, id, { sent: 0, problem: "", retry: false });
  void upload(place, id, session);
}

export function detach(place: string, id: number): void {
  release(attachmentsOf(place).value.filter((one) => one.id === id));
  write(place, attachmentsOf(place).value.filter((one) => one.id !== id));
}

/** Take the stored files off a draft, to send them. */
export function takeAttachments(place: string): { files: FilePart[]; session?: string } {
  const taken = attachmentsOf(place).value;
  const { session } = draftOf(place).value;
  release(taken);
  write(place, []);
  const files = taken.flatMap(({ part }) => part ?? []);
  return { files, ...(session !== undefined && files.length > 0 && { session }) };
}

/** Put files back on a draft, before those that are on it. */
export function returnAttachments(place: string, files: readonly FilePart[]): void {
  write(place, [...files.map(restored), ...attachmentsOf(place).value]);
}

async function upload(place: string, id: number, session: string | undefined): Promise<void> {
  const { file, stop } = held.get(id) as Held;
  const { signal } = stop;
  try {
    const session_id = session ?? (await newSession(place));
    const onProgress = (sent: number, total: number) => change(place, id, { sent: total === 0 ? 0 : sent / total });
    const part = await service().upload(file, { session_id, signal, onProgress });
    change(place, id, { part, sent: 1, mediaType: part.media_type });
  } catch (error) {
    if (signal.aborted) return;
    const retry = error instanceof HelixError && (error.recoverable || UPLOAD_ENDS.has(error.code));
    change(place, id, { problem: said(error), retry });
  }
}

/** The id of the new chat, if the service needs one for its files: it knows no user to whom they belong. All files of one
 *  message have the same. */
async function newSession(place: string): Promise<string | undefined> {
  const { principal } = await service().whoami();
  if (principal != null) return undefined;
  const known = draftOf(place).value.session ?? freshSession();
  changeDraft(place, { session: known });
  return known;
}

function change(place: string, id: number, changes: Partial<Attachment>): void {
  write(place, attachmentsOf(place).value.map((one) => (one.id === id ? { ...one, ...changes } : one)));
}

function write(place: string, attachments: readonly Attachment[]): void {
  const list = attachmentsOf(place);
  const before = partsOf(list.value);
  list.value = attachments;
  const after = partsOf(attachments);
  if (after.length !== before.length || after.some((part, n) => part !== before[n])) changeDraft(place, { files: after });
}

const partsOf = (attachments: readonly Attachment[]): FilePart[] => attachments.flatMap(({ part }) => part ?? []);

function release(attachments: readonly Attachment[]): void {
  for (const { id, preview } of attachments) {
    held.get(id)?.stop.abort();
    held.delete(id);
    if (preview !== undefined) URL.revokeObjectURL(preview);
  }
}

function restored(part: FilePart): Attachment {
  count += 1;
  const about = { id: count, name: part.name ?? "", size: part.size ?? 0, mediaType: part.media_type };
  return { ...about, preview: undefined, sent: 1, part, problem: "", retry: false };
}
