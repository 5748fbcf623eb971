// What is shown in place of a view that is being loaded.
import { type Extra, lost } from "./extras.ts";
import { Dialog, Empty } from "./pieces.tsx";

export function Loading({ name }: { name: Extra }) {
  if (!lost.value.has(name)) return <p class="quiet pad">Opening…</p>;
  return (
    <Empty title="This view could not be loaded">
      <button onClick={() => location.reload()}>Try again</button>
    </Empty>
  );
}

/** In place of a dialog that is being loaded. It takes the keys that are typed meanwhile, which would otherwise be shortcuts. */
export function LoadingDialog({ name, title, onClose }: { name: Extra; title: string; onClose: () => void }) {
  return (
    <Dialog title={title} onClose={onClose}>
      <Loading name={name} />
    </Dialog>
  );
}
