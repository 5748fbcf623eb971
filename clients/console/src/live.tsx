// What runs now: the sessions that work or wait for a person, read again while the page is looked at.
import { useEffect, useState } from "preact/hooks";
import { said, service } from "./api.ts";
import { money, seconds } from "./format.ts";
import { everybody } from "./operator.ts";
import { Icon, Problem, Status, Table, Text } from "./pieces.tsx";
import { link } from "./route.ts";
import type { ListedSession } from "./wire.ts";
import "./live.css";

const LOOK_MS = 3_000;
const TICK_MS = 1_000;
/** Sessions that run, and those that wait. */
const MOST = 100;
/** Pages of each that are read. A filtered page may be short or empty. */
const PAGES = 2;
/** While there are more pages, the page looks less often, because each look reads many sessions. */
const LONG_LOOKS = 5;

interface Live {
  session: ListedSession;
  waits: boolean;
  /** When the run began, or the wait (Unix seconds). Undefined until it is read. */
  since: number | undefined;
  /** The place of a run that waits for a slot. */
  queued: number | undefined;
}

/** When each run began: this never changes, so it is read once. */
const begun = new Map<string, number>();

async function read(): Promise<{ found: Live[]; more: boolean }> {
  const pages = await Promise.all([all({ status: "running" }), all({ waiting: true })]);
  const running = await Promise.all(pages[0].found.map(ofRun));
  const waiting = pages[1].found.map((session) => ({ session, waits: true, since: session.updated_at, queued: undefined }));
  return { found: [...running, ...waiting], more: pages.some(({ more }) => more) };
}

/** Read the first pages. `more`: others are left. */
async function all(which: { status: "running" } | { waiting: true }): Promise<{ found: ListedSession[]; more: boolean }> {
  const found: ListedSession[] = [];
  let after: string | undefined;
  for (let n = 0; n < PAGES && found.length < MOST && (n === 0 || after !== undefined); n++) {
    const page = await service().listSessions({ limit: MOST - found.length, titles: true, after, ...which });
    found.push(...page.sessions);
    after = page.cursor ?? undefined;
  }
  return { found, more: after !== undefined };
}

async function ofRun(session: ListedSession): Promise<Live> {
  const { session_id, current_run_id } = session;
  // Before its first step, the run may wait for a slot.
  if (begun.has(current_run_id) && session.step_count > 0) {
    return { session, waits: false, since: begun.get(current_run_id), queued: undefined };
  }
  try {
    const { runs = [], queued } = await service().ask("get_session", { session_id, runs: 1 });
    const run = runs[0];
    if (run !== undefined) begun.set(run.run_id, run.started_at);
    return { session, waits: false, since: run?.started_at, queued: queued?.place };
  } catch {
    return { session, waits: false, since: begun.get(current_run_id), queued: undefined }; // it was deleted meanwhile
  }
}

function useLive() {
  const [live, setLive] = useState<{ found: Live[]; more: boolean } | undefined>(undefined);
  const [problem, setProblem] = useState("");
  const [now, setNow] = useState(Date.now() / 1000);
  useEffect(() => {
    let [closed, reading, left, looks] = [false, false, false, 0];
    const look = async () => {
      if (reading || document.visibilityState !== "visible" || (left && ++looks % LONG_LOOKS !== 0)) return;
      reading = true;
      try {
        const found = await read();
        left = found.more;
        if (!closed) [setLive(found), setProblem("")];
      } catch (error) {
        if (!closed) setProblem(said(error));
      }
      reading = false;
    };
    void look();
    const timers = [setInterval(() => void look(), LOOK_MS), setInterval(() => setNow(Date.now() / 1000), TICK_MS)];
    return () => {
      closed = true;
      timers.forEach(clearInterval);
    };
  }, []);
  return { live, problem, now };
}

export function LiveView() {
  const { live, problem, now } = useLive();
  const found = live?.found ?? [];
  const running = found.filter(({ waits }) => !waits).length;
  const cost = found.reduce((sum, { session }) => sum + session.usage.cost_micros, 0);
  return (
    <div class="fleet-view">
      <header class="bar slim">
        <a class="button plain back" href={link.home()} aria-label="Back">
          <Icon name="back" />
        </a>
        <div class="bar-about">
          <h1>Running now</h1>
          <p class="quiet">
            {live === undefined ? "Reading…" : `${live.more ? "At least " : ""}${running} running, ${found.length - running} waiting for a person, ${money(cost)} so far`}
            {everybody.value && " for all users"}
          </p>
        </div>
      </header>
      <div class="scroller plain-panel live">
        <Problem of={problem} />
        {live !== undefined && found.length === 0 && !live.more && <p class="quiet">Nothing runs or waits now.</p>}
        {found.length > 0 && <Rows found={found} now={now} />}
        {live?.more && <p class="quiet">Only the newest sessions were searched. The list finds the others.</p>}
      </div>
    </div>
  );
}

function Rows({ found, now }: { found: Live[]; now: number }) {
  const users = everybody.value;
  return (
    <Table label="Sessions that run or wait" columns={["Session", "Status", "Agent", ...(users ? ["User"] : []), "#Steps", "#Cost", "#Elapsed"]}>
      <tbody>
        {found.map(({ session, waits, since, queued }) => (
          <tr key={session.session_id}>
            <th scope="row">
              <a href={link.session(session.session_id)}>
                <Text of={session.title || session.session_id} length={60} />
              </a>
            </th>
            <td>
              <Status of={waits ? "paused" : "running"} />
              {queued !== undefined && <span class="quiet"> place {queued} in the queue</span>}
            </td>
            <td>
              <Text of={session.active_agent || session.agent_type} length={24} />
            </td>
            {users && (
              <td>
                <Text of={session.user_id ?? "–"} length={24} />
              </td>
            )}
            <td class="number">{session.step_count.toLocaleString("en")}</td>
            <td class="number">{money(session.usage.cost_micros)}</td>
            <td class="number">{since === undefined ? "–" : seconds(Math.max(1, Math.round(now - since))).replace(/\.0 s$/, " s")}</td>
          </tr>
        ))}
      </tbody>
    </Table>
  );
}
