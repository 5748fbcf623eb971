// Libraries and views that the first view can do without. Each is a file of its own, loaded when it is first needed. Until then, and
// where a library cannot be loaded, its texts are shown plain.
import { signal } from "@preact/signals";

/** They return HTML, or `undefined` for a text that it cannot show. */
type Highlight = (code: string, language: string) => string | undefined;
type Markdown = typeof import("./markdown.ts");
type Formula = (tex: string, block: boolean) => string | undefined;

interface Extras {
  timeline: typeof import("./timelineview.tsx");
  state: typeof import("./stateview.tsx");
  cost: typeof import("./costview.tsx");
  fleet: typeof import("./fleetview.tsx");
  compare: typeof import("./compare.tsx");
  palette: typeof import("./palette.tsx");
  lightbox: typeof import("./lightbox.tsx");
  menu: typeof import("./sessionmenu.tsx");
  find: typeof import("./find.tsx");
  live: typeof import("./live.tsx");
  markdown: Markdown;
  highlight: Highlight;
  formula: Formula;
}

export type Extra = keyof Extras;

const loaders: { [K in keyof Extras]: () => Promise<Extras[K]> } = {
  timeline: () => import("./timelineview.tsx"),
  state: () => import("./stateview.tsx"),
  cost: () => import("./costview.tsx"),
  fleet: () => import("./fleetview.tsx"),
  compare: () => import("./compare.tsx"),
  palette: () => import("./palette.tsx"),
  lightbox: () => import("./lightbox.tsx"),
  menu: () => import("./sessionmenu.tsx"),
  find: () => import("./find.tsx"),
  live: () => import("./live.tsx"),
  markdown: () => import("./markdown.ts"),
  highlight: async () => (await import("./highlight.ts")).highlight,
  formula: async () => (await import("./formula.ts")).formula,
};
const have: Partial<Extras> = {};
/** Those that could not be loaded. */
export const lost = signal<ReadonlySet<keyof Extras>>(new Set());
const asked = new Set<keyof Extras>();

/** Grows with each library that arrives. Whoever reads it is drawn again. */
export const arrived = signal(0);

/** Grows with each library that changes how a text is drawn: such texts are parsed again. */
export const drawers = signal(0);
const DRAWERS: ReadonlySet<Extra> = new Set<Extra>(["highlight", "formula"]);

/** The library, if it is here. If it is not, it is loaded. */
export function extra<K extends keyof Extras>(name: K): Extras[K] | undefined {
  if (!asked.has(name)) {
    asked.add(name);
    void load(name);
  }
  void arrived.value; // whoever asks is drawn again when it arrives
  return have[name];
}

async function load<K extends keyof Extras>(name: K): Promise<void> {
  try {
    have[name] = await loaders[name]();
    if (DRAWERS.has(name)) drawers.value++;
    arrived.value++;
  } catch (error) {
    lost.value = new Set([...lost.value, name]);
    console.warn(`The page could not load ${name}.`, error);
  }
}
