// The payload of a model call: the system prompt, the tools, the settings and the messages as they were sent, and the answer.
import { useEffect, useState } from "preact/hooks";
import { HelixError, said, service } from "./api.ts";
import { Files } from "./files.tsx";
import { brief, count, inline, money, tokens } from "./format.ts";
import { Code, CopyLater, Problem, Text } from "./pieces.tsx";
import { Fact as Plain } from "./stepdetail.tsx";
import type { StepSpan } from "./timeline.ts";
import { TokenParts } from "./tokenparts.tsx";
import type { Message, Results } from "./wire.ts";

type Context = Results["get_context"];
type Shown = Context["messages"][number];
type Answer = Extract<Message, { role: "assistant" }>;

/** Messages that are drawn at first, the newest; and how many more each time. */
const PAGE = 50;

/** Characters of raw JSON that are drawn. The copy has all. */
const RAW = 200_000;

interface Exchange {
  asked: Context;
  /** `undefined` where the history does not have it: the step has not ended, or the session was rewound. */
  answer: Answer | undefined;
}

export function Payload({ step }: { step: StepSpan }) {
  const [found, setFound] = useState<Exchange | undefined>(undefined);
  const [problem, setProblem] = useState("");
  const [raw, setRaw] = useState(false);
  const answered = step.attempts.find((one) => one.state === "committed");
  useEffect(() => {
    let closed = false;
    setProblem("");
    read(step, answered?.runId ?? null)
      .then((exchange) => !closed && setFound(exchange))
      .catch((error: unknown) => !closed && setProblem(isOld(error) ? "This service is of an older version: it does not say what the model was asked." : said(error)));
    return () => void (closed = true);
  }, [step.session, step.step, answered]);
  if (found === undefined) return problem === "" ? <p class="quiet">Reading…</p> : <Problem of={problem} />;
  const whole = () => JSON.stringify({ ...sent(found.asked), answer: found.answer ?? null, usage: answered?.usage ?? null }, null, 2);
  return (
    <div class="asked-body">
      <div class="payload-tools">
        <div role="group" aria-label="Format" class="filters">
          <button class="chip" aria-pressed={!raw} onClick={() => setRaw(false)}>
            Readable
          </button>
          <button class="chip" aria-pressed={raw} onClick={() => setRaw(true)}>
            Raw JSON
          </button>
        </div>
        <CopyLater of={whole} label="Copy the payload as JSON" />
      </div>
      {raw ? (
        <Raw of={whole()} label={`Payload of step ${step.step}`} />
      ) : (
        <>
          {answered?.usage != null && <TokenParts context={found.asked} usage={answered.usage} />}
          <h3>Request</h3>
          <Request of={found.asked} />
          <h3>Answer</h3>
          <AnswerBody of={found.answer} />
        </>
      )}
    </div>
  );
}

async function read(step: StepSpan, runId: string | null): Promise<Exchange> {
  const asked = await service().getContext(step.session, { step: step.step, run_id: runId });
  const { messages = [] } = await service().ask("get_session", { session_id: step.session, messages: 1, before: asked.count + 1 });
  const [message] = messages;
  const fits = message?.role === "assistant" && message.step === step.step && message.run_id === asked.run_id;
  return { asked, answer: fits ? message : undefined };
}

const isOld = (error: unknown): boolean => error instanceof HelixError && error.code === "invalid_message";

/** The request as it was sent, in the order in which providers read it. */
function sent({ model, system_prompt, request, output_limit, messages }: Context): object {
  return {
    ...{ model, settings: request?.settings ?? null, output_limit, tool_choice: request?.tool_choice ?? null },
    ...{ tools: request?.tools ?? null, output_schema: request?.output_schema ?? null, system_prompt, messages },
  };
}

function Raw({ of, label }: { of: string; label: string }) {
  return (
    <>
      {of.length > RAW && <p class="quiet">The first {RAW.toLocaleString("en")} characters. The copy has all.</p>}
      <Code of={of.slice(0, RAW)} label={label} />
    </>
  );
}

function AnswerBody({ of: answer }: { of: Answer | undefined }) {
  if (answer === undefined) return <p class="quiet">The history has no answer of this step.</p>;
  return (
    <ol class="asked-list">
      {answer.thinking.map((one, n) => one.text && <Labelled key={n} title="Reasoning" of={one.text} />)}
      {answer.content && <Labelled title="Text" of={answer.content} />}
      {answer.tool_calls.map((call) => (
        <Labelled key={call.id} title={`Calls ${call.name}`} of={call.arguments} />
      ))}
    </ol>
  );
}

function Labelled({ title, of }: { title: string; of: unknown }) {
  return (
    <li>
      <h4>
        <Text of={title} length={80} />
      </h4>
      <Code of={of} label={title} />
    </li>
  );
}

function Request({ of: found }: { of: Context }) {
  const { request } = found;
  const settings = Object.entries(request?.settings ?? {});
  return (
    <>
      {request === null && <p class="quiet">The request of this step was not recorded. The system prompt is the agent's present one, if it is known.</p>}
      <dl class="facts">
        <Fact name="Model">{found.model === null ? "not known" : <Text of={found.model} length={80} />}</Fact>
        {found.output_limit !== null && <Fact name="Limit of the answer">{found.output_limit.toLocaleString("en")} tokens, set by a budget</Fact>}
        {settings.map(([name, value]) => (
          <Fact key={name} name={NAMES[name] ?? name.replaceAll("_", " ")}>
            <Text of={inline(value, 400)} />
          </Fact>
        ))}
        {request !== null && request.tool_choice !== "auto" && (
          <Fact name="Tool choice">
            <Text of={request.tool_choice} length={80} />
          </Fact>
        )}
        <Fact name="Messages">{messagesOf(found)}</Fact>
        {found.view !== null && <Fact name="View">{viewOf(found.view)}</Fact>}
        {found.head !== null && (
          <Fact name="Request head">
            <code>{found.head}</code>
          </Fact>
        )}
      </dl>
      {found.system_prompt !== null && found.system_prompt !== "" && (
        <section>
          <h4>System prompt</h4>
          <Code of={found.system_prompt} label={`System prompt of step ${found.step}`} />
        </section>
      )}
      {request !== null && request.tools.length > 0 && (
        <section>
          <h4>Tools</h4>
          <ul class="asked-list">
            {request.tools.map((tool) => (
              <li key={tool.name}>
                <details>
                  <summary>
                    <code>
                      <Text of={tool.name} length={60} />
                    </code>
                    <span class="quiet">
                      <Text of={tool.description} length={120} />
                    </span>
                    {tool.strict && <span class="tag">strict</span>}
                  </summary>
                  {brief(tool.description, 120).endsWith("…") && (
                    <p>
                      <Text of={tool.description} />
                    </p>
                  )}
                  <Code of={tool.parameters} label={`Arguments of the tool ${tool.name}`} />
                </details>
              </li>
            ))}
          </ul>
        </section>
      )}
      {request !== null && request.output_schema !== null && (
        <section>
          <h4>Schema of the output</h4>
          <Code of={request.output_schema} label={`Schema of the output of step ${found.step}`} />
        </section>
      )}
      <Messages of={found} />
    </>
  );
}

const NAMES: Record<string, string> = { max_output_tokens: "Limit of the answer (tokens)" };

const Fact = ({ name, children }: Parameters<typeof Plain>[0]) => <Plain name={name.charAt(0).toUpperCase() + name.slice(1)}>{children}</Plain>;

function messagesOf({ count: all, hidden, cleared, view }: Context): string {
  if (view === null) return `the whole history, ${count(all, "message")}`;
  return `of ${count(all, "message")}, ${hidden.toLocaleString("en")} hidden and ${count(cleared.length, "result")} cleared`;
}

const CAUSES: Record<string, string> = { policy: "by the agent's policy", overflow: "because the provider refused the prompt as too long", request: "as requested" };

function viewOf(view: NonNullable<Context["view"]>): string {
  const made = `made at step ${view.step} ${CAUSES[view.cause] ?? view.cause}, when the prompt had about ${view.tokens.toLocaleString("en")} tokens`;
  return view.model === null ? made : `${made}; ${view.model} wrote the summary: ${tokens(view.usage)}, ${money(view.usage.cost_micros)}`;
}

function Messages({ of: found }: { of: Context }) {
  const [opened, setOpened] = useState(false);
  const [shown, setShown] = useState(PAGE);
  const { messages, session_id: session } = found;
  const hidden = Math.max(0, messages.length - shown);
  return (
    <section>
      <details onToggle={(event) => setOpened(event.currentTarget.open)}>
        <summary>The {messages.length === 1 ? "message" : count(messages.length, "message")} as shown to the model</summary>
        {opened && hidden > 0 && (
          <button class="small" onClick={() => setShown(shown + PAGE)}>
            Show earlier: {count(hidden, "message")} more
          </button>
        )}
        {opened && (
          <ol class="asked-list">
            {messages.slice(hidden).map((message, n) => (
              <MessageRow key={hidden + n} message={message} session={session} />
            ))}
          </ol>
        )}
      </details>
    </section>
  );
}

const ROLES: Record<Shown["role"], string> = { system: "System", user: "User", assistant: "Model", tool: "Result" };

function MessageRow({ message, session }: { message: Shown; session: string }) {
  const calls = message.role === "assistant" ? message.tool_calls : [];
  return (
    <li>
      <h4>
        {ROLES[message.role]}
        {message.role === "tool" && (
          <>
            {" of "}
            <Text of={message.tool_name} length={60} />
          </>
        )}
      </h4>
      {message.content && <Code of={message.content} label={`${ROLES[message.role]}: message as shown`} />}
      {calls.map((call) => (
        <p key={call.id}>
          calls{" "}
          <code>
            <Text of={`${call.name}(${inline(call.arguments, 300)})`} />
          </code>
        </p>
      ))}
      {(message.role === "user" || message.role === "tool") && <Files of={message.files} session={session} label="Files of the message as shown" />}
    </li>
  );
}
