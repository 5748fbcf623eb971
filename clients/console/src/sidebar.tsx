// The list of sessions.
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { phase } from "./api.ts";
import { ago, brief, count, money } from "./format.ts";
import { extra } from "./extras.ts";
import { chosen, inWords, showView, type Wanted, want, wanted, wantText } from "./filters.ts";
import { helpOpen, panelOpen } from "./keys.tsx";
import { cursor, loaded, more, problem, sessions } from "./listing.ts";
import { operator } from "./operator.ts";
import { Icon, Problem, Status, Text } from "./pieces.tsx";
import { link, route } from "./route.ts";
import { select, selected, selecting, startSelecting } from "./selection.ts";
import type { ListedSession } from "./wire.ts";

const NONE: Wanted = { status: "", waiting: "" };
const PRESETS: [string, Wanted][] = [
  ["All", NONE],
  ["Waiting", { ...NONE, waiting: "1" }],
  ["Running", { ...NONE, status: "running" }],
  ["Failed", { ...NONE, status: "failed" }],
  ["Interrupted", { ...NONE, status: "interrupted" }],
];
const shownBy = ({ status, waiting }: Wanted): boolean =>
  (wanted.value.status ?? "") === status && (wanted.value.waiting ?? "") === waiting;

export function Sidebar() {
  const place = phase.value.is === "ready" ? phase.value.config.place : "";
  const signOut = phase.value.is === "ready" ? phase.value.signOut : undefined;
  return (
    <nav class="sidebar" aria-label="Sessions">
      <header class={signOut === undefined ? "brand" : "brand leaves"}>
        <a href={link.home()} class="brand-name">
          <img src="./icon.svg" alt="" width="26" height="26" />
          <span>
            <strong>Helix</strong>
            <small title={place}>
              <Text of={place} length={36} />
            </small>
          </span>
        </a>
        <button class="plain round" onClick={() => (helpOpen.value = true)} aria-label="Keyboard">
          ?
        </button>
        {signOut !== undefined && (
          <button class="plain round" onClick={signOut} aria-label="Sign out" title="Sign out">
            <Icon name="leave" />
          </button>
        )}
        <a class="button primary" href={link.new()}>
          <Icon name="plus" />
          New chat
        </a>
      </header>
      <div class="find">
        <label>
          <span class="unseen">Search sessions</span>
          <Icon name="search" />
          <input
            id="search"
            type="search"
            placeholder="Search titles, first messages"
            value={wanted.value.text ?? ""}
            onInput={(event) => wantText(event.currentTarget.value)}
          />
        </label>
        <div class="filters" role="group" aria-label="Show">
          {PRESETS.map(([label, changes]) => (
            <button key={label} class="chip" aria-pressed={shownBy(changes)} onClick={() => want(changes)}>
              {label}
            </button>
          ))}
          <button class="chip" aria-expanded={panelOpen.value} aria-controls="panel" onClick={() => (panelOpen.value = !panelOpen.value)}>
            Filters
          </button>
          <button class="chip" aria-pressed={selecting.value} onClick={() => startSelecting(!selecting.value)}>
            Select
          </button>
        </div>
        <Chips />
        <div id="panel">{panelOpen.value && <Panel />}</div>
      </div>
      <Entries />
      <List />
      {selecting.value && <Bulk />}
    </nav>
  );
}

/** The filters that no other control shows, each with a button that removes it. */
function Chips() {
  const names = chosen.value.filter((name) => name !== "waiting" && !(name === "status" && wanted.value.status !== "completed" && wanted.value.status !== "paused"));
  if (names.length === 0) return null;
  return (
    <ul class="filters" aria-label="Filters in use">
      {names.map((name) => (
        <li key={name}>
          <button class="chip used" title="Remove this filter" onClick={() => want({ [name]: "" })}>
            <Text of={inWords(name)} length={34} />
            <Icon name="close" />
          </button>
        </li>
      ))}
    </ul>
  );
}

function Panel() {
  const view = extra("find");
  return view ? <view.Panel /> : <p class="quiet">Opening…</p>;
}

function Bulk() {
  const view = extra("find");
  return view ? <view.Bulk /> : null;
}

function Entries() {
  const at = route.value.view;
  return (
    <div class="entries">
      <a class="button fleet-entry" href={link.live()} aria-current={at === "live" ? "page" : undefined}>
        <Icon name="play" /> Running now
      </a>
      {operator.value && (
        <a class="button fleet-entry" href={link.fleet()} aria-current={at === "fleet" ? "page" : undefined}>
          <Icon name="fleet" /> Fleet
        </a>
      )}
    </div>
  );
}

/** Rows around the screen that are drawn: the others are space. All are of one height. */
const AROUND = 20;
const ROW_PX = 40;
const BLOCK = 10;

function List() {
  const box = useRef<HTMLDivElement>(null);
  const [height, setHeight] = useState(ROW_PX);
  const [first, setFirst] = useState(0);
  const found = sessions.value;
  const most = Math.ceil((box.current?.clientHeight ?? 900) / height) + 2 * AROUND;
  const from = Math.max(0, Math.min(first, found.length - most));
  const to = Math.min(found.length, from + most);
  useLayoutEffect(() => {
    const row = box.current?.querySelector("li");
    if (row && row.offsetHeight > 0 && row.offsetHeight !== height) setHeight(row.offsetHeight);
  }, [found.length > 0]);
  useEffect(() => {
    if (problem.value === undefined && to >= found.length - AROUND) void more();
  }, [to, found.length, cursor.value, problem.value]); // a page without a match changes only the cursor
  const at = route.value.view === "session" ? route.value.id : undefined;
  useEffect(() => {
    const place = sessions.value.findIndex((one) => one.session_id === at) * height;
    if (place < 0 || box.current === null) return;
    const { scrollTop, clientHeight } = box.current;
    if (place < scrollTop || place + height > scrollTop + clientHeight) box.current.scrollTop = place - clientHeight / 2;
  }, [at]);
  if (problem.value !== undefined) return <Problem of={problem.value} pad />;
  const scrolled = (event: { currentTarget: HTMLElement }) =>
    setFirst(Math.max(0, Math.floor(event.currentTarget.scrollTop / height / BLOCK) * BLOCK - AROUND));
  return (
    <div class="sessions" tabIndex={0} role="region" aria-label="List of sessions" ref={box} onScroll={scrolled}>
      <div style={{ height: `${found.length * height}px` }}>
        <ul class={selecting.value ? "marked" : undefined} style={{ transform: `translateY(${from * height}px)` }}>
          {found.slice(from, to).map((session, n) => (
            <li key={session.session_id} aria-setsize={cursor.value === null ? found.length : -1} aria-posinset={from + n + 1}>
              {selecting.value && <Mark session={session} />}
              <Row session={session} current={session.session_id === at} />
            </li>
          ))}
        </ul>
      </div>
      {loaded.value && found.length === 0 && cursor.value === null && <None />}
      {(!loaded.value || cursor.value !== null) && <p class="quiet pad">Reading…</p>}
    </div>
  );
}

function None() {
  if (!wanted.value.text && chosen.value.length === 0) return <p class="quiet pad">There are no sessions yet.</p>;
  return (
    <div class="pad none">
      <p class="quiet">No session matches.</p>
      <button class="small" onClick={() => showView("")}>
        Clear search and filters
      </button>
    </div>
  );
}

function Mark({ session }: { session: ListedSession }) {
  return (
    <input
      type="checkbox"
      aria-label={`Select ${brief(session.title || session.session_id, 60)}`}
      checked={selected.value.has(session.session_id)}
      onChange={(event) => select([session], event.currentTarget.checked)}
    />
  );
}

function Row({ session, current }: { session: ListedSession; current: boolean }) {
  const waits = session.status !== "running" && session.pending.length > 0;
  return (
    <a class="row" href={link.session(session.session_id)} aria-current={current ? "page" : undefined}>
      <span class="row-top">
        <span class="row-title">
          <Text of={session.title || session.session_id} length={90} />
        </span>
        <time class="quiet">{ago(session.updated_at)}</time>
      </span>
      <span class="row-bottom">
        {session.status !== "completed" && <Status of={waits ? "paused" : session.status === "paused" ? "waited" : session.status} />}
        <span class="row-about">
          <Text of={session.agent_type} length={24} />
          {" · "}
          {count(session.step_count, "step")}
          {session.usage.cost_micros > 0 && ` · ${money(session.usage.cost_micros)}`}
          {session.forked_from !== null && " · branch"}
        </span>
      </span>
    </a>
  );
}
