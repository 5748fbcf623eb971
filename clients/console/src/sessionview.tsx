// One session: its head, its tabs, and what can be done with it.
import { useEffect, useState } from "preact/hooks";
import { begin, said, service } from "./api.ts";
import { Chat } from "./chat.tsx";
import { extra } from "./extras.ts";
import { brief, count, money } from "./format.ts";
import { actions } from "./keys.tsx";
import { refresh, sessions } from "./listing.ts";
import { Loading, LoadingDialog } from "./loading.tsx";
import { Dialog, Empty, Icon, Problem, Status, Text } from "./pieces.tsx";
import { go, link, type Tab, TABS } from "./route.ts";
import { opened, type OpenSession } from "./session.ts";
import type { Asked } from "./sessionmenu.tsx";

type Timelines = typeof import("./timelineview.tsx");
type States = typeof import("./stateview.tsx");
type Costs = typeof import("./costview.tsx");
type Menus = typeof import("./sessionmenu.tsx");

const NAMES: Record<Tab, string> = { chat: "Chat", timeline: "Timeline", state: "State", cost: "Cost" };

export function SessionView({ id, tab, call }: { id: string; tab: Tab; call: string | undefined }) {
  const session = opened(id);
  const [problem, setProblem] = useState("");
  const [branching, setBranching] = useState<string | null | undefined>(undefined);
  const attempt = (work: () => Promise<unknown>) => {
    setProblem("");
    work()
      .then(() => session.refresh())
      .then(refresh)
      .catch((error: unknown) => setProblem(said(error)));
  };
  // Whoever came without a control that has the focus, such as from the palette, goes on with the keyboard here, not at the top.
  useEffect(() => {
    if (document.activeElement === document.body) document.getElementById("main")?.focus({ preventScroll: true });
  }, []);
  if (session.error.value !== undefined) {
    return (
      <Empty title={session.error.value}>
        <p>
          <code>
            <Text of={id} />
          </code>
        </p>
        <a class="button" href={link.home()}>
          All sessions
        </a>
      </Empty>
    );
  }
  return (
    <div class="session">
      <Head session={session} attempt={attempt} branch={() => setBranching(null)} onProblem={setProblem} />
      <div class="tabs" role="tablist" aria-label="Views of the session">
        {TABS.map((name) => (
          <a key={name} role="tab" id={`tab-${name}`} aria-selected={name === tab} aria-controls="panel" href={link.session(id, name)}>
            {NAMES[name]}
          </a>
        ))}
      </div>
      <Problem of={problem} pad />
      <div class={`panel ${tab}`} id="panel" role="tabpanel" aria-labelledby={`tab-${tab}`}>
        {tab === "chat" && <Chat session={session} target={call} />}
        {tab === "timeline" && <Timeline session={session} branch={setBranching} attempt={attempt} target={call} />}
        {tab === "state" && <State session={session} />}
        {tab === "cost" && <Cost session={session} attempt={attempt} />}
      </div>
      <p class="unseen" aria-live="polite">
        {session.announced.value}
      </p>
      {branching !== undefined && <Branching session={session} checkpoint={branching} onClose={() => setBranching(undefined)} />}
    </div>
  );
}

/** The session's title, or else the beginning of its first message, as in the list. Until that is known, the name of its agent. */
function titleOf(session: OpenSession): string {
  const given = session.stored.value?.title; // a service of an older version knows no titles
  if (given) return given;
  const listed = sessions.value.find((one) => one.session_id === session.id)?.title;
  if (listed) return listed;
  void session.drawn.value; // the conversation itself is no signal
  const { conversation } = session;
  const first = session.unread(conversation) === 0 ? conversation.items.find((item) => item.type === "user") : undefined;
  return first?.text.trim() || (session.stored.value?.agent_type ?? "…");
}

function Timeline(given: Parameters<Timelines["TimelineView"]>[0]) {
  const view = extra("timeline");
  return view ? <view.TimelineView {...given} /> : <Loading name="timeline" />;
}

function State(given: Parameters<States["StateView"]>[0]) {
  const view = extra("state");
  return view ? <view.StateView {...given} /> : <Loading name="state" />;
}

function Cost(given: Parameters<Costs["CostView"]>[0]) {
  const view = extra("cost");
  return view ? <view.CostView {...given} /> : <Loading name="cost" />;
}

function More(given: Parameters<Menus["SessionMenu"]>[0]) {
  const view = extra("menu");
  if (view) return <view.SessionMenu {...given} />;
  return given.asked === "menu" ? null : <LoadingDialog name="menu" title={given.title} onClose={() => given.setAsked("")} />;
}

interface HeadGiven {
  session: OpenSession;
  attempt: (work: () => Promise<unknown>) => void;
  branch: () => void;
  onProblem: (problem: string) => void;
}

function Head({ session, attempt, branch, onProblem }: HeadGiven) {
  const stored = session.stored.value;
  const title = titleOf(session);
  const [asked, setAsked] = useState<Asked>("");
  const status = stored?.status ?? "";
  const origin = stored?.forked_from?.["session_id"];
  const interrupt = () => attempt(() => service().interrupt(session.id, { reason: "interrupted in the console" }));
  const goOn = () =>
    status === "failed" ? attempt(() => begin("retry", { session_id: session.id })) : attempt(() => begin("resume", { session_id: session.id }));
  const waits = (stored?.pending.length ?? 0) > 0;
  // also a run whose worker is dead: then its claim has lapsed, and resuming takes it over
  const canGoOn = status === "failed" || status === "interrupted" || (session.resumable.value && !waits && (status === "paused" || status === "running"));
  useEffect(() => {
    actions.value = {
      ...(status === "running" && { interrupt }),
      ...(canGoOn && { "go on": goOn }),
      ...(stored !== undefined && { branch, compare: () => go(link.compare(session.id)), share: () => setAsked("share") }),
      ...(stored?.parent_session_id === null && { rename: () => setAsked("rename"), delete: () => setAsked("delete") }),
    };
    return () => void (actions.value = {});
  }, [status, canGoOn, origin]);
  useEffect(() => void refresh(), [status]);
  useEffect(() => void (document.title = `${waits ? "Waiting: " : ""}${brief(title, 60)} · Helix`), [title, waits]);
  return (
    <header class="bar">
      <a class="button plain back" href={link.home()} aria-label="Back to the list">
        <Icon name="back" />
      </a>
      <div class="bar-about">
        <h1>
          <Text of={title} length={80} />
          {stored !== undefined && <Status of={status === "paused" && !waits ? "waited" : status === "running" && stored.in_batch ? "batched" : status} />}
        </h1>
        <p class="quiet">
          {stored !== undefined && (
            <>
              <Text of={stored.agent_type} length={40} />
              {" · "}
              {count(stored.step_count, "step")} · {money(stored.usage.cost_micros)}
              {" · "}
            </>
          )}
          <span class="id" title={session.id}>
            <Text of={session.id} length={60} />
          </span>
          {typeof origin === "string" && (
            <>
              {" · branch of "}
              <a href={link.session(origin)}>
                <Text of={origin} length={24} />
              </a>
            </>
          )}
          {stored?.parent_session_id && (
            <>
              {" · below "}
              <a href={link.session(stored.parent_session_id)}>
                <Text of={stored.parent_session_id} length={24} />
              </a>
            </>
          )}
        </p>
      </div>
      <div class="bar-actions">
        {status === "running" && (
          <button onClick={interrupt} title="Stop the run. You can resume it from its last checkpoint.">
            <Icon name="stop" /> <span class="label">Interrupt</span>
          </button>
        )}
        {canGoOn && (
          <button class="primary" onClick={goOn} title="Continue from the last checkpoint">
            <Icon name={status === "failed" ? "again" : "play"} /> <span class="label">{status === "failed" ? "Retry" : "Resume"}</span>
          </button>
        )}
        {stored !== undefined && (
          <a class="button wide-only" href={link.compare(session.id)} title="Compare with another run or session">
            <Icon name="compare" /> <span class="label">Compare with…</span>
          </a>
        )}
        {stored !== undefined && stored.parent_session_id === null && (
          <button class="wide-only" onClick={branch}>
            <Icon name="branch" /> <span class="label">Branch</span>
          </button>
        )}
        {stored !== undefined && (
          <div class="menu-place">
            <button
              class="plain round"
              aria-label="More actions"
              title="More actions"
              aria-haspopup="menu"
              aria-expanded={asked === "menu"}
              onPointerDown={(event) => asked === "menu" && event.stopPropagation()}
              onClick={() => setAsked(asked === "menu" ? "" : "menu")}
            >
              <Icon name="more" />
            </button>
            {asked !== "" && <More session={session} asked={asked} setAsked={setAsked} onProblem={onProblem} title={title} />}
          </div>
        )}
      </div>
    </header>
  );
}

/** `checkpoint` null: the newest. */
function Branching({ session, checkpoint, onClose }: { session: OpenSession; checkpoint: string | null; onClose: () => void }) {
  const [message, setMessage] = useState("");
  const [problem, setProblem] = useState("");
  const [busy, setBusy] = useState(false);
  const make = async (compare: boolean) => {
    setBusy(true);
    setProblem("");
    try {
      const id = await service().branch(session.id, { checkpoint_id: checkpoint });
      if (message.trim() !== "") await begin("run", { agent: session.stored.value?.agent_type ?? "", message, session_id: id });
      void refresh();
      onClose();
      go(compare ? link.compare(session.id, id) : link.session(id));
    } catch (error) {
      setProblem(said(error));
      setBusy(false);
    }
  };
  return (
    <Dialog title="Branch this session" onClose={onClose}>
      <p>
        A new session begins with the messages and the state of{" "}
        {checkpoint === null ? "the newest checkpoint" : <code>{checkpoint}</code>}. This session stays as it is.
      </p>
      <label class="field">
        <span>First message of the branch (optional)</span>
        <textarea rows={3} autofocus value={message} onInput={(event) => setMessage(event.currentTarget.value)} />
      </label>
      <Problem of={problem} />
      <div class="buttons">
        <button class="primary" disabled={busy} onClick={() => void make(false)}>
          Branch
        </button>
        <button disabled={busy} onClick={() => void make(true)}>
          Branch and compare
        </button>
        <button class="plain" onClick={onClose}>
          Cancel
        </button>
      </div>
    </Dialog>
  );
}
