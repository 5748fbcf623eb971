// Where a message is written. Enter sends; with Shift it begins a line. What did not arrive stays here until it is sent or edited.
import { useRef } from "preact/hooks";
import { freshKey, HelixError, said } from "./api.ts";
import { connection } from "./connection.tsx";
import { deliver, draftOf, sending, setDraft, type Unsent } from "./drafts.ts";
import { Icon, Text } from "./pieces.tsx";

interface Given {
  /** Where the draft belongs. */
  place: string;
  label: string;
  /** Start the run once, however often it is called with this key. */
  onSend: (message: string, key: string) => Promise<void>;
  disabled?: boolean;
  hint?: string;
}

const UNCONFIRMED = "Helix has not confirmed this message. Send it again: if it arrived, it does not run twice.";
const UNKNOWN = new Set(["timeout", "connection_lost", "closed"]);

function why(error: unknown): string {
  const unknown = error instanceof HelixError && UNKNOWN.has(error.code);
  return unknown ? UNCONFIRMED : `Not sent: ${said(error)}`;
}

export function Composer({ place, label, onSend, disabled = false, hint }: Given) {
  const draft = draftOf(place).value;
  const { text, unsent } = draft;
  const area = useRef<HTMLTextAreaElement>(null);
  const closed = disabled || unsent !== undefined || text.trim() === "";
  const write = (next: string) => setDraft(place, { ...draftOf(place).value, text: next });
  const attempt = async (message: Unsent) => {
    await deliver(place, message, onSend, why);
    area.current?.focus();
  };
  const send = async () => {
    if (closed) return;
    const message = { text, key: freshKey() };
    write("");
    await attempt(message);
  };
  const edit = ({ text: kept }: Unsent) => {
    setDraft(place, { text: text.trim() === "" ? kept : `${kept}\n${text}` });
    area.current?.focus();
  };
  return (
    <form class="composer" onSubmit={(event) => (event.preventDefault(), void send())}>
      {unsent !== undefined && <UnsentView unsent={unsent} again={() => void attempt(unsent)} edit={() => edit(unsent)} />}
      <div class="composer-box">
        <textarea
          id="composer"
          ref={area}
          rows={Math.min(8, text.split("\n").length)}
          aria-label={label}
          placeholder={hint ?? label}
          value={text}
          disabled={disabled}
          onInput={(event) => write(event.currentTarget.value)}
          onKeyDown={(event) => {
            if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
            event.preventDefault();
            void send();
          }}
        />
        <button class="primary round" aria-label="Send" disabled={closed}>
          <Icon name="send" />
        </button>
      </div>
    </form>
  );
}

/** Shown when a message does not arrive at once. */
function UnsentView({ unsent, again, edit }: { unsent: Unsent; again: () => void; edit: () => void }) {
  const busy = sending.value.has(unsent.key);
  if (busy && connection.value === "open") return null;
  return (
    <section class="unsent" aria-label="Message that is not sent">
      <p class="unsent-text" dir="auto">
        <Text of={unsent.text} length={400} />
      </p>
      {busy ? (
        <p class="quiet">Waits for the connection.</p>
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
