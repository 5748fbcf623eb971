// Where a message is written. Enter sends; with Shift it begins a line. What did not arrive stays here until it is sent or edited.
import { useEffect, useRef, useState } from "preact/hooks";
import { freshKey, HelixError, said } from "./api.ts";
import { attach, attachmentsOf, returnAttachments, takeAttachments } from "./attachments.ts";
import { Chips, FileList } from "./chips.tsx";
import { connection } from "./connection.tsx";
import { changeDraft, deliver, draftOf, type Outgoing, sending, setDraft, type Unsent } from "./drafts.ts";
import { Icon, Text } from "./pieces.tsx";

interface Given {
  /** Where the draft belongs. */
  place: string;
  label: string;
  /** The session that the message is for. Undefined for a new chat. */
  session?: string;
  /** Start the run once, however often it is called with this key. */
  onSend: (message: Outgoing, key: string) => Promise<void>;
  disabled?: boolean;
  hint?: string;
}

const UNCONFIRMED = "Helix has not confirmed this message. Send it again: if it arrived, it does not run twice.";
const UNKNOWN = new Set(["timeout", "connection_lost", "closed"]);

function why(error: unknown): string {
  const unknown = error instanceof HelixError && UNKNOWN.has(error.code);
  return unknown ? UNCONFIRMED : `Not sent: ${said(error)}`;
}

export function Composer({ place, label, session, onSend, disabled = false, hint }: Given) {
  const { text, unsent } = draftOf(place).value;
  const attached = attachmentsOf(place).value;
  const area = useRef<HTMLTextAreaElement>(null);
  const uploading = attached.some(({ part }) => part === undefined);
  const closed = disabled || unsent !== undefined || uploading || (text.trim() === "" && attached.length === 0);
  const failed = attached.some(({ problem }) => problem !== "");
  const reason = failed ? "Remove the files that were not uploaded" : uploading ? "The files are being uploaded" : undefined;
  const write = (next: string) => changeDraft(place, { text: next });
  const add = (files: Iterable<File>) => {
    attach(place, files, session);
    area.current?.focus();
  };
  const attempt = async (message: Unsent) => {
    await deliver(place, message, onSend, why);
    area.current?.focus();
  };
  const send = async () => {
    if (closed) return;
    const message = { text, ...takeAttachments(place), key: freshKey() };
    setDraft(place, { text: "" });
    await attempt(message);
  };
  const edit = ({ text: kept, files = [], session: chosen }: Unsent) => {
    const { unsent: _, ...draft } = draftOf(place).value;
    setDraft(place, { ...draft, text: text.trim() === "" ? kept : `${kept}\n${text}`, ...(chosen !== undefined && { session: chosen }) });
    returnAttachments(place, files);
    area.current?.focus();
  };
  const dropping = useDrop(disabled ? undefined : add);
  return (
    <form class="composer" onSubmit={(event) => (event.preventDefault(), void send())}>
      {unsent !== undefined && <UnsentView unsent={unsent} again={() => void attempt(unsent)} edit={() => edit(unsent)} />}
      <div class={dropping ? "composer-box dropping" : "composer-box"}>
        <Chips place={place} session={session} onRemoved={() => area.current?.focus()} />
        <Choose onFiles={add} disabled={disabled} />
        <textarea
          id="composer"
          ref={area}
          rows={Math.min(8, text.split("\n").length)}
          aria-label={label}
          placeholder={dropping ? "Drop the files to attach them" : (hint ?? label)}
          value={text}
          disabled={disabled}
          onInput={(event) => write(event.currentTarget.value)}
          onPaste={(event) => {
            const data = event.clipboardData;
            // Office programs add a picture of the text that was copied.
            if (!data?.files.length || data.types.includes("text/plain")) return;
            event.preventDefault();
            add([...data.files]);
          }}
          onKeyDown={(event) => {
            if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
            event.preventDefault();
            void send();
          }}
        />
        <button class="primary round" aria-label="Send" title={reason} disabled={closed}>
          <Icon name="send" />
        </button>
      </div>
    </form>
  );
}

function Choose({ onFiles, disabled }: { onFiles: (files: File[]) => void; disabled: boolean }) {
  const input = useRef<HTMLInputElement>(null);
  return (
    <>
      <input
        ref={input}
        type="file"
        multiple
        hidden
        aria-label="Files to attach"
        onChange={(event) => {
          const files = [...(event.currentTarget.files ?? [])];
          event.currentTarget.value = ""; // so that the same file can be chosen again
          onFiles(files);
        }}
      />
      <button type="button" id="attach" class="plain round" aria-label="Attach files" title="Attach files" disabled={disabled} onClick={() => input.current?.click()}>
        <Icon name="attach" />
      </button>
    </>
  );
}

/** Whether files are over the page. They can be dropped anywhere on it; where nothing takes them, the browser would leave the
 *  page to show them. */
function useDrop(onFiles: ((files: File[]) => void) | undefined): boolean {
  const [over, setOver] = useState(false);
  const latest = useRef(onFiles);
  latest.current = onFiles;
  useEffect(() => {
    const end = new AbortController();
    const listen = <K extends "dragover" | "dragleave" | "drop">(kind: K, listener: (event: DragEvent) => void) =>
      addEventListener(kind, listener, { signal: end.signal });
    listen("dragover", (event) => {
      if (!event.dataTransfer?.types.includes("Files")) return;
      event.preventDefault();
      event.dataTransfer.dropEffect = latest.current === undefined ? "none" : "copy";
      setOver(latest.current !== undefined);
    });
    listen("dragleave", (event) => event.relatedTarget === null && setOver(false));
    listen("drop", (event) => {
      setOver(false);
      const files = [...(event.dataTransfer?.files ?? [])];
      if (files.length === 0) return;
      event.preventDefault();
      latest.current?.(files);
    });
    return () => end.abort();
  }, []);
  return over;
}

/** A message that arrives faster is not shown as one on its way. */
const SOON_MS = 400;

/** Shown when a message does not arrive at once. */
function UnsentView({ unsent, again, edit }: { unsent: Unsent; again: () => void; edit: () => void }) {
  const busy = sending.value.has(unsent.key);
  const [late, setLate] = useState(false);
  useEffect(() => {
    setLate(false);
    const timer = setTimeout(() => setLate(true), SOON_MS);
    return () => clearTimeout(timer);
  }, [unsent.key]);
  if (busy && !late && connection.value === "open") return null;
  return (
    <section class="unsent" aria-label="Message that is not sent">
      {unsent.text !== "" && (
        <p class="unsent-text" dir="auto">
          <Text of={unsent.text} length={400} />
        </p>
      )}
      <FileList files={unsent.files ?? []} />
      {busy ? (
        <p class="quiet">{connection.value === "lost" ? "Waiting for the connection." : "Sending…"}</p>
      ) : (
        <>
          <p role="alert">
            <Text of={unsent.problem ?? UNCONFIRMED} />
          </p>
          <div class="buttons">
            <button type="button" class="primary small" onClick={again}>
              Send again
            </button>
            <button type="button" class="small" onClick={edit}>
              Edit
            </button>
          </div>
        </>
      )}
    </section>
  );
}
