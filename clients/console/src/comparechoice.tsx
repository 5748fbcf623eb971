// What to compare with: a run of the same session, its origin or its branches, a session that the words find, or one by its id.
import type { RunRow } from "../../js/src/generated.ts";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { said, service } from "./api.ts";
import { ago, count, money } from "./format.ts";
import { Problem, Text } from "./pieces.tsx";
import { type Compared, go, link } from "./route.ts";
import type { ListedSession } from "./wire.ts";

const PAUSE_MS = 150;
const MOST = 20;
const RUNS = 50;
/** What a session id can be. */
const ID = /^[A-Za-z0-9_.:@+=-]{1,256}$/;

/** The newest runs of a session that ended where a person looks: not those that another run continued. */
function useRuns(session: string): RunRow[] {
  const [runs, setRuns] = useState<RunRow[]>([]);
  useEffect(() => {
    let closed = false;
    service()
      .ask("get_session", { session_id: session, runs: RUNS })
      .then(({ runs: found = [] }) => !closed && setRuns(found.filter(({ status }) => status !== "superseded")))
      .catch(() => undefined); // the comparison itself says what is wrong with the session
    return () => void (closed = true);
  }, [session]);
  return runs;
}

function runWords(run: RunRow): string {
  const message = run.input?.["message"];
  const asked = typeof message === "string" && message !== "" ? `: ${message}` : "";
  return `Run ${run.turn}${asked}`;
}

export function RunChoice({ side, at }: { side: "left" | "right"; at: Compared }) {
  const session = (side === "left" ? at.left : at.right) as string;
  const chosen = (side === "left" ? at.leftRun : at.rightRun) ?? "";
  const runs = useRuns(session);
  const choose = (run: string) => {
    const [left, right] = side === "left" ? [run, at.rightRun] : [at.leftRun, run];
    go(link.compare(at.left, at.right, left || undefined, right || undefined));
  };
  if (runs.length < 2 && chosen === "") return null;
  return (
    <select aria-label={`Part of ${side === "left" ? "A" : "B"}`} value={chosen} onChange={(event) => choose(event.currentTarget.value)}>
      <option value="">The whole session</option>
      {chosen !== "" && !runs.some((run) => run.run_id === chosen) && <option value={chosen}>{chosen}</option>}
      {runs.map((run) => (
        <option key={run.run_id} value={run.run_id}>
          {runWords(run).slice(0, 60)}
        </option>
      ))}
    </select>
  );
}

function useSessions(words: string): [ListedSession[], string] {
  const [found, setFound] = useState<ListedSession[]>([]);
  const [problem, setProblem] = useState("");
  useEffect(() => {
    let current = true;
    const pause = setTimeout(() => {
      service()
        .listSessions({ limit: MOST, titles: true, ...(words !== "" && { text: words }) })
        .then((page) => current && (setFound(page.sessions), setProblem("")))
        .catch((error: unknown) => current && setProblem(said(error)));
    }, PAUSE_MS);
    return () => {
      current = false;
      clearTimeout(pause);
    };
  }, [words]);
  return [found, problem];
}

export function Choose({ left, run }: { left: string; run: string | undefined }) {
  const [text, setText] = useState("");
  const field = useRef<HTMLInputElement>(null);
  useLayoutEffect(() => field.current?.focus(), []);
  const words = text.trim();
  const [found, problem] = useSessions(words);
  const [origin, setOrigin] = useState<string | undefined>(undefined);
  useEffect(() => {
    service()
      .getSession(left)
      .then(({ forked_from: from }) => setOrigin(typeof from?.["session_id"] === "string" ? from["session_id"] : undefined))
      .catch(() => undefined); // the list of sessions says what is wrong
  }, [left]);
  const known = useRuns(left);
  const newest = run === undefined ? known[0] : undefined; // a run is compared with a run, not with the whole session
  const base = run ?? newest?.run_id;
  const runs = known.filter((one) => one.run_id !== base);
  const isBranch = (one: ListedSession) => one.forked_from?.["session_id"] === left;
  const others = found.filter((one) => one.session_id !== left && one.session_id !== origin);
  const sorted = [...others.filter(isBranch), ...others.filter((one) => !isBranch(one))];
  return (
    <div class="choose">
      <h2>Compare with</h2>
      <p class="quiet">
        Choose what to compare with {run === undefined ? "session" : "this run of"} <Text of={left} length={60} />.
      </p>
      <label class="field">
        <span>Find a session by its title, first message or id</span>
        <input type="search" ref={field} value={text} onInput={(event) => setText(event.currentTarget.value)} />
      </label>
      <Problem of={problem} />
      {words === "" && runs.length > 0 && (
        <Group title="Runs of the same session">
          {runs.slice(0, MOST).map((one) => (
            <Choice key={one.run_id} href={link.compare(left, left, base, one.run_id)} title={runWords(one)}>
              {count(one.steps ?? 0, "step")} · {ago(one.started_at ?? 0)}
              {newest !== undefined && ` · compared with run ${newest.turn}, the newest`}
            </Choice>
          ))}
        </Group>
      )}
      <Group title={words === "" ? "Sessions" : "Found sessions"}>
        {origin !== undefined && words === "" && (
          <Choice href={link.compare(origin, left, undefined, run)} title={origin}>
            the origin of this branch
          </Choice>
        )}
        {sorted.map((one) => (
          <Choice key={one.session_id} href={link.compare(left, one.session_id, run)} title={one.title || one.session_id}>
            {isBranch(one) && "a branch · "}
            {one.agent_type} · {count(one.step_count, "step")} · {money(one.usage.cost_micros ?? 0)} · {ago(one.updated_at)}
          </Choice>
        ))}
        {ID.test(words) && !found.some((one) => one.session_id === words) && (
          <Choice href={link.compare(left, words, run)} title={`The session with the id ${words}`}>
            by its id
          </Choice>
        )}
      </Group>
    </div>
  );
}

function Group({ title, children }: { title: string; children: preact.ComponentChildren }) {
  return (
    <section aria-label={title}>
      <h3>{title}</h3>
      <ul class="choices">{children}</ul>
    </section>
  );
}

function Choice({ href, title, children }: { href: string; title: string; children: preact.ComponentChildren }) {
  return (
    <li>
      <a href={href}>
        <Text of={title} length={90} />
        <small class="quiet">{children}</small>
      </a>
    </li>
  );
}
