// A session as one HTML file, as `helix show --html` writes it: it runs no scripts and loads nothing. All texts are written as
// texts of an inert document, so they cannot become anything else.
import style from "../../../layers/core/python/helix/cli/sessions/page.css?raw";
import type { AskedQuestion, CallResponse, FilePart, Replies, SessionState } from "../../js/src/index.ts";
import { service } from "./api.ts";
import { type Call, Conversation, FINISH, type Source, type Step, SUBAGENT, type Tone } from "./fold.ts";
import { bytes, count, json, visible } from "./format.ts";
import { wordsOf } from "./items.tsx";
import { childrenOf } from "./session.ts";
import type { Message } from "./wire.ts";

/** A call's arguments and result of at most so many characters are shown from the beginning. */
const OPEN_CHARS = 600;
const SUMMARY_CHARS = 120;
const PAGE = 100;
const MISSING: Record<string, string> = { deleted: "was deleted", not_started: "has not started" };
const NOTICES: Record<Tone, string> = { plain: "soft", warn: "wait", bad: "bad" };
const TONES: Record<string, string> = { completed: "good", failed: "bad", paused: "wait", interrupted: "wait" };
const WANTED: Record<string, string> = { question: "the answer to a question", elsewhere: "another system's result" };

type Found = Replies["get_session"];
type Pending = SessionState["pending"][number];
type Run = NonNullable<Found["runs"]>[number];
type Tokens = Partial<Pick<SessionState["usage"], "prompt_tokens" | "completion_tokens" | "cached_tokens">>;

interface Question extends Pending {
  agent: string;
}

interface Told {
  state: SessionState;
  /** All of it, with the conversations of sub-agents below their calls. */
  conversation: Conversation;
  runs: Run[];
  questions: Question[];
}

const inert = document.implementation.createHTMLDocument("");

type Part = Element | string | undefined;

/** `tag`: the element's name with its classes, such as `p.soft`. */
function element(tag: string, ...inside: Part[]): HTMLElement {
  const [name = "", ...classes] = tag.split(".");
  const made = inert.createElement(name);
  if (classes.length > 0) made.className = classes.join(" ");
  made.append(...inside.filter((part) => part !== undefined).map((part) => (typeof part === "string" ? visible(part) : part)));
  return made;
}

function attributed(made: HTMLElement, attributes: Record<string, string>): HTMLElement {
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  return made;
}

/** Save the page of the session as a file. */
export async function savePage(id: string): Promise<void> {
  if (!isSecureContext) throw new Error("A browser saves a session as a page only over HTTPS, or from localhost.");
  const told = await read(id);
  const html = await page(told, await service().ask("get_cost", { session_id: id }));
  const url = URL.createObjectURL(new Blob([html], { type: "text/html" }));
  const link = document.createElement("a");
  link.href = url;
  link.download = `${id.replace(/[^A-Za-z0-9_.-]/g, "_")}.html`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}

async function read(id: string, conversation = new Conversation(id)): Promise<Told> {
  const ask = (fields: object): Promise<Found> => service().ask("get_session", { session_id: id, ...fields });
  const found = await ask({ messages: PAGE, runs: PAGE, sub_sessions: true });
  let { messages = [], offset = 0, runs = [], more_runs: more = false } = found;
  while (offset > 0) {
    const older = await ask({ messages: PAGE, before: offset });
    [messages, offset] = [[...(older.messages ?? []), ...messages], older.offset ?? 0];
  }
  while (more) {
    const older = await ask({ runs: PAGE, runs_before: runs.at(-1)?.run_id });
    [runs, more] = [[...runs, ...(older.runs ?? [])], older.more_runs ?? false];
  }
  [conversation.agent, conversation.status] = [found.session.agent_type, found.session.status];
  conversation.load(messages as Message[], childrenOf(found.sub_sessions));
  conversation.expect(found.session.pending);
  for (const ref of found.sub_sessions ?? []) {
    conversation.expectChild(ref);
    const child = conversation.below.get(ref.session_id) as Conversation;
    const why = MISSING[ref.status];
    if (why === undefined) await read(ref.session_id, child);
    else child.note(`The session of the sub-agent ${ref.agent_type} ${why}.`, "plain");
  }
  return { state: found.session, conversation, runs, questions: await questions(found.session) };
}

async function questions(state: SessionState): Promise<Question[]> {
  const found: Question[] = [];
  for (const pending of state.pending) {
    if (pending.child_session_id != null) found.push(...(await questions(await service().getSession(pending.child_session_id))));
    else found.push({ ...pending, agent: state.agent_type });
  }
  return found;
}

async function page(told: Told, cost: Replies["get_cost"]): Promise<string> {
  const { state, conversation } = told;
  const text = style.trim();
  const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", new TextEncoder().encode(text)));
  const policy = `default-src 'none'; style-src 'sha256-${btoa(String.fromCharCode(...digest))}'; base-uri 'none'; form-action 'none'`;
  const meta = (attributes: Record<string, string>) => attributed(element("meta"), attributes);
  const sheet = inert.createElement("style");
  sheet.textContent = text;
  const head = element(
    "head",
    meta({ charset: "utf-8" }),
    meta({ "http-equiv": "Content-Security-Policy", content: policy }),
    meta({ name: "viewport", content: "width=device-width, initial-scale=1" }),
    meta({ name: "referrer", content: "no-referrer" }),
    meta({ name: "robots", content: "noindex" }),
    element("title", state.title || `${state.agent_type}: ${state.session_id}`),
    sheet,
  );
  const custom = Object.keys(state.custom_state).length > 0 ? [element("h2", "State"), pre(json(state.custom_state))] : [];
  const main = element("main", header(told, cost.usd), element("h2", "Conversation"), ...itemsOf(conversation));
  const given = [...conversation.calls.values()].some(({ name }) => name === FINISH);
  if (state.output != null && !given) main.append(element("div.said", element("div.who", "Output"), pre(json(state.output))));
  main.append(...custom);
  main.append(element("h2", "Runs"), runList(told.runs), element("h2", "Cost"), ...costs(cost, state.session_id));
  main.append(element("footer", `Made ${time(Date.now() / 1000)} by the Helix console. To import the session elsewhere: helix export ${state.session_id}`));
  const root = attributed(element("html", head, element("body", main)), { lang: "en" });
  return `<!doctype html>\n${root.outerHTML}\n`;
}

const pre = (text: string): Element => attributed(element("pre", text), { tabindex: "0" });
const badge = (status: string): Element => element(`span.badge${TONES[status] ? `.${TONES[status]}` : ""}`, status);
const label = (text: string): Element => element("div.label", text);

function header({ state, questions }: Told, dollars: number): Element {
  const used = `${tokens(state.usage)}, ${usd(dollars)} in all`;
  const about = `${time(state.created_at)} to ${time(state.updated_at)} · ${count(state.message_count, "message")} · ${used}`;
  return element(
    "header",
    element("h1", `${state.title || state.agent_type} `, badge(state.status)),
    element("p.soft", state.title ? `${state.agent_type} · ` : "", element("code", state.session_id)),
    element("p.soft", about),
    state.forked_from ? element("p.soft", `Copied from ${short(state.forked_from)}`) : undefined,
    state.error ? element("p.bad", `${state.error.code}: ${state.error.message}`) : undefined,
    ...questions.map((one) => {
      const why = (one.questions ?? []).map(({ text }) => text).join("; ") || one.reason;
      const wanted = WANTED[one.kind ?? ""] ?? one.kind ?? "approval";
      return element("p.wait", `Waits for ${wanted} of ${called(one.tool_name, one.arguments ?? {})}${why ? `: ${why}` : ""}`);
    }),
  );
}

// --- the conversation ---------------------------------------------------------------------------------------------------

function* itemsOf(conversation: Conversation): Generator<Element> {
  for (const item of conversation.items) {
    if (item.type === "user") yield said("user", "User", item.at, [item.text, ...item.files.map(file)].join("\n"));
    else if (item.type === "notice") yield element(`p.${NOTICES[item.tone]}`, wordsOf(item));
    else yield* piecesOf(item);
  }
}

/** In the order of `pieces_of` in Python. */
function* piecesOf(step: Step): Generator<Element> {
  if (step.thinking) yield element("details", element("summary.soft", "Thinking"), element("div", element("div.text", step.thinking)));
  for (const one of step.served.values()) yield callOf(one);
  if (step.text) yield said("agent", step.agent || step.conversation.agent, step.at, step.text);
  if (step.citations.length > 0) yield element("ul.soft", ...step.sources.map((one) => element("li", ...sourceOf(one))));
  if (step.cut) yield element("p.wait", "stopped here");
  if (step.output) yield element("div.said", element("div.who", "Output"), pre(pretty(step.output)));
  for (const one of step.calls) yield callOf(one);
}

/** A source as a link. Only addresses of the web become links. */
function sourceOf({ url, title }: Source): Part[] {
  if (!url || !/^https?:\/\//.test(url)) return [[title, url].filter(Boolean).join(" · ") || "a document"];
  return [attributed(element("a", title || url), { href: url, rel: "noreferrer noopener" }), ` · ${url}`];
}

function said(kind: string, who: string, at: number | null | undefined, text: string): Element {
  const when = time(at ?? null);
  return element(`article.said.${kind}`, element("div.who", who, when ? element("span.soft", ` · ${when}`) : undefined), element("div.text", text));
}

function callOf(call: Call): Element {
  const asked = json(call.asked ?? call.arguments);
  const inside: Part[] = asked === "{}" ? [] : [label("Arguments"), pre(asked)];
  if (call.edited) inside.push(label(`Executed with, changed by ${call.edited.by || "an operator"}`), pre(json(call.arguments)));
  for (const one of call.state === "waiting" ? [] : call.questions) inside.push(label(one.text), pre(answerOf(one)));
  inside.push(...call.responses.map((given) => label(response(given))));
  if (call.child) inside.push(childOf(call.child));
  const ended = call.state === "done" || call.state === "failed";
  const text = ended ? [pretty(textOf(call.error ?? call.result)), ...call.files.map(file)].join("\n") : "";
  const status = ended ? element(`span.badge.${call.state === "done" ? "good" : "bad"}`, call.state === "done" ? "ok" : "failed") : element("span.badge.wait", "no result");
  if (ended) inside.push(label("Result"), pre(text));
  const open = asked.length + text.length <= OPEN_CHARS && call.child === undefined;
  const name = call.name.startsWith(SUBAGENT) ? call.name.slice(SUBAGENT.length) : call.name;
  const brief = open ? "" : cut(called("", call.asked ?? call.arguments).slice(1, -1), SUMMARY_CHARS);
  const kind = name === call.name ? "" : "sub-agent ";
  const summary = element("summary", kind, element("code", name), " ", status, brief ? element("span.soft", ` ${brief}`) : undefined);
  return attributed(element("details.call", summary, element("div", ...inside)), open ? { open: "open" } : {});
}

/** The results of the provider's own tools are values, and all others texts. */
const textOf = (result: unknown): string => (typeof result === "string" ? result : JSON.stringify(result));

function childOf(child: Conversation): Element {
  return element("section.child", element("h3", `Sub-agent ${child.agent} `, child.status ? badge(child.status) : undefined), ...itemsOf(child));
}

// --- runs and money -----------------------------------------------------------------------------------------------------

function runList(runs: readonly Run[]): Element {
  return element(
    "ol",
    ...runs.toReversed().map((run) => {
      const took = run.ended_at ? `took ${(run.ended_at - run.started_at).toFixed(1)} s` : "";
      const facts = [time(run.started_at), took, count(run.steps, "step"), tokens(usageOf(run.usage))].filter((fact) => fact !== "");
      const why = run.error ? element("div.bad", `${run.error.code}: ${run.error.message}`) : undefined;
      return element("li", `${run.turn}. ${run.mode.replaceAll("_", " ")} `, badge(run.status), element("span.soft", ` · ${facts.join(" · ")}`), why);
    }),
  );
}

/** `numbers`: so many columns from the end are numbers. */
function table(columns: string[], rows: Part[][], numbers: number): Element {
  const line = (tag: string, cells: Part[]) =>
    element("tr", ...cells.map((cell, n) => element(n >= cells.length - numbers ? `${tag}.number` : tag, cell)));
  const made = element("table", element("thead", line("th", columns)), element("tbody", ...rows.map((row) => line("td", row))));
  return attributed(element("div.wide", made), { tabindex: "0" });
}

function* costs({ services, usd: all, lines, left_out: left }: Replies["get_cost"], id: string): Generator<Element> {
  const sums = Object.entries(services).map(([name, dollars]): Part[] => [name, usd(dollars)]);
  yield table(["service", "cost"], [...sums, [element("strong", "in all"), usd(all)]], 1);
  const each = lines.map((line) => {
    const what = line.session_id === id ? line.what : `${line.what} (${line.session_id})`;
    return [line.service, what, line.step == null ? "" : String(line.step), `${line.quantity.toLocaleString("en")} ${line.unit}`, usd(line.usd)];
  });
  const whole = table(["service", "what", "step", "quantity", "cost"], each, 2);
  yield element("details", element("summary.soft", `Line by line (${lines.length})`), element("div", whole));
  if (left.length > 0) yield element("p.soft", `Not in it: ${left.join("; ")}.`);
}

// --- words --------------------------------------------------------------------------------------------------------------

/** `words`, and who gave it when. */
function given(words: string, { by, at }: { by?: string | null; at?: number | null }): string {
  const known = [words, by ? `by ${by}` : "", time(at ?? null)].filter((word) => word !== "");
  return known.length > 0 ? ` (${known.join(", ")})` : "";
}

function answerOf(question: AskedQuestion): string {
  if (!question.answered) return "no answer";
  return short(question.data) + given(question.timed_out ? "the default, because no answer came in time" : "", question);
}

const YES: Record<string, string> = { client: "result given", unknown: "run again", question: "answered" };
const NO: Record<string, string> = { client: "failure reported", unknown: "outcome decided", question: "not answered" };

const response = (one: CallResponse): string => (one.approved ? (YES[one.kind] ?? "approved") : (NO[one.kind] ?? "denied")) + given("", one);

function cut(text: string, limit: number): string {
  const line = text.trim().replace(/\s+/g, " ");
  return line.length <= limit ? line : `${line.slice(0, limit - 1)}…`;
}

const called = (name: string, given: object): string =>
  `${name}(${Object.entries(given).map(([key, value]) => `${key}=${part(value)}`).join(", ")})`;

const short = (value: unknown): string => cut(typeof value === "string" ? value : part(value), 200);

function part(value: unknown): string {
  if (typeof value === "string") return JSON.stringify(cut(value, 60));
  if (Array.isArray(value)) return `[${[...value.slice(0, 3).map(part), ...(value.length > 3 ? [`… ${value.length - 3} more`] : [])].join(", ")}]`;
  if (value !== null && typeof value === "object") return `{${Object.entries(value).map(([name, item]) => `${name}: ${part(item)}`).join(", ")}}`;
  return JSON.stringify(value);
}

function file({ name, url, kind, media_type, width, height, pages, size }: FilePart): string {
  const facts = [media_type, width && height ? `${width} x ${height}` : "", pages ? count(pages, "page") : "", size ? bytes(size) : ""];
  return `${name || url || kind} (${facts.filter((fact) => fact !== "").join(", ")})`;
}

function pretty(text: string): string {
  if (!/^[[{]/.test(text)) return text;
  try {
    return json(JSON.parse(text));
  } catch {
    return text;
  }
}

/** The tokens of a run, whose usage is the list of its numbers. */
function usageOf(numbers: readonly (number | boolean)[]): Tokens {
  const [prompt_tokens = 0, completion_tokens = 0, , , , cached_tokens = 0] = numbers.map(Number);
  return { prompt_tokens, completion_tokens, cached_tokens };
}

function tokens({ prompt_tokens = 0, completion_tokens = 0, cached_tokens = 0 }: Tokens): string {
  const text = `${prompt_tokens.toLocaleString("en")} + ${completion_tokens.toLocaleString("en")} tokens`;
  return cached_tokens ? `${text} (${cached_tokens.toLocaleString("en")} cached)` : text;
}

function usd(dollars: number): string {
  if (dollars === 0 || dollars >= 0.01) return `$${dollars.toLocaleString("en", { minimumFractionDigits: 4, maximumFractionDigits: 4 })}`;
  return `$${dollars.toFixed(9).replace(/0+$/, "")}`;
}

const time = (at: number | null): string => (at ? `${new Date(at * 1000).toISOString().slice(0, 19).replace("T", " ")} UTC` : "");
