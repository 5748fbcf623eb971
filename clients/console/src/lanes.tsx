// How the spans of the trace look on the line of time, and what each look means.
import { clock, seconds } from "./format.ts";
import type { CallSpan, Range, StepSpan } from "./timeline.ts";
import type { Gap, Row } from "./tracerows.ts";

type Look = "run" | "model" | "first" | "discarded" | "tool" | "agent" | "failed" | "open" | Gap["why"];
interface Mark {
  look: Look;
  from: number;
  to: number;
}

/** Marks of one row beyond this number would cover each other. */
const MOST_MARKS = 60;

const LOOKS: [Look, string][] = [
  ["model", "The model answers"],
  ["first", "The model has not said anything yet"],
  ["discarded", "An attempt that was discarded"],
  ["tool", "A tool runs"],
  ["agent", "A sub-agent works"],
  ["failed", "A call that failed"],
  ["open", "Has not ended"],
  ["person", "Waits for a response"],
  ["queue", "Waits for a free slot"],
  ["takeover", "The worker died, until another took over"],
  ["pause", "Paused or interrupted"],
];

/** Seconds between ticks, from which the smallest is taken that gives at most five of them. Beyond: whole days. */
const TICKS = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 60, 120, 300, 600, 1200, 3600, 7200, 18_000, 43_200];
const MOST_TICKS = 5;
const DAY_S = 86_400;

/** The seconds between ticks of a window of so many seconds. */
export function tickOf(width: number): number {
  return TICKS.find((tick) => width / tick <= MOST_TICKS) ?? DAY_S * Math.ceil(width / DAY_S / MOST_TICKS);
}

/** Where the ticks of a window are, in parts of its width, and the time of each since `from`. */
function ticksOf([begin, end]: Range, from: number): [part: number, since: number][] {
  const [width, tick] = [Math.max(end - begin, 0.001), tickOf(Math.max(end - begin, 0.001))];
  const first = Math.ceil((begin - from) / tick - 1e-6);
  const last = Math.floor((end - from) / tick + 1e-6);
  return Array.from({ length: last - first + 1 }, (_, n) => [((first + n) * tick - (begin - from)) / width, (first + n) * tick]);
}

/** `window`: the time that the lane covers. */
export function Lane({ row, window: [begin, end] }: { row: Row; window: Range }) {
  const whole = Math.max(end - begin, 0.001);
  return (
    <span class="lane" aria-hidden="true">
      {ticksOf([begin, end], row.run.from).map(([part]) => (
        <b key={part} style={{ left: `${100 * part}%` }} />
      ))}
      {marksOf(row)
        .filter(({ from, to }) => row.kind === "gap" || (to >= begin && from <= end))
        .map(({ look, from, to }, n) => {
          const left = row.kind === "gap" ? 0 : Math.min(99.5, (100 * Math.max(0, from - begin)) / whole);
          const width = row.kind === "gap" ? 100 : Math.min(100 - left, (100 * (Math.min(to, end) - Math.max(from, begin))) / whole);
          return <i key={n} class={`look-${look}`} style={{ left: `${left}%`, width: `${width}%` }} />;
        })}
    </span>
  );
}

function marksOf(row: Row): Mark[] {
  switch (row.kind) {
    case "run":
      return [{ look: "run", from: row.run.from, to: row.run.to }];
    case "gap":
      return [{ look: row.why, from: row.from, to: row.to ?? row.run.to }];
    case "attempt":
      return attemptMarks(row.attempt);
    case "call":
      return callMarks(row.call, row.run.to);
    case "view":
      return [];
    case "step":
      return [...row.step.attempts.flatMap(attemptMarks), ...row.step.calls.flatMap((call) => callMarks(call, row.run.to))].slice(0, MOST_MARKS);
  }
}

function attemptMarks({ from, to, first, state }: StepSpan["attempts"][number]): Mark[] {
  if (state === "discarded") return [{ look: "discarded", from, to }];
  const look = state === "open" ? "open" : "model";
  return first > from ? [{ look: "first", from, to: Math.min(first, to) }, { look, from: first, to }] : [{ look, from, to }];
}

function callMarks(call: CallSpan, now: number): Mark[] {
  const waits = call.waits.map(([from, to]): Mark => ({ look: "person", from, to: to ?? now }));
  if (call.claims === 0 && call.child === undefined && call.ok === undefined) return waits;
  const look = call.ok === false ? "failed" : call.ok === undefined ? "open" : call.child === undefined ? "tool" : "agent";
  return [...waits, { look, from: call.from, to: call.ok === undefined ? now : call.to }];
}

export function Legend() {
  return (
    <ul class="legend">
      {LOOKS.map(([look, words]) => (
        <li key={look}>
          <span class="lane" aria-hidden="true">
            <i class={`look-${look}`} />
          </span>
          {words}
        </li>
      ))}
    </ul>
  );
}

/** The times at the ticks of a lane. */
export function Ruler({ window: [begin, end], from }: { window: Range; from: number }) {
  return (
    <span class="marks" aria-hidden="true">
      {ticksOf([begin, end], from).map(([part, since]) => (
        <i key={part} class={part < 0.04 ? "start" : part > 0.94 ? "end" : undefined} title={clock(from + since)} style={{ left: `${100 * part}%` }}>
          {since === 0 ? "0" : seconds(since).replace(/\.0(?= s$)| 0 s$| 0 min$/, "")}
        </i>
      ))}
    </span>
  );
}
