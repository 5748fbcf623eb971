// Small things that views share.
import type { ComponentChildren } from "preact";
import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { brief, json, visible } from "./format.ts";

const STATUS: Record<string, [string, string]> = {
  running: ["run", "Running"],
  completed: ["good", "Completed"],
  paused: ["warn", "Waiting"],
  interrupted: ["warn", "Interrupted"],
  failed: ["bad", "Failed"],
  died: ["bad", "Worker died"],
  waited: ["plain", "Paused"],
  batched: ["plain", "In a batch"],
  superseded: ["plain", "Went on"],
  open: ["run", "Open"],
  committed: ["good", "Committed"],
  discarded: ["bad", "Discarded"],
};

export function Status({ of }: { of: string }) {
  const [tone, label] = STATUS[of] ?? ["plain", of];
  return <span class={`status ${tone}`}>{label}</span>;
}

/** Text of somebody else: shown as it is, and isolated, so that it does not change how its neighbours are read. */
export function Text({ of, length }: { of: string; length?: number }) {
  return <bdi>{length === undefined ? visible(of) : brief(of, length)}</bdi>;
}

export function Code({ of, label }: { of: unknown; label: string }) {
  return (
    <pre class="code" tabIndex={0} role="group" aria-label={visible(label)}>
      {json(of)}
    </pre>
  );
}

/** Nothing, where there is no problem. */
export function Problem({ of, pad = false }: { of: string; pad?: boolean }) {
  if (of === "") return null;
  return (
    <p class={pad ? "problem pad" : "problem"} role="alert">
      <Text of={of} />
    </p>
  );
}

/** A table that scrolls in itself. `columns`: their heads; those of numbers are written `#Cost`. */
export function Table({ label, columns, children }: { label: string; columns: string[]; children: ComponentChildren }) {
  return (
    <div class="table" tabIndex={0} role="region" aria-label={label}>
      <table>
        <thead>
          <tr>
            {columns.map((name) => (
              <th key={name} scope="col" class={name.startsWith("#") ? "number" : undefined}>
                {name.replace(/^#/, "")}
              </th>
            ))}
          </tr>
        </thead>
        {children}
      </table>
    </div>
  );
}

export function Empty({ title, children }: { title: string; children?: ComponentChildren }) {
  return (
    <div class="empty">
      <h1>
        <Text of={title} />
      </h1>
      {children}
    </div>
  );
}

const PATHS: Record<string, string> = {
  close: "M6 6l12 12M18 6L6 18",
  plus: "M12 5v14M5 12h14",
  copy: "M9 9h11v11H9zM15 9V4H4v11h5",
  back: "M15 5l-7 7 7 7",
  stop: "M7 7h10v10H7z",
  play: "M8 5.5v13l10.5-6.5z",
  again: "M4.5 12a7.5 7.5 0 1 0 2.4-5.5M4.5 4.5v4.3h4.3",
  branch: "M7 4v16M7 14c8 0 10-2 10-7M4.6 4h4.8M17 7m-2.4 0a2.4 2.4 0 1 0 4.8 0a2.4 2.4 0 1 0-4.8 0",
  compare: "M4 5h6v14H4zM14 5h6v14h-6z",
  send: "M12 19V5M5.5 11.5L12 5l6.5 6.5",
  attach: "M19.5 11.5l-7.6 7.6a4.9 4.9 0 0 1-7-7l7.9-7.9a3.3 3.3 0 0 1 4.7 4.7l-7.7 7.7a1.6 1.6 0 0 1-2.3-2.3l7-7",
  file: "M7 3h7l5 5v13H7zM14 3v5h5",
  image: "M4 5h16v14H4zM4 16l5-5 4 4 3-3 4 4M9 9m-1 0a1 1 0 1 0 2 0a1 1 0 1 0-2 0",
  edit: "M4 20h4L19 9l-4-4L4 16zM13.5 6.5l4 4",
  down: "M12 5v14M5.5 12.5L12 19l6.5-6.5",
  download: "M12 4v11M6.5 10.5L12 16l5.5-5.5M5 20h14",
  next: "M9 5l7 7-7 7",
  delete: "M5 7h14M9 7V4h6v3M7 7l1 13h8l1-13M10 11v5M14 11v5",
  more: "M5 12h.01M12 12h.01M19 12h.01",
  search: "M10.5 17a6.5 6.5 0 1 0 0-13a6.5 6.5 0 0 0 0 13zM15.5 15.5L20 20",
  tool: "M14.5 5.5a4.5 4.5 0 0 0-5.7 5.7L4 16v4h4l4.8-4.8a4.5 4.5 0 0 0 5.7-5.7L15.7 12 12 8.3z",
  agent: "M12 4v3M6 8h12v10H6zM9.5 12v1.5M14.5 12v1.5",
  enter: "M14 4h5v16h-5M4 12h10M10.5 8l4 4-4 4",
  leave: "M10 4H5v16h5M10 12h10M16.5 8l4 4-4 4",
  chat: "M4 5h16v11H10l-4 4v-4H4z",
  fleet: "M5 19v-6M12 19V9M19 19V5M3 19h18",
};

export function Icon({ name }: { name: string }) {
  return (
    <svg class="icon" viewBox="0 0 24 24" aria-hidden="true" focusable="false">
      <path d={PATHS[name]} />
    </svg>
  );
}

/** Puts a text on the clipboard. */
export const Copy = ({ of, label }: { of: string; label: string }) => <CopyLater of={() => of} label={label} />;

/** Puts a text on the clipboard that is made when it is wanted. */
export function CopyLater({ of, label }: { of: () => string; label: string }) {
  const [done, setDone] = useState(false);
  const copy = () => navigator.clipboard.writeText(of()).then(() => setDone(true));
  return (
    <button class="small plain" onClick={() => void copy()} onBlur={() => setDone(false)} aria-label={label} title={label}>
      <Icon name="copy" /> {done ? "Copied" : "Copy"}
    </button>
  );
}

/** The browser's own: it holds the focus, and Escape closes it. */
export function Dialog({ title, onClose, children }: { title: string; onClose: () => void; children: ComponentChildren }) {
  const dialog = useRef<HTMLDialogElement>(null);
  useLayoutEffect(() => dialog.current?.showModal(), []); // at once: the next key belongs to the dialog
  const outside = (event: MouseEvent) => {
    if (event.target === dialog.current) dialog.current?.close();
  };
  return (
    <dialog ref={dialog} onClose={onClose} onClick={outside} aria-labelledby="dialog-title">
      <div class="dialog">
        <form method="dialog" class="dialog-head">
          <h2 id="dialog-title">{title}</h2>
          <button class="plain round" aria-label="Close">
            <Icon name="close" />
          </button>
        </form>
        {children}
      </div>
    </dialog>
  );
}

/** A summary that took the place of messages, folded below the words about it. */
export function Summary({ words, of }: { words: string; of: string }) {
  return (
    <details class="summarised">
      <summary>{words}</summary>
      <div dir="auto">{visible(of)}</div>
    </details>
  );
}
