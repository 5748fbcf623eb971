// The list's filters with the counts of the service, and saved views.
import { useEffect, useState } from "preact/hooks";
import { said, service } from "./api.ts";
import { type Name, requested, showView, STATUSES, TIMES, type Wanted, want, wanted } from "./filters.ts";
import { count } from "./format.ts";
import { everybody } from "./operator.ts";
import { Problem, Text } from "./pieces.tsx";
import { filters } from "./route.ts";
import { removeView, saveView, views } from "./views.ts";
import type { Results } from "./wire.ts";

export { Bulk } from "./bulk.tsx";

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
