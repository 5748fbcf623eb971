// A new chat: choose an agent, say something. An agent with parameters has a form instead.
import { useEffect, useState } from "preact/hooks";
import { type AgentInfo, agents, begin, fieldsOf, firstAgent, said, type Schema } from "./api.ts";
import { Composer } from "./composer.tsx";
import { changeDraft, draftOf, draftPlace, keepAgent, lastAgent, type Outgoing } from "./drafts.ts";
import { blankFields, FieldGroup, problemsIn, valueOf } from "./fields.tsx";
import { refresh, sessions } from "./listing.ts";
import { Empty, Icon, Problem, Text } from "./pieces.tsx";
import { go, link, route } from "./route.ts";

/** The address without the filters of the list, which may change while the service begins the run. */
const place = () => location.hash.split("?")[0];

/** Those of the service, or else those that the listed sessions are of. */
function known(): AgentInfo[] {
  if (agents.value.length > 0) return agents.value;
  return [...new Set(sessions.value.map((session) => session.agent_type))].sort().map((name) => ({ name }));
}

export function NewChat({ agent }: { agent: string | undefined }) {
  useEffect(() => void (document.title = "New chat · Helix"), []);
  const found = known();
  const named = (name: string | null) => found.find((one) => one.name === name);
  const chosen = agent ?? (named(lastAgent()) ?? named(firstAgent.value) ?? found[0])?.name;
  const [problem, setProblem] = useState("");
  const start = async (input: object, key?: string) => {
    const from = place();
    const started = await begin("run", { agent: chosen ?? "", ...input }, key);
    keepAgent(chosen ?? "");
    void refresh();
    if (place() === from) go(link.session(started.session_id)); // somebody who waits for it goes nowhere else
  };
  const submit = async (input: Record<string, unknown>) => {
    setProblem("");
    await start({ input }).catch((error: unknown) => setProblem(said(error)));
  };
  const parameters = parametersOf(found.find((one) => one.name === chosen));
  // Whoever asked for a new chat writes next: without this, the letters would be shortcuts. On a phone it would open the keyboard.
  const asked = route.value.view === "new";
  useEffect(() => {
    if (asked && matchMedia("(hover: hover)").matches) document.getElementById("composer")?.focus();
  }, [asked, chosen]);
  return (
    <div class="newchat">
      <header class="bar slim">
        <a class="button plain back" href={link.home()} aria-label="Back to the list">
          <Icon name="back" />
        </a>
        <h1>New chat</h1>
      </header>
      <div class="newchat-middle">
        {found.length === 0 ? (
          <Empty title="No agent can be run from here">
            <p>This console shows the sessions that are stored. Name the project's agents with <code>--agent module:name</code>.</p>
          </Empty>
        ) : (
          <>
            <h2>Who do you want to talk to?</h2>
            <ul class="agents">
              {found.map((one) => (
                <li key={one.name}>
                  <a class="agent" href={link.new(one.name)} aria-current={one.name === chosen ? "true" : undefined}>
                    <span class="agent-mark" aria-hidden="true">
                      {[...one.name][0]?.toUpperCase()}
                    </span>
                    <span>
                      <strong>
                        <Text of={one.name} length={40} />
                      </strong>
                      {one.description && (
                        <small>
                          <Text of={one.description} length={120} />
                        </small>
                      )}
                    </span>
                  </a>
                </li>
              ))}
            </ul>
            {chosen !== undefined && <Examples key={chosen} agent={chosen} of={named(chosen)?.examples ?? []} />}
          </>
        )}
      </div>
      <Problem of={problem} pad />
      {chosen !== undefined &&
        (parameters === undefined ? (
          <Composer
            key={chosen}
            place={draftPlace.new(chosen)}
            label={`Message to ${chosen}`}
            onSend={(message: Outgoing, key) => start(fieldsOf(message), key)}
          />
        ) : (
          <InputForm key={chosen} schema={parameters} onSend={submit} />
        ))}
    </div>
  );
}

/** What one may begin with. An example is written into the draft, so that it can be changed before it is sent. */
function Examples({ agent, of }: { agent: string; of: readonly string[] }) {
  const place = draftPlace.new(agent);
  if (of.length === 0 || draftOf(place).value.text.trim() !== "") return null;
  const write = (text: string) => {
    changeDraft(place, { text });
    document.getElementById("composer")?.focus();
  };
  return (
    <section class="examples" aria-label="Examples">
      <h3>Try</h3>
      <ul>
        {of.map((text) => (
          <li key={text}>
            <button onClick={() => write(text)}>
              <Text of={text} length={160} />
            </button>
          </li>
        ))}
      </ul>
    </section>
  );
}

/** Of a function agent; undefined for those that one talks to. */
function parametersOf(agent: AgentInfo | undefined): Schema | undefined {
  const found = agent?.kind === "function" ? agent.input?.properties?.["input"] : undefined;
  return found && { $defs: agent?.input?.$defs ?? {}, ...found };
}

function InputForm({ schema, onSend }: { schema: Schema; onSend: (input: Record<string, unknown>) => Promise<void> }) {
  const [value, setValue] = useState(() => blankFields(schema));
  const [problem, setProblem] = useState("");
  const send = () => {
    setProblem("");
    try {
      void onSend(valueOf(value));
    } catch (error) {
      setProblem(said(error));
    }
  };
  return (
    <form class="composer form" onSubmit={(event) => (event.preventDefault(), send())}>
      <FieldGroup schema={schema} value={value} change={setValue} problems={problemsIn(problem, value)} />
      <Problem of={problem} />
      <button class="primary">Run</button>
    </form>
  );
}
