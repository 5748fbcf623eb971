// The rows of the trace as a tree. Only those on the screen are in the page.
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { clock, contextWords, count, money, seconds, tokens } from "./format.ts";
import { Lane } from "./lanes.tsx";
import { Icon, Status, Text } from "./pieces.tsx";
import type { Attempt, CallSpan, RunSpan, StepSpan } from "./timeline.ts";
import { type Gap, lasted, lossWords, lostCache, type Row, parentOf, together } from "./tracerows.ts";
import { windowOf, type Zoom } from "./zoom.tsx";

/** Rows that are drawn above and below those on the screen. */
const SPARE = 12;
const PAGE_ROWS = 15;
/** Pixels from the end within which the tree follows it. */
const NEAR_PX = 40;

interface Given {
  rows: Row[];
  selected: string | undefined;
  zoom: Zoom | undefined;
  /** The key of a row that the address names. */
  target: string | undefined;
  /** Whether the newest rows are shown first. */
  fromEnd: boolean;
  select: (key: string) => void;
  /** Show the details of a row. `enter`: the keyboard goes there. */
  open: (key: string, enter: boolean) => void;
  close: () => void;
  fold: (key: string, unfolded: boolean) => void;
  onZoom: (by: "in" | "out" | "all") => void;
  /** The run of the row at the top. */
  onTop: (run: RunSpan) => void;
}

export function TraceTree({ rows, selected, zoom, target, fromEnd, select, open, close, fold, onZoom, onTop }: Given) {
  const box = useRef<HTMLDivElement>(null);
  const [seen, setSeen] = useState({ top: 0, height: 800, row: 30 });
  const at = useRef({ key: "", offset: 0, end: fromEnd });
  const look = () => {
    if (box.current === null) return; // the watcher may be late
    const { scrollTop, clientHeight, scrollHeight } = box.current;
    const row = rowHeight(box.current);
    const first = Math.max(0, Math.min(rows.length - 1, Math.floor(scrollTop / row)));
    at.current = { key: rows[first]?.key ?? "", offset: scrollTop - first * row, end: scrollHeight - scrollTop - clientHeight < NEAR_PX };
    setSeen({ top: scrollTop, height: clientHeight, row });
    if (rows[first] !== undefined) onTop(rows[first].run);
  };
  // Rows that come above the screen, or at the end, must not move what is read.
  useLayoutEffect(() => {
    const element = box.current as HTMLDivElement;
    const row = rowHeight(element);
    const known = at.current.end ? -1 : rows.findIndex(({ key }) => key === at.current.key);
    if (at.current.end) element.scrollTop = element.scrollHeight;
    else if (known >= 0) element.scrollTop = known * row + at.current.offset;
    look();
  }, [rows.length, rows[0]?.key]);
  useEffect(() => {
    const watcher = new ResizeObserver(look);
    watcher.observe(box.current as HTMLDivElement);
    return () => watcher.disconnect();
  }, [rows]);
  // Where nothing else has the focus, arrow keys work at once.
  useEffect(() => {
    const now = document.activeElement;
    if (now === document.body || now?.id === "main") box.current?.focus({ preventScroll: true });
  }, []);
  const index = rows.findIndex(({ key }) => key === selected);
  useLayoutEffect(() => {
    if (index >= 0) show(box.current as HTMLDivElement, index);
  }, [selected, index >= 0]);
  const move = (to: number) => {
    const row = rows[Math.min(rows.length - 1, Math.max(0, to))];
    if (row !== undefined) select(row.key);
  };
  const pressed = (event: KeyboardEvent) => {
    const row = rows[index];
    const acts: Record<string, () => void> = {
      ArrowDown: () => move(index + 1),
      ArrowUp: () => move(index < 0 ? rows.length - 1 : index - 1),
      PageDown: () => move(index + PAGE_ROWS),
      PageUp: () => move(index - PAGE_ROWS),
      Home: () => move(0),
      End: () => move(rows.length - 1),
      ArrowRight: () => row && (row.unfolded === false ? fold(row.key, true) : row.unfolded === true && move(index + 1)),
      ArrowLeft: () => row && (row.unfolded === true ? fold(row.key, false) : move(parentOf(rows, index) < 0 ? index : parentOf(rows, index))),
      Enter: () => row && open(row.key, true),
      Escape: close,
      " ": () => row?.unfolded !== undefined && fold(row.key, !row.unfolded),
      "+": () => onZoom("in"),
      "-": () => onZoom("out"),
      "0": () => onZoom("all"),
    };
    const act = event.ctrlKey || event.metaKey || event.altKey ? undefined : acts[event.key];
    if (act === undefined) return;
    event.preventDefault();
    event.stopPropagation();
    act();
  };
  const begin = Math.max(0, Math.floor(seen.top / seen.row) - SPARE);
  const end = Math.min(rows.length, Math.ceil((seen.top + seen.height) / seen.row) + SPARE);
  const shown = rows.slice(begin, end);
  return (
    <div
      ref={box}
      class="trace-tree"
      role="tree"
      tabIndex={0}
      aria-label="Trace"
      aria-activedescendant={index >= begin && index < end ? `trace-row-${index}` : undefined}
      onKeyDown={pressed}
      onScroll={look}
    >
      <div role="presentation" style={{ height: `${rows.length * seen.row}px` }}>
        <div role="presentation" class="trace-rows" style={{ transform: `translateY(${begin * seen.row}px)` }}>
          {shown.map((row, n) => (
            <TraceRow key={row.key} row={row} index={begin + n} zoom={zoom} selected={row.key === selected} target={row.key === target} open={open} fold={fold} />
          ))}
        </div>
      </div>
    </div>
  );
}

const rowHeight = (box: HTMLElement): number => Number.parseFloat(getComputedStyle(box).getPropertyValue("--row")) || 30;

function show(box: HTMLElement, index: number): void {
  const row = rowHeight(box);
  if (index * row < box.scrollTop) box.scrollTop = index * row;
  else if ((index + 1) * row > box.scrollTop + box.clientHeight) box.scrollTop = (index + 1) * row - box.clientHeight;
}

interface RowGiven {
  row: Row;
  index: number;
  zoom: Zoom | undefined;
  selected: boolean;
  target: boolean;
  open: (key: string, enter: boolean) => void;
  fold: (key: string, unfolded: boolean) => void;
}

function TraceRow({ row, index, zoom, selected, target, open, fold }: RowGiven) {
  const toggle = (event: MouseEvent) => {
    event.stopPropagation();
    fold(row.key, row.unfolded !== true);
  };
  return (
    <div
      id={`trace-row-${index}`}
      class={`trace-row ${classOf(row)} ${target ? "target" : ""}`}
      role="treeitem"
      aria-level={row.level}
      aria-expanded={row.unfolded}
      aria-selected={selected}
      style={{ "--level": row.level }}
      onClick={() => open(row.key, false)}
    >
      <span class="span-name">
        <span class={`twist ${row.unfolded === undefined ? "none" : row.unfolded ? "open" : ""}`} aria-hidden="true" onClick={row.unfolded === undefined ? undefined : toggle} />
        <Name row={row} />
      </span>
      <Lane row={row} window={windowOf(row.run, zoom)} />
      <span class="span-figures">
        <Figures row={row} />
      </span>
    </div>
  );
}

function classOf(row: Row): string {
  switch (row.kind) {
    case "run":
      return "run-row";
    case "gap":
      return `gap-row ${row.why}`;
    case "step":
      return "step-row";
    case "attempt":
      return `span model ${row.attempt.state}`;
    case "call":
      return `span tool ${row.call.ok === undefined ? "open" : row.call.ok ? "done" : "failed"}`;
    case "view":
      return "view-row";
  }
}

function Name({ row }: { row: Row }) {
  switch (row.kind) {
    case "run":
      return <RunName run={row.run} />;
    case "gap":
      return <span class="quiet">{GAPS[row.why]}</span>;
    case "step":
      return <StepName step={row.step} level={row.level} unfolded={row.unfolded === true} />;
    case "attempt":
      return <AttemptName attempt={row.attempt} several={row.step.attempts.length > 1} />;
    case "call":
      return <CallName call={row.call} step={row.step} />;
    case "view":
      return <span class="quiet cut">{contextWords(row.view)}</span>;
  }
}

const GAPS: Record<Gap["why"], string> = {
  person: "Waited for a response",
  queue: "Waited for a free slot",
  takeover: "Its worker died; another took over",
  pause: "Paused",
};

function RunName({ run }: { run: RunSpan }) {
  return (
    <>
      <strong>Run {run.turn}</strong>
      <Status of={run.status} />
      <small class="cut">
        {MODES[run.mode] !== "" && `${MODES[run.mode] ?? run.mode} · `}
        {run.from > 0 && `${clock(run.from)} · `}
        {count(run.sums.answers, "model call")}
        {run.sums.calls > 0 && ` · ${count(run.sums.calls, "tool call")}`}
      </small>
      {run.sums.discarded > 0 && <span class="tag bad">{run.sums.discarded} discarded</span>}
    </>
  );
}

export const MODES: Record<string, string> = {
  start: "",
  continue: "resumed",
  with_message: "resumed with a message",
  with_confirmation: "resumed after a response",
  from_checkpoint: "from a checkpoint",
  from_start: "from its start",
  takeover: "taken over from a dead worker",
};

function StepName({ step, level, unfolded }: { step: StepSpan; level: number; unfolded: boolean }) {
  const failed = step.calls.filter((call) => call.ok === false).length;
  const attempts = step.attempts.length;
  const most = together(step, step.run.to);
  return (
    <>
      <span class="step-number">
        Step {step.step}
        {attempts === 0 && step.calls.length > 0 && <small> goes on</small>}
      </span>
      {level > 2 && (
        <small>
          <Text of={step.agent} length={24} />
        </small>
      )}
      {!unfolded && step.calls.length > 0 && (
        <small class="cut args">
          <Text of={step.calls.map((call) => bare(call.name)).join(", ")} length={80} />
        </small>
      )}
      {attempts > 1 && <span class="tag warn">↻ {attempts} attempts</span>}
      {!unfolded && lostCache(step) && <span class="tag warn">cache lost</span>}
      {most > 1 && (
        <span class="tag" title={`${most} calls at the same time`}>
          ∥ {most}
        </span>
      )}
      {failed > 0 && <span class="tag bad">{failed === 1 ? "1 failed" : `${failed} failed`}</span>}
      {step.views.length > 0 && !unfolded && <span class="tag">view changed</span>}
    </>
  );
}

export const bare = (name: string): string => name.replace(/^subagent__/, "");

function AttemptName({ attempt, several }: { attempt: Attempt; several: boolean }) {
  const gone = attempt.state === "discarded";
  return (
    <>
      {several || gone ? `attempt ${attempt.attempt}` : "answer"}
      {attempt.model !== null && (
        <small>
          <Text of={attempt.model} length={24} />
        </small>
      )}
      {gone && <span class="tag bad">discarded</span>}
      {attempt.lost !== null && (
        <span class="tag warn" title={lossWords(attempt.lost)}>
          cache lost
        </span>
      )}
      <small class="cut">
        {[
          ...(attempt.usage === null ? [] : [tokens(attempt.usage)]),
          ...(attempt.first > attempt.from ? [`first words after ${seconds(attempt.first - attempt.from)}`] : []),
        ].join(" · ")}
      </small>
    </>
  );
}

function CallName({ call, step }: { call: CallSpan; step: StepSpan }) {
  const below = step.below.filter((one) => one.session === call.child).length;
  return (
    <>
      <Icon name={call.child === undefined ? "tool" : "agent"} />
      <span class="call-name">
        <Text of={bare(call.name)} length={28} />
      </span>
      {call.child !== undefined && <small>sub-agent{below > 0 && ` · ${count(below, "step")}`}</small>}
      {call.claims > 1 && <span class="tag warn">↻ {call.claims} claims</span>}
      {call.ok === false && <span class="tag bad">failed</span>}
      <span class="cut args">
        <Text of={call.args === "{}" ? "" : call.args} length={140} />
      </span>
      {call.error !== null && (
        <span class="cut bad-text">
          <Text of={call.error} length={140} />
        </span>
      )}
    </>
  );
}

function Figures({ row }: { row: Row }) {
  const cost = (micros: number) => (micros > 0 ? <small>{money(micros)}</small> : null);
  switch (row.kind) {
    case "run":
      return (
        <>
          {cost(row.run.sums.cost)} <strong>{seconds(row.run.to - row.run.from)}</strong>
        </>
      );
    case "gap":
      return <>{row.to === undefined ? "waits" : seconds(row.to - row.from)}</>;
    case "step":
      return (
        <>
          {cost(row.step.cost)} <strong>{seconds(lasted(row.step))}</strong>
        </>
      );
    case "attempt":
      return (
        <>
          {cost(row.attempt.usage?.cost_micros ?? 0)} <span>{seconds(row.attempt.to - row.attempt.from)}</span>
        </>
      );
    case "call":
      return <>{callWords(row.call)}</>;
    case "view":
      return null;
  }
}

function callWords(call: CallSpan): string {
  if (call.ok !== undefined) return seconds(call.to - call.from);
  return call.claims === 0 && call.child === undefined ? "waits" : "no result";
}
