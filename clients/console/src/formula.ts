// Formulas, by KaTeX as MathML, which browsers draw themselves: no fonts and no styles to load.
import katex from "katex";

/** Longer formulas are shown as they were written. */
const LONG = 5_000;
const SOURCE = /<annotation[^>]*>[^<]*<\/annotation>/g;

export function formula(tex: string, block: boolean): string | undefined {
  if (tex.length > LONG) return undefined;
  try {
    const drawn = katex.renderToString(tex, { output: "mathml", displayMode: block, trust: false, maxExpand: 200, strict: "ignore" });
    return drawn.replace(SOURCE, "");
  } catch (error) {
    if (error instanceof katex.ParseError) return undefined;
    throw error;
  }
}
