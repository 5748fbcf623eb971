// The list of sessions.
import { phase } from "./api.ts";
import { FleetEntry } from "./fleetview.tsx";
import { ago, count, money } from "./format.ts";
import { helpOpen } from "./keys.tsx";
import { choose, cursor, FILTERS, filter, loaded, more, problem, query, search, shown } from "./listing.ts";
import { Icon, Status, Text } from "./pieces.tsx";
import { link, route } from "./route.ts";
import type { ListedSession } from "./wire.ts";

const WORDS = { all: "All", waiting: "Waiting", running: "Running", failed: "Failed", interrupted: "Stopped" };

export function Sidebar() {
  const place = phase.value.is === "ready" ? phase.value.config.place : "";
  return (
    <nav class="sidebar" aria-label="Sessions">
      <header class="brand">
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
            onInput={(event) => {
              query.value = event.currentTarget.value;
              void search();
            }}
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

function List() {
  if (problem.value !== undefined) return <p class="problem pad">{problem.value}</p>;
  const found = shown.value;
  const at = route.value.view === "session" ? route.value.id : undefined;
  return (
    <div class="sessions" tabIndex={0} role="region" aria-label="List of sessions">
      <ul>
        {found.map((session) => (
          <li key={session.session_id}>
            <Row session={session} current={session.session_id === at} />
          </li>
        ))}
      </ul>
      {loaded.value && found.length === 0 && (
        <p class="quiet pad">{query.value || filter.value !== "all" ? "No session fits." : "There are no sessions yet."}</p>
      )}
      {cursor.value !== null && (
        <button class="plain wide" onClick={() => void more()}>
          Show more
        </button>
      )}
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
        <Status of={waits ? "paused" : session.status === "paused" ? "waited" : session.status} />
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
