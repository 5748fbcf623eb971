// The items of a conversation. An item is drawn again when it has changed, and only then: items are changed in place, so `rev` goes
// down to whatever shows a part of one, because components whose properties are the same are not drawn.
import { Component } from "preact";
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { said } from "./api.ts";
import { CallView } from "./call.tsx";
import { type Conversation, type Item, keyOf, type Notice, revisionOf, type Source, type Step, type User } from "./fold.ts";
import { extra } from "./extras.ts";
import { Files } from "./files.tsx";
import { contextWords, parsed, visible } from "./format.ts";
import { Code, Copy, Problem, Summary } from "./pieces.tsx";
import { MessageActions } from "./resend.tsx";
import type { OpenSession } from "./session.ts";

interface Given {
  conversation: Conversation;
  session: OpenSession;
  target: string | undefined;
}

/** Items that are drawn at first, the newest; and how many more each time. */
const PAGE = 120;
/** So far above the screen the next ones are drawn. */
const AHEAD = "1600px 0px 0px 0px";

/** `all`: those to draw, by default all of the conversation. */
export function Items({ conversation, items: all = conversation.items, session, target }: Given & { items?: Item[]; rev?: number }) {
  const [shown, setShown] = useState(target === undefined ? PAGE : Infinity);
  const hidden = Math.max(0, all.length - shown);
  const items = all.slice(hidden);
  const unread = session.unread(conversation);
  const list = useRef<HTMLOListElement>(null);
  const height = useRef(0);
  const first = items[0] && keyOf(items[0], conversation);
  // The browser holds the place of a reader by itself, but not at the very top. The height is measured for that alone, because it
  // costs a layout.
  useLayoutEffect(() => {
    const box = list.current?.closest(".scroller");
    if (box && height.current > 0 && box.scrollTop === 0) box.scrollTop = box.scrollHeight - height.current;
    height.current = 0;
  }, [first]);
  const earlier = async () => {
    height.current = list.current?.closest(".scroller")?.scrollHeight ?? 0;
    if (hidden === 0) await session.earlier(conversation);
    setShown((before) => before + PAGE);
  };
  return (
    <ol class="items" ref={list}>
      {hidden + unread > 0 && <Earlier key={`${first}${unread}`} onSeen={earlier} />}
      {items.map((item) => (
        <Drawn key={keyOf(item, conversation)} item={item} holder={conversation.id} rev={revisionOf(item)} session={session} target={target} />
      ))}
    </ol>
  );
}

/** Above the first item: when it comes near the screen, those before are drawn. */
function Earlier({ onSeen }: { onSeen: () => Promise<void> }) {
  const place = useRef<HTMLLIElement>(null);
  const [problem, setProblem] = useState("");
  const latest = useRef(onSeen);
  latest.current = onSeen;
  const show = () => void latest.current().catch((error: unknown) => setProblem(said(error)));
  useEffect(() => {
    const at = place.current as HTMLElement;
    const seen = new IntersectionObserver(([entry]) => entry?.isIntersecting && show(), { root: at.closest(".scroller"), rootMargin: AHEAD });
    seen.observe(at);
    return () => seen.disconnect();
  }, []);
  return (
    <li class="item earlier" ref={place}>
      {problem ? (
        <Problem of={problem} />
      ) : (
        <button class="small" onClick={show}>
          Show earlier
        </button>
      )}
    </li>
  );
}

export interface DrawnGiven {
  item: Item;
  rev: number;
  session: OpenSession;
  target: string | undefined;
}

/** `holder`: the session of the conversation, which holds the files of its messages. */
class Drawn extends Component<DrawnGiven & { holder: string }> {
  override shouldComponentUpdate(next: DrawnGiven): boolean {
    return next.rev !== this.props.rev || next.item !== this.props.item || next.target !== this.props.target;
  }

  override render() {
    const { item, rev, session, target, holder } = this.props;
    if (item.type === "user") return <UserView item={item} holder={holder} session={session} />;
    if (item.type === "notice") return <NoticeView item={item} />;
    return <StepView step={item} rev={rev} session={session} target={target} />;
  }
}

function UserView({ item, holder, session }: { item: User; holder: string; session: OpenSession }) {
  const [editing, setEditing] = useState(false);
  const own = holder === session.id && session.stored.value?.parent_session_id === null;
  return (
    <li class="item user">
      {item.text !== "" && !editing && (
        <div class="bubble" dir="auto">
          {visible(item.text)}
        </div>
      )}
      <Files of={item.files} session={holder} label="Files of the message" />
      {own && <MessageActions item={item} session={session} editing={editing} setEditing={setEditing} />}
    </li>
  );
}

function NoticeView({ item }: { item: Notice }) {
  return (
    <li class={`item notice ${item.tone}`}>
      {item.kind === "context" && item.text !== "" ? <Summary words={wordsOf(item)} of={item.text} /> : <bdi>{visible(wordsOf(item))}</bdi>}
    </li>
  );
}

export function wordsOf(notice: Notice): string {
  const { kind, text, queued } = notice;
  switch (kind) {
    case "queued":
      return `Waiting for a free slot: ${queued} in the queue.`;
    case "context":
      return contextWords(notice);
    case "error":
      return `${text} It is tried again.`;
    case "takeover":
      return "The worker died. Another one took the run over from the last checkpoint.";
    case "budget":
      return "The budget is used up. Raise it, or wait for its next period; then resume.";
    case "failed":
      return text === "" ? "The run failed." : `The run failed: ${text}`;
    case "interrupted":
      return "The run was interrupted.";
    case "note":
      return text;
    default:
      return kind satisfies never;
  }
}

/** Text of a model. While it grows, only its open end is parsed and drawn again. */
function Prose({ text, whole }: { text: string; whole: boolean }) {
  const library = extra("markdown");
  const growing = useMemo(() => library && new library.Growing(), [library]);
  if (!library || !growing) {
    return (
      <div class="prose plain-text" dir="auto">
        {visible(text)}
      </div>
    );
  }
  return (
    <div class="prose" dir="auto" onClick={library.pressed}>
      {growing.blocks(text, whole).map((html, n) => (
        <Block key={n} html={html} />
      ))}
    </div>
  );
}

class Block extends Component<{ html: string }> {
  override shouldComponentUpdate(next: { html: string }): boolean {
    return next.html !== this.props.html;
  }

  override render() {
    return <div class="block" dangerouslySetInnerHTML={{ __html: this.props.html }} />;
  }
}

/** The structured output: its text while it grows, then its value. */
function Output({ text, whole }: { text: string; whole: boolean }) {
  return (
    <div class="output">
      <h2 class="label">Output</h2>
      <Code of={whole ? parsed(text) : text} label="Output" />
    </div>
  );
}

/** The sources of the text, drawn by the library that draws the text. */
function Sources({ of }: { of: Source[] }) {
  const html = extra("markdown")?.sources(of);
  return html === undefined ? null : <ul class="quiet sources" dangerouslySetInnerHTML={{ __html: html }} />;
}

function StepView({ step, rev, session, target }: Omit<DrawnGiven, "item"> & { step: Step }) {
  const body = (
    <>
      {step.thinking !== "" && (
        <details class="thinking">
          <summary>Reasoning</summary>
          <div class="thinking-text" dir="auto">
            {visible(step.thinking)}
          </div>
        </details>
      )}
      {[...step.served.values()].map((call) => (
        <CallView key={call.id} call={call} rev={rev} session={session} target={target} />
      ))}
      {step.text !== "" && <Prose text={step.text} whole={step.state !== "open"} />}
      {step.citations.length > 0 && <Sources of={step.sources} />}
      {step.cut && <p class="quiet">Stopped here.</p>}
      {step.output !== "" && <Output text={step.output} whole={step.state === "committed"} />}
      {step.calls.map((call) => (
        <CallView key={call.id} call={call} rev={rev} session={session} target={target} />
      ))}
    </>
  );
  if (step.state === "discarded") {
    return (
      <li class="item step discarded">
        <details>
          <summary>
            Attempt {step.attempt} of step {step.step} was discarded{step.why ? ": " : ""}
            <bdi>{visible(step.why ?? "")}</bdi>
          </summary>
          {body}
        </details>
      </li>
    );
  }
  const blank = step.text === "" && step.thinking === "" && step.output === "" && step.calls.length === 0;
  return (
    <li class={`item step ${step.state}`}>
      {body}
      {step.state === "committed" && step.text !== "" && (
        <div class="message-actions">
          <Copy of={step.text} label="Copy the answer" />
        </div>
      )}
      {blank && step.state === "open" && <p class="quiet">…</p>}
    </li>
  );
}
