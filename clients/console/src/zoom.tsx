// The part of a run's time that the lanes show: a strip of the whole run, on which one drags to choose a part, and buttons.
import { useEffect, useRef } from "preact/hooks";
import type { Range, RunSpan } from "./timeline.ts";
import { rangeOf } from "./timeline.ts";

export interface Zoom {
  run: string;
  range: Range;
}

const STRIP_PX = 26;
/** The shortest part that is shown, in seconds. */
const LEAST_S = 0.005;
const FACTOR = 0.5;

export const windowOf = (run: RunSpan, zoom: Zoom | undefined): Range => (zoom?.run === run.id ? zoom.range : [run.from, run.to]);

/** Half as much of the run, or twice as much, around a time. `undefined`: all of it. */
export function zoomed(run: RunSpan, zoom: Zoom | undefined, by: "in" | "out", around: number): Zoom | undefined {
  const [from, to] = windowOf(run, zoom);
  const width = Math.max(LEAST_S, (to - from) * (by === "in" ? FACTOR : 1 / FACTOR));
  if (width >= run.to - run.from) return undefined;
  const begin = Math.min(Math.max(run.from, around - width / 2), run.to - width);
  return { run: run.id, range: [begin, begin + width] };
}

interface Given {
  run: RunSpan;
  zoom: Zoom | undefined;
  setZoom: (zoom: Zoom | undefined) => void;
}

export function Strip({ run, zoom, setZoom }: Given) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const begun = useRef<number | undefined>(undefined);
  const [from, to] = windowOf(run, zoom);
  useEffect(() => {
    if (canvas.current !== null) draw(canvas.current, run, [from, to]);
  });
  useEffect(() => {
    const scheme = matchMedia("(prefers-color-scheme: dark)");
    const again = () => canvas.current !== null && draw(canvas.current, run, windowOf(run, zoom));
    const watcher = new ResizeObserver(again);
    watcher.observe(canvas.current as HTMLCanvasElement);
    scheme.addEventListener("change", again);
    return () => (watcher.disconnect(), scheme.removeEventListener("change", again));
  }, [run, zoom]);
  const timeAt = (event: PointerEvent): number => {
    const box = (event.currentTarget as HTMLElement).getBoundingClientRect();
    const part = Math.min(1, Math.max(0, (event.clientX - box.left) / box.width));
    return run.from + part * (run.to - run.from);
  };
  const choose = (event: PointerEvent) => {
    if (begun.current === undefined) return;
    const [one, other] = [begun.current, timeAt(event)];
    if (Math.abs(other - one) > Math.max(LEAST_S, (run.to - run.from) / 200)) setZoom({ run: run.id, range: [Math.min(one, other), Math.max(one, other)] });
  };
  return (
    <canvas
      ref={canvas}
      class="strip"
      height={STRIP_PX}
      aria-hidden="true"
      title="Drag to zoom; click twice to show the whole run"
      onPointerDown={(event) => {
        begun.current = timeAt(event);
        event.currentTarget.setPointerCapture(event.pointerId);
      }}
      onPointerMove={choose}
      onPointerUp={(event) => (choose(event), (begun.current = undefined))}
      onDblClick={() => setZoom(undefined)}
    />
  );
}

/** Each step is a bar as wide as it lasted; one with a problem has its own colour. */
function draw(canvas: HTMLCanvasElement, run: RunSpan, [from, to]: Range): void {
  const [width, ratio] = [canvas.clientWidth, devicePixelRatio];
  [canvas.width, canvas.height] = [width * ratio, STRIP_PX * ratio];
  const paint = canvas.getContext("2d");
  if (paint === null) return;
  paint.scale(ratio, ratio);
  const style = getComputedStyle(canvas);
  const colour = (name: string) => style.getPropertyValue(name).trim();
  const x = (at: number) => (width * (at - run.from)) / Math.max(run.to - run.from, LEAST_S);
  for (const [problem, fill] of [[false, colour("--accent")], [true, colour("--bad")]] as const) {
    paint.fillStyle = fill;
    for (const step of run.steps) {
      if (step.problems > 0 !== problem) continue;
      const [begin, end] = rangeOf(step, run.to);
      paint.fillRect(x(begin), problem ? 4 : 9, Math.max(1, x(end) - x(begin) - 0.5), STRIP_PX - (problem ? 8 : 18));
    }
  }
  if (from <= run.from && to >= run.to) return;
  paint.fillStyle = colour("--bg");
  paint.globalAlpha = 0.7;
  paint.fillRect(0, 0, x(from), STRIP_PX);
  paint.fillRect(x(to), 0, width - x(to), STRIP_PX);
  paint.globalAlpha = 1;
  paint.strokeStyle = colour("--ink");
  paint.strokeRect(x(from) + 0.5, 0.5, Math.max(2, x(to) - x(from) - 1), STRIP_PX - 1);
}
