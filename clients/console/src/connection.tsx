// Whether the service can be reached, as the page shows it.
import { signal } from "@preact/signals";
import { useEffect, useState } from "preact/hooks";

export type Connection = "open" | "lost" | "silent";

/** A connection that is replaced is missing for less than this. */
const FLICKER_MS = 700;
/** A request without an answer for so long is shown. */
const SILENT_MS = 3_000;
/** From here on the page says what a person can do. */
const LONG_MS = 10_000;

export const connection = signal<Connection>("open");
let missing: ReturnType<typeof setTimeout> | undefined;

/** As the client reports it. */
export function onConnection(connected: boolean): void {
  clearTimeout(missing);
  if (connected) connection.value = "open";
  else missing = setTimeout(() => (connection.value = "lost"), FLICKER_MS);
}

/** The result of a request that the service answers at once when it is well. */
export async function watched<T>(work: Promise<T>): Promise<T> {
  const late = setTimeout(() => {
    if (connection.value === "open") connection.value = "silent";
  }, SILENT_MS);
  try {
    const result = await work;
    if (connection.value === "silent") connection.value = "open";
    return result;
  } finally {
    clearTimeout(late);
  }
}

const WORDS = { lost: "The connection to Helix is lost.", silent: "Helix does not answer." };

export function ConnectionState({ local }: { local: boolean }) {
  const now = connection.value;
  const [long, setLong] = useState(false);
  useEffect(() => {
    setLong(false);
    if (now === "open") return;
    const timer = setTimeout(() => setLong(true), LONG_MS);
    return () => clearTimeout(timer);
  }, [now === "open"]);
  return (
    <div class="connection" role="status">
      {now === "open" && <span class="connected" role="img" aria-label="Connected" title="Connected to Helix" />}
      {now !== "open" && (
        <p>
          <span class="dots" aria-hidden="true">
            <i />
            <i />
            <i />
          </span>
          <span>
            <strong>{WORDS[now]}</strong> Trying again. What you write is kept in this tab.
            {long && local && " If the command was stopped, start it again and open the address that it prints."}
          </span>
          {long && !local && <button onClick={() => location.reload()}>Reload</button>}
        </p>
      )}
    </div>
  );
}
