// Sign-in at an OpenID Connect issuer: authorization code with PKCE, as a public client. The issuer's tokens stay in this tab.
// Nothing that comes back counts unless this tab asked for it: `state`, `nonce` and the verifier are random and used once.

/** What `config.json` says of the issuer. */
export interface Oidc {
  issuer: string;
  client_id: string;
  scope: string;
  audience: string;
  /** Which of the issuer's tokens the service takes. */
  token: "id_token" | "access_token";
  /** Where signing in leads beside the issuer's own origin. */
  origins: string[];
}

export interface Tokens {
  token: string;
  /** By this machine's clock. */
  expiresAt: number;
  /** Undefined where the issuer gives none: then one signs in again. */
  refresh: string | undefined;
}

interface Endpoints {
  authorize: string;
  token: string;
}

interface Asked {
  state: string;
  nonce: string;
  verifier: string;
  /** The part of the address behind the #, to come back to. */
  hash: string;
}

const ASKED = "helix-oidc-asked";
const RANDOM = 32;
const ASSUMED_S = 300;
/** The issuer sends the browser back to this. */
const PAGE = new URL("index.html", document.baseURI).href;

const base64url = (bytes: Uint8Array): string =>
  btoa(String.fromCharCode(...bytes)).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");

const random = (): string => base64url(crypto.getRandomValues(new Uint8Array(RANDOM)));

/** Go to the issuer. The page ends here. */
export async function leave(oidc: Oidc): Promise<void> {
  const asked: Asked = { state: random(), nonce: random(), verifier: random(), hash: location.hash };
  const digest = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(asked.verifier));
  const to = new URL((await endpoints(oidc)).authorize);
  const given = {
    response_type: "code",
    client_id: oidc.client_id,
    redirect_uri: PAGE,
    scope: oidc.scope,
    state: asked.state,
    nonce: asked.nonce,
    code_challenge: base64url(new Uint8Array(digest)),
    code_challenge_method: "S256",
    ...(oidc.token === "access_token" ? { audience: oidc.audience } : {}),
  };
  for (const [name, value] of Object.entries(given)) to.searchParams.set(name, value);
  sessionStorage.setItem(ASKED, JSON.stringify(asked));
  location.assign(to);
}

/** What the issuer sent this browser back with; undefined if it did not. The address is clean afterwards. */
export async function arrive(oidc: Oidc): Promise<Tokens | undefined> {
  const given = new URL(location.href).searchParams;
  if (!given.has("state") || !(given.has("code") || given.has("error"))) return undefined;
  const stored = sessionStorage.getItem(ASKED);
  sessionStorage.removeItem(ASKED);
  const asked = stored === null ? undefined : (JSON.parse(stored) as Asked);
  history.replaceState(null, "", `${location.pathname}${asked?.hash ?? ""}`);
  dispatchEvent(new HashChangeEvent("hashchange")); // the browser reports no change of its own
  if (asked === undefined || given.get("state") !== asked.state) throw new Error("This sign-in was not begun in this tab. Sign in again.");
  const from = given.get("iss");
  if (from !== null && from !== oidc.issuer) throw new Error(`The answer comes from another issuer, ${from}.`);
  const problem = given.get("error");
  if (problem !== null) throw new Error(`The issuer refuses: ${given.get("error_description") ?? problem}`);
  const found = await tokens(oidc, {
    grant_type: "authorization_code",
    code: given.get("code") ?? "",
    redirect_uri: PAGE,
    code_verifier: asked.verifier,
  });
  const nonce = claims(found.id_token)["nonce"];
  if (nonce !== asked.nonce) throw new Error("The issuer's token is not for this sign-in. Sign in again.");
  return chosen(oidc, found);
}

/** New tokens for old. */
export async function renew(oidc: Oidc, refresh: string): Promise<Tokens> {
  const found = await tokens(oidc, { grant_type: "refresh_token", refresh_token: refresh });
  return chosen(oidc, { refresh_token: refresh, ...found });
}

interface Answer {
  id_token?: string;
  access_token?: string;
  refresh_token?: string;
  expires_in?: number;
  error?: string;
  error_description?: string;
}

async function tokens(oidc: Oidc, fields: Record<string, string>): Promise<Answer> {
  const body = new URLSearchParams({ client_id: oidc.client_id, ...fields });
  const answer = await fetch((await endpoints(oidc)).token, { method: "POST", body, credentials: "omit" });
  const found = (await answer.json().catch(() => ({}))) as Answer;
  if (!answer.ok) throw new Error(`The issuer refuses: ${found.error_description ?? found.error ?? answer.status}`);
  return found;
}

function chosen(oidc: Oidc, found: Answer): Tokens {
  const token = found[oidc.token];
  if (typeof token !== "string") throw new Error(`The issuer gave no ${oidc.token}.`);
  const { exp, iat } = claims(found.id_token);
  const ofId = typeof exp === "number" && typeof iat === "number" ? exp - iat : undefined;
  const lifetime = (oidc.token === "id_token" ? ofId : found.expires_in) ?? ASSUMED_S;
  return { token, expiresAt: Date.now() + lifetime * 1000, refresh: found.refresh_token };
}

/** What an ID token says. It comes from the issuer itself, by TLS; the service checks its signature. */
function claims(token: string | undefined): Record<string, unknown> {
  try {
    const part = (token ?? "").split(".")[1] ?? "";
    const bytes = Uint8Array.from(atob(part.replaceAll("-", "+").replaceAll("_", "/")), (char) => char.charCodeAt(0));
    return JSON.parse(new TextDecoder().decode(bytes)) as Record<string, unknown>;
  } catch {
    return {};
  }
}

let known: Promise<Endpoints> | undefined;

/** Of the issuer's own document, which is fetched once. */
function endpoints(oidc: Oidc): Promise<Endpoints> {
  known ??= discover(oidc).catch((error: unknown) => {
    known = undefined;
    throw error;
  });
  return known;
}

async function discover(oidc: Oidc): Promise<Endpoints> {
  const place = `${oidc.issuer.replace(/\/$/, "")}/.well-known/openid-configuration`;
  const answer = await fetch(place, { credentials: "omit" }).catch(() => undefined);
  if (answer?.ok !== true) throw new Error(`The issuer cannot be reached: ${place}`);
  const found = (await answer.json()) as Record<string, unknown>;
  if (found["issuer"] !== oidc.issuer) throw new Error(`The issuer calls itself ${String(found["issuer"])}, not ${oidc.issuer}.`);
  const [authorize, token] = [String(found["authorization_endpoint"]), String(found["token_endpoint"])];
  const allowed = [new URL(oidc.issuer).origin, ...oidc.origins];
  for (const url of [authorize, token]) {
    if (!URL.canParse(url) || (new URL(url).protocol !== "https:" && !allowed.includes(new URL(url).origin))) {
      throw new Error(`The issuer's address ${url} is not safe.`);
    }
  }
  if (!allowed.includes(new URL(token).origin)) {
    throw new Error(`Tokens come from ${new URL(token).origin}: add it to the setting console_origins.`);
  }
  return { authorize, token };
}
