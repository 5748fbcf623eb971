// Mermaid diagrams, drawn when somebody asks for one. The text is a model's: it is read by a worker, and shown as an image, which
// runs no scripts and loads nothing.
import { notDrawn } from "./markdown.ts";
import { openPicture, setPicture } from "./pictures.ts";

export interface Task {
  code: string;
  /** Colours of the page's theme. */
  colours: Record<string, string>;
}

/** Neither: the worker is loaded. */
export interface Drawing {
  svg?: string;
  problem?: string;
}

/** Longer texts are not drawn, in characters. */
const LONG = 20_000;
const PATIENCE_MS = 8_000;
const LOADED_MS = 60_000;
const LOST = "the library could not be loaded";
const TOKENS = { bg: "--surface", fg: "--ink", line: "--quiet", accent: "--accent", muted: "--quiet", surface: "--sunken", border: "--strong-line" };

function colours(): Record<string, string> {
  const style = getComputedStyle(document.documentElement);
  return Object.fromEntries(Object.entries(TOKENS).map(([name, token]) => [name, style.getPropertyValue(token).trim()]));
}

/** Rejects with why the diagram cannot be drawn. */
async function draw(code: string): Promise<string> {
  if (code.length > LONG) throw new Error(`the diagram has more than ${LONG.toLocaleString("en")} characters`);
  const worker = new Worker(new URL("./diagram.worker.ts", import.meta.url), { type: "module" });
  try {
    return await new Promise<string>((done, failed) => {
      let late = setTimeout(() => failed(new Error(LOST)), LOADED_MS);
      worker.onmessage = ({ data: { svg, problem } }: MessageEvent<Drawing>) => {
        clearTimeout(late);
        if (svg !== undefined) return done(svg);
        if (problem !== undefined) return failed(new Error(problem));
        late = setTimeout(() => failed(new Error(`it takes longer than ${PATIENCE_MS / 1000} s`)), PATIENCE_MS);
        worker.postMessage({ code, colours: colours() } satisfies Task);
      };
      worker.onerror = () => failed(new Error(LOST));
    });
  } finally {
    worker.terminate();
  }
}

/** Show the diagram in place of its code, or the code again. `button`: the one of the listing. */
export async function toggleDiagram(button: HTMLButtonElement): Promise<void> {
  const listing = button.closest(".listing") as HTMLElement;
  listing.querySelector(".diagram-problem")?.remove();
  const shown = listing.querySelector(".diagram");
  if (shown !== null) return hide(shown, button);
  button.disabled = true;
  try {
    await show(listing, listing.querySelector("code")?.textContent ?? "");
    button.textContent = "Show code";
  } catch (error) {
    notDrawn(button, (error as Error).message);
  } finally {
    button.disabled = false;
    button.focus();
  }
}

/** `again`: only if the diagram is still shown when it is drawn. */
async function show(listing: HTMLElement, code: string, again = false): Promise<void> {
  const url = URL.createObjectURL(new Blob([await draw(code)], { type: "image/svg+xml" }));
  const image = new Image();
  image.alt = `Diagram: ${code.trim().split("\n", 1)[0]}`;
  image.src = url;
  try {
    await image.decode();
  } catch {
    URL.revokeObjectURL(url);
    throw new Error("its text has characters that a picture cannot have");
  }
  const before = listing.querySelector(".diagram");
  if (again && before === null) return URL.revokeObjectURL(url);
  before?.remove();
  const opener = document.createElement("button");
  opener.type = "button";
  opener.className = "diagram";
  opener.dataset["picture"] = "";
  opener.title = "Enlarge";
  opener.append(image);
  opener.onclick = () => openPicture(opener);
  setPicture(opener, { name: "Diagram", url: async () => image.src });
  listing.querySelector("pre")?.before(opener);
}

function hide(shown: Element, button: HTMLButtonElement): void {
  URL.revokeObjectURL((shown.querySelector("img") as HTMLImageElement).src);
  shown.remove();
  button.textContent = "Draw diagram";
}

// In the colours of the theme, also after it has changed.
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  for (const diagram of document.querySelectorAll(".diagram")) {
    const listing = diagram.closest(".listing") as HTMLElement;
    const { src } = diagram.querySelector("img") as HTMLImageElement;
    show(listing, listing.querySelector("code")?.textContent ?? "", true).then(
      () => URL.revokeObjectURL(src),
      () => undefined, // the old picture stays
    );
  }
});
