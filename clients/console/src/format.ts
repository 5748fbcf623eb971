// Values as people read them. Text of models, tools and users is shown as text: what would change how a line is read, such as
// a mark of direction, is shown by its code point.
const HIDDEN = /[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb]|[\u{e0000}-\u{e007f}]/gu;
/** Between other characters they belong to words and emoji of many languages. */
const JOINER = /\u200c|\u200d/;

export function visible(text: string): string {
  return text.replace(HIDDEN, (mark) =>
    JOINER.test(mark) ? mark : `⟨U+${(mark.codePointAt(0) as number).toString(16).toUpperCase().padStart(4, "0")}⟩`,
  );
}

/** On one line, at most so long. */
export function brief(text: string, length = 80): string {
  const line = visible(text.replace(/\s+/g, " ").trim());
  return line.length <= length ? line : `${line.slice(0, length - 1)}…`;
}

export function json(value: unknown): string {
  return typeof value === "string" ? visible(value) : visible(JSON.stringify(value, null, 2) ?? "");
}

/** A value on one line. */
export function inline(value: unknown, length = 80): string {
  return brief(typeof value === "string" ? value : (JSON.stringify(value) ?? ""), length);
}

export function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

/** Of millionths of a dollar. */
export function money(micros: number): string {
  const dollars = micros / 1e6;
  if (dollars === 0) return "$0";
  if (dollars >= 1) return `$${dollars.toFixed(2)}`;
  return `$${dollars.toFixed(dollars >= 0.01 ? 4 : 6).replace(/0{1,4}$/, "")}`;
}

export const count = (n: number, one: string): string => `${n.toLocaleString("en")} ${one}${n === 1 ? "" : "s"}`;

const CAUSES: Record<string, string> = {
  overflow: ", because the provider refused the prompt as too long",
  request: ", as requested",
};

/** How the model's view of the conversation has changed. `text`: the summary. `code`: the cause. */
export function contextWords({ hidden, text, code }: { hidden: number; text: string; code: string }): string {
  const first = hidden === 1 ? "the first message" : `the first ${count(hidden, "message")}`;
  const cause = CAUSES[code] ?? "";
  if (hidden === 0) return `Old tool results were cleared from the model's context${cause}.`;
  return text === "" ? `The model no longer sees ${first}${cause}.` : `The model now sees a summary in place of ${first}${cause}.`;
}

const UNITS = ["B", "KB", "MB", "GB"];

/** A size in bytes, in units of 1024. */
export function bytes(size: number): string {
  let [value, unit] = [size, 0];
  while (value >= 1024 && unit < UNITS.length - 1) [value, unit] = [value / 1024, unit + 1];
  return `${unit === 0 || value >= 100 ? Math.round(value) : Number(value.toFixed(1))} ${UNITS[unit]}`;
}

export function seconds(s: number): string {
  if (s < 1) return `${Math.max(0, Math.round(s * 1000))} ms`;
  if (s < 60) return `${s.toFixed(1)} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${Math.round(s % 60)} s`;
  return `${Math.floor(s / 3600)} h ${Math.round((s % 3600) / 60)} min`;
}

/** How long ago; `at` in Unix seconds. */
export function ago(at: number, now = Date.now() / 1000): string {
  const s = Math.max(0, now - at);
  if (s < 45) return "now";
  if (s < 3600) return `${Math.max(1, Math.round(s / 60))} min`;
  if (s < 86_400) return `${Math.round(s / 3600)} h`;
  return s < 30 * 86_400 ? `${Math.round(s / 86_400)} d` : new Date(at * 1000).toISOString().slice(0, 10);
}

export const clock = (at: number): string => new Date(at * 1000).toLocaleTimeString("en-GB");

export interface Tokens {
  prompt_tokens?: number;
  completion_tokens?: number;
  cost_micros?: number;
}

export function tokens(usage: Tokens): string {
  return `${(usage.prompt_tokens ?? 0).toLocaleString("en")} in, ${(usage.completion_tokens ?? 0).toLocaleString("en")} out`;
}
