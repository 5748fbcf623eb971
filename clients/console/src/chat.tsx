// The conversation, and where one goes on with it.
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { begin, fieldsOf, said } from "./api.ts";
import { Composer } from "./composer.tsx";
import { draftPlace, type Outgoing } from "./drafts.ts";
import { Items } from "./items.tsx";
import { refresh } from "./listing.ts";
import { Code, Icon, Problem, Text } from "./pieces.tsx";
import type { OpenSession } from "./session.ts";
import { Waiting } from "./waiting.tsx";

const NEAR_PX = 120;

/** Of a run that gave more than its last text. */
function Output({ session }: { session: OpenSession }) {
  const { status, output } = session.stored.value ?? {};
  const last = session.conversation.items.findLast((item) => item.type === "step");
  if (status !== "completed" || output === null || output === undefined || output === last?.text) return null;
  return (
    <section class="card output" aria-label="Output">
      <h2>Output</h2>
      <Code of={output} label="Output of the run" />
    </section>
  );
}

/** Shown a screen or more above the newest message. */
function Newest({ onPress }: { onPress: () => void }) {
  return (
    <div class="newest">
      <button class="small" onClick={onPress}>
        <Icon name="down" /> Newest
      </button>
    </div>
  );
}

export function Chat({ session, target }: { session: OpenSession; target: string | undefined }) {
  const scroller = useRef<HTMLDivElement>(null);
  const following = useRef(true);
  const [problem, setProblem] = useState("");
  const [away, setAway] = useState(false);
  const drawn = session.drawn.value;
  // The browser says once a frame that the conversation or its room has another size: with a chunk, a library for its texts or an
  // image. To measure it earlier would cost a layout of its own.
  useLayoutEffect(() => {
    const box = scroller.current as HTMLElement;
    const grown = new ResizeObserver(() => {
      if (following.current && target === undefined) box.scrollTop = box.scrollHeight;
    });
    grown.observe(box);
    grown.observe(box.firstElementChild as Element);
    return () => grown.disconnect();
  }, [target]);
  const ready = session.stored.value !== undefined;
  useEffect(() => {
    if (!ready || target === undefined) return;
    const show = () => document.getElementById(`call-${target}`)?.scrollIntoView({ block: "center" });
    session.reach(target).then(() => requestAnimationFrame(() => requestAnimationFrame(show)), (error: unknown) => setProblem(said(error)));
  }, [ready, target]);
  const stored = session.stored.value;
  const child = stored?.parent_session_id != null;
  const send = async (message: Outgoing, key: string) => {
    setProblem("");
    following.current = true;
    const fields = { agent: stored?.agent_type ?? "", ...fieldsOf(message), session_id: session.id };
    // A session that is paused without a call, as by a budget, goes on with the message.
    const first = session.status === "paused" && stored?.inbox.length === 0;
    const started = await begin("run", { ...fields, when_running: child ? "steer" : first ? "refuse" : "queue" }, key);
    if (started.queued_id == null) session.conversation.insert(message.text, started.run_id, fields.files);
    session.refresh().catch((error: unknown) => setProblem(said(error)));
    void refresh();
  };
  const running = stored?.status === "running";
  const waiting = session.conversation.waiting();
  const hint = running
    ? child
      ? "Write a message for the sub-agent's next step"
      : "Write a message for the next turn"
    : waiting.length > 0
      ? waiting[0]?.kind === "question"
        ? "Answer the question first."
        : "Respond to the pending approval first."
      : "Write a message";
  return (
    <>
      <div
        class="scroller"
        ref={scroller}
        tabIndex={0}
        role="log"
        aria-label="Conversation"
        aria-busy={running}
        onKeyDown={(event) => {
          const box = event.currentTarget;
          if (event.key === "Home" && event.target === box) void session.reach(undefined).then(() => (box.scrollTop = 0));
        }}
        onScroll={(event) => {
          const box = event.currentTarget;
          const below = box.scrollHeight - box.scrollTop - box.clientHeight;
          following.current = below < NEAR_PX;
          setAway(below > box.clientHeight);
        }}
      >
        <div class="column">
          {!ready && <p class="quiet">Reading…</p>}
          {stored?.error && stored.status === "failed" && session.conversation.items.at(-1)?.type !== "notice" && (
            <p class="problem">
              <Text of={stored.error.message} />
            </p>
          )}
          <Items conversation={session.conversation} rev={drawn} session={session} target={target} />
          {stored !== undefined && <Output session={session} />}
          {running && (
            <p class="working">
              <span class="dots" aria-hidden="true">
                <i />
                <i />
                <i />
              </span>
              Working…
            </p>
          )}
          {stored !== undefined && <Waiting session={session} rev={drawn} />}
        </div>
      </div>
      {away && !following.current && <Newest onPress={() => scroller.current?.scrollTo({ top: scroller.current.scrollHeight })} />}
      <Problem of={problem} pad />
      {ready && (!child || running) && (
        <Composer
          key={session.id}
          place={draftPlace.session(session.id)}
          session={session.id}
          label="Message"
          hint={hint}
          onSend={send}
          disabled={waiting.length > 0}
        />
      )}
    </>
  );
}
