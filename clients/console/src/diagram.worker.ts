// Draws a Mermaid diagram as SVG, away from the page: a diagram that never ends is stopped with its worker.
import { renderMermaidSVG } from "beautiful-mermaid";
import type { Drawing, Task } from "./diagram.ts";

// Its layout library takes a worker without a document for one of its own; and it writes to `self`.
Object.assign(globalThis, { document: {} });
Object.defineProperty(globalThis, "self", { value: globalThis, writable: true, configurable: true });

/** Styles of other origins, which a picture does not load. */
const IMPORTS = /@import url\('[^']*'\);/g;

const answer = (drawing: Drawing) => postMessage(drawing);

onmessage = ({ data: { code, colours } }: MessageEvent<Task>) => {
  try {
    const svg = renderMermaidSVG(code, { ...colours, font: "sans-serif", padding: 16, transparent: true });
    answer({ svg: svg.replace(IMPORTS, "").replace("'sans-serif'", "sans-serif") });
  } catch (error) {
    answer({ problem: error instanceof Error ? error.message : String(error) });
  }
};

answer({});
