// Where a run is in the AWS account of its stage, and its log lines. For operators.
import { useEffect, useRef, useState } from "preact/hooks";
import { HelixError, said, service } from "./api.ts";
import { clock } from "./format.ts";
import { Copy, Problem, Text } from "./pieces.tsx";
import { Fact } from "./stepdetail.tsx";
import type { Results } from "./wire.ts";

type Executions = Results["get_executions"];
type LogLine = Results["get_logs"]["lines"][number];

/** The run's executions. `undefined` until they are read, and where the service does not run on a stage, or does not say. */
function useExecutions(session: string, run: string): (Executions & { stage: string }) | undefined {
  const [found, setFound] = useState<Executions | undefined>(undefined);
  useEffect(() => {
    let closed = false;
    setFound(undefined);
    service()
      .ask("get_executions", { session_id: session, run_id: run })
      .then((executions) => !closed && setFound(executions))
      .catch((error: unknown) => {
        if (!(error instanceof HelixError)) throw error; // a service of an older version does not know the request
      });
    return () => void (closed = true);
  }, [session, run]);
  const stage = found?.stage ?? null;
  return found === undefined || stage === null ? undefined : { ...found, stage };
}

export function OnAws({ session, run }: { session: string; run: string }) {
  const found = useExecutions(session, run);
  if (found === undefined) return null;
  const command = `helix logs ${session} --stage ${found.stage}`;
  return (
    <section>
      <h3>On AWS</h3>
      <dl class="facts">
        {found.executions.map(({ part, arn, url }) => (
          <Fact key={part} name={found.executions.length === 1 ? "Execution" : `Execution ${part}`}>
            {url === null ? (
              <code>{arn}</code>
            ) : (
              <a href={url} target="_blank" rel="noreferrer">
                <code>{arn}</code>
              </a>
            )}
            <Copy of={arn} label={`Copy the ARN of execution ${part}`} />
          </Fact>
        ))}
        <Fact name="Log of the session">
          <code>{command}</code>
          <Copy of={command} label="Copy the command that shows the log lines" />
        </Fact>
        {found.logs_url !== null && (
          <Fact name="Log groups">
            <a href={found.logs_url} target="_blank" rel="noreferrer">
              <code>{found.log_groups}…</code>
            </a>
          </Fact>
        )}
      </dl>
      <LogLines session={session} run={run} />
    </section>
  );
}

/** The log lines of a step's run while the step was worked on. Nothing where there is no stage. */
export function StepLog({ session, run, from, to }: { session: string; run: string; from: number; to: number }) {
  if (useExecutions(session, run) === undefined) return null;
  return (
    <section>
      <h3>On AWS</h3>
      <LogLines session={session} run={run} since={Math.max(0, from - MARGIN_S)} until={to + MARGIN_S} />
    </section>
  );
}

/** The clocks of functions may differ by this. */
const MARGIN_S = 1;

/** The log lines of a run, or those of a time. They are read when somebody asks for them: each page searches several logs. */
function LogLines({ session, run, since, until }: { session: string; run: string; since?: number; until?: number }) {
  const [lines, setLines] = useState<LogLine[] | undefined>(undefined);
  const [cursor, setCursor] = useState<string | null>(null);
  const [reading, setReading] = useState(false);
  const [problem, setProblem] = useState("");
  const closed = useRef(false);
  useEffect(() => () => void (closed.current = true), []);
  const fields = { session_id: session, run_id: run, ...(since !== undefined && { since }), ...(until !== undefined && { until }) };

  /** Read pages until one has lines. */
  const read = async (after: string | null, known: LogLine[]) => {
    setReading(true);
    setProblem("");
    try {
      let page: Results["get_logs"];
      do {
        page = await service().ask("get_logs", after === null ? fields : { ...fields, after });
        after = page.cursor;
      } while (page.lines.length === 0 && after !== null && !closed.current);
      setLines([...known, ...page.lines].sort((a, b) => a.at - b.at));
      setCursor(after);
    } catch (error) {
      setProblem(said(error));
    } finally {
      setReading(false);
    }
  };

  return (
    <div class="log">
      {lines?.length === 0 && <p class="quiet">No log line names this run{since === undefined ? "" : " at that time"}.</p>}
      {lines !== undefined && lines.length > 0 && (
        <ol class="log-lines" tabIndex={0} aria-label="Log lines">
          {lines.map((line, n) => (
            <li key={n} class={TONES[line.level] ?? ""}>
              <time dateTime={new Date(line.at * 1000).toISOString()}>
                {clock(line.at)}.{String(Math.floor((line.at % 1) * 1000)).padStart(3, "0")}
              </time>{" "}
              <b>
                <Text of={line.function} />
              </b>{" "}
              {line.level !== "INFO" && (
                <>
                  <strong>
                    <Text of={line.level} />
                  </strong>{" "}
                </>
              )}
              <Text of={line.text} />
            </li>
          ))}
        </ol>
      )}
      <Problem of={problem} />
      <button disabled={reading} onClick={() => void (cursor === null ? read(null, []) : read(cursor, lines ?? []))}>
        {reading ? "Reading the log…" : lines === undefined ? "Show log lines" : cursor === null ? "Read the log again" : "More log lines"}
      </button>
    </div>
  );
}

const TONES: Record<string, string> = { WARNING: "warned", ERROR: "failed", CRITICAL: "failed" };
