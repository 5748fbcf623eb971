// Views of the list that a person saved: names and filters, in this browser's storage.
import { signal } from "@preact/signals";

const KEY = "helix-console-views";
const MOST = 50;

interface SavedView {
  name: string;
  query: string;
}

function stored(): SavedView[] {
  try {
    const found: unknown = JSON.parse(localStorage.getItem(KEY) ?? "[]");
    if (!Array.isArray(found)) return [];
    return found.filter((one) => typeof one?.name === "string" && typeof one.query === "string").slice(0, MOST);
  } catch {
    return []; // another program's value, or storage that the browser refuses
  }
}

export const views = signal<SavedView[]>(stored());

/** Keep the views. Returns what went wrong, or an empty text. */
function keep(next: SavedView[]): string {
  try {
    localStorage.setItem(KEY, JSON.stringify(next));
  } catch {
    return "This browser does not store the view: its storage is full or turned off.";
  }
  views.value = next;
  return "";
}

/** Save a view. One of the same name is replaced. */
export function saveView(name: string, query: string): string {
  const others = stored().filter((one) => one.name !== name);
  if (others.length >= MOST) return `There are ${MOST} saved views. Remove one first.`;
  return keep([...others, { name, query }]);
}

export const removeView = (name: string): string => keep(stored().filter((one) => one.name !== name));

addEventListener("storage", (event) => {
  if (event.key === KEY) views.value = stored();
});
