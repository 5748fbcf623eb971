// The list's filters with the counts of the service, saved views, and actions on several sessions.
import { useEffect, useState } from "preact/hooks";
import { said, service } from "./api.ts";
import { type Name, requested, showView, STATUSES, TIMES, type Wanted, want, wanted } from "./filters.ts";
import { count } from "./format.ts";
import { cursor, more, refresh, sessions } from "./listing.ts";
import { everybody } from "./operator.ts";
import { Dialog, Problem, Text } from "./pieces.tsx";
import { filters } from "./route.ts";
import { select, selected, startSelecting } from "./selection.ts";
import { removeView, saveView, views } from "./views.ts";
import type { ListedSession, Results } from "./wire.ts";

type Facets = NonNullable<Results["list_sessions"]["facets"]>;
type Counted = "agent" | "user" | "status" | "tag" | "tool" | "error";

const COUNTED: [Counted, string][] = [
  ["agent", "Agent"],
  ["user", "User"],
  ["status", "Status"],
  ["tag", "Tag"],
  ["tool", "Tool"],
  ["error", "Error"],
];

/** The counts for the filters in use. */
function useFacets(): { facets: Facets | undefined; problem: string } {
  const [facets, setFacets] = useState<Facets | undefined>(undefined);
  const [problem, setProblem] = useState("");
  const query = filters.value;
  useEffect(() => {
    let current = true;
    service()
      .listSessions({ limit: 1, facets: true, ...requested() })
      .then((page) => current && (setFacets(page.facets ?? undefined), setProblem("")))
      .catch((error: unknown) => current && setProblem(said(error)));
    return () => {
      current = false;
    };
  }, [query]);
  return { facets, problem };
}

export function Panel() {
  const { facets, problem } = useFacets();
  return (
    <section class="panel-find" aria-label="Filters">
      <Problem of={problem} />
      <div class="panel-fields">
        {COUNTED.filter(([name]) => name !== "user" || everybody.value).map(([name, label]) => (
          <Choice key={name} name={name} label={label} counts={facets?.[name] ?? {}} />
        ))}
        <Times />
        <Cost name="cost_from" label="Cost at least, $" />
        <Cost name="cost_to" label="Cost at most, $" />
      </div>
      {facets !== undefined && !facets.complete && (
        <p class="quiet">The counts are those of the newest {count(facets.sessions, "session")}.</p>
      )}
      <Views />
    </section>
  );
}

function Choice({ name, label, counts }: { name: Counted; label: string; counts: Record<string, number> }) {
  const value = wanted.value[name] ?? "";
  const found = Object.entries(counts);
  if (found.length === 0 && value === "") return null;
  const options = value === "" || counts[value] !== undefined ? found : [[value, 0] as [string, number], ...found];
  return (
    <label>
      <span>{label}</span>
      <select value={value} onChange={(event) => want({ [name]: event.currentTarget.value })}>
        <option value="">Any</option>
        {options.map(([one, n]) => (
          <option key={one} value={one}>
            {`${name === "status" ? (STATUSES[one] ?? one) : one} (${n.toLocaleString("en")})`}
          </option>
        ))}
      </select>
    </label>
  );
}

function Times() {
  const { since = "", until = "" } = wanted.value;
  const [name = ""] = Object.entries(TIMES).find(([, [time]]) => time.since === since && time.until === until) ?? [];
  const other = name === "" && (since !== "" || until !== "");
  return (
    <label>
      <span>Changed</span>
      <select
        value={other ? "other" : name}
        onChange={(event) => want(TIMES[event.currentTarget.value]?.[0] ?? { since: "", until: "" })}
      >
        <option value="">At any time</option>
        {other && <option value="other">As in the address</option>}
        {Object.entries(TIMES).map(([key, [, words]]) => (
          <option key={key} value={key}>
            {words}
          </option>
        ))}
      </select>
    </label>
  );
}

function Cost({ name, label }: { name: "cost_from" | "cost_to"; label: string }) {
  return (
    <label>
      <span>{label}</span>
      <input
        type="number"
        min="0"
        step="any"
        inputMode="decimal"
        value={wanted.value[name] ?? ""}
        onChange={(event) => want({ [name]: event.currentTarget.value } as Wanted)}
      />
    </label>
  );
}

function Views() {
  const [name, setName] = useState("");
  const [problem, setProblem] = useState("");
  const save = (event: Event) => {
    event.preventDefault();
    const failed = saveView(name.trim(), filters.value);
    setProblem(failed);
    if (failed === "") setName("");
  };
  const empty = Object.keys(wanted.value as Record<Name, string>).length === 0;
  return (
    <div class="views">
      {views.value.length > 0 && (
        <ul class="filters" aria-label="Saved views">
          {views.value.map((view) => (
            <li key={view.name}>
              <button class="chip" aria-pressed={view.query === filters.value} onClick={() => showView(view.query)}>
                <Text of={view.name} length={30} />
              </button>
              <button class="plain small" aria-label={`Remove the view ${view.name}`} onClick={() => setProblem(removeView(view.name))}>
                ×
              </button>
            </li>
          ))}
        </ul>
      )}
      <form onSubmit={save}>
        <input
          type="text"
          aria-label="Name of the view"
          placeholder="Name of this view"
          maxLength={60}
          value={name}
          onInput={(event) => setName(event.currentTarget.value)}
        />
        <button class="small" disabled={empty || name.trim() === ""}>
          Save view
        </button>
        {!empty && (
          <button type="button" class="small plain" onClick={() => showView("")}>
            Clear all
          </button>
        )}
      </form>
      <Problem of={problem} />
    </div>
  );
}

// --- actions on several sessions ------------------------------------------------------------------------------------------

type Kind = "stop" | "delete";
const AT_ONCE = 4;
const MOST = 500;

const ACTIONS: Record<Kind, { title: (n: number) => string; explain: string; button: string; done: string; run: (id: string) => Promise<string> }> = {
  stop: {
    title: (n) => `Stop ${count(n, "session")}?`,
    explain: "A run stops at the next possible point. It can be resumed.",
    button: "Stop",
    done: "Stopped",
    run: async (id) => ((await service().interrupt(id)) ? "Asked to stop" : "Not running"),
  },
  delete: {
    title: (n) => `Delete ${count(n, "session")}?`,
    explain: "Their conversations, files and sub-agents' sessions are deleted for good. A session that is running is not deleted.",
    button: "Delete",
    done: "Deleted",
    run: async (id) => ((await service().delete(id)) ? "Deleted" : "Already deleted"),
  },
};

export function Bulk() {
  const [kind, setKind] = useState<Kind | undefined>(undefined);
  const chosen = [...selected.value.values()];
  const all = sessions.value.slice(0, MOST);
  const whole = all.length > 0 && all.every((one) => selected.value.has(one.session_id));
  return (
    <section class="bulk" aria-label="Selected sessions">
      <p role="status">{count(chosen.length, "session")} selected</p>
      <button class="small" onClick={() => select(all, !whole)}>
        {whole ? "Select none" : `Select the ${all.length} listed`}
      </button>
      {cursor.value !== null && all.length < MOST && (
        <button class="small plain" onClick={() => void more()}>
          List more
        </button>
      )}
      <button class="small" disabled={chosen.length === 0} onClick={() => setKind("stop")}>
        Stop
      </button>
      <button class="small danger" disabled={chosen.length === 0} onClick={() => setKind("delete")}>
        Delete
      </button>
      <button class="small plain" onClick={() => startSelecting(false)}>
        Done
      </button>
      {kind !== undefined && <Confirm kind={kind} sessions={chosen} onClose={() => setKind(undefined)} />}
    </section>
  );
}

interface Outcome {
  words: string;
  failed: boolean;
}

/** Carry the action out on each session, a few at once. A failure of one does not stop the others. */
async function carryOut(kind: Kind, all: readonly ListedSession[], note: (id: string, outcome: Outcome) => void): Promise<void> {
  const left = all.map((session) => session.session_id);
  const work = async () => {
    for (let id = left.shift(); id !== undefined; id = left.shift()) {
      try {
        note(id, { words: await ACTIONS[kind].run(id), failed: false });
      } catch (error) {
        note(id, { words: said(error), failed: true });
      }
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, work));
}

function Confirm({ kind, sessions: given, onClose }: { kind: Kind; sessions: ListedSession[]; onClose: () => void }) {
  const [all] = useState(given); // the selection changes behind the dialog
  const [outcomes, setOutcomes] = useState<ReadonlyMap<string, Outcome>>(new Map());
  const [state, setState] = useState<"asks" | "works" | "done">("asks");
  const action = ACTIONS[kind];
  const failed = [...outcomes.values()].filter((one) => one.failed).length;
  const start = async () => {
    setState("works");
    await carryOut(kind, all, (id, outcome) => {
      setOutcomes((known) => new Map(known).set(id, outcome));
      if (!outcome.failed) select(all.filter((one) => one.session_id === id), false);
    });
    setState("done");
    await refresh();
  };
  return (
    <Dialog title={action.title(all.length)} onClose={onClose}>
      {state === "asks" && <p>{action.explain}</p>}
      {state !== "asks" && (
        <p role="status">
          {outcomes.size} of {all.length} done{failed > 0 && `, ${failed} refused`}
        </p>
      )}
      <ul class="bulk-list" tabIndex={0} aria-label="Sessions">
        {all.map((session) => {
          const outcome = outcomes.get(session.session_id);
          return (
            <li key={session.session_id}>
              <Text of={session.title || session.session_id} length={60} />
              <span class={outcome?.failed ? "bad-text" : "quiet"}>
                <Text of={outcome?.words ?? (state === "works" ? "…" : "")} />
              </span>
            </li>
          );
        })}
      </ul>
      <div class="bar-actions">
        {state === "asks" && (
          <button class={kind === "delete" ? "danger" : "primary"} onClick={() => void start()}>
            {action.button}
          </button>
        )}
        <form method="dialog">
          <button>{state === "done" ? "Close" : "Cancel"}</button>
        </form>
      </div>
    </Dialog>
  );
}
