// What a person changed in the arguments that the model asked for: place by place, before and after.
import { differences } from "./diff.ts";
import { inline } from "./format.ts";
import { Text } from "./pieces.tsx";

export function Edits({ before, after, label }: { before: unknown; after: unknown; label: string }) {
  return (
    <ul class="edits" aria-label={label}>
      {differences(before, after).map(({ path, left, right }) => (
        <li key={path}>
          <code>
            <Text of={path} />
          </code>
          <Value of={left} was />
          <span class="quiet">became</span>
          <Value of={right} />
        </li>
      ))}
    </ul>
  );
}

function Value({ of, was = false }: { of: unknown; was?: boolean }) {
  if (of === undefined) return <span class="quiet">nothing</span>;
  const text = <bdi>{inline(of, 300)}</bdi>;
  return was ? <del>{text}</del> : <ins>{text}</ins>;
}
