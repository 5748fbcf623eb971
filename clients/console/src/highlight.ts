// Colours for code, by highlight.js with its common languages.
import hljs from "highlight.js/lib/common";

/** Longer code is shown plain: it would hold the page up. */
const LONG = 50_000;

export function highlight(code: string, language: string): string | undefined {
  if (code.length > LONG || hljs.getLanguage(language) === undefined) return undefined;
  return hljs.highlight(code, { language, ignoreIllegals: true }).value;
}
