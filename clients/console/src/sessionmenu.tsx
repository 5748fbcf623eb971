// What can be done with a whole session: rename it, save it as a page, abort its run, delete it. On a phone also what the head has
// no room for.
import { useEffect, useRef, useState } from "preact/hooks";
import { said, service } from "./api.ts";
import { count } from "./format.ts";
import { actions } from "./keys.tsx";
import { refresh } from "./listing.ts";
import { Dialog, Icon, Problem, Text } from "./pieces.tsx";
import { go, link } from "./route.ts";
import type { OpenSession } from "./session.ts";
import { savePage } from "./sharedpage.ts";

/** What a person asked for. Empty: nothing. */
export type Asked = "" | "menu" | "rename" | "share" | "abort" | "delete";

interface Given {
  session: OpenSession;
  asked: Asked;
  setAsked: (asked: Asked) => void;
  onProblem: (problem: string) => void;
  /** What the session is called on the page. */
  title: string;
}

const LONGEST = 120;

export function SessionMenu({ session, asked, setAsked, onProblem, title }: Given) {
  const close = () => setAsked("");
  useEffect(() => {
    if (asked !== "share") return;
    close();
    savePage(session.id).catch((error: unknown) => onProblem(said(error)));
  }, [asked]);
  if (asked === "rename") return <Rename session={session} shown={title} onClose={close} />;
  if (asked === "delete") return <Delete session={session} title={title} onClose={close} />;
  if (asked === "abort") return <Abort session={session} onProblem={onProblem} onClose={close} />;
  return asked === "menu" ? <Menu session={session} choose={setAsked} /> : null;
}

/** A sub-agent's session is not renamed or deleted alone: it goes with the session that it works for. */
function Menu({ session, choose }: { session: OpenSession; choose: (asked: Asked) => void }) {
  const { status, parent_session_id: above } = session.stored.value ?? {};
  const root = above == null;
  const list = useRef<HTMLDivElement>(null);
  const items = () => [...(list.current?.querySelectorAll("button") ?? [])].filter((one) => one.offsetParent !== null);
  const act = (name: string) => (choose(""), actions.value[name]?.());
  useEffect(() => {
    const before = document.activeElement;
    items()[0]?.focus();
    const outside = (event: Event) => !list.current?.contains(event.target as Node) && choose("");
    document.addEventListener("pointerdown", outside);
    return () => {
      document.removeEventListener("pointerdown", outside);
      if (before instanceof HTMLElement) before.focus();
    };
  }, []);
  const pressed = (event: KeyboardEvent) => {
    const all = items();
    const at = all.indexOf(document.activeElement as HTMLButtonElement);
    const to = { ArrowDown: at + 1, ArrowUp: at - 1 + all.length, Home: 0, End: all.length - 1 }[event.key];
    if (to !== undefined) all[to % all.length]?.focus();
    else if (event.key === "Escape" || event.key === "Tab") choose("");
    else return;
    event.preventDefault();
    event.stopPropagation();
  };
  return (
    <div class="menu" role="menu" aria-label="Session" ref={list} onKeyDown={pressed}>
      <button role="menuitem" tabIndex={-1} class="plain narrow-only" onClick={() => act("compare")}>
        <Icon name="compare" /> Compare with…
      </button>
      {root && (
        <button role="menuitem" tabIndex={-1} class="plain narrow-only" onClick={() => act("branch")}>
          <Icon name="branch" /> Branch
        </button>
      )}
      {root && (
        <button role="menuitem" tabIndex={-1} class="plain" onClick={() => choose("rename")}>
          <Icon name="edit" /> Rename
        </button>
      )}
      <button role="menuitem" tabIndex={-1} class="plain" onClick={() => choose("share")}>
        <Icon name="download" /> Save as a page
      </button>
      {status === "running" && (
        <button role="menuitem" tabIndex={-1} class="plain bad-text" onClick={() => choose("abort")}>
          <Icon name="stop" /> Abort the run
        </button>
      )}
      {root && (
        <button role="menuitem" tabIndex={-1} class="plain bad-text" onClick={() => choose("delete")}>
          <Icon name="delete" /> Delete
        </button>
      )}
    </div>
  );
}

function Rename({ session, shown, onClose }: { session: OpenSession; shown: string; onClose: () => void }) {
  const [title, setTitle] = useState(session.stored.value?.title || shown.replace(/\s+/g, " ").slice(0, LONGEST));
  const [problem, setProblem] = useState("");
  const [busy, setBusy] = useState(false);
  const store = async () => {
    setBusy(true);
    try {
      await service().rename(session.id, title);
      await session.refresh();
      void refresh();
      onClose();
    } catch (error) {
      setProblem(said(error));
      setBusy(false);
    }
  };
  return (
    <Dialog title="Rename this session" onClose={onClose}>
      <form class="dialog-form" onSubmit={(event) => (event.preventDefault(), void store())}>
        <label class="field">
          <span>Title</span>
          <input
            type="text"
            maxLength={LONGEST}
            autofocus
            value={title}
            onInput={(event) => setTitle(event.currentTarget.value)}
            onFocus={(event) => event.currentTarget.select()}
          />
          <small>Without a title, the session is called by its first message.</small>
        </label>
        <Problem of={problem} />
        <div class="buttons">
          <button class="primary" disabled={busy}>
            Save
          </button>
          <button type="button" class="plain" onClick={onClose}>
            Cancel
          </button>
        </div>
      </form>
    </Dialog>
  );
}

function Abort({ session, onProblem, onClose }: { session: OpenSession; onProblem: (problem: string) => void; onClose: () => void }) {
  const abort = async () => {
    onClose();
    onProblem("");
    try {
      await service().abort(session.id, { reason: "aborted in the console" });
      await session.refresh();
      await refresh();
    } catch (error) {
      onProblem(said(error));
    }
  };
  return (
    <Dialog title="Abort this run?" onClose={onClose}>
      <p>The run fails for good, with its sub-agents. A later message can continue the session. To stop it and resume it later, interrupt it.</p>
      <div class="buttons">
        <button class="danger" onClick={() => void abort()}>
          Abort
        </button>
        <button autofocus onClick={onClose}>
          Cancel
        </button>
      </div>
    </Dialog>
  );
}

function Delete({ session, title, onClose }: { session: OpenSession; title: string; onClose: () => void }) {
  const [problem, setProblem] = useState("");
  const [busy, setBusy] = useState(false);
  const { status, message_count } = session.stored.value ?? { status: "", message_count: 0 };
  const remove = async () => {
    setBusy(true);
    setProblem("");
    try {
      await service().delete(session.id);
      session.close();
      go(link.home());
      void refresh();
    } catch (error) {
      setProblem(said(error));
      setBusy(false);
    }
  };
  return (
    <Dialog title="Delete this session?" onClose={onClose}>
      <p>
        <strong>
          <Text of={title} length={80} />
        </strong>
        , {count(message_count, "message")}
      </p>
      <p>Its messages, its files and the sessions of its sub-agents are deleted for good. This cannot be undone. Branches of it stay.</p>
      {status === "running" && <p class="problem">The session runs. Interrupt or abort its run first.</p>}
      <Problem of={problem} />
      <div class="buttons">
        <button class="danger" disabled={busy || status === "running"} onClick={() => void remove()}>
          {busy ? "Deleting…" : "Delete for good"}
        </button>
        <button autofocus class="plain" onClick={onClose}>
          Cancel
        </button>
      </div>
    </Dialog>
  );
}
