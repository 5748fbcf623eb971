// Changes of the state, as people read them.
import { inline } from "./format.ts";
import { Text } from "./pieces.tsx";
import type { Patch } from "./timeline.ts";

const SIGNS: Record<string, string> = { add: "+", remove: "−", replace: "~", move: "→", copy: "+" };
const NAMES: Record<string, string> = { add: "added", remove: "removed", replace: "changed", move: "moved", copy: "copied" };

export function Changes({ patches }: { patches: Patch[] }) {
  return (
    <ul class="changes">
      {patches.map((patch, n) => (
        <li key={n} class={patch.op}>
          <span class="sign" aria-hidden="true">
            {SIGNS[patch.op] ?? patch.op}
          </span>
          <span class="unseen">{NAMES[patch.op] ?? patch.op} </span>
          <code>
            <Text of={dotted(patch.path)} />
          </code>
          {patch.value !== undefined && (
            <ins>
              <bdi>{inline(patch.value, 160)}</bdi>
            </ins>
          )}
          {patch.from !== undefined && <span class="quiet">from {dotted(patch.from)}</span>}
        </li>
      ))}
    </ul>
  );
}

export function dotted(path: string): string {
  const parts = path.split("/").slice(1).map((part) => part.replaceAll("~1", "/").replaceAll("~0", "~"));
  return parts.map((part, n) => (/^\d+$/.test(part) ? `[${part}]` : part === "-" ? "[end]" : n === 0 ? part : `.${part}`)).join("") || "(all)";
}
