// RFC 6902 patches of JSON state: what `helix.core.patches.apply` does.
import { HelixError } from "./errors.ts";

export type Json = null | boolean | number | string | Json[] | { [key: string]: Json };
export type JsonObject = { [key: string]: Json };

/** A new state: `state` after `patches`; no argument is changed. Throws `invalid_input` where they do not fit. */
export function applyPatches(state: JsonObject, patches: readonly object[]): JsonObject {
  const root: { "": Json } = { "": structuredClone(state) };
  for (const patch of patches) {
    const { op, path, from, value } = patch as { op: string; path: string; from?: string; value?: Json };
    switch (op) {
      case "add":
        put(root, path, "value" in patch ? structuredClone(value as Json) : misfit(path), true);
        break;
      case "replace":
        put(root, path, "value" in patch ? structuredClone(value as Json) : misfit(path), false);
        break;
      case "remove":
        remove(root, path);
        break;
      case "move":
        if (path.startsWith(`${from}/`)) misfit(path);
        put(root, path, remove(root, from ?? misfit(path)), true);
        break;
      case "copy":
        put(root, path, structuredClone(at(root, from ?? misfit(path))), true);
        break;
      case "test":
        if (!same(at(root, path), value as Json)) misfit(path);
        break;
      default:
        throw new HelixError("invalid_input", `patches do not fit the state: no operation ${JSON.stringify(op)}`);
    }
  }
  const result = root[""];
  if (!isObject(result)) {
    throw new HelixError("invalid_input", "patches replace the state by something that is no JSON object");
  }
  return result;
}

/** Equal as JSON. */
export function same(a: Json | undefined, b: Json | undefined): boolean {
  if (a === b) return true;
  if (Array.isArray(a) && Array.isArray(b)) return a.length === b.length && a.every((item, i) => same(item, b[i]));
  if (!isObject(a) || !isObject(b)) return false;
  const keys = Object.keys(a);
  return keys.length === Object.keys(b).length && keys.every((key) => Object.hasOwn(b, key) && same(a[key], b[key]));
}

const isObject = (value: unknown): value is JsonObject =>
  typeof value === "object" && value !== null && !Array.isArray(value);

function misfit(path: unknown): never {
  throw new HelixError("invalid_input", `patches do not fit the state at ${JSON.stringify(path)}`);
}

/** The value that holds the last part of the pointer, and that part. The whole document is a member of `root`. */
function place(root: JsonObject, path: string): [Json[] | JsonObject, string] {
  if (path !== "" && !path.startsWith("/")) misfit(path);
  const parts = path.split("/").map((part) => part.replaceAll("~1", "/").replaceAll("~0", "~"));
  let holder: Json = root;
  for (const part of parts.slice(0, -1)) holder = member(holder, part, path);
  if (typeof holder !== "object" || holder === null) misfit(path);
  return [holder, parts.at(-1) as string];
}

function member(holder: Json, part: string, path: string): Json {
  if (Array.isArray(holder)) return holder[index(holder, part, path, holder.length - 1)] as Json;
  if (isObject(holder) && Object.hasOwn(holder, part)) return holder[part] as Json;
  return misfit(path);
}

function index(list: Json[], part: string, path: string, last: number): number {
  if (part === "-" && last === list.length) return list.length;
  const found = /^(0|[1-9][0-9]*)$/.test(part) ? Number(part) : -1;
  return found >= 0 && found <= last ? found : misfit(path);
}

const at = (root: JsonObject, path: string): Json => {
  const [holder, part] = place(root, path);
  return member(holder, part, path);
};

function put(root: JsonObject, path: string, value: Json, adding: boolean): void {
  const [holder, part] = place(root, path);
  if (Array.isArray(holder)) {
    const where = index(holder, part, path, holder.length - (adding ? 0 : 1));
    holder.splice(where, adding ? 0 : 1, value);
  } else {
    if (!adding) member(holder, part, path);
    // an own member, also where it is named `__proto__`
    Object.defineProperty(holder, part, { value, writable: true, enumerable: true, configurable: true });
  }
}

function remove(root: JsonObject, path: string): Json {
  const [holder, part] = place(root, path);
  const found = member(holder, part, path);
  if (Array.isArray(holder)) holder.splice(Number(part), 1);
  else delete holder[part];
  return found;
}
