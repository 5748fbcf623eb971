// The messages that wait for the session's run: withdrawn, or sent to the run that works.
import { useState } from "preact/hooks";
import type { WaitingMessage } from "../../js/src/generated.ts";
import { begin, freshKey, said, service } from "./api.ts";
import { deliver, draftPlace, type Outgoing } from "./drafts.ts";
import { Files } from "./files.tsx";
import { visible } from "./format.ts";
import { Problem } from "./pieces.tsx";
import type { OpenSession } from "./session.ts";

export function Waiting({ session }: { session: OpenSession; rev: number }) {
  const delivered = new Set(session.conversation.items.flatMap((item) => (item.type === "user" ? [item.queuedId] : [])));
  const all = (session.stored.value?.inbox ?? []).filter(({ id }) => !delivered.has(id));
  const waiting = [...all.filter(({ mode }) => mode !== "queue"), ...all.filter(({ mode }) => mode === "queue")]; // by their turns
  if (waiting.length === 0) return null;
  return (
    <section class="waiting-messages" aria-label="Messages that wait">
      <ol class="items">
        {waiting.map((message) => (
          <WaitingView key={message.id} message={message} session={session} />
        ))}
      </ol>
    </section>
  );
}

const WORDS: Record<WaitingMessage["mode"], string> = {
  queue: "Waits for its turn",
  steer: "Waits for the next step of the run",
  interrupt: "Waits until the run has stopped",
};

function WaitingView({ message, session }: { message: WaitingMessage; session: OpenSession }) {
  const [problem, setProblem] = useState("");
  const [busy, setBusy] = useState(false);
  const running = session.status === "running";
  const take = async (): Promise<boolean> => (await service().withdraw(session.id, message.id)) === "withdrawn";
  const sendNow = async () => {
    if (!(await take())) return; // it has been delivered
    const place = draftPlace.session(session.id);
    const steer = async ({ text, files = [] }: Outgoing, key: string) => {
      const fields = { agent: session.stored.value?.agent_type ?? "", session_id: session.id, when_running: "steer" as const };
      await begin("run", { ...fields, ...(text !== "" && { message: text }), ...(files.length > 0 && { files }) }, key);
    };
    // From here on the composer holds the message, until the service has taken it.
    await deliver(place, { text: message.content, files: message.files ?? [], key: freshKey() }, steer, (error) => `Not sent: ${said(error)}`);
  };
  const act = async (action: () => Promise<unknown>) => {
    setBusy(true);
    setProblem("");
    try {
      await action();
      await session.refresh();
    } catch (error) {
      setProblem(said(error));
    } finally {
      setBusy(false);
    }
  };
  const words = running ? WORDS[message.mode] : "Waits until the session goes on";
  return (
    <li class="item user">
      {message.content !== "" && (
        <div class="bubble" dir="auto">
          {visible(message.content)}
        </div>
      )}
      <Files of={message.files ?? []} session={session.id} label="Files of the message" />
      <div class="waiting-about">
        <span class="quiet">{words}</span>
        {running && message.mode === "queue" && (
          <button class="small" disabled={busy} title="The run sees it before its next step" onClick={() => void act(sendNow)}>
            Send now
          </button>
        )}
        <button class="small" disabled={busy} onClick={() => void act(take)}>
          Withdraw
        </button>
      </div>
      <Problem of={problem} />
    </li>
  );
}
