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

/** `window`: the time that the lane covers. */
export function Lane({ row, window: [begin, end] }: { row: Row; window: Range }) {
  const whole = Math.max(end - begin, 0.001);
  return (
    <span class="lane" aria-hidden="true">
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
      {[0, 0.25, 0.5, 0.75, 1].map((part) => (
        <i key={part} title={clock(begin + part * (end - begin))}>
          {seconds(begin + part * (end - begin) - from)}
        </i>
      ))}
    </span>
  );
}
