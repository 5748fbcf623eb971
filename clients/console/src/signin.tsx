// Signing in to a stage: by an API key, or at the issuer. What opens the connection stays in this tab's session storage: it
// survives a reload, no other tab has it, and it is gone when the tab is closed.
import { signal } from "@preact/signals";
import { useEffect, useState } from "preact/hooks";
import { SUBPROTOCOL } from "../../js/src/frames.ts";
import type { HelixClient } from "../../js/src/index.ts";
import { forgetDrafts } from "./drafts.ts";
import { arrive, leave, type Oidc, renew, type Tokens } from "./oidc.ts";
import { Icon, Text } from "./pieces.tsx";
import "./signin.css";

/** `config.json` of a stage. */
export interface Site {
  url: string;
  place: string;
  sign_in: ("key" | "oidc")[];
  oidc?: Oidc;
}

export type Proof = { kind: "key"; token: string } | ({ kind: "oidc" } & Tokens);

/** Why one has to sign in. */
export const refusal = signal<string | undefined>(undefined);
const PROOF = "helix-proof";
const EARLY_MS = 60_000;
const LOOK_MS = 10_000;
const TRY_MS = 20_000;

/** Who this browser is, by the issuer's answer or what the tab has. `undefined`: nobody is signed in. */
export async function found(site: Site): Promise<Proof | undefined> {
  const tokens = site.oidc === undefined ? undefined : await arrive(site.oidc);
  if (tokens !== undefined) return { kind: "oidc", ...tokens };
  const text = sessionStorage.getItem(PROOF);
  return text === null ? undefined : (JSON.parse(text) as Proof);
}

export const forget = (): void => sessionStorage.removeItem(PROOF);

/** Forget who this is, and show the form. The issuer's own session goes on. */
export function signOut(): void {
  forget();
  forgetDrafts();
  location.reload();
}

/** Rejects where the stage does not take it. A browser does not say why a connection was refused. */
async function admitted(site: Site, token: string): Promise<void> {
  const what = token.startsWith("helix_") ? "key" : "sign-in";
  await new Promise<void>((resolve, reject) => {
    let socket: WebSocket;
    try {
      socket = new WebSocket(site.url, [SUBPROTOCOL, `bearer.${token}`]);
    } catch {
      return reject(new Error("This is not a key: a key has letters, digits and underscores only."));
    }
    const timer = setTimeout(() => socket.close(), TRY_MS);
    const done = (act: () => void) => (clearTimeout(timer), (socket.onclose = null), socket.close(), act());
    socket.onopen = () => done(resolve);
    socket.onclose = () => done(() => reject(new Error(`The ${what} is not valid here, or ${site.place} cannot be reached.`)));
  });
}

/** A sign-in that the stage takes: its token, renewed before it expires. `onEnd`: it cannot be renewed any more. */
export class SignedIn {
  #proof: Proof;
  #renewing: Promise<void> | undefined;
  #timer: ReturnType<typeof setInterval> | undefined;
  readonly #site: Site;
  readonly #onEnd: (why: string) => void;

  constructor(site: Site, proof: Proof, onEnd: (why: string) => void) {
    [this.#site, this.#proof, this.#onEnd] = [site, proof, onEnd];
  }

  /** Rejects where the stage does not take it. */
  async admit(): Promise<void> {
    await admitted(this.#site, await this.token());
    this.#store();
  }

  /** As the client asks for it: at each connection, and when the service wants a new one. */
  readonly token = async (): Promise<string> => {
    const proof = this.#proof;
    if (proof.kind === "oidc" && proof.expiresAt - EARLY_MS <= Date.now() && proof.refresh !== undefined) {
      this.#renewing ??= this.#renew(proof.refresh).finally(() => (this.#renewing = undefined));
      await this.#renewing;
    }
    if (this.#proof.kind === "oidc" && this.#proof.expiresAt <= Date.now()) throw this.#ended("");
    return this.#proof.token;
  };

  /** Give the service a new token before the old one expires. */
  keep(client: HelixClient): void {
    let last = this.#proof.token;
    const look = async (): Promise<void> => {
      const now = await this.token();
      if (now !== last) await client.authenticate(now);
      last = now;
    };
    const failed = (error: unknown) => console.warn("helix: the token was not renewed:", error);
    this.#timer = setInterval(() => void look().catch(failed), LOOK_MS);
  }

  async #renew(refresh: string): Promise<void> {
    try {
      this.#proof = { kind: "oidc", ...(await renew(this.#site.oidc as Oidc, refresh)) };
      this.#store();
    } catch (error) {
      if (error instanceof TypeError) throw error; // the issuer cannot be reached now
      throw this.#ended(error instanceof Error ? ` ${error.message}` : "");
    }
  }

  #store(): void {
    sessionStorage.setItem(PROOF, JSON.stringify(this.#proof));
  }

  #ended(why: string): Error {
    clearInterval(this.#timer);
    forget();
    const error = new Error(`Your sign-in has ended.${why}`);
    this.#onEnd(error.message);
    return error;
  }
}

export function SignIn({ site, onProof }: { site: Site; onProof: (proof: Proof) => Promise<void> }) {
  const [busy, setBusy] = useState(false);
  const [value, setValue] = useState("");
  const trying = async (act: () => Promise<void>) => {
    setBusy(true);
    refusal.value = undefined;
    try {
      await act();
    } catch (error) {
      refusal.value = error instanceof Error ? error.message : String(error);
      setBusy(false);
    }
  };
  useEffect(() => void (document.title = "Sign in · Helix"), []);
  const [key, oidc] = [site.sign_in.includes("key"), site.sign_in.includes("oidc") ? site.oidc : undefined];
  return (
    <main class="alone">
      <section class="signin" aria-labelledby="signin-title">
        <img src="./icon.svg" alt="" width="44" height="44" />
        <h1 id="signin-title">Sign in to Helix</h1>
        <p class="quiet">
          <Text of={site.place} />
        </p>
        {refusal.value !== undefined && (
          <p class="problem" role="alert">
            {refusal.value}
          </p>
        )}
        {oidc !== undefined && (
          <button class="primary wide" disabled={busy} onClick={() => void trying(() => leave(oidc))}>
            <Icon name="enter" />
            Continue with {new URL(oidc.issuer).host}
          </button>
        )}
        {key && oidc !== undefined && <p class="or">or</p>}
        {key && (
          <form onSubmit={(event) => (event.preventDefault(), void trying(() => onProof({ kind: "key", token: value.trim() })))}>
            <label class="field">
              API key
              <input
                type="password"
                name="key"
                value={value}
                required
                autocomplete="current-password"
                spellcheck={false}
                placeholder="helix_…"
                autoFocus={oidc === undefined}
                onInput={(event) => setValue(event.currentTarget.value)}
              />
            </label>
            <button class={`wide ${oidc === undefined ? "primary" : ""}`} disabled={busy}>
              {busy ? "Signing in…" : "Sign in"}
            </button>
          </form>
        )}
        <p class="quiet fine">
          {key ? "The key stays in this tab, and is forgotten when you close it." : "You stay signed in until you close this tab."}
        </p>
      </section>
    </main>
  );
}
