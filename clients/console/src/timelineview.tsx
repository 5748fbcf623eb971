// The trace of a session: its runs, their steps, attempts, calls and sub-agents on a line of time, and what the selected one did.
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { begin } from "./api.ts";
import { Stored } from "./checkpoints.tsx";
import { count } from "./format.ts";
import { Legend, Ruler } from "./lanes.tsx";
import type { OpenSession } from "./session.ts";
import { Detail } from "./stepdetail.tsx";
import type { History } from "./history.ts";
import { everything, type RunSpan, type Timeline } from "./timeline.ts";
import { ALL, countsOf, type Filter, type Folds, pathTo, type Row, rowsOf, spanOf, stepTest } from "./tracerows.ts";
import { bare, TraceTree } from "./tracetree.tsx";
import { Strip, type Zoom, zoomed, windowOf } from "./zoom.tsx";
import "./trace.css";

interface Given {
  session: OpenSession;
  branch: (checkpoint: string) => void;
  attempt: (work: () => Promise<unknown>) => void;
  /** A run or a call that the address names. */
  target: string | undefined;
}

export function TimelineView({ session, branch, attempt, target }: Given) {
  const { history } = session;
  useEffect(() => history.start(), [history]);
  const version = history.drawn.value;
  const { timeline } = history;
  const [filter, setFilter] = useState<Filter>(ALL);
  const [folds, setFolds] = useState<Folds>({ all: undefined, keys: new Map() });
  const [selected, setSelected] = useState<string | undefined>(undefined);
  const [opened, setOpened] = useState(false);
  const [entered, setEntered] = useState(0);
  useEffect(() => {
    if (entered > 0) document.querySelector<HTMLElement>(".trace-detail")?.focus({ preventScroll: true });
  }, [entered]);
  const [zoom, setZoom] = useState<Zoom | undefined>(undefined);
  const [top, setTop] = useState<string | undefined>(undefined);
  const rows = useMemo(() => rowsOf(timeline, filter, folds), [timeline, version, filter, folds]);
  const named = useTarget(timeline, target, version, (key, unfold) => {
    setFolds(({ all, keys }) => ({ all, keys: new Map([...keys, ...unfold.map((one) => [one, true] as const)]) }));
    setSelected(key);
  });
  const row = rows.find(({ key }) => key === selected);
  const run = row?.run ?? timeline.runs.find(({ id }) => id === top) ?? timeline.runs.at(-1);
  const rewind = (checkpoint: string) => attempt(() => begin("resume", { session_id: session.id, mode: "from_checkpoint", checkpoint_id: checkpoint }));
  const own = session.stored.value?.parent_session_id === null;
  const idle = session.stored.value?.status !== "running";
  const onZoom = (by: "in" | "out" | "all") => {
    if (run !== undefined) setZoom(by === "all" ? undefined : zoomed(run, zoom, by, middle(run, row, zoom)));
  };
  const close = () => (setOpened(false), document.querySelector<HTMLElement>(".trace-tree")?.focus());
  return (
    <div class="trace">
      {history.problem.value && <p class="problem">{history.problem.value}</p>}
      {timeline.runs.length === 0 && <p class="quiet pad">No run of this session is on its stream.</p>}
      {timeline.runs.length > 0 && (
        <Toolbar history={history} version={version} filter={filter} setFilter={setFilter} rows={rows} onZoom={onZoom}>
          {(all) => setFolds({ all, keys: new Map() })}
        </Toolbar>
      )}
      <div class={`trace-body ${opened && row !== undefined ? "with-detail" : ""}`}>
        <div class="trace-main">
          {run !== undefined && (
            <div class="trace-head">
              <span class="span-name quiet">Run {run.turn}</span>
              <span class="axis">
                <Strip run={run} zoom={zoom} setZoom={setZoom} />
                <Ruler window={windowOf(run, zoom)} from={run.from} />
              </span>
              <span class="span-figures quiet">Duration</span>
            </div>
          )}
          {timeline.runs.length > 0 && (
            <TraceTree
              rows={rows}
              selected={selected}
              zoom={zoom}
              target={named}
              fromEnd={!idle || history.isLong}
              select={setSelected}
              open={(key, enter) => (setSelected(key), setOpened(true), enter && setEntered(entered + 1))}
              close={() => setOpened(false)}
              fold={(key, unfolded) => setFolds(({ all, keys }) => ({ all, keys: new Map(keys).set(key, unfolded) }))}
              onZoom={onZoom}
              onTop={({ id }) => setTop(id)}
            />
          )}
        </div>
        {opened && row !== undefined && (
          <Detail key={row.key} row={row} own={own} branch={branch} rewind={idle && own ? rewind : undefined} close={close} session={session} />
        )}
      </div>
      {own && <Stored session={session} branch={branch} />}
    </div>
  );
}

/** The time around which the lanes are enlarged: the middle of the selected row, if the lanes show it. */
function middle(run: RunSpan, row: Row | undefined, zoom: Zoom | undefined): number {
  const [from, to] = row === undefined || row.kind === "run" || row.kind === "gap" ? windowOf(run, zoom) : spanOf(row);
  return (from + to) / 2;
}

/** Find the row that the address names, once it is here. Returns its key. */
function useTarget(timeline: Timeline, target: string | undefined, version: number, found: (key: string, unfold: string[]) => void): string | undefined {
  const [key, setKey] = useState<string | undefined>(undefined);
  const done = useRef<string | undefined>(undefined);
  useEffect(() => {
    if (target === undefined || done.current === target) return;
    const path = timeline.runs.some(({ id }) => id === target) ? { key: `r ${target}`, unfold: [] } : pathTo(timeline, target);
    if (path === undefined) return;
    done.current = target;
    setKey(path.key);
    found(path.key, path.unfold);
  }, [timeline, target, version]);
  return key;
}

interface ToolbarGiven {
  history: History;
  version: number;
  filter: Filter;
  setFilter: (filter: Filter) => void;
  rows: Row[];
  onZoom: (by: "in" | "out" | "all") => void;
  /** Folds and unfolds all. */
  children: (unfolded: boolean) => void;
}

function Toolbar({ history, version, filter, setFilter, rows, onZoom, children: foldAll }: ToolbarGiven) {
  const { timeline } = history;
  const steps = useMemo(() => everything(timeline.runs.flatMap((run) => run.steps)), [timeline, version]);
  const { problems, lost, tools } = useMemo(() => countsOf(steps), [steps]);
  const roots = timeline.runs.flatMap((run) => run.steps);
  const fitting = filter.which === "all" ? roots.length : roots.filter(stepTest(roots, filter)).length;
  const reading = history.reading.value;
  const chip = (which: Filter["which"], words: string, title: string, enabled = true) => (
    <button class="chip" aria-pressed={filter.which === which} disabled={!enabled} title={title} onClick={() => setFilter({ which, tool: "" })}>
      {words}
    </button>
  );
  return (
    <div class="trace-tools">
      <div class="filters" role="group" aria-label="Show">
        {chip("all", "All", "All steps")}
        {chip("problems", `Errors ${problems.toLocaleString("en")}`, "Steps with a failed call or a discarded attempt", problems > 0 || filter.which === "problems")}
        {(lost > 0 || filter.which === "lost") && chip("lost", `Lost caches ${lost.toLocaleString("en")}`, "Steps whose prompt the provider's cache should have had")}
        {chip("slow", "Slow", "The slowest 5 % of the steps")}
        {chip("expensive", "Expensive", "The most expensive 5 % of the steps")}
        {tools.size > 0 && (
          <select
            aria-label="Tool"
            value={filter.which === "tools" ? filter.tool : ""}
            onChange={(event) => setFilter(event.currentTarget.value === "" ? ALL : { which: "tools", tool: event.currentTarget.value })}
          >
            <option value="">Any tool</option>
            {[...tools].sort().map(([name, calls]) => (
              <option key={name} value={name}>
                {bare(name)} ({calls.toLocaleString("en")})
              </option>
            ))}
          </select>
        )}
      </div>
      <p class="quiet trace-count" aria-live="polite">
        {filter.which === "all" ? count(roots.length, "step") : `${fitting.toLocaleString("en")} of ${count(roots.length, "step")}`}
        {reading !== undefined && (
          <span class="trace-reading"> · the newest; earlier ones are being read: {Math.floor((100 * reading.read) / Math.max(1, reading.all))} %</span>
        )}
        {timeline.lost && " · the stream of earlier ones has expired"}
      </p>
      <div class="trace-actions">
        <button class="small plain" onClick={() => foldAll(false)} disabled={!rows.some((row) => row.unfolded === true && row.kind !== "run")}>
          Fold all
        </button>
        <button class="small plain" onClick={() => foldAll(true)} disabled={!rows.some((row) => row.unfolded === false)}>
          Unfold all
        </button>
        <span role="group" aria-label="Zoom" class="zoom">
          <button class="small plain" onClick={() => onZoom("out")} aria-label="Zoom out">
            −
          </button>
          <button class="small plain" onClick={() => onZoom("in")} aria-label="Zoom in">
            +
          </button>
          <button class="small plain" onClick={() => onZoom("all")}>
            Fit
          </button>
        </span>
        <details class="legend-box">
          <summary class="button small plain">Legend</summary>
          <Legend />
        </details>
      </div>
    </div>
  );
}
