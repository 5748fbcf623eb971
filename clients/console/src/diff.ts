// What two JSON values differ in.

export interface Difference {
  path: string;
  left: unknown;
  right: unknown;
}

const isObject = (value: unknown): value is Record<string, unknown> => typeof value === "object" && value !== null && !Array.isArray(value);

/** One entry for each place; `undefined` where a side has nothing there. */
export function differences(left: unknown, right: unknown, path = ""): Difference[] {
  if (isObject(left) && isObject(right)) {
    const names = [...new Set([...Object.keys(left), ...Object.keys(right)])].sort();
    return names.flatMap((name) => differences(own(left, name), own(right, name), path === "" ? name : `${path}.${name}`));
  }
  if (Array.isArray(left) && Array.isArray(right)) {
    const length = Math.max(left.length, right.length);
    return Array.from({ length }, (_, n) => differences(left[n], right[n], `${path}[${n}]`)).flat();
  }
  return JSON.stringify(left) === JSON.stringify(right) ? [] : [{ path: path || "(all)", left, right }];
}

const own = (value: Record<string, unknown>, name: string): unknown => (Object.hasOwn(value, name) ? value[name] : undefined);
