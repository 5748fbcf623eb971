// The items of a conversation. An item is drawn again when it has changed, and only then: items are changed in place, so `rev` goes
// down to whatever shows a part of one, because components whose properties are the same are not drawn.
import { Component } from "preact";
import { useState } from "preact/hooks";
import { CallView } from "./call.tsx";
import type { Conversation, Item, Notice, Step, User } from "./fold.ts";
import { visible } from "./format.ts";
import { markdown } from "./markdown.ts";
import type { OpenSession } from "./session.ts";

interface Given {
  conversation: Conversation;
  session: OpenSession;
  target: string | undefined;
}

/** Items that are drawn at first, the newest; and how many more each time. */
const PAGE = 120;

export function Items({ conversation, session, target }: Given & { rev?: number }) {
  const [shown, setShown] = useState(target === undefined ? PAGE : Infinity);
  const hidden = Math.max(0, conversation.items.length - shown);
  return (
    <ol class="items">
      {hidden > 0 && (
        <li class="item earlier">
          <button class="small" onClick={() => setShown(shown + PAGE)}>
            Show earlier: {hidden.toLocaleString("en")} more
          </button>
        </li>
      )}
      {conversation.items.slice(hidden).map((item) => (
        <Drawn key={item.key} item={item} rev={revision(item, conversation)} session={session} target={target} />
      ))}
    </ol>
  );
}

/** Of the item and all that is below its calls. */
function revision(item: Item, conversation: Conversation): number {
  if (item.kind !== "step") return item.rev;
  let sum = item.rev;
  for (const call of item.calls) {
    const child = call.child === undefined ? undefined : conversation.below.get(call.child.id);
    if (child !== undefined) for (const inner of child.items) sum += 1 + revision(inner, child);
  }
  return sum;
}

export interface DrawnGiven {
  item: Item;
  rev: number;
  session: OpenSession;
  target: string | undefined;
}

class Drawn extends Component<DrawnGiven> {
  override shouldComponentUpdate(next: DrawnGiven): boolean {
    return next.rev !== this.props.rev || next.item !== this.props.item || next.target !== this.props.target;
  }

  override render() {
    const { item, rev, session, target } = this.props;
    if (item.kind === "user") return <UserView item={item} />;
    if (item.kind === "notice") return <NoticeView item={item} />;
    return <StepView step={item} rev={rev} session={session} target={target} />;
  }
}

function UserView({ item }: { item: User }) {
  return (
    <li class="item user">
      <div class="bubble" dir="auto">
        {visible(item.text)}
      </div>
    </li>
  );
}

function NoticeView({ item }: { item: Notice }) {
  return (
    <li class={`item notice ${item.tone}`}>
      <bdi>{visible(item.text)}</bdi>
    </li>
  );
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
      {step.text !== "" && <div class="prose" dir="auto" dangerouslySetInnerHTML={{ __html: markdown(step.text) }} />}
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
  const blank = step.text === "" && step.thinking === "" && step.calls.length === 0;
  return (
    <li class={`item step ${step.state}`}>
      {body}
      {blank && step.state === "open" && <p class="quiet">…</p>}
    </li>
  );
}
