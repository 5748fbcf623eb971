// The tokens of a model call by part, and which of them came from the provider's cache.
import { money } from "./format.ts";
import { Table } from "./pieces.tsx";
import type { Results, Usage } from "./wire.ts";

type Context = Results["get_context"];
interface PromptPart {
  name: string;
  tokens: number;
}

const ROLES: Record<string, string> = { system: "Summary of hidden messages", user: "User messages", assistant: "Earlier answers", tool: "Tool results" };

/** The parts of the prompt in the order in which providers cache them. Only the sum is counted by the provider: each part gets
 *  its share by the length of its text. */
function promptParts(context: Context, promptTokens: number): PromptPart[] {
  const sizes = new Map<string, number>();
  const add = (name: string, of: unknown) => {
    const length = of === null || of === undefined ? 0 : (typeof of === "string" ? of : JSON.stringify(of)).length;
    if (length > 0) sizes.set(name, (sizes.get(name) ?? 0) + length);
  };
  if (context.request?.tools.length) add("Tools", context.request.tools);
  add("Schema of the output", context.request?.output_schema);
  add("System prompt", context.system_prompt);
  for (const message of context.messages) {
    const name = ROLES[message.role] ?? message.role;
    add(name, message.content);
    if (message.role === "assistant") for (const call of message.tool_calls) add(name, call.name + JSON.stringify(call.arguments));
  }
  const all = [...sizes.values()].reduce((sum, one) => sum + one, 0);
  return [...sizes].map(([name, size]) => ({ name, tokens: Math.round((promptTokens * size) / Math.max(1, all)) }));
}

export function TokenParts({ context, usage }: { context: Context; usage: Usage }) {
  const parts = promptParts(context, usage.prompt_tokens);
  const share = (n: number) => `${(100 * n) / Math.max(1, usage.prompt_tokens)}%`;
  return (
    <section class="token-parts">
      <h3>Tokens</h3>
      <div class="token-bar" aria-hidden="true">
        {parts.map(({ name, tokens }, n) => (
          <i key={name} class={`part-${n % 6}`} style={{ width: share(tokens) }} title={`${name}: about ${tokens.toLocaleString("en")}`} />
        ))}
        {usage.cached_tokens > 0 && <b style={{ width: share(usage.cached_tokens) }} title={`${usage.cached_tokens.toLocaleString("en")} from a cache`} />}
      </div>
      <Table label="Tokens by part" columns={["Part", "#Tokens"]}>
        <tbody>
          {parts.map(({ name, tokens }, n) => (
            <tr key={name}>
              <th scope="row">
                <i class={`swatch part-${n % 6}`} aria-hidden="true" />
                {name}
              </th>
              <td class="number">about {tokens.toLocaleString("en")}</td>
            </tr>
          ))}
          <Row name="Prompt" note={usage.cached_tokens > 0 ? `${percent(usage.cached_tokens, usage.prompt_tokens)} from a cache` : "nothing from a cache"} n={usage.prompt_tokens} />
          {usage.cached_tokens > 0 && <Row name="From a cache" note="the beginning of the prompt, hatched above" n={usage.cached_tokens} />}
          <Row name="Answer" note={usage.reasoning_tokens > 0 ? `${usage.reasoning_tokens.toLocaleString("en")} of reasoning` : ""} n={usage.completion_tokens} />
        </tbody>
      </Table>
      {usage.cost_micros > 0 && <p class="quiet small-print">Cost: {money(usage.cost_micros)}</p>}
    </section>
  );
}

const percent = (part: number, all: number): string => `${Math.round((100 * part) / Math.max(1, all))} %`;

function Row({ name, note, n }: { name: string; note: string; n: number }) {
  return (
    <tr>
      <th scope="row">
        {name} {note && <small>{note}</small>}
      </th>
      <td class="number">{n.toLocaleString("en")}</td>
    </tr>
  );
}
