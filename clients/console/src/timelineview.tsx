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
import { show, shown, showQuietly } from "./traceaddress.ts";
import { ALL, countsOf, type Filter, type Folds, isAll, pathTo, pathToRow, type Row, rowsOf, spanOf, stepTest } from "./tracerows.ts";
import { bare, TraceTree } from "./tracetree.tsx";
import { Strip, type Zoom, zoomed, windowOf } from "./zoom.tsx";
import "./trace.css";

/** The details follow the arrow keys at once, and the address a moment later: browsers refuse many changes of it. */
const PAUSE_MS = 300;

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
  const { row: chosen, ...filter } = shown.value;
  const [folds, setFolds] = useState<Folds>({ all: undefined, keys: new Map() });
  const [selected, setSelected] = useState<string | undefined>(undefined);
  const [entered, setEntered] = useState(0);
  useEffect(() => {
    if (entered > 0) document.querySelector<HTMLElement>(".trace-detail")?.focus({ preventScroll: true });
  }, [entered]);
  const [zoom, setZoom] = useState<Zoom | undefined>(undefined);
  const [top, setTop] = useState<string | undefined>(undefined);
  const rows = useMemo(() => rowsOf(timeline, filter, folds), [timeline, version, shown.value, folds]);
  const found = (key: string, unfold: string[]) => {
    setFolds(({ all, keys }) => ({ all, keys: new Map([...keys, ...unfold.map((one) => [one, true] as const)]) }));
    setSelected(key);
  };
  const named = useTarget(timeline, target, version, (key, unfold) => chosen === "" && found(key, unfold));
  const choose = useChosen(timeline, chosen, version, found);
  const opened = chosen !== "";
  const row = rows.find(({ key }) => key === selected);
  const run = row?.run ?? timeline.runs.find(({ id }) => id === top) ?? timeline.runs.at(-1);
  const rewind = (checkpoint: string) => attempt(() => begin("resume", { session_id: session.id, mode: "from_checkpoint", checkpoint_id: checkpoint }));
  const own = session.stored.value?.parent_session_id === null;
  const idle = session.stored.value?.status !== "running";
  const onZoom = (by: "in" | "out" | "all") => {
    if (run !== undefined) setZoom(by === "all" ? undefined : zoomed(run, zoom, by, middle(run, row, zoom)));
  };
  const close = () => (choose(""), document.querySelector<HTMLElement>(".trace-tree")?.focus());
  return (
    <div class="trace">
      {history.problem.value && <p class="problem">{history.problem.value}</p>}
      {timeline.runs.length === 0 && <p class="quiet pad">No run of this session is on its stream.</p>}
      {timeline.runs.length > 0 && (
        <Toolbar history={history} version={version} filter={filter} rows={rows} onZoom={onZoom}>
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
              select={(key) => (setSelected(key), opened && choose(key, true))}
              open={(key, enter) => (setSelected(key), choose(key), enter && setEntered(entered + 1))}
              close={() => choose("")}
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

/** Show the row that the address has, once it is here, whenever the address gets another one. Returns what puts one there:
 * `moving` by arrow keys, it replaces the one before, a moment later. */
function useChosen(timeline: Timeline, chosen: string, version: number, found: (key: string, unfold: string[]) => void): (key: string, moving?: boolean) => void {
  const [asked, done] = [useRef(""), useRef("")];
  const pause = useRef<ReturnType<typeof setTimeout>>(undefined);
  useEffect(() => () => clearTimeout(pause.current), []);
  useEffect(() => {
    if (done.current === chosen) return;
    clearTimeout(pause.current); // one went elsewhere
    const unfold = chosen === "" ? [] : pathToRow(timeline, chosen);
    if (unfold === undefined && asked.current === chosen) return;
    asked.current = chosen;
    if (unfold !== undefined) done.current = chosen;
    if (chosen !== "") found(chosen, unfold ?? []); // not the one before, while it is not here
  }, [timeline, chosen, version]);
  return (key, moving = false) => {
    clearTimeout(pause.current);
    const put = (how: typeof show) => {
      asked.current = done.current = key;
      how({ row: key });
    };
    if (moving) pause.current = setTimeout(() => put(showQuietly), PAUSE_MS);
    else if (key !== chosen) put(show);
  };
}

interface ToolbarGiven {
  history: History;
  version: number;
  filter: Filter;
  rows: Row[];
  onZoom: (by: "in" | "out" | "all") => void;
  /** Folds and unfolds all. */
  children: (unfolded: boolean) => void;
}

function Toolbar({ history, version, filter, rows, onZoom, children: foldAll }: ToolbarGiven) {
  const { timeline } = history;
  const steps = useMemo(() => everything(timeline.runs.flatMap((run) => run.steps)), [timeline, version]);
  const { problems, lost, tools } = useMemo(() => countsOf(steps), [steps]);
  const roots = timeline.runs.flatMap((run) => run.steps);
  const fitting = isAll(filter) ? roots.length : roots.filter(stepTest(roots, filter)).length;
  const reading = history.reading.value;
  const chip = (which: Filter["which"], words: string, title: string, enabled = true) => (
    <button class="chip" aria-pressed={which === "all" ? isAll(filter) : filter.which === which} disabled={!enabled} title={title} onClick={() => show(which === "all" ? ALL : { which })}>
      {words}
    </button>
  );
  return (
    <div class="trace-tools">
      <div class="filters" role="group" aria-label="Show">
        {chip("all", "All", "All steps")}
        {chip("errors", `Errors ${problems.toLocaleString("en")}`, "Steps with a failed call or a discarded attempt", problems > 0 || filter.which === "errors")}
        {(lost > 0 || filter.which === "lost") && chip("lost", `Lost caches ${lost.toLocaleString("en")}`, "Steps whose prompt the provider's cache should have had")}
        {chip("slow", "Slow", "The slowest 5 % of the steps")}
        {chip("expensive", "Expensive", "The most expensive 5 % of the steps")}
        {(tools.size > 0 || filter.tool !== "") && (
          <select aria-label="Tool" value={filter.tool} onChange={(event) => show({ tool: event.currentTarget.value })}>
            <option value="">Any tool</option>
            {[...(tools.has(filter.tool) || filter.tool === "" ? tools : [...tools, [filter.tool, 0] as const])].sort().map(([name, calls]) => (
              <option key={name} value={name}>
                {bare(name)} ({calls.toLocaleString("en")})
              </option>
            ))}
          </select>
        )}
        <input
          type="search"
          aria-label="Search the trace"
          placeholder="Search steps"
          title="Searches names, errors, and the beginnings of arguments and texts"
          value={filter.text}
          onInput={(event) => showQuietly({ text: event.currentTarget.value })}
        />
      </div>
      <p class="quiet trace-count" aria-live="polite">
        {isAll(filter) ? count(roots.length, "step") : `${fitting.toLocaleString("en")} of ${count(roots.length, "step")}`}
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
