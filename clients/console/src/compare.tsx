// Two runs side by side, or two whole sessions: what was asked and answered, their steps, what each cost, and their states. The
// service compares them. The address holds both, so that it can be shared.
import { useEffect, useRef, useState } from "preact/hooks";
import type { ComparedCall, ComparedSide, ComparedStep, Comparison, StateDifference, StepPair, TextPiece } from "../../js/src/generated.ts";
import { HelixError, said, service } from "./api.ts";
import { Choose, RunChoice } from "./comparechoice.tsx";
import "./compare.css";
import { differences } from "./diff.ts";
import { count, inline, money, parsed, seconds, tokens, visible } from "./format.ts";
import { Empty, Icon, Problem, Status, Table, Text } from "./pieces.tsx";
import { type Compared, link } from "./route.ts";

/** How soon sides that run are compared again, and a failed comparison retried. */
const LOOK_MS = 2_000;
/** A comparison that took long is repeated after so many times its duration. */
const REST = 5;
const SIDES = ["left", "right"] as const;
type Name = (typeof SIDES)[number];
const LETTERS: Record<Name, string> = { left: "A", right: "B" };

export function Compare(at: Compared) {
  return (
    <div class="compare">
      <header class="bar slim">
        <a class="button plain back always" href={link.session(at.left)} aria-label="Back to the session">
          <Icon name="back" />
        </a>
        <h1>Compare</h1>
        {at.right !== undefined && (
          <a class="button" href={link.compare(at.right, at.left, at.rightRun, at.leftRun)}>
            Swap sides
          </a>
        )}
      </header>
      <div class="scroller plain-panel" tabIndex={0} role="region" aria-label="Comparison">
        {at.right === undefined ? <Choose left={at.left} run={at.leftRun} /> : <Both at={at} left={at.left} right={at.right} />}
      </div>
    </div>
  );
}

function useComparison(at: Compared, left: string, right: string): [Comparison | undefined, string] {
  const [found, setFound] = useState<Comparison | undefined>(undefined);
  const [problem, setProblem] = useState("");
  useEffect(() => {
    let [closed, read] = [false, false];
    let again: ReturnType<typeof setTimeout> | undefined;
    const look = async () => {
      const began = performance.now();
      let goesOn = false;
      try {
        const fields = { session_id: left, run_id: at.leftRun, other_session_id: right, other_run_id: at.rightRun };
        const next = await service().ask("compare", fields);
        if (closed) return;
        setFound(next);
        read = true;
        setProblem("");
        goesOn = SIDES.some((side) => next[side].status === "running");
      } catch (error) {
        if (closed) return;
        if (!read) setFound(undefined); // what is shown is of other runs
        const old = error instanceof HelixError && error.code === "invalid_message";
        setProblem(old ? "This service is of an older version: it cannot compare runs." : said(error));
        goesOn = !(error instanceof HelixError) || error.recoverable;
      }
      if (goesOn) again = setTimeout(() => void look(), Math.max(LOOK_MS, REST * (performance.now() - began)));
    };
    void look();
    return () => {
      closed = true;
      clearTimeout(again);
    };
  }, [left, right, at.leftRun, at.rightRun]);
  return [found, problem];
}

function Both({ at, left, right }: { at: Compared; left: string; right: string }) {
  const [found, problem] = useComparison(at, left, right);
  const first = useRef<HTMLLIElement>(null);
  if (problem !== "" && found === undefined) {
    return (
      <Empty title={problem}>
        <a class="button" href={link.compare(left)}>
          Compare with another session
        </a>
      </Empty>
    );
  }
  if (found === undefined) return <p class="quiet">Reading…</p>;
  const jump = () => {
    first.current?.scrollIntoView({ block: "center" });
    first.current?.focus();
  };
  return (
    <>
      <Problem of={problem} />
      <Open found={found} />
      <Facts found={found} at={at} />
      <section aria-label="Input">
        <h2>Input</h2>
        <Words pieces={found.input} empty="Both sides have no message." />
      </section>
      <section aria-label="Answer">
        <h2>Answer</h2>
        <Words pieces={found.answer} empty="Both sides have no answer." />
      </section>
      <section aria-label="Steps">
        <div class="compare-head">
          <h2>Steps</h2>
          <p class="quiet">{firstWords(found)}</p>
          {found.first_difference !== null && (
            <button class="small" onClick={jump}>
              Go to the first difference
            </button>
          )}
        </div>
        <Steps found={found} first={first} />
      </section>
      <section aria-label="State">
        <h2>State</h2>
        <States differences={found.state} more={found.more_state} />
      </section>
    </>
  );
}

/** Says that more is to come: the messages of an open step are not part of the history yet. */
function Open({ found }: { found: Comparison }) {
  const open = SIDES.filter((name) => found[name].status === "running" || found[name].status === "paused").map((name) => LETTERS[name]);
  if (open.length === 0) return null;
  const words = open.length === 2 ? "A and B have not ended: their open steps, with their messages," : `${open[0]} has not ended: its open step, with its message,`;
  return (
    <p class="notice" role="status">
      {words} {open.length === 2 ? "are" : "is"} not compared yet.
    </p>
  );
}

// --- facts -----------------------------------------------------------------------------------------------------------------

const FACTS: [string, (side: ComparedSide) => string, ((side: ComparedSide) => number)?][] = [
  ["Agent", (side) => side.agent],
  ["Models", (side) => side.models.join(", ") || "unknown"],
  ["Steps", (side) => side.steps.toLocaleString("en"), (side) => side.steps],
  ["Time, with waits", (side) => seconds(side.seconds), (side) => side.seconds],
  ["Tokens", (side) => tokens(side.usage), (side) => (side.usage.prompt_tokens ?? 0) + (side.usage.completion_tokens ?? 0)],
  ["From a cache", (side) => count(side.usage.cached_tokens ?? 0, "token"), (side) => side.usage.cached_tokens ?? 0],
  ["Cost", (side) => money(side.usage.cost_micros ?? 0), (side) => side.usage.cost_micros ?? 0],
];

function Facts({ found, at }: { found: Comparison; at: Compared }) {
  return (
    <Table label="Facts of both sides" columns={["Fact", "A", "B", "B compared with A"]}>
      <tbody>
        <tr>
          <th scope="row">Session</th>
          {SIDES.map((name) => (
            <td key={name}>
              <a href={link.session(found[name].session_id)}>
                <Text of={found[name].session_id} />
              </a>
              <RunChoice side={name} at={at} />
            </td>
          ))}
          <td />
        </tr>
        <tr>
          <th scope="row">Status</th>
          {SIDES.map((name) => (
            <td key={name}>
              <Status of={found[name].status} />
            </td>
          ))}
          <td />
        </tr>
        {FACTS.map(([name, words, number]) => (
          <tr key={name}>
            <th scope="row">{name}</th>
            {SIDES.map((side) => (
              <td key={side}>
                <Text of={words(found[side])} />
              </td>
            ))}
            <td class="quiet">{number && change(number(found.left), number(found.right))}</td>
          </tr>
        ))}
      </tbody>
    </Table>
  );
}

/** How much more or less the right side has. */
function change(left: number, right: number): string {
  if (left === right) return "the same";
  if (left === 0) return "more";
  const share = Math.round(((right - left) / left) * 100);
  return share === 0 ? "about the same" : share > 0 ? `${share.toLocaleString("en")} % more` : `${-share} % less`;
}

// --- texts -----------------------------------------------------------------------------------------------------------------

/** A text in which it is marked what only one side has. */
function Words({ pieces, empty }: { pieces: TextPiece[]; empty: string }) {
  if (pieces.length === 0) return <p class="quiet">{empty}</p>;
  const same = pieces.every(({ kind }) => kind === "same");
  return (
    <>
      <p class="quiet">
        {same ? (
          "Both sides are the same."
        ) : (
          <>
            Only A has <del>this</del>, only B has <ins>this</ins>.
          </>
        )}
      </p>
      <div class="words" dir="auto" tabIndex={0} role="group" aria-label="The text of both sides">
        {pieces.map(({ kind, text }, n) => {
          if (kind === "same") return <span key={n}>{visible(text)}</span>;
          return kind === "removed" ? <del key={n}>{visible(text)}</del> : <ins key={n}>{visible(text)}</ins>;
        })}
      </div>
    </>
  );
}

// --- steps -----------------------------------------------------------------------------------------------------------------

const isSame = (pair: StepPair): boolean => pair.left !== null && pair.right !== null && pair.differs.length === 0;

function firstWords({ steps, first_difference: place }: Comparison): string {
  const pair = place === null ? undefined : steps[place];
  if (pair === undefined) return steps.length === 0 ? "Neither side has a step." : "All steps are the same.";
  return `The first difference: ${pairWords(pair)}.`;
}

function pairWords({ left, right, differs }: StepPair): string {
  if (left === null) return `only B has step ${right?.step}`;
  if (right === null) return `only A has step ${left.step}`;
  const steps = left.step === right.step ? `step ${left.step}` : `step ${left.step} of A and step ${right.step} of B`;
  return differs.length === 0 ? steps : `${steps}, by its ${differs.join(", ").replace(/, ([a-z]+)$/, " and $1")}`;
}

/** Pairs in order. Those that are the same and stand together are folded. */
function Steps({ found, first }: { found: Comparison; first: { current: HTMLLIElement | null } }) {
  const groups: StepPair[][] = [];
  for (const pair of found.steps) {
    const last = groups.at(-1);
    if (last?.[0] && isSame(last[0]) && isSame(pair)) last.push(pair);
    else groups.push([pair]);
  }
  return (
    <ol class="step-pairs">
      {groups.map((pairs, n) => {
        const pair = pairs[0] as StepPair;
        if (isSame(pair)) {
          return (
            <li key={n} class="same">
              <details>
                <summary>
                  {count(pairs.length, "step")} {pairs.length === 1 ? "is" : "are"} the same
                </summary>
                {pairs.map((one, m) => (
                  <Side key={m} step={one.left as ComparedStep} other={null} name="left" both />
                ))}
              </details>
            </li>
          );
        }
        const marked = pair === found.steps[found.first_difference ?? -1];
        return (
          <li key={n} class="different" {...(marked && { ref: first, tabIndex: -1 })}>
            <h3>{sentence(pairWords(pair))}</h3>
            <div class="step-pair">
              {SIDES.map((name) => (
                <Side key={name} step={pair[name]} other={pair[name === "left" ? "right" : "left"]} name={name} />
              ))}
            </div>
          </li>
        );
      })}
    </ol>
  );
}

const sentence = (text: string): string => `${text.charAt(0).toUpperCase()}${text.slice(1)}`;

interface SideGiven {
  step: ComparedStep | null;
  /** The step beside it, to show what differs. */
  other: ComparedStep | null;
  name: Name;
  both?: boolean;
}

function Side({ step, other, name, both = false }: SideGiven) {
  if (step === null) {
    return (
      <div class="step-side none" role="group" aria-label={`Side ${LETTERS[name]}`}>
        <p class="quiet">{LETTERS[name]} has no such step.</p>
      </div>
    );
  }
  const facts = [step.model, seconds(step.seconds), tokens(step.usage), money(step.usage.cost_micros ?? 0)].filter(Boolean);
  return (
    <div class="step-side" role="group" aria-label={both ? `Step ${step.step}` : `Side ${LETTERS[name]}`}>
      {both ? (
        <h3>Step {step.step}</h3>
      ) : (
        <h4>
          {LETTERS[name]}: step {step.step}
        </h4>
      )}
      <p class="quiet">
        <Text of={facts.join(" · ")} />
      </p>
      {step.messages.map((text, n) => (
        <blockquote key={n} dir="auto">
          {visible(text)}
        </blockquote>
      ))}
      {step.text !== "" && (
        <div class="words" dir="auto">
          {visible(step.text)}
        </div>
      )}
      {step.calls.map((call, n) => (
        <CallCard key={call.call_id} call={call} other={other?.calls[n]} />
      ))}
    </div>
  );
}

function CallCard({ call, other }: { call: ComparedCall; other: ComparedCall | undefined }) {
  const twin = other?.name === call.name ? other : undefined;
  const changed = twin === undefined ? [] : differences(parsed(call.arguments), parsed(twin.arguments));
  const differs = twin !== undefined && (changed.length > 0 || twin.result !== call.result || twin.success !== call.success);
  return (
    <details class={`compared-call ${differs ? "differs" : ""}`} open={differs}>
      <summary>
        <Icon name="tool" /> <Text of={call.name} length={60} />
        {call.edited && <span class="tag">edited</span>}
        {call.success === false && <span class="tag warn">failed</span>}
        {twin !== undefined && <span class="quiet">{differs ? "differs" : "the same call"}</span>}
      </summary>
      {changed.length > 0 ? (
        <ul class="argument-changes">
          {changed.map(({ path, left }) => (
            <li key={path}>
              <code>
                <Text of={path} />
              </code>
              {left === undefined ? <span class="quiet">nothing</span> : <mark>{inline(left, 300)}</mark>}
            </li>
          ))}
        </ul>
      ) : (
        <pre class="code" tabIndex={0} role="group" aria-label={`Arguments of ${visible(call.name)}`}>
          {visible(call.arguments)}
        </pre>
      )}
      <pre class="code" tabIndex={0} role="group" aria-label={`Result of ${visible(call.name)}`}>
        {call.success === null ? "No result yet." : visible(call.result)}
      </pre>
    </details>
  );
}

// --- state -----------------------------------------------------------------------------------------------------------------

function States({ differences: found, more }: { differences: StateDifference[]; more: boolean }) {
  if (found.length === 0) return <p class="quiet">Both sides have the same state.</p>;
  const cell = (one: StateDifference, name: Name) => {
    if (one.only !== null && one.only !== name) return <span class="quiet">nothing</span>;
    const text = inline(one[name], 300);
    return name === "left" ? <del>{text}</del> : <ins>{text}</ins>;
  };
  return (
    <>
      <Table label="Differences of the state" columns={["Place", "A", "B"]}>
        <tbody>
          {found.map((one) => (
            <tr key={JSON.stringify(one.path)}>
              <th scope="row">
                <code>
                  <Text of={one.path.join(".") || "(all)"} />
                </code>
              </th>
              {SIDES.map((name) => (
                <td key={name}>{cell(one, name)}</td>
              ))}
            </tr>
          ))}
        </tbody>
      </Table>
      {more && <p class="quiet">There are more differences.</p>}
    </>
  );
}
