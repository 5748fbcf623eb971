// What is shown in place of a view that is being loaded.
import { type Extra, lost } from "./extras.ts";
import { Empty } from "./pieces.tsx";

export function Loading({ name }: { name: Extra }) {
  if (!lost.value.has(name)) return <p class="quiet pad">Opening…</p>;
  return (
    <Empty title="This view could not be loaded">
      <button onClick={() => location.reload()}>Try again</button>
    </Empty>
  );
}
