// A run in short: when it worked and waited, what it cost, and its trace in other systems.
import { useEffect, useState } from "preact/hooks";
import { clock, count, money, seconds } from "./format.ts";
import { OnAws } from "./onaws.tsx";
import { operator } from "./operator.ts";
import { Copy, Status, Text } from "./pieces.tsx";
import { link } from "./route.ts";
import type { OpenSession } from "./session.ts";
import { Fact } from "./stepdetail.tsx";
import { ownTime, rangeOf, type RunSpan } from "./timeline.ts";
import { MODES } from "./tracetree.tsx";

export function RunDetail({ run, session, own }: { run: RunSpan; session: OpenSession; own: boolean }) {
  const { sums } = run;
  const between = ownTime([run.from, run.to], run.steps.map((step) => rangeOf(step, run.to)));
  return (
    <>
      <dl class="facts">
        <Fact name="Status">
          <Status of={run.status} />
        </Fact>
        {MODES[run.mode] !== "" && <Fact name="How it began">{MODES[run.mode] ?? run.mode}</Fact>}
        {run.from > 0 && <Fact name="Began">{clock(run.from)}</Fact>}
        <Fact name="Took">
          {seconds(run.to - run.from)}, {seconds(between)} between steps
        </Fact>
        {run.queued !== undefined && <Fact name="Waited for a slot">{run.queued[1] === undefined ? "still waits" : seconds(run.queued[1] - run.queued[0])}</Fact>}
        <Fact name="Work">
          {count(sums.steps, "step")}, {count(sums.answers, "model call")}, {count(sums.calls, "tool call")}
        </Fact>
        {sums.discarded > 0 && <Fact name="Discarded">{count(sums.discarded, "attempt")}</Fact>}
        {sums.cost > 0 && <Fact name="Cost">{money(sums.cost)}</Fact>}
        <Fact name="Id">
          <code>{run.id}</code>
        </Fact>
        {own && <TraceFact run={run.id} />}
      </dl>
      {own && <a href={link.compare(session.id, "", run.id)}>Compare with…</a>}
      {operator.value && <OnAws key={run.id} session={session.id} run={run.id} />}
      {run.error && (
        <p class="problem">
          <Text of={run.error} />
        </p>
      )}
    </>
  );
}

function TraceFact({ run }: { run: string }) {
  const [id, setId] = useState("");
  useEffect(() => void traceId(run).then(setId), [run]);
  if (id === "") return null;
  return (
    <Fact name="Trace">
      <code title={`In X-Ray: 1-${id.slice(0, 8)}-${id.slice(8)}`}>{id}</code>
      <Copy of={id} label="Copy the trace's id: X-Ray and OpenTelemetry know the run by it" />
    </Fact>
  );
}

/** The id of a run's trace, as W3C Trace Context has it: it follows from the run's id (docs/guide/observability.md). "" where the
 *  browser computes no digest: over plain HTTP. */
async function traceId(runId: string): Promise<string> {
  if (!isSecureContext) return "";
  const digest = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(`helix\0trace\0${runId}`));
  const bytes = Array.from(new Uint8Array(digest).subarray(0, 16));
  return bytes.map((byte) => byte.toString(16).padStart(2, "0")).join("");
}
