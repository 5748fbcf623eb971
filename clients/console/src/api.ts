// Who serves this page, and the client that all views share.
import { signal } from "@preact/signals";
import { type Fields, type FilePart, HelixClient, HelixError, type Replies } from "../../js/src/index.ts";
import { freshKey as newKey } from "../../js/src/settings.ts";
import { readContent } from "../../js/src/files.ts";
import { onConnection } from "./connection.tsx";
import type { Outgoing } from "./drafts.ts";
import { found, type Proof, refusal, SignedIn, type Site, signOut } from "./signin.tsx";

export { HelixError };

export interface AgentInfo {
  name: string;
  description?: string;
  /** Messages to begin with. */
  examples?: string[];
  kind?: "chat" | "function";
  /** What `run` takes besides the agent. */
  input?: Schema;
}

/** The parts of a JSON schema that forms are made of. */
export interface Schema {
  type?: string | string[];
  title?: string;
  description?: string;
  properties?: Record<string, Schema>;
  required?: string[];
  enum?: unknown[];
  items?: Schema;
  default?: unknown;
  anyOf?: Schema[];
  oneOf?: Schema[];
  allOf?: Schema[];
  $ref?: string;
  $defs?: Record<string, Schema>;
}

interface Config {
  url: string;
  token: string | null;
  /** Where the sessions are, in words. */
  place: string;
  agents: AgentInfo[];
}

type Phase =
  | { is: "opening" }
  | { is: "refused"; title: string; why: string }
  | { is: "signing-in"; site: Site }
  | { is: "ready"; config: Config; client: HelixClient; signOut?: () => void };

export const phase = signal<Phase>({ is: "opening" });
/** Whether a command of this machine serves the page, and not a stage. */
export const local = signal(false);
export const agents = signal<AgentInfo[]>([]);
/** The agent that the project puts first. Null if there is none, or the service is of an older version. */
export const firstAgent = signal<string | null>(null);
const CODE = "helix-console-code";
const MOST_AGENTS = 500;

/** The code that the address has behind its #, or that an earlier page of this server had. It leaves the address at once. */
function code(): string | null {
  const found = /^#code=([A-Za-z0-9_-]+)(.*)$/.exec(location.hash);
  if (found === null) return localStorage.getItem(CODE);
  localStorage.setItem(CODE, found[1] as string);
  history.replaceState(null, "", `${location.pathname}#${found[2] || "/"}`);
  dispatchEvent(new HashChangeEvent("hashchange")); // what is behind the code is the place to show
  return found[1] as string;
}

async function config(): Promise<Config> {
  const answer = await fetch("./sign-in", {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ code: code() ?? "" }),
  });
  if (answer.status === 403) {
    throw new Error("Open the address that the command printed, with the code behind its #. It signs this browser in.");
  }
  if (!answer.ok) throw broken(answer);
  return (await answer.json()) as Config;
}

/** The server of the page answered with an error of its own, which says nothing about who is signed in. */
class BrokenServerError extends Error {}
const broken = ({ status }: Response) => new BrokenServerError(`The console's server answers ${status}.`);

/** How one signs in is said by `config.json`, beside the page. */
export async function open(): Promise<void> {
  try {
    const answer = await fetch("./config.json");
    if (!answer.ok) throw broken(answer);
    const site = (await answer.json()) as Site | { sign_in: ["code"] };
    if ("url" in site) return await openStage(site);
    local.value = true;
    const given = await config();
    await connect(given, given.token ?? undefined);
  } catch (error) {
    phase.value = refused(error);
  }
}

/** A server of this machine takes the token that it has given: if it does not connect, it is gone. */
function refused(error: unknown): Phase {
  const gone = error instanceof TypeError || (error instanceof HelixError && error.code === "connection_lost");
  if (error instanceof BrokenServerError) return { is: "refused", title: "The console cannot be opened", why: error.message };
  if (!gone) return { is: "refused", title: "This browser is not signed in", why: said(error) };
  const hint = "If the command was stopped, start it again and open the address that it prints.";
  return { is: "refused", title: "Helix cannot be reached", why: local.value ? hint : said(error) };
}

async function openStage(site: Site): Promise<void> {
  try {
    if (site.sign_in.length === 0) return await connect({ ...site, token: null, agents: [] }, undefined);
    const proof = await found(site);
    if (proof !== undefined) return await enter(site, proof);
  } catch (error) {
    refusal.value = said(error);
  }
  phase.value = site.sign_in.length === 0 ? { is: "refused", title: "This browser is not signed in", why: refusal.value ?? "" } : { is: "signing-in", site };
}

/** As somebody whom the stage takes. */
export async function enter(site: Site, proof: Proof): Promise<void> {
  const signedIn = new SignedIn(site, proof, (why) => {
    refusal.value = why;
    if (phase.value.is === "ready") phase.value.client.close();
    phase.value = { is: "signing-in", site };
  });
  await signedIn.admit();
  await connect({ ...site, token: null, agents: [] }, signedIn.token, signOut);
  if (phase.value.is !== "ready") return;
  const { client } = phase.value;
  signedIn.keep(client);
  const { principal } = await client.whoami();
  if (phase.value.is === "ready" && principal) phase.value = { ...phase.value, config: { ...phase.value.config, place: `${site.place} · ${principal}` } };
}

async function connect(config: Config, token: string | (() => Promise<string>) | undefined, out?: () => void): Promise<void> {
  const settings = { quietMs: 5_000, backoffMaxMs: 4_000, giveUpMs: Infinity };
  const client = await HelixClient.connect(config.url, { token, settings, onConnection });
  agents.value = config.agents;
  phase.value = { is: "ready", config, client, ...(out === undefined ? {} : { signOut: out }) };
  await listAgents(client);
}

/** What the service says of its agents; one of an older version says nothing. */
async function listAgents(client: HelixClient): Promise<void> {
  const found: AgentInfo[] = [];
  try {
    for (let after: string | null | undefined; after !== null && found.length < MOST_AGENTS; ) {
      const page = await client.ask("list_agents", { limit: 100, after });
      firstAgent.value = page.first ?? null;
      found.push(...(page.agents as unknown as AgentInfo[]));
      after = page.cursor;
    }
  } catch (error) {
    if (!(error instanceof HelixError)) throw error;
  }
  if (found.length > 0) agents.value = found;
}

/** The client. Only views that are shown when it is there call this. */
export function service(): HelixClient {
  if (phase.value.is !== "ready") throw new Error("the console is not signed in");
  return phase.value.client;
}

export const freshKey = (): string => `console_${newKey()}`;

/** Start a run, once for each key, whatever happens to the connection. Whoever shows the session follows it already. */
export async function begin<A extends "run" | "resume" | "retry">(
  action: A,
  fields: Omit<Fields<A>, "key" | "subscribe">,
  key = freshKey(),
): Promise<Replies[A]> {
  return await service().ask(action, { ...fields, key, subscribe: false } as unknown as Fields<A>);
}

/** The fields of a message in a request. Its files come after its text. */
export function fieldsOf({ text, files = [], session }: Outgoing): { message?: string; files?: FilePart[]; session_id?: string } {
  const parts = readContent([text, ...files]).files.map(({ input, after_text }) => ({ ...(input as FilePart), after_text }));
  const message = text === "" ? {} : { message: text };
  return { ...message, ...(parts.length > 0 && { files: parts }), ...(session !== undefined && { session_id: session }) };
}

export const said = (error: unknown): string => (error instanceof Error ? error.message : String(error));
