// Libraries that the first view can do without. Each is a file of its own, loaded when the first text that needs it is shown. Until
// then, and where it cannot be loaded, the text is shown plain.
import { signal } from "@preact/signals";

/** They return HTML, or `undefined` for a text that it cannot show. */
type Highlight = (code: string, language: string) => string | undefined;
type Markdown = typeof import("./markdown.ts");
type Formula = (tex: string, block: boolean) => string | undefined;

interface Extras {
  markdown: Markdown;
  highlight: Highlight;
  formula: Formula;
}

const loaders: { [K in keyof Extras]: () => Promise<Extras[K]> } = {
  markdown: () => import("./markdown.ts"),
  highlight: async () => (await import("./highlight.ts")).highlight,
  formula: async () => (await import("./formula.ts")).formula,
};
const have: Partial<Extras> = {};
const asked = new Set<keyof Extras>();

/** Grows with each library that arrives. Whoever reads it is drawn again. */
export const arrived = signal(0);

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
    arrived.value++;
  } catch (error) {
    console.warn(`The page could not load ${name}. It shows such texts plain.`, error);
  }
}
