// A JSON value as a tree that opens.
import { brief, count, json } from "./format.ts";
import { Text } from "./pieces.tsx";

/** `changed`: paths, as of JSON pointers, that changed last. */
export function Tree({ value, changed, path = "" }: { value: unknown; changed: ReadonlySet<string>; path?: string }) {
  if (typeof value !== "object" || value === null) return <Leaf value={value} />;
  const entries = Array.isArray(value) ? value.map((one, n) => [String(n), one] as const) : Object.entries(value);
  if (entries.length === 0) return <span class="quiet">{Array.isArray(value) ? "[ ]" : "{ }"}</span>;
  return (
    <ul class="tree">
      {entries.map(([name, one]) => {
        const place = `${path}/${name.replaceAll("~", "~0").replaceAll("/", "~1")}`;
        const mark = changed.has(place) ? "changed" : undefined;
        const nested = typeof one === "object" && one !== null && Object.keys(one).length > 0;
        return (
          <li key={name} class={mark}>
            {nested ? (
              <details open={path.split("/").length < 3}>
                <summary>
                  <code class="name">
                    <Text of={name} length={80} />
                  </code>
                  <span class="quiet">{count(Object.keys(one).length, Array.isArray(one) ? "item" : "entry").replace("entrys", "entries")}</span>
                </summary>
                <Tree value={one} changed={changed} path={place} />
              </details>
            ) : (
              <>
                <code class="name">
                  <Text of={name} length={80} />
                </code>
                <Tree value={one} changed={changed} path={place} />
              </>
            )}
          </li>
        );
      })}
    </ul>
  );
}

const LONG = 200;

function Leaf({ value }: { value: unknown }) {
  const text = typeof value === "string" ? value : JSON.stringify(value);
  const kind = value === null ? "null" : typeof value;
  if (typeof value === "string" && value.length > LONG) {
    return (
      <details class="leaf">
        <summary>
          <bdi class={kind}>{brief(value, LONG)}</bdi>
        </summary>
        <pre class="code" tabIndex={0}>
          {json(value)}
        </pre>
      </details>
    );
  }
  return (
    <bdi class={kind}>
      {kind === "string" ? "“" : ""}
      <Text of={text ?? ""} />
      {kind === "string" ? "”" : ""}
    </bdi>
  );
}
