// The files of a message that is not sent yet: their names, previews and progress.
import { useEffect, useRef, useState } from "preact/hooks";
import type { FilePart } from "../../js/src/index.ts";
import { type Attachment, attachmentsOf, detach, uploadAgain } from "./attachments.ts";
import { bytes, count, visible } from "./format.ts";
import { openPicture, setPicture } from "./pictures.ts";
import { Icon, Text } from "./pieces.tsx";

interface Given {
  place: string;
  session: string | undefined;
  onRemoved: () => void;
}

export function Chips({ place, session, onRemoved }: Given) {
  const attached = attachmentsOf(place).value;
  return (
    <>
      <p class="unseen" role="status">
        {stateOf(attached)}
      </p>
      {attached.length > 0 && (
        <ul class="chips" aria-label="Attached files">
          {attached.map((one) => (
            <Chip
              key={one.id}
              of={one}
              again={() => uploadAgain(place, one.id, session)}
              remove={() => {
                detach(place, one.id);
                onRemoved();
              }}
            />
          ))}
        </ul>
      )}
    </>
  );
}

/** What a reader hears who cannot see the chips. */
function stateOf(attached: readonly Attachment[]): string {
  const open = attached.filter(({ part, problem }) => part === undefined && problem === "").length;
  if (open > 0) return `Uploading ${count(open, "file")}.`;
  const stored = attached.filter(({ part }) => part !== undefined).length;
  return stored > 0 ? `${count(stored, "file")} attached.` : "";
}

function Chip({ of, again, remove }: { of: Attachment; again: () => void; remove: () => void }) {
  const { name, size, preview, part, problem, sent, retry } = of;
  const uploading = part === undefined && problem === "";
  const [broken, setBroken] = useState(false);
  const opener = useRef<HTMLButtonElement>(null);
  const shown = preview !== undefined && !broken;
  useEffect(() => {
    if (opener.current !== null) setPicture(opener.current, { name, url: async () => preview ?? "" });
  }, [shown]);
  return (
    <li class={problem ? "file bad" : "file"}>
      {shown ? (
        <button
          type="button"
          ref={opener}
          class="chip-preview"
          aria-label={`Enlarge ${visible(name) || "the image"}`}
          data-picture=""
          onClick={(event) => openPicture(event.currentTarget)}
        >
          <img src={preview} alt="" onError={() => setBroken(true)} />
        </button>
      ) : (
        <Icon name="file" />
      )}
      <span class="file-about">
        <span class="file-name" title={visible(name)}>
          <Text of={name || "Unnamed file"} length={120} />
        </span>
        {problem ? (
          <span class="file-problem" role="alert">
            <Text of={problem} />
          </span>
        ) : (
          <small>
            {bytes(size)}
            {uploading && (sent > 0 && sent < 1 ? ` · ${Math.round(sent * 100)}%` : " · uploading")}
          </small>
        )}
        {uploading && <progress max={1} value={sent > 0 ? sent : undefined} aria-label={`Upload of ${visible(name) || "the file"}`} />}
      </span>
      {retry && (
        <button type="button" class="plain round" aria-label={`Upload ${visible(name) || "the file"} again`} title="Try again" onClick={again}>
          <Icon name="again" />
        </button>
      )}
      <button type="button" class="plain round" aria-label={`Remove ${visible(name) || "the file"}`} title="Remove" onClick={remove}>
        <Icon name="close" />
      </button>
    </li>
  );
}

/** Names and sizes only. */
export function FileList({ files }: { files: readonly FilePart[] }) {
  if (files.length === 0) return null;
  return (
    <ul class="chips" aria-label="Files of the message">
      {files.map((file, n) => (
        <li class="file" key={n}>
          <Icon name="file" />
          <span class="file-about">
            <span class="file-name">
              <Text of={file.name || "Unnamed file"} length={120} />
            </span>
            <small>{bytes(file.size ?? 0)}</small>
          </span>
        </li>
      ))}
    </ul>
  );
}
