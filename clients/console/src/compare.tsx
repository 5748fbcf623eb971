// Two sessions side by side: what they share, where they part, what their states differ in, and what each cost.
import { useEffect, useState } from "preact/hooks";
import { differences, shared } from "./diff.ts";
import { count, inline, money, tokens } from "./format.ts";
import { Items } from "./items.tsx";
import { Empty, Icon, Status, Table, Text } from "./pieces.tsx";
import { link } from "./route.ts";
import { OpenSession } from "./session.ts";

export function Compare({ left, right }: { left: string; right: string }) {
  const [pair] = useState(() => [new OpenSession(left, true), new OpenSession(right, true)] as const);
  useEffect(() => {
    for (const one of pair) one.start();
    return () => {
      for (const one of pair) one.close();
    };
  }, [pair]);
  const [a, b] = pair;
  void a.drawn.value;
  void b.drawn.value;
  const problem = a.error.value ?? b.error.value;
  if (problem !== undefined) return <Empty title={problem} />;
  const same = shared(a.conversation.items, b.conversation.items);
  const ready = a.stored.value !== undefined && b.stored.value !== undefined;
  return (
    <div class="compare">
      <header class="bar slim">
        <a class="button plain back always" href={link.session(right)} aria-label="Back to the session">
          <Icon name="back" />
        </a>
        <h1>Compare</h1>
      </header>
      <div class="scroller" tabIndex={0} role="region" aria-label="Two sessions side by side">
        {!ready && <p class="quiet pad">Reading…</p>}
        {ready && same > 0 && (
          <details class="shared">
            <summary>
              {count(same, "item")} {same === 1 ? "is" : "are"} the same in both
            </summary>
            <Items conversation={a.conversation} items={a.conversation.items.slice(0, same)} session={a} target={undefined} />
          </details>
        )}
        <div class="pair">
          <Side session={a} same={same} name="Origin" />
          <Side session={b} same={same} name="Branch" />
        </div>
        {ready && <States left={a} right={b} />}
      </div>
    </div>
  );
}

function Side({ session, same, name }: { session: OpenSession; same: number; name: string }) {
  const stored = session.stored.value;
  const { conversation } = session;
  const rest = conversation.items.slice(same);
  return (
    <section aria-label={name}>
      <header class="side-head">
        <h2>
          {name} {stored !== undefined && <Status of={stored.status} />}
        </h2>
        <p>
          <a href={link.session(session.id)}>
            <Text of={session.id} length={44} />
          </a>
        </p>
        {stored !== undefined && (
          <p class="quiet">
            {count(stored.step_count, "step")} · {tokens(stored.usage)} · {money(stored.usage.cost_micros)}
          </p>
        )}
      </header>
      {rest.length === 0 ? (
        <p class="quiet pad">Nothing more.</p>
      ) : (
        <Items conversation={conversation} items={rest} rev={session.drawn.value} session={session} target={undefined} />
      )}
    </section>
  );
}

function States({ left, right }: { left: OpenSession; right: OpenSession }) {
  const found = differences(left.custom.value, right.custom.value);
  return (
    <section class="states">
      <h2>State</h2>
      {found.length === 0 ? (
        <p class="quiet">Both have the same state.</p>
      ) : (
        <Table label="Differences of the state" columns={["Place", "Origin", "Branch"]}>
          <tbody>
            {found.map((one) => (
              <tr key={one.path}>
                <th scope="row">
                  <code>
                    <Text of={one.path} />
                  </code>
                </th>
                <td>{one.left === undefined ? <span class="quiet">nothing</span> : <del><bdi>{inline(one.left, 200)}</bdi></del>}</td>
                <td>{one.right === undefined ? <span class="quiet">nothing</span> : <ins><bdi>{inline(one.right, 200)}</bdi></ins>}</td>
              </tr>
            ))}
          </tbody>
        </Table>
      )}
    </section>
  );
}
