// A message once more, as it was or edited: in a branch that begins before it, so that nothing of this session changes.
import { useRef, useState } from "preact/hooks";
import { begin, fieldsOf, freshKey, said, service } from "./api.ts";
import type { Step, User } from "./fold.ts";
import { refresh } from "./listing.ts";
import { Copy, Icon, Problem } from "./pieces.tsx";
import { go, link } from "./route.ts";
import type { OpenSession } from "./session.ts";

const PAGE = 100;

/** The checkpoint behind this step: the newest of its run up to it. One of the next run may hold the message already. */
async function checkpointAfter(session: string, { step, runId }: Step): Promise<string> {
  let after: string | undefined;
  for (;;) {
    const page = await service().listCheckpoints(session, { limit: PAGE, after });
    const found = page.checkpoints.find((one) => one.step <= step && one.run_id === runId);
    if (found !== undefined) return found.id;
    if (page.cursor === null) throw new Error("The checkpoint before this message is not stored any more.");
    after = page.cursor;
  }
}

/** One message to send again. Its parts are made once, however often it has to be tried. */
interface Attempt {
  key: string;
  branch?: string;
}

/** Start the run in a branch, or in a new session if nothing comes before the message. Returns the id of that session. */
async function resend(session: OpenSession, item: User, text: string, attempt: Attempt): Promise<string> {
  const { items } = session.conversation;
  const before = items.slice(0, items.indexOf(item)).findLast((one) => one.type === "step" && one.state === "committed");
  const files = item.files.map((file) => ({ ...file }));
  if (before?.type === "step") attempt.branch ??= await service().branch(session.id, { checkpoint_id: await checkpointAfter(session.id, before) });
  const fields = { ...fieldsOf({ text, files }), ...(attempt.branch !== undefined && { session_id: attempt.branch }) };
  const started = await begin("run", { agent: session.stored.value?.agent_type ?? "", ...fields }, attempt.key);
  return started.session_id;
}

interface Given {
  item: User;
  session: OpenSession;
  editing: boolean;
  setEditing: (editing: boolean) => void;
}

/** `autofocus` works once in a page, and the keys that are typed next belong to the message. */
const focus = (area: HTMLTextAreaElement | null): void => area?.focus();

/** What can be done with a message of the user. */
export function MessageActions({ item, session, editing, setEditing }: Given) {
  const [text, setText] = useState(item.text);
  const [problem, setProblem] = useState("");
  const [busy, setBusy] = useState(false);
  const attempt = useRef<{ text: string; made: Attempt }>(undefined);
  const send = async (words: string) => {
    setBusy(true);
    setProblem("");
    try {
      if (attempt.current?.text !== words) attempt.current = { text: words, made: { key: freshKey() } };
      const id = await resend(session, item, words, attempt.current.made);
      attempt.current = undefined;
      void refresh();
      go(link.session(id));
    } catch (error) {
      setProblem(said(error));
    }
    setBusy(false);
  };
  if (!editing) {
    return (
      <div class="message-actions">
        <Copy of={item.text} label="Copy the message" />
        <button class="small plain" onClick={() => setEditing(true)}>
          <Icon name="edit" /> Edit
        </button>
        <button class="small plain" disabled={busy} onClick={() => void send(item.text)}>
          <Icon name="again" /> Run again
        </button>
        <Problem of={problem} />
      </div>
    );
  }
  return (
    <form class="message-edit" onSubmit={(event) => (event.preventDefault(), void send(text))}>
      <textarea
        aria-label="Edited message"
        rows={Math.min(12, text.split("\n").length + 1)}
        ref={focus}
        value={text}
        onInput={(event) => setText(event.currentTarget.value)}
        onKeyDown={(event) => event.key === "Escape" && setEditing(false)}
      />
      <Problem of={problem} />
      <div class="buttons">
        <button class="primary" disabled={busy || (text.trim() === "" && item.files.length === 0)}>
          Send in a branch
        </button>
        <button type="button" class="plain" onClick={() => setEditing(false)}>
          Cancel
        </button>
      </div>
    </form>
  );
}
