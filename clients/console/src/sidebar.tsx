// The list of sessions.
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { phase } from "./api.ts";
import { ago, count, money } from "./format.ts";
import { helpOpen } from "./keys.tsx";
import { choose, cursor, FILTERS, filter, loaded, more, problem, query, search, sessions } from "./listing.ts";
import { operator } from "./operator.ts";
import { Icon, Problem, Status, Text } from "./pieces.tsx";
import { link, route } from "./route.ts";
import type { ListedSession } from "./wire.ts";

const WORDS = { all: "All", waiting: "Waiting", running: "Running", failed: "Failed", interrupted: "Stopped" };

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
            placeholder="Search sessions"
            value={query.value}
            onInput={(event) => search(event.currentTarget.value)}
          />
        </label>
        <div class="filters" role="group" aria-label="Show">
          {FILTERS.map((name) => (
            <button key={name} class="chip" aria-pressed={filter.value === name} onClick={() => choose(name)}>
              {WORDS[name]}
            </button>
          ))}
        </div>
      </div>
      <FleetEntry />
      <List />
    </nav>
  );
}

function FleetEntry() {
  if (!operator.value) return null;
  return (
    <a class="button fleet-entry" href={link.fleet()} aria-current={route.value.view === "fleet" ? "page" : undefined}>
      <Icon name="fleet" /> Fleet
    </a>
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
    if (to >= found.length - AROUND) void more();
  }, [to, found.length]);
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
        <ul style={{ transform: `translateY(${from * height}px)` }}>
          {found.slice(from, to).map((session, n) => (
            <li key={session.session_id} aria-setsize={cursor.value === null ? found.length : -1} aria-posinset={from + n + 1}>
              <Row session={session} current={session.session_id === at} />
            </li>
          ))}
        </ul>
      </div>
      {loaded.value && found.length === 0 && cursor.value === null && (
        <p class="quiet pad">{query.value || filter.value !== "all" ? "No session fits." : "There are no sessions yet."}</p>
      )}
      {(!loaded.value || cursor.value !== null) && <p class="quiet pad">Reading…</p>}
    </div>
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
